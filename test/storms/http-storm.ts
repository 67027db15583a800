/**
 * A storm of retries over real connections: appends are pipelined over several sockets through a proxy that loses
 * answers and requests, and what was not answered goes out again, in another order and on another socket.
 */

import { connect } from "node:net";
import { type FaultProxyOptions, openFaultProxy } from "../../src/testing/fault-proxy.ts";
import { createSeededRandom, type SeededRandom } from "../../src/testing/seeded-random.ts";
import { formatOffset } from "../../src/protocol/values.ts";
import type { Offset } from "../../src/streams/core/types.ts";
import { call, type HttpAnswer, parseAnswer } from "../protocol/raw-http.ts";
import { type Identity, recordsOf } from "./senders.ts";

export interface HttpStormReport {
  readonly sent: number;
  readonly droppedAnswers: number;
  readonly droppedRequests: number;
  readonly gaps: number;
  readonly conflicts: number;
  /** Answers that said that the append was stored before. */
  readonly repeated: number;
  readonly problems: readonly string[];
}

const APPENDS = 20;
const LANES = 4;
const TEXT = "text/plain";
const WEATHER: Omit<FaultProxyOptions, "seed"> = {
  dropAnswers: 0.3,
  dropRequests: 0.05,
  delayRequests: 0.2,
  delayMsMax: 3,
};

type Headers = Readonly<Record<string, string>>;

function post(path: string, headers: Headers, body: string): string {
  const fields = Object.entries({ ...headers, "Content-Length": String(body.length) });
  const lines = fields.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  return `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: ${TEXT}\r\n${lines}\r\n${body}`;
}

/** Sends all requests at once on one socket; those without an answer were cut off. */
function pipeline(url: string, requests: readonly string[]): Promise<readonly HttpAnswer[]> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const answers: HttpAnswer[] = [];
    let left = Buffer.alloc(0);
    const socket = connect({ host: hostname, port: Number(port), noDelay: true });
    socket.on("error", () => undefined); // `close` follows.
    socket.once("close", () => {
      resolve(answers);
    });
    socket.on("data", (piece) => {
      left = Buffer.concat([left, piece]);
      for (;;) {
        const answer = parseAnswer(left, false);
        if (answer === undefined) break;
        answers.push(answer);
        left = left.subarray(left.indexOf("\r\n\r\n") + 4 + answer.body.length);
      }
      if (answers.length === requests.length) socket.destroy();
    });
    socket.write(requests.join(""));
  });
}

function shuffled<T>(items: readonly T[], random: SeededRandom): T[] {
  const left = [...items];
  return items.flatMap(() => left.splice(random.below(left.length), 1));
}

function offsetIn({ headers }: HttpAnswer): string {
  return String(headers["stream-next-offset"]);
}

/** Whether the answer says that the append was stored before; undefined if it says that it is not stored. */
function isRepeat({ status, headers }: HttpAnswer, identity: Identity): boolean | undefined {
  if (status !== 200 && status !== 204) return undefined;
  return identity === "key" ? headers["idempotency-replayed"] === "true" : status === 204;
}

class Storm {
  readonly path: string;
  readonly texts: readonly string[];
  readonly problems: string[] = [];
  readonly #random: SeededRandom;
  readonly #identity: Identity;
  readonly #ends: (string | undefined)[] = [];
  readonly #accepted = new Set<number>();
  readonly #open: Set<number>;
  readonly #underWay = new Set<number>();
  sent = 0;
  gaps = 0;
  repeated = 0;

  constructor(seed: number, identity: Identity, path: string) {
    this.#random = createSeededRandom(seed + 1);
    this.#identity = identity;
    this.path = path;
    this.texts = Array.from(
      { length: APPENDS },
      (_, number) => `a.${number}${"-".repeat(this.#random.below(200))};`,
    );
    this.#open = new Set(this.texts.keys());
  }

