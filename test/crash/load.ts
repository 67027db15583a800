/**
 * Clients for the crash tests: producers that repeat an append under the same identity until it is answered,
 * and readers that go on where they were. What contradicts the promise becomes a violation.
 */

import { Agent, get } from "node:http";
import { call, type HttpAnswer, parseEvents } from "../protocol/raw-http.ts";
import type { Site } from "./site.ts";

/** One record as it is stored. */
export interface Stored {
  readonly producer: string;
  readonly number: number;
  readonly fill: string;
}

const JSON_TYPE = { "content-type": "application/json" };

/** Content that depends on its identity, so that a mix-up of two records is seen. */
function fillOf(producer: string, number: number, bytes: number): string {
  const unit = `${producer}:${number};`;
  return unit.repeat(Math.ceil(bytes / unit.length)).slice(0, bytes);
}

export class Producer {
  readonly id: string;
  readonly path: string;
  readonly #site: Site;
  readonly #bytes: number;
  readonly #agent: Agent;
  readonly #acknowledged: Promise<void>[] = [];
  readonly #isAcknowledged: boolean[] = [];
  /** Where the record of an append ends, if its first answer arrived. */
  readonly offsets = new Map<number, string>();
  readonly violations: string[] = [];
  /** Appends that were answered. */
  acked = 0;
  /** Appends whose answer was lost and that turned out to be stored. */
  recovered = 0;
  onAck: () => void = () => undefined;
  #isStopped = false;

  constructor(site: Site, id: string, path: string, bytes: number, width: number) {
    this.#site = site;
    this.id = id;
    this.path = path;
    this.#bytes = bytes;
    // As many sockets as unanswered appends: they overtake each other.
    this.#agent = new Agent({ keepAlive: true, maxSockets: width });
  }

  /** Appends until it is stopped, `width` at a time. */
  async run(width: number): Promise<void> {
    const lane = async (): Promise<void> => {
      while (!this.#isStopped && this.violations.length === 0) {
        const number = this.#acknowledged.length;
        const done = this.#append(number);
        this.#acknowledged.push(done);
        await done;
      }
    };
    await Promise.all(Array.from({ length: width }, lane));
    this.#agent.destroy();
  }

  /** Every append that was begun is answered when `run` resolves. */
  stop(): void {
    this.#isStopped = true;
  }

  expected(number: number): Stored {
    return { producer: this.id, number, fill: fillOf(this.id, number, this.#bytes) };
  }

  async #append(number: number): Promise<void> {
    const body = JSON.stringify(this.expected(number));
    for (let attempt = 1; this.violations.length === 0; attempt += 1) {
      const url = await this.#site.url();
      const isNext = number === 0 || this.#isAcknowledged[number - 1] === true;
      const answer = await this.#post(url, number, body).catch(() => undefined);
      // No answer: stored or not, the same again is safe. A server that is down is waited for.
      if (answer === undefined) continue;
      if (answer.status === 200 || answer.status === 204) {
        this.#accept(number, answer, attempt);
        return;
      }
      await this.#refused(number, answer, isNext);
    }
  }

  #post(url: string, number: number, body: string): Promise<HttpAnswer> {
    const identity = {
      "producer-id": this.id,
      "producer-epoch": "0",
      "producer-seq": String(number),
    };
    const headers = { ...JSON_TYPE, ...identity };
    return call("POST", url, this.path, { headers, body, agent: this.#agent });
  }

  #accept(number: number, answer: HttpAnswer, attempt: number): void {
    this.acked += 1;
    this.onAck();
    this.#isAcknowledged[number] = true;
    const offset = String(answer.headers["stream-next-offset"]);
    if (answer.status === 200) this.offsets.set(number, offset);
    else if (attempt === 1) this.#violated(number, "was a duplicate at its first attempt");
    else this.recovered += 1;
  }

  /** `isNext`: the append before it had been answered when it was sent. */
  async #refused(number: number, answer: HttpAnswer, isNext: boolean): Promise<void> {
    const expected = answer.headers["producer-expected-seq"];
    if (answer.status === 409 && expected !== undefined) {
      if (!isNext) await this.#acknowledged[number - 1];
      else this.#violated(number, `is a gap after an acknowledged append: ${answer.text}`);
      return;
    }
    this.#violated(number, `was refused with ${answer.status}: ${answer.text}`);
  }

  #violated(number: number, what: string): void {
    this.violations.push(`append ${number} of ${this.id} ${what}`);
  }
}

/**
 * A reader that never starts again: it keeps all it ever saw, and what it is shown twice must be the same.
 */
export class Reader {
  readonly path: string;
  readonly kind: "sse" | "catch-up";
  readonly seen: Stored[] = [];
  readonly violations: string[] = [];
  readonly #site: Site;
  readonly #stop = new AbortController();
  #offset = "-1";
  /** Records before `#offset`. */
  #confirmed = 0;
  #position = 0;
  #waiting: { readonly count: number; readonly resolve: () => void } | undefined;
  connections = 0;

  constructor(site: Site, path: string, kind: "sse" | "catch-up") {
    this.#site = site;
    this.path = path;
    this.kind = kind;
  }

