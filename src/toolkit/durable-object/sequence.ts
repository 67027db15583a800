/**
 * Messages of a source in the order of their numbers, each once. The rules are toolkit/rules/sequence.ts.
 *
 *   - the work of a message and its number are one transaction, which is one row;
 *   - what is missing is asked for at once, and again by an alarm until it has come, also after a sleep;
 *   - messages that came too early are held in memory only: they were not acknowledged, and come again.
 */

import { tellSafely } from "../../base/error-words.ts";
import { failpoint } from "../../base/failpoint.ts";
import type { ObjectStorage } from "../ledgers/durable-object.ts";
import { Check } from "../once/check.ts";
import { decideArrival, EarlyMessages } from "../rules/sequence.ts";
import { type AlarmCall, type Alarms, RunAgain } from "./alarms.ts";
import { type ObjectSql, objectRows } from "./context.ts";
import { type ObjectWork, requireSync, type Steps } from "./steps.ts";

/** What is missing of a source. */
export interface SequenceGap {
  readonly source: string;
  /** The first number that is missing. */
  readonly from: number;
  /** The last one that is known to be missing. Undefined: the object woke up, and does not know whether there are later ones. */
  readonly to: number | undefined;
  /** 1 is the first time that it is asked for. */
  readonly attempt: number;
}

/** Options of a sequence. */
export interface SequenceOptions<Storage, Message> {
  /** The work of a message. It must not be async: what it writes and the number of the message are one transaction. */
  readonly handle: (
    message: Message,
    work: ObjectWork<Storage> & { readonly sequence: number },
  ) => void;
  /**
   * Asks the source for missing messages. Called at a gap and when the object wakes, and again, with pauses,
   * until they have arrived.
   */
  readonly onGap?: (gap: SequenceGap) => void | Promise<void>;
  /** The first number of the source. Default 1. */
  readonly first?: number;
  /**
   * How many messages that arrived too early are held in memory. Others are dropped, and the source must send them again.
   * Default 1,000.
   */
  readonly heldMax?: number;
  /** How many bytes the held messages may have together. A string counts two bytes for each character, other values as their JSON. Default 8 MiB. */
  readonly heldBytesMax?: number;
}

/** The result of `receive()`. All messages up to `last` are done: send it to the source as the acknowledgement. */
export interface SequenceAnswer {
  /** `done`: handled now. `duplicate`: handled before. `early`: messages before it are missing; it is held, or dropped if too many are. */
  readonly kind: "done" | "duplicate" | "early";
  readonly last: number;
}

/** The messages of one source. Made by `ExactlyOnce.sequence()`. */
export interface ObjectSequence<Message> {
  /** Handles a message. Throws what its work throws: then the message is not done, and the source must send it again. */
  receive(sequence: number, message: Message): Promise<SequenceAnswer>;
  /** The number of the last message that is done. */
  last(): Promise<number>;
}

const TABLE = `CREATE TABLE IF NOT EXISTS hapax_sequences (source TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID`;
const FIND = "SELECT last FROM hapax_sequences WHERE source = ?";
const PUT = "INSERT OR REPLACE INTO hapax_sequences (source, last) VALUES (?, ?)";
export const GAP_ALARM = "hapax:gap:";
/** Until what is missing is asked for a second time. Later pauses are those of alarms that fail. */
const PAUSE_MS = 1_000;
/** Then the source is gone: the next message, or the next wake, asks again. */
const ASKS_MAX = 30;

/** What a sequence needs of its object. */
export interface SequenceHost<Storage extends ObjectStorage> {
  readonly sql: ObjectSql;
  readonly ready: () => Promise<void>;
  readonly steps: Steps<Storage>;
  readonly alarms: Alarms;
  readonly nowMs: () => number;
  readonly onError: (error: unknown) => void;
  readonly onDuplicate: () => void;
  readonly onGap: () => void;
}

export function makeSequenceTable(sql: ObjectSql): void {
  sql.exec(TABLE);
}

export class SourceSequence<
  Storage extends ObjectStorage,
  Message,
