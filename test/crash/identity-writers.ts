/**
 * Writers for the kills: by session, by key, and by tail and session. Each repeats what was not answered under
 * the same identity. One that writes in sessions may also come back as a new process would: with a new nonce,
 * knowing what it wanted to send, and asking the stream how far it had come. PROTOCOL.md §14 to §18
 */

import { Agent } from "node:http";
import type { SeededRandom } from "../../src/testing/seeded-random.ts";
import { call, type HttpAnswer } from "../protocol/raw-http.ts";
import { recordsOf } from "../storms/senders.ts";
import type { Site } from "./site.ts";

type Headers = Record<string, string>;

export interface StoredRecord {
  readonly text: string;
  /** The offset at its end, as the server would say it. */
  readonly end: string;
}

export interface WriterCounts {
  /** Appends that are known to be stored. */
  acked: number;
  /** Of these, those whose first answer was lost. */
  recovered: number;
  conflicts: number;
  /** Sessions that were begun after a kill. */
  restarts: number;
}

/** Where the writers are: appends go through the door, which may lose their answers. */
export interface Place {
  readonly site: Site;
  readonly door: string;
}

/** Unanswered appends at once. */
const WIDTH = 20;
const TYPE: Headers = { "content-type": "text/plain" };

export abstract class Writer {
  readonly id: string;
  readonly path: string;
  readonly problems: string[] = [];
  readonly counts: WriterCounts = { acked: 0, recovered: 0, conflicts: 0, restarts: 0 };
  protected readonly site: Site;
  readonly #door: string;
  protected readonly random: SeededRandom;
  /** Where an append ended, as it was answered. */
  protected readonly ends = new Map<number, string>();
  readonly #agent: Agent;
  #isStopped = false;

  constructor({ site, door }: Place, id: string, path: string, random: SeededRandom) {
    this.site = site;
    this.#door = door;
    this.id = id;
    this.path = path;
    this.random = random;
    // As many sockets as unanswered appends: they overtake each other.
    this.#agent = new Agent({ keepAlive: true, maxSockets: WIDTH });
  }