  /** Several lanes take what is open, in random order, until all is acknowledged. */
  async rage(url: string): Promise<void> {
    const lane = async (): Promise<void> => {
      while (this.#open.size > 0 && this.problems.length === 0) {
        const free = [...this.#open].filter((number) => !this.#underWay.has(number));
        const some = shuffled(free, this.#random).slice(0, 1 + this.#random.below(7));
        if (some.length > 0) await this.#try(url, some);
        else await new Promise((resolve) => setImmediate(resolve));
      }
    };
    // An append that waits for earlier ones needs a free lane for those.
    const lanes = this.#identity === "patient session" ? APPENDS : LANES;
    await Promise.all(Array.from({ length: lanes }, lane));
  }

  /** Everything once more: all of it is known, and every answer says where it stands. */
  async repeat(url: string): Promise<void> {
    const accepted = this.#accepted.size;
    const before = this.repeated;
    await this.#try(url, shuffled([...this.texts.keys()], this.#random));
    if (this.#accepted.size !== accepted || this.repeated !== before + APPENDS) {
      this.problems.push(`of ${APPENDS} retries ${this.repeated - before} were known`);
    }
  }

  check(content: string): void {
    const stored = recordsOf(content);
    const isKeyed = this.#identity === "key";
    const found = stored.map(({ text }) => text);
    const [one, other] = isKeyed
      ? [found.toSorted(), [...this.texts].toSorted()]
      : [found, [...this.texts]];
    if (one.join("") !== other.join("")) this.problems.push(`stored is ${found.join("")}`);
    for (const [number, text] of this.texts.entries()) {
      const end = stored.find((record) => record.text === text)?.end ?? 0;
      if (this.#ends[number] !== formatOffset(end as Offset)) {
        this.problems.push(`append ${number} ends at ${end}, and was told ${this.#ends[number]}`);
      }
    }
  }

  async #try(url: string, numbers: readonly number[]): Promise<void> {
    for (const number of numbers) this.#underWay.add(number);
    const areNext = numbers.map((number) => number === 0 || !this.#open.has(number - 1));
    this.sent += numbers.length;
    const requests = numbers.map((number) => {
      return post(this.path, this.#headersOf(number), this.texts[number] ?? "");
    });
    const answers = await pipeline(url, requests);
    for (const [at, number] of numbers.entries()) {
      this.#underWay.delete(number);
      const answer = answers[at];
      if (answer !== undefined) this.#hear(number, answer, areNext[at] === true);
    }
  }

  #hear(number: number, answer: HttpAnswer, isNext: boolean): void {
    const wasStored = isRepeat(answer, this.#identity);
    if (wasStored === undefined) {
      const isGap = answer.headers["producer-expected-seq"] !== undefined;
      if (isGap && !isNext) this.gaps += 1;
      else this.problems.push(`append ${number}: ${answer.status} ${answer.text}`);
      return;
    }
    if (wasStored) this.repeated += 1;
    else if (this.#accepted.has(number)) this.problems.push(`append ${number} accepted twice`);
    if (!wasStored) this.#accepted.add(number);
    this.#open.delete(number);
    const end = offsetIn(answer);
    const before = this.#ends[number] ?? end;
    if (before !== end) this.problems.push(`append ${number} ended at ${before} and at ${end}`);
    this.#ends[number] = end;
  }

  #headersOf(number: number): Headers {
    if (this.#identity === "key") return { "Idempotency-Key": `"append ${number}"` };
    const session = {
      "Producer-Id": "a",
      "Producer-Session": "storm",
      "Producer-Seq": String(number),
    };
    if (this.#identity === "session") return session;
    if (this.#identity === "patient session") return { ...session, Prefer: "wait=5" };
    const start = this.texts.slice(0, number).join("").length as Offset;
    return { ...session, "If-Match": `"${formatOffset(start)}"` };
  }
}

async function create(server: string, path: string): Promise<void> {
  const { status, text } = await call("PUT", server, path, { headers: { "content-type": TEXT } });
  if (status !== 201) throw new Error(`${path} could not be created: ${status} ${text}`);
}

/** One seed of one identity on a stream of its own. */
export async function runHttpStorm(
  server: string,
  seed: number,
  identity: Identity,
): Promise<HttpStormReport> {
  const path = `/v1/stream/storm/${identity.replaceAll(" ", "-")}/${seed}`;
  await create(server, path);
  const proxy = await openFaultProxy(server, { seed, ...WEATHER });
  const storm = new Storm(seed, identity, path);
  try {
    await storm.rage(proxy.url);
    proxy.heal();
    if (storm.problems.length === 0) await storm.repeat(proxy.url);
  } finally {
    await proxy.close();
  }
  storm.check((await call("GET", server, path)).text);
  const { droppedAnswers, droppedRequests } = proxy;
  const { sent, gaps, repeated, problems } = storm;
  return { sent, droppedAnswers, droppedRequests, gaps, conflicts: 0, repeated, problems };
}

/** Two writers that each store only at the tail which they have seen. */
export async function runHttpContention(server: string, seed: number): Promise<HttpStormReport> {
  const path = `/v1/stream/storm/contention/${seed}`;
  await create(server, path);
  const proxy = await openFaultProxy(server, { seed, ...WEATHER });
  const counts = { sent: 0, conflicts: 0, repeated: 0 };
  const problems: string[] = [];
  const write = async (id: string): Promise<void> => {
    let tail = formatOffset(0 as Offset);
    for (let number = 0; number < APPENDS / 2 && problems.length === 0;) {
      const session = { "Producer-Id": id, "Producer-Session": "storm" };
      const headers = { ...session, "Producer-Seq": String(number), "If-Match": `"${tail}"` };
      const body = `${id}.${number}@${tail};`;
      counts.sent += 1;
      const [answer] = await pipeline(proxy.url, [post(path, headers, body)]);
      if (answer === undefined) continue; // Stored or not: the same again.
      const isStored = answer.status === 200 || answer.status === 204;
      if (!isStored && answer.status !== 412) problems.push(`${body} ${answer.status}`);
      if (answer.status === 204) counts.repeated += 1;
      if (answer.status === 412) counts.conflicts += 1;
      if (isStored) number += 1;
      tail = offsetIn(answer);
      if (answer.headers["etag"] !== `"${tail}"`) problems.push(`${body} has another ETag`);
    }
  };
  try {
    await Promise.all(["a", "b"].map((id) => write(id)));
  } finally {
    await proxy.close();
  }
  const next = new Map<string, number>();
  for (const { text, end } of recordsOf((await call("GET", server, path)).text)) {
    const id = text.slice(0, 1);
    const number = next.get(id) ?? 0;
    next.set(id, number + 1);
    // What was made for a tail stands at that tail: no update is lost.
    const start = formatOffset((end - text.length) as Offset);
    if (text !== `${id}.${number}@${start};`)
      problems.push(`${text} is ${id}.${number} at ${start}`);
  }
  for (const id of ["a", "b"]) {
    if (next.get(id) !== APPENDS / 2) problems.push(`${next.get(id)} of ${id} are stored`);
  }
  const { droppedAnswers, droppedRequests } = proxy;
  return { ...counts, droppedAnswers, droppedRequests, gaps: 0, problems };
}