> implements ObjectSequence<Message> {
  readonly #host: SequenceHost<Storage>;
  readonly #source: string;
  readonly #options: SequenceOptions<Storage, Message>;
  readonly #early: EarlyMessages<Message>;
  readonly #first: number;
  /** The number that was asked for last, and whether later ones have come. */
  #asked: { readonly from: number; readonly isGap: boolean } | undefined;

  constructor(
    host: SequenceHost<Storage>,
    source: string,
    options: SequenceOptions<Storage, Message>,
  ) {
    const check = new Check();
    check.name("source", source);
    const { MAX_SAFE_INTEGER } = Number;
    this.#first = check.whole("first", options.first, 1, 0, MAX_SAFE_INTEGER);
    const heldMax = check.whole("heldMax", options.heldMax, 1000, 0, 1_000_000);
    const bytesMax = check.whole("heldBytesMax", options.heldBytesMax, 2 ** 23, 0, 2 ** 30);
    this.#early = new EarlyMessages(heldMax, bytesMax);
    check.end();
    this.#host = host;
    this.#source = source;
    this.#options = options;
  }

  async last(): Promise<number> {
    await this.#host.ready();
    return this.#host.steps.run(() => this.#last());
  }

  async receive(sequence: number, message: Message): Promise<SequenceAnswer> {
    const check = new Check();
    check.whole("sequence", sequence, sequence, 0, Number.MAX_SAFE_INTEGER);
    check.end("invalid_request");
    await this.#host.ready();
    await failpoint("sequence.began");
    const { kind, last } = await this.#take(sequence, message);
    await failpoint("sequence.committed");
    if (kind === "duplicate") this.#host.onDuplicate();
    if (kind === "early") this.#hold(sequence, message);
    const done = kind === "next" ? await this.#takeHeld(last) : last;
    await this.#look(done, kind === "early" ? sequence - 1 : undefined);
    return { kind: kind === "next" ? "done" : kind, last: done };
  }

  /** At a wake: messages may have come while the object could not take them. */
  async ask(): Promise<void> {
    const { steps } = this.#host;
    const isKnown = await steps.run(
      () => objectRows(this.#host.sql, FIND, this.#source).length > 0,
    );
    if (isKnown) await this.#ask(await this.last(), undefined);
  }

  /** The alarm of a gap. It runs again with pauses until the gap is filled; the table counts how often, over all lives. */
  async askAgain({ attempt }: AlarmCall): Promise<void> {
    const last = await this.#takeHeld(await this.last());
    const to = this.#early.missing(last)?.to;
    // After a sleep nothing is held: that it was asked for, and has not come, is all that is known.
    const isFilled = to === undefined && this.#asked !== undefined && this.#asked.from <= last;
    if (isFilled || attempt > ASKS_MAX) return;
    await this.#tell({ source: this.#source, from: last + 1, to, attempt: attempt + 1 });
    throw new RunAgain();
  }

  async #take(
    sequence: number,
    message: Message,
  ): Promise<{ readonly kind: "next" | "duplicate" | "early"; readonly last: number }> {
    const { steps, sql } = this.#host;
    return steps.run((work) => {
      const last = this.#last();
      const { kind } = decideArrival(last, sequence);
      if (kind !== "next") return { kind, last };
      requireSync<unknown>(this.#options.handle(message, { ...work, sequence }));
      sql.exec(PUT, this.#source, sequence);
      return { kind, last: sequence };
    });
  }

  #hold(sequence: number, message: Message): void {
    this.#early.hold(sequence, message, bytesOf(message));
  }

  /** Takes what was held and is next now. One whose work throws stays held, and comes again with the alarm. */
  async #takeHeld(last: number): Promise<number> {
    let done = last;
    for (
      let held = this.#early.take(done + 1);
      held !== undefined;
      held = this.#early.take(done + 1)
    ) {
      try {
        done = (await this.#take(done + 1, held.message)).last;
      } catch (error) {
        this.#hold(done + 1, held.message);
        tellSafely(this.#host.onError, error);
        break;
      }
    }
    return done;
  }

  /** `before`: the number before a message that came too early, which may not have been held. */
  async #look(last: number, before: number | undefined): Promise<void> {
    const { alarms, steps } = this.#host;
    const to = this.#early.missing(last)?.to ?? before;
    if (to === undefined) {
      if (this.#asked === undefined || this.#asked.from > last) return;
      this.#asked = undefined;
      await steps.run(() => {
        alarms.cancel(this.#alarm);
      });
      return;
    }
    // Once for each beginning of a gap: the alarm asks again. What was asked for at a wake is a gap only now.
    if (this.#asked?.from === last + 1 && this.#asked.isGap) return;
    this.#host.onGap();
    await this.#ask(last, to);
  }

  async #ask(last: number, to: number | undefined): Promise<void> {
    const { alarms, steps, nowMs } = this.#host;
    const from = last + 1;
    this.#asked = { from, isGap: to !== undefined };
    if (to !== undefined)
      await steps.run(() => {
        alarms.set(this.#alarm, nowMs() + PAUSE_MS);
      });
    await this.#tell({ source: this.#source, from, to, attempt: 1 });
  }

  async #tell(gap: SequenceGap): Promise<void> {
    try {
      await this.#options.onGap?.(gap);
    } catch (error) {
      tellSafely(this.#host.onError, error);
    }
  }

  get #alarm(): string {
    return `${GAP_ALARM}${this.#source}`;
  }

  #last(): number {
    const [row] = objectRows(this.#host.sql, FIND, this.#source);
    return row === undefined ? this.#first - 1 : Number(row["last"]);
  }
}

/** About how much memory a message takes. One that JSON does not know is not held. */
function bytesOf(message: unknown): number {
  if (message instanceof ArrayBuffer || ArrayBuffer.isView(message)) return message.byteLength;
  try {
    return 2 * (typeof message === "string" ? message : (JSON.stringify(message) ?? "")).length;
  } catch {
    return Infinity;
  }
}