  async run(): Promise<void> {
    try {
      while (!this.#isStopped && this.problems.length === 0) await this.round();
    } finally {
      this.#agent.destroy();
    }
  }

  /** What was begun is finished when `run` resolves. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Compares what is stored of this writer with what was sent and answered. */
  abstract check(stored: readonly StoredRecord[]): void;

  /** Sends some appends and goes on until they are stored. */
  protected abstract round(): Promise<void>;

  /** Content that depends on its identity, so that a mix-up of two records is seen. */
  protected textOf(number: number): string {
    return `${this.id}.${number}:${"-".repeat((number * 7) % 90)};`;
  }

  /** The answer, or undefined if the connection was cut. */
  protected send(headers: Headers, body: string): Promise<HttpAnswer | undefined> {
    const options = { headers: { ...TYPE, ...headers }, body, agent: this.#agent };
    return call("POST", this.#door, this.path, options).catch(() => undefined);
  }

  /** `isFirst`: it had never been sent before. */
  protected accept(number: number, answer: HttpAnswer, wasStored: boolean, isFirst: boolean): void {
    const end = String(answer.headers["stream-next-offset"]);
    if (wasStored && isFirst) this.wrong(`append ${number} was known before it was sent`);
    if (wasStored) this.counts.recovered += 1;
    this.counts.acked += 1;
    this.ends.set(number, end);
  }

  protected wrong(what: string): void {
    this.problems.push(`${this.path}: ${this.id}: ${what}`);
  }

  protected checkEnds(stored: readonly StoredRecord[], textOf: (number: number) => string): void {
    const byText = new Map(stored.map(({ text, end }) => [text, end]));
    for (const [number, end] of this.ends) {
      const actual = byText.get(textOf(number));
      if (actual !== end) this.wrong(`append ${number} ends at ${actual}, and was told ${end}`);
    }
  }
}

/** Keys: all sent at once, in no order. */
export class KeyWriter extends Writer {
  #next = 0;

  protected override async round(): Promise<void> {
    const numbers = Array.from({ length: WIDTH }, () => this.#next++);
    await Promise.all(numbers.map((number) => this.#append(number)));
  }

  async #append(number: number): Promise<void> {
    for (let attempt = 1; this.problems.length === 0; attempt += 1) {
      await this.site.url();
      const headers = { "idempotency-key": `"${this.id} ${number}"` };
      const answer = await this.send(headers, this.textOf(number));
      if (answer === undefined) continue;
      if (answer.status !== 204) {
        this.wrong(`append ${number} got ${answer.status}: ${answer.text}`);
        return;
      }
      const wasStored = answer.headers["idempotency-replayed"] === "true";
      this.accept(number, answer, wasStored, attempt === 1);
      return;
    }
  }

  override check(stored: readonly StoredRecord[]): void {
    const found = new Set(stored.map(({ text }) => text));
    if (found.size !== stored.length) this.wrong(`${stored.length - found.size} duplicated`);
    for (let number = 0; number < this.#next; number += 1) {
      if (!found.delete(this.textOf(number))) this.wrong(`append ${number} is lost`);
    }
    for (const text of found) this.wrong(`${text} was never sent`);
    this.checkEnds(stored, (number) => this.textOf(number));
  }
}

/** What a session begins with. */
interface Session {
  readonly nonce: string;
  /** The number of its first append. */
  readonly base: number;
  /** The epoch that the producer had before it. */
  readonly epochBefore: number;
}

abstract class SessionWriter extends Writer {
  protected session: Session = { nonce: "first", base: 0, epochBefore: -1 };

  protected headersOf(number: number): Headers {
    const { nonce, base } = this.session;
    return {
      "producer-id": this.id,
      "producer-session": nonce,
      "producer-seq": String(number - base),
    };
  }

  /** A new process: how many appends are stored? It may not be fewer than were answered. */
  protected async restart(answered: number): Promise<{ stored: number; tail: string }> {
    for (;;) {
      const url = await this.site.url();
      const options = { headers: { "producer-id": this.id } };
      const head = await call("HEAD", url, this.path, options).catch(() => undefined);
      if (head === undefined) continue;
      const epoch = Number(head.headers["producer-epoch"] ?? -1);
      const { base, epochBefore } = this.session;
      const hasBegun = epoch > epochBefore;
      const stored = hasBegun ? base + Number(head.headers["producer-seq"]) + 1 : base;
      if (stored < answered) this.wrong(`${answered} were answered, and ${stored} are stored`);
      const end = this.ends.get(stored - 1);
      const known = head.headers["producer-next-offset"];
      if (end !== undefined && end !== known)
        this.wrong(`ended at ${end}, not at ${String(known)}`);
      this.counts.restarts += 1;
      this.session = { nonce: this.random.id(), base: stored, epochBefore: epoch };
      return { stored, tail: String(head.headers["stream-next-offset"]) };
    }
  }
}

/** A session with many unanswered appends, which wait for each other or are sent again. */
export class PipelinedWriter extends SessionWriter {
  readonly #isPatient: boolean;
  #next = 0;

  constructor(place: Place, id: string, path: string, random: SeededRandom, isPatient: boolean) {
    super(place, id, path, random);
    this.#isPatient = isPatient;
  }

  protected override async round(): Promise<void> {
    const from = this.#next;
    const open = new Set(Array.from({ length: WIDTH }, (_, index) => from + index));
    for (let attempt = 1; open.size > 0 && this.problems.length === 0; attempt += 1) {
      const url = await this.site.url();
      const [first = from] = open;
      const sent = [...open].map(async (number) => {
        const answer = await this.send(this.#headers(number), this.textOf(number));
        if (answer !== undefined) this.#hear(number, answer, open, number === first, attempt === 1);
        return answer !== undefined;
      });
      const isCut = (await Promise.all(sent)).includes(false);
      // Nothing of this process is on its way any more, and the server that it spoke to is dead.
      if (isCut && (await this.site.url()) !== url && this.random.below(2) === 0) {
        const [answered = from + WIDTH] = open;
        const { stored } = await this.restart(answered);
        for (const number of [...open]) {
          if (number < stored && open.delete(number)) this.counts.acked += 1;
        }
        this.#forgetAfter(stored, from, open);
      }
    }
    this.#next = from + WIDTH;
  }

  /** An append that was answered stays; the rest is sent in the new session, as if for the first time. */
  #forgetAfter(stored: number, from: number, open: Set<number>): void {
    for (let number = stored; number < from + WIDTH; number += 1) {
      if (!open.has(number)) this.wrong(`append ${number} was answered and is not stored`);
    }
  }

  #headers(number: number): Headers {
    const headers = this.headersOf(number);
    return this.#isPatient ? { ...headers, prefer: "wait=1" } : headers;
  }

  #hear(
    number: number,
    answer: HttpAnswer,
    open: Set<number>,
    isNext: boolean,
    isFirst: boolean,
  ): void {
    const { status, headers, text } = answer;
    if (status === 200 || status === 204) {
      this.accept(number, answer, status === 204, isFirst);
      open.delete(number);
    } else if (status !== 409 || headers["producer-expected-seq"] === undefined || isNext) {
      this.wrong(`append ${number} got ${status}: ${text}`);
    }
  }

  override check(stored: readonly StoredRecord[]): void {
    for (const [number, { text }] of stored.entries()) {
      if (text === this.textOf(number)) continue;
      this.wrong(`record ${number} is ${text}`);
      return;
    }
    if (stored.length !== this.#next) this.wrong(`${stored.length} stored of ${this.#next}`);
    this.checkEnds(stored, (number) => this.textOf(number));
  }
}

/** One of several that store only at the tail which they have seen; each text names that tail. */
export class TailWriter extends SessionWriter {
  #next = 0;
  #tail: string | undefined;

  protected override async round(): Promise<void> {
    const number = this.#next;
    for (let attempt = 1; this.problems.length === 0; attempt += 1) {
      const url = await this.site.url();
      this.#tail ??= await this.#look(url);
      if (this.#tail === undefined) continue;
      const text = this.#textAt(number, this.#tail);
      const headers = { ...this.headersOf(number), "if-match": `"${this.#tail}"` };
      const answer = await this.send(headers, text);
      if (answer === undefined) {
        if ((await this.site.url()) === url || this.random.below(2) === 0) continue;
        const { stored, tail } = await this.restart(number);
        this.#tail = tail;
        if (stored > number + 1) this.wrong(`${stored} are stored, and ${number + 1} were sent`);
        if (stored <= number) continue;
        this.counts.acked += 1;
        this.#next += 1;
        return;
      }
      this.#tail = String(answer.headers["stream-next-offset"]);
      if (answer.status === 200 || answer.status === 204) {
        this.accept(number, answer, answer.status === 204, attempt === 1);
        this.#next += 1;
        return;
      }
      // It was refused for good: what is sent next is another text, made for the new tail.
      if (answer.status === 412) this.counts.conflicts += 1;
      else this.wrong(`${text} got ${answer.status}: ${answer.text}`);
    }
  }

  async #look(url: string): Promise<string | undefined> {
    const head = await call("HEAD", url, this.path).catch(() => undefined);
    return head === undefined ? undefined : String(head.headers["stream-next-offset"]);
  }

  #textAt(number: number, tail: string): string {
    return `${this.id}.${number}@${tail};`;
  }

  override check(stored: readonly StoredRecord[]): void {
    for (const [number, { text, end }] of stored.entries()) {
      const [identity = "", tail = ""] = text.slice(0, -1).split("@");
      if (identity !== `${this.id}.${number}`) this.wrong(`record ${number} is ${text}`);
      // What was made for a tail stands at that tail: no update of another writer is lost.
      if (byteOf(end) - text.length !== byteOf(tail)) this.wrong(`${text} ends at ${end}`);
      const told = this.ends.get(number);
      if (told !== undefined && told !== end) this.wrong(`${text} ends at ${end}, told ${told}`);
    }
    if (stored.length !== this.#next) this.wrong(`${stored.length} stored of ${this.#next}`);
  }
}

/** The count of bytes that an offset of this server stands for. */
function byteOf(offset: string): number {
  return Number(offset.split("_")[1]);
}

/** All records of a stream of texts, with their ends. */
export async function readRecords(
  url: string,
  path: string,
  formatEnd: (end: number) => string,
): Promise<readonly StoredRecord[]> {
  let text = "";
  for (let offset = "-1"; ;) {
    const answer = await call("GET", url, `${path}?offset=${offset}`);
    if (answer.status !== 200) throw new Error(`${path} at ${offset}: ${answer.status}`);
    text += answer.text;
    offset = String(answer.headers["stream-next-offset"]);
    if (answer.headers["stream-up-to-date"] === "true") break;
  }
  return recordsOf(text).map((record) => ({ text: record.text, end: formatEnd(record.end) }));
}
