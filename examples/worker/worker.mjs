/**
 * A Worker with three classes of Durable Objects:
 *
 *   Streams   a server of streams. Pages read the answers of the chat from it, and resume where they were.
 *   Chat      one chat. It writes its answer word by word, and goes on after every eviction and crash.
 *   Account   one account. Transfers go to other accounts, each once and in order.
 */

import { DurableObject } from "cloudflare:workers";
import { exactlyOnce, fromObjects, toObjects } from "hapax/durable-object";
import { GLOBAL } from "hapax/ledger";
import { createRelay } from "hapax/outbox";
import { durableStreams, streamsDoor } from "hapax/workers";
import { answerTo } from "./model.mjs";
import page from "./page.html";
import script from "./page.bundle.txt";

/** Pages reach it through the door below, which lets them read. */
export class Streams extends durableStreams({ insecurePublic: true }) {}

/** Words for each alarm, and the time between two alarms: as fast as a model is. */
const WORDS = 4;
const PAUSE_MS = 100;

export class Chat extends DurableObject {
  #once = exactlyOnce(this.ctx, { alarms: { write: () => this.#write() } });

  constructor(ctx, env) {
    super(ctx, env);
    ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS chat (id TEXT, prompt TEXT, next INTEGER)");
  }

  /** The question and the alarm that answers it are one transaction. Asking again changes nothing. */
  ask(id, prompt) {
    return this.#once.process({ scope: GLOBAL, key: id }, ({ tx }) => {
      tx.sql.exec("INSERT INTO chat (id, prompt, next) VALUES (?, ?, 0)", id, prompt);
      this.#once.alarms.set("write", Date.now());
      return { stream: `/v1/stream/chat/${id}` };
    });
  }

  alarm() {
    return this.#once.alarm();
  }

  /** May be cut off anywhere, and then runs again from `next`: the stream recognises each word by its number. */
  async #write() {
    const { sql } = this.ctx.storage;
    const { id, prompt, next } = sql.exec("SELECT id, prompt, next FROM chat").one();
    const words = answerTo(prompt);
    const end = Math.min(next + WORDS, words.length);
    if (next === 0) await this.#send(id, { method: "PUT" });
    for (let at = next; at < end; at += 1) {
      const isLast = at === words.length - 1;
      const headers = {
        "Producer-Id": "model",
        "Producer-Epoch": "0",
        "Producer-Seq": String(at),
        ...(isLast ? { "Stream-Closed": "true" } : {}),
      };
      await this.#send(id, { method: "POST", headers, body: JSON.stringify(words[at]) });
    }
    sql.exec("UPDATE chat SET next = ?", end);
    if (end < words.length) this.#once.alarms.set("write", Date.now() + PAUSE_MS);
  }

  async #send(id, { headers = {}, ...init }) {
    const { STREAMS } = this.env;
    const stub = STREAMS.get(STREAMS.idFromName("chat"));
    const answer = await stub.fetch(`https://streams/v1/stream/chat/${id}`, {
      ...init,
      headers: { "Content-Type": "application/json", ...headers },
    });
    if (!answer.ok) throw new Error(`the stream answers ${answer.status} ${await answer.text()}`);
    await answer.body?.cancel();
  }
}

export class Account extends DurableObject {
  #once = exactlyOnce(this.ctx, {
    outbox: (ledger) =>
      createRelay(ledger, toObjects(ledger, this.env.ACCOUNTS, "receive"), {
        retry: { pauseMs: 50, pauseMsMax: 1_000 },
      }),
  });

  constructor(ctx, env) {
    super(ctx, env);
    ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS bookings (what TEXT, cents INTEGER)");
  }

  /** A deposit under an id is booked once, also if it is sent again after a lost answer. */
  deposit(id, cents) {
    return this.#once.process({ scope: "deposits", key: id }, ({ tx }) => {
      book(tx, `deposit ${id}`, cents);
      return { balance: balanceIn(tx) };
    });
  }

  /** The debit here and the event that credits the other account are one transaction. */
  transfer(id, to, cents) {
    return this.#once.process({ scope: "transfers", key: id }, ({ tx, emit }) => {
      if (balanceIn(tx) < cents) return { isBooked: false, balance: balanceIn(tx) };
      book(tx, `transfer ${id} to ${to}`, -cents);
      emit({ topic: "transfer", key: to, payload: { id, cents } });
      return { isBooked: true, balance: balanceIn(tx) };
    });
  }

  /** Called by the other accounts' outboxes. */
  receive(delivery) {
    return fromObjects(this.#once, delivery, ({ payload }, { tx }) => {
      book(tx, `transfer ${payload.id}`, payload.cents);
    });
  }

  balance() {
    return balanceIn(this.ctx.storage);
  }

  alarm() {
    return this.#once.alarm();
  }
}

function book({ sql }, what, cents) {
  sql.exec("INSERT INTO bookings (what, cents) VALUES (?, ?)", what, cents);
}

function balanceIn({ sql }) {
  return sql.exec("SELECT COALESCE(SUM(cents), 0) AS cents FROM bookings").one().cents;
}

const door = streamsDoor({
  namespace: ({ STREAMS }) => STREAMS,
  objectOf: (path) => path.split("/")[3],
  admit: (request) =>
    request.method === "GET" || request.method === "HEAD"
      ? request
      : new Response("pages can only read", { status: 403 }),
});

const accountOf = ({ ACCOUNTS }, name) => ACCOUNTS.get(ACCOUNTS.idFromName(name));

const ROUTES = {
  "GET /": () => new Response(page, { headers: { "Content-Type": "text/html; charset=utf-8" } }),
  "GET /page.js": () => new Response(script, { headers: { "Content-Type": "text/javascript" } }),
  "POST /chat": async (request, { CHATS }) => {
    const { id, prompt } = await request.json();
    return Response.json(await CHATS.get(CHATS.idFromName(id)).ask(id, prompt));
  },
  "POST /deposit": async (request, env) => {
    const { id, account, cents } = await request.json();
    return Response.json(await accountOf(env, account).deposit(id, cents));
  },
  "POST /transfer": async (request, env) => {
    const { id, from, to, cents } = await request.json();
    return Response.json(await accountOf(env, from).transfer(id, to, cents));
  },
  "GET /balance": async (request, env) => {
    const account = new URL(request.url).searchParams.get("account");
    return Response.json(await accountOf(env, account).balance());
  },
};

// oxlint-disable-next-line import/no-default-export -- The platform takes it.
export default {
  fetch(request, env) {
    const { pathname } = new URL(request.url);
    const route = ROUTES[`${request.method} ${pathname}`];
    return route === undefined ? door.fetch(request, env) : route(request, env);
  },
};
