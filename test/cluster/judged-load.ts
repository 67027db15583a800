/**
 * A load whose every call and answer is written into a history: producers, transactions over two streams, and readers that go on where
 * they were. Each attempt goes to a random node. At the end the history checker compares it with what is stored.
 */

import { Agent } from "node:http";
import { checkHistory, type FinalState, type Verdict } from "../../src/testing/checker.ts";
import { createHistory, type FoundRecord } from "../../src/testing/checker-history.ts";
import { call, type HttpAnswer } from "../protocol/raw-http.ts";

/** Longer than a request waits for an owner. */
const ANSWER_MS = 10_000;
/** Between two calls of one writer or reader: a load, and no flood. */
const PAUSE_MS = 15;
const JSON_TYPE = { "content-type": "application/json" };

export interface LoadOptions {
  /** Where requests may go now. */
  readonly urls: () => readonly string[];
  readonly tenants: number;
  readonly producersOfEach: number;
}

interface Identity {
  readonly id: string;
  /** How often an attempt was answered. */
  done: number;
}

export class JudgedLoad {
  readonly #options: LoadOptions;
  readonly #history = createHistory();
  readonly #agent = new Agent({ keepAlive: true });
  readonly #identities: Identity[] = [];
  readonly #offsets = new Map<string, string>();
  readonly #running: Promise<void>[] = [];
  readonly #streams: string[] = [];
  /** What no client should get. */
  readonly problems: string[] = [];
  /** Answers with 503, and requests without an answer. */
  unanswered = 0;
  duplicates = 0;
  /** The longest time from the first attempt to the answer, since a test has set it to 0. */
  longestMs = 0;
  #isStopped = false;

  constructor(options: LoadOptions) {
    this.#options = options;
  }

  /** Calls that were answered. */
  get acked(): number {
    return this.#identities.reduce((sum, { done }) => sum + done, 0);
  }

  /** Appends and transactions that every writer has had answered: the least of all. */
  get leastDone(): number {
    return Math.min(...this.#identities.map(({ done }) => done));
  }

  doneOfEach(): readonly number[] {
    return this.#identities.map(({ done }) => done);
  }

  async start(): Promise<void> {
    const { tenants, producersOfEach } = this.#options;
    for (let tenant = 0; tenant < tenants; tenant += 1) {
      const names = ["log", "left", "right"].map((name) => `/v1/stream/tenant-${tenant}/${name}`);
      for (const path of names) await this.#create(path);
      this.#streams.push(...names);
      const [log = "", left = "", right = ""] = names;
      for (let one = 0; one < producersOfEach; one += 1) {
        this.#running.push(this.#appends(this.#identity(`p${tenant}-${one}`), log));
      }
      const parts = [left, right] as const;
      this.#running.push(this.#transacts(this.#identity(`t${tenant}`), parts));
      for (const path of names) this.#running.push(this.#reads(path));
    }
  }

  /** Lets every call that has begun be answered. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.#running);
  }

  /** Reads every stream from its beginning, and has the checker compare. */
  async judge(): Promise<Verdict> {
    const streams: Record<string, readonly FoundRecord[]> = {};
    for (const path of this.#streams) {
      const found: FoundRecord[] = [];
      for (let offset = "-1"; ;) {
        const page = await this.#page(path, offset);
        if (page === undefined) continue;
        found.push(...page.records);
        if (page.isComplete) break;
        offset = page.offset;
      }
      streams[path] = found;
    }
    this.#agent.destroy();
    const final: FinalState = { streams };
    return checkHistory(this.#history.events, final);
  }

  #identity(id: string): Identity {
    const identity = { id, done: 0 };
    this.#identities.push(identity);
    return identity;
  }

  async #create(path: string): Promise<void> {
    for (;;) {
      const answer = await this.#send("PUT", path, { ...JSON_TYPE });
      if (answer?.status === 201 || answer?.status === 200) return;
      this.#mind(answer, path);
      await pause(PAUSE_MS);
    }
  }