  async run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      const url = await this.#site.url();
      this.connections += 1;
      this.#position = this.#confirmed;
      if (this.kind === "sse") await this.#follow(url);
      else await this.#poll(url).catch(() => undefined); // Cut: it goes on where it was.
    }
  }

  /** Resolves when so many records were seen. */
  until(count: number): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting = { count, resolve };
      this.#wake();
    });
  }

  stop(): void {
    this.#stop.abort();
  }

  #take(records: readonly Stored[]): void {
    for (const record of records) {
      const before = this.seen[this.#position];
      if (before === undefined) this.seen.push(record);
      else if (before.producer !== record.producer || before.number !== record.number) {
        this.violations.push(`the ${this.kind} reader saw record ${this.#position} change`);
      }
      this.#position += 1;
    }
  }

  #confirm(offset: string): void {
    this.#offset = offset;
    this.#confirmed = this.#position;
    this.#wake();
  }

  #wake(): void {
    if (this.#waiting === undefined || this.seen.length < this.#waiting.count) return;
    this.#waiting.resolve();
    this.#waiting = undefined;
  }

  async #poll(url: string): Promise<void> {
    const { signal } = this.#stop;
    const agent = new Agent({ keepAlive: true });
    try {
      for (let isLive = false; !signal.aborted;) {
        const query = `?offset=${this.#offset}${isLive ? "&live=long-poll" : ""}`;
        const answer = await call("GET", url, `${this.path}${query}`, { agent, signal });
        if (answer.status !== 200 && answer.status !== 204) {
          this.violations.push(
            `a read at ${this.#offset} answered ${answer.status}: ${answer.text}`,
          );
          return;
        }
        if (answer.status === 200) this.#take(JSON.parse(answer.text) as Stored[]); // All checked.
        this.#confirm(String(answer.headers["stream-next-offset"]));
        isLive = answer.headers["stream-up-to-date"] === "true";
      }
    } finally {
      agent.destroy();
    }
  }

  #follow(url: string): Promise<void> {
    const { signal } = this.#stop;
    return new Promise((resolve) => {
      const target = `${url}${this.path}?offset=${this.#offset}&live=sse`;
      const sent = get(target, { agent: false, signal }, (response) => {
        if (response.statusCode !== 200) {
          this.violations.push(`an SSE read at ${this.#offset} answered ${response.statusCode}`);
        }
        let text = "";
        response.setEncoding("utf8").on("data", (piece: string) => {
          text += piece;
          const end = text.lastIndexOf("\n\n");
          if (end === -1) return;
          this.#events(text.slice(0, end + 2));
          text = text.slice(end + 2);
        });
        response.on("error", () => undefined);
        response.on("close", resolve);
      });
      sent.on("error", () => {
        resolve();
      });
    });
  }

  #events(text: string): void {
    for (const { event, data } of parseEvents(text)) {
      if (event === "data") this.#take(JSON.parse(data) as Stored[]); // All checked.
      else this.#confirm((JSON.parse(data) as { streamNextOffset: string }).streamNextOffset);
    }
  }
}

/** The whole stream by catch-up pages, from its start to its end. */
export async function readAll(url: string, path: string): Promise<readonly Stored[]> {
  const records: Stored[] = [];
  const agent = new Agent({ keepAlive: true });
  try {
    for (let offset = "-1"; ;) {
      const answer = await call("GET", url, `${path}?offset=${offset}`, { agent });
      // A stream that was lost has lost all its records: the comparison reports it.
      if (answer.status === 404 && offset === "-1") return [];
      if (answer.status !== 200)
        throw new Error(`${path} at ${offset}: ${answer.status} ${answer.text}`);
      records.push(...(JSON.parse(answer.text) as Stored[])); // Compared as a whole by the caller.
      offset = String(answer.headers["stream-next-offset"]);
      if (answer.headers["stream-up-to-date"] === "true") return records;
    }
  } finally {
    agent.destroy();
  }
}

/**
 * What is wrong with a stream: every append of every producer must be there once, whole, in its producer's
 * order and in the order of the offsets that were answered. Empty if nothing is wrong.
 */
export function compare(
  path: string,
  stored: readonly Stored[],
  producers: readonly Pick<Producer, "id" | "acked" | "offsets" | "expected">[],
): readonly string[] {
  const problems: string[] = [];
  const byId = new Map(producers.map((producer) => [producer.id, { producer, next: 0 }]));
  let lastOffset = "";
  for (const [at, { producer: id, number, fill }] of stored.entries()) {
    const entry = byId.get(id);
    if (entry === undefined) {
      problems.push(`${path}: record ${at} has an unknown producer: ${id}`);
      continue;
    }
    const { producer, next } = entry;
    if (number < next) problems.push(`${path}: duplicated: append ${number} of ${id} at ${at}`);
    if (number > next)
      problems.push(`${path}: out of order: append ${number} of ${id}, not ${next}`);
    if (fill !== producer.expected(number).fill)
      problems.push(`${path}: record ${at} has other bytes`);
    entry.next = Math.max(next, number + 1);
    const offset = producer.offsets.get(number);
    if (offset === undefined) continue;
    if (offset <= lastOffset) problems.push(`${path}: record ${at} is not where it was answered`);
    lastOffset = offset;
  }
  for (const { producer, next } of byId.values()) {
    if (next < producer.acked) {
      problems.push(
        `${path}: lost: ${producer.acked - next} acknowledged appends of ${producer.id}`,
      );
    }
  }
  return problems;
}