  async #appends(identity: Identity, stream: string): Promise<void> {
    while (!this.#isStopped) {
      const record = `${identity.id}.${identity.done}`;
      const body = JSON.stringify({ id: record, fill: `${record};`.repeat(12) });
      const call = {
        process: identity.id,
        kind: "append",
        stream,
        records: [{ id: record }],
        producer: identity.id,
      } as const;
      await this.#untilDone(identity, () => this.#history.invoke(call), stream, body);
    }
  }

  async #transacts(identity: Identity, streams: readonly [string, string]): Promise<void> {
    while (!this.#isStopped) {
      const record = `${identity.id}.${identity.done}`;
      const data = [{ id: record, fill: `${record};`.repeat(12) }];
      const operations = streams.map((stream) => ({ append: { stream, data } }));
      const appends = streams.map((stream) => ({ stream, records: [{ id: record }] }));
      const call = {
        process: identity.id,
        kind: "transaction",
        id: record,
        appends,
        producer: identity.id,
      } as const;
      const path = "/_hapax/transactions";
      const body = JSON.stringify({ operations });
      await this.#untilDone(identity, () => this.#history.invoke(call), path, body);
    }
  }

  /** Sends one call again and again, each time to another node, until it is answered. */
  async #untilDone(
    identity: Identity,
    invoke: () => { ok(): void; fail(code: string): void; unknown(): void },
    path: string,
    body: string,
  ): Promise<void> {
    const number = identity.done;
    const headers = {
      ...JSON_TYPE,
      "producer-id": identity.id,
      "producer-epoch": "0",
      "producer-seq": String(number),
    };
    const begunMs = performance.now();
    for (;;) {
      const open = invoke();
      const answer = await this.#send("POST", path, headers, body);
      if (answer?.status === 200 || answer?.status === 204) {
        open.ok();
        if (answer.status === 204 || answer.headers["idempotency-replayed"] === "true") {
          this.duplicates += 1;
        }
        this.#offsetOf(identity, answer);
        break;
      }
      open.unknown();
      this.#mind(answer, `${identity.id}.${number}`);
      await pause(PAUSE_MS);
    }
    identity.done = number + 1;
    this.longestMs = Math.max(this.longestMs, performance.now() - begunMs);
    await pause(PAUSE_MS);
  }

  /** The offsets that one writer is answered never go back. */
  #offsetOf({ id }: Identity, answer: HttpAnswer): void {
    const offset = answer.headers["stream-next-offset"];
    if (typeof offset !== "string") return;
    const before = this.#offsets.get(id) ?? "";
    if (offset <= before) this.problems.push(`${id} was answered ${offset} after ${before}`);
    this.#offsets.set(id, offset);
  }

  /** A reader never begins again. */
  async #reads(stream: string): Promise<void> {
    let offset = "-1";
    let begins: "start" | "continued" = "start";
    while (!this.#isStopped) {
      const open = this.#history.invoke({ process: `reader of ${stream}`, kind: "read" });
      const page = await this.#page(stream, offset);
      if (page === undefined) open.unknown();
      else {
        const { records, isComplete } = page;
        open.ok({ observed: [{ stream, records, begins, isComplete }] });
        if (page.offset < offset) this.problems.push(`${stream}: ${page.offset} after ${offset}`);
        ({ offset } = page);
        begins = "continued";
      }
      await pause(4 * PAUSE_MS);
    }
  }

  async #page(
    path: string,
    offset: string,
  ): Promise<
    | {
        readonly records: readonly FoundRecord[];
        readonly offset: string;
        readonly isComplete: boolean;
      }
    | undefined
  > {
    const answer = await this.#send("GET", `${path}?offset=${offset}`, {});
    if (answer?.status !== 200) {
      this.#mind(answer, path);
      await pause(PAUSE_MS);
      return undefined;
    }
    const records = (JSON.parse(answer.text) as { readonly id: string }[]).map(({ id }) => ({
      id,
    }));
    const isComplete = answer.headers["stream-up-to-date"] === "true";
    return { records, offset: String(answer.headers["stream-next-offset"]), isComplete };
  }

  #mind(answer: HttpAnswer | undefined, what: string): void {
    if (answer === undefined || answer.status === 503) this.unanswered += 1;
    else this.problems.push(`${what}: ${answer.status} ${answer.text}`);
  }

  async #send(
    method: string,
    path: string,
    headers: Record<string, string>,
    body?: string,
  ): Promise<HttpAnswer | undefined> {
    const urls = this.#options.urls();
    const url = urls[Math.floor(Math.random() * urls.length)];
    if (url === undefined) throw new Error("no node is there");
    const signal = AbortSignal.timeout(ANSWER_MS);
    const options = {
      headers,
      agent: this.#agent,
      signal,
      ...(body === undefined ? {} : { body }),
    };
    return call(method, url, path, options).catch(() => undefined);
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
