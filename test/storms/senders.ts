/**
 * Clients of the storms: what each of them sends, and what it may be told. They judge every outcome that the
 * server has given, also those that were lost on their way.
 */

import type { AppendCommand } from "../../src/streams/core/append.ts";
import type { Offset } from "../../src/streams/core/types.ts";
import type { ProducerView } from "../../src/streams/engine/appends.ts";
import type { AppendOutcome } from "../../src/streams/engine/outcomes.ts";
import { appendCommand, keyClaim, sessionClaim } from "../../src/testing/commands.ts";
import type { SeededRandom } from "../../src/testing/seeded-random.ts";

/** What identifies the appends of a storm. */
export type Identity = "session" | "patient session" | "key" | "if-match session";

/** One attempt on its way. */
export interface Attempt {
  readonly sender: Sender;
  readonly number: number;
  readonly command: AppendCommand;
  /** The append before it had been acknowledged when this was sent: it cannot be ahead. */
  readonly isNext: boolean;
  /** The life of the sender that sent it. */
  readonly life: number;
}

export interface Sender {
  readonly id: string;
  readonly waitMs: number;
  readonly problems: string[];
  readonly isDone: boolean;
  /** Appends that are not acknowledged and may be sent, again or for the first time. */
  open(): readonly number[];
  attempt(number: number): Attempt;
  /** What the server has decided, also if the answer is lost. */
  judge(attempt: Attempt, outcome: AppendOutcome): void;
  /** The answer has arrived. */
  hear(attempt: Attempt, outcome: AppendOutcome): void;
  /** It forgets all but what it wanted to send, and asks the stream how far it had come. */
  restart(known: ProducerView | undefined): void;
  /** What is wrong with the text of the stream; records of others are in it as well. */
  check(text: string): void;
}

/** Texts of several lengths, each of which says what it is. */
function textsOf(id: string, count: number, random: SeededRandom): readonly string[] {
  return Array.from(
    { length: count },
    (_, number) => `${id}.${number}${"-".repeat(random.below(30))};`,
  );
}

export function recordsOf(
  text: string,
): readonly { readonly text: string; readonly end: number }[] {
  const records: { text: string; end: number }[] = [];
  for (const { 0: record, index } of text.matchAll(/[^;]*;/g)) {
    records.push({ text: record, end: index + record.length });
  }
  return records;
}

/** Sends all its appends at once. */
export class PipelinedSender implements Sender {
  readonly id: string;
  readonly texts: readonly string[];
  readonly problems: string[] = [];
  readonly waitMs: number;
  readonly #identity: Identity;
  readonly #starts: readonly number[];
  readonly #open: Set<number>;
  /** Where the append ended, by the first outcome that said so. */
  readonly #ends = new Map<number, Offset>();
  readonly #accepted = new Set<number>();
  /** The session: its life, its first append, and the epoch before it. */
  #life = 0;
  #base = 0;
  #epochBefore = -1;
  #epoch = -1;

  constructor(id: string, identity: Identity, count: number, random: SeededRandom) {
    this.id = id;
    this.#identity = identity;
    this.waitMs = identity === "patient session" ? 1000 : 0;
    this.texts = textsOf(id, count, random);
    this.#open = new Set(this.texts.keys());
    let start = 0;
    this.#starts = this.texts.map((text) => (start += text.length) - text.length);
  }

  get isDone(): boolean {
    return this.#open.size === 0;
  }

  open(): readonly number[] {
    return [...this.#open];
  }

  attempt(number: number): Attempt {
    const text = this.texts[number] ?? "";
    const isNext = number === this.#base || !this.#open.has(number - 1);
    const common = { sender: this, number, isNext, life: this.#life };
    if (this.#identity === "key") {
      const key = keyClaim(`${this.id} ${number}`, text);
      return { ...common, command: appendCommand(text, { key }) };
    }
    const producer = sessionClaim(this.id, `life-${this.#life}`, number - this.#base);
    // It writes alone, so it knows where each of its appends has to stand.
    const isConditional = this.#identity === "if-match session";
    const expectedTail = isConditional ? ((this.#starts[number] ?? 0) as Offset) : undefined;
    return { ...common, command: appendCommand(text, { producer, expectedTail }) };
  }

  judge(attempt: Attempt, outcome: AppendOutcome): void {
    const { number, isNext } = attempt;
    switch (outcome.kind) {
      case "accepted":
        if (this.#accepted.has(number)) this.#wrong(attempt, "was accepted twice");
        this.#accepted.add(number);
        this.#noteEnd(attempt, outcome.tail);
        return;
      case "duplicate":
      case "replayed":
        this.#noteEnd(attempt, outcome.end);
        return;
      case "gap":
        if (isNext) this.#wrong(attempt, "is a gap after an acknowledged append");
        return;
      case "fenced":
        if (attempt.life === this.#life) this.#wrong(attempt, "is fenced by no other life");
        return;
      default:
        this.#wrong(attempt, `was refused: ${outcome.kind}`);
    }
  }

  hear({ number, life }: Attempt, outcome: AppendOutcome): void {
    if (life !== this.#life) return;
    const { kind } = outcome;
    if (kind !== "accepted" && kind !== "duplicate" && kind !== "replayed") return;
    this.#open.delete(number);
    if (kind === "accepted") this.#epoch = outcome.change.producer?.epoch ?? this.#epoch;
    if (kind === "duplicate") this.#epoch = outcome.epoch;
  }

  restart(known: ProducerView | undefined): void {
    if (this.#identity === "key") return; // A key needs nothing that could be forgotten.
    const hasBegun = known !== undefined && known.epoch > this.#epochBefore;
    const stored = hasBegun ? this.#base + known.lastSequence + 1 : this.#base;
    for (let number = 0; number < stored; number += 1) this.#open.delete(number);
    const lost = [...this.texts.keys()].find(
      (number) => number >= stored && !this.#open.has(number),
    );
    if (lost !== undefined) this.problems.push(`${this.id}: append ${lost} was answered and lost`);
    const end = this.#ends.get(stored - 1);
    if (hasBegun && end !== undefined && end !== known.end) {
      this.problems.push(`${this.id}: the last append ended at ${end}, not at ${known.end}`);
    }
    this.#epochBefore = known?.epoch ?? this.#epochBefore;
    this.#base = stored;
    this.#life += 1;
  }

  check(text: string): void {
    const own = recordsOf(text).filter((record) => record.text.startsWith(`${this.id}.`));
    const stored = own.map((record) => record.text);
    // Keys promise no order.
    const [found, sent] =
      this.#identity === "key"
        ? [stored.toSorted(), [...this.texts].toSorted()]
        : [stored, [...this.texts]];
    if (found.join("") !== sent.join("")) {
      this.problems.push(`${this.id}: stored are ${found.join("")}, not ${sent.join("")}`);
    }
    for (const [number, end] of this.#ends) {
      const record = own.find((one) => one.text === this.texts[number]);
      if (record?.end !== end) {
        this.problems.push(`${this.id}: append ${number} ends at ${record?.end}, not at ${end}`);
      }
    }
  }

  #noteEnd(attempt: Attempt, end: Offset): void {
    const { number } = attempt;
    const before = this.#ends.get(number) ?? end;
    if (before !== end)
      this.#wrong(attempt, `ended at ${before}, and a retry is answered with ${end}`);
    this.#ends.set(number, end);
  }

  #wrong({ number }: Attempt, what: string): void {
    this.problems.push(`append ${number} of ${this.id} ${what}`);
  }
}

/**
 * One of several writers that each read the tail, make something of it, and store it only if the tail is still
 * the same. Every text says which tail it was made for.
 */
export class Contender implements Sender {
  readonly id: string;
  readonly problems: string[] = [];
  readonly waitMs = 0;
  readonly #count: number;
  #number = 0;
  #tail = 0 as Offset;
  /** Texts that were answered with `tail_moved`: they must never be stored. */
  readonly #refused = new Set<string>();
  readonly #stored: string[] = [];
  readonly #ends: Offset[] = [];
  conflicts = 0;
  #life = 0;
  #base = 0;
  #epochBefore = -1;

  constructor(id: string, count: number) {
    this.id = id;
    this.#count = count;
  }

  get isDone(): boolean {
    return this.#number === this.#count;
  }

  open(): readonly number[] {
    return this.isDone ? [] : [this.#number];
  }

  attempt(number: number): Attempt {
    const expectedTail = this.#tail;
    const text = this.#textOf(number, expectedTail);
    const producer = sessionClaim(this.id, `life-${this.#life}`, number - this.#base);
    const command = appendCommand(text, { producer, expectedTail });
    return { sender: this, number, command, isNext: true, life: this.#life };
  }

  judge(attempt: Attempt, outcome: AppendOutcome): void {
    const text = this.#textIn(attempt);
    if (outcome.kind === "accepted") {
      if (this.#refused.has(text)) this.problems.push(`${text} was refused before`);
      if (this.#stored[attempt.number] !== undefined) this.problems.push(`${text} is the second`);
      this.#stored[attempt.number] = text;
      this.#ends[attempt.number] = outcome.tail;
    } else if (outcome.kind === "duplicate") {
      const end = this.#ends[attempt.number];
      if (end !== undefined && end !== outcome.end) {
        this.problems.push(`${text} ended at ${end}, and a retry is answered with ${outcome.end}`);
      }
    } else if (outcome.kind === "tail_moved") {
      if (this.#stored[attempt.number] === text) this.problems.push(`${text} is a conflict`);
      this.#refused.add(text);
    } else if (outcome.kind === "reused") {
      // An older attempt of this life, made for another tail: its number has what was stored in its place.
      if (this.#stored[attempt.number] === text)
        this.problems.push(`${text} is reported as another`);
    } else if (outcome.kind !== "fenced" || attempt.life === this.#life) {
      this.problems.push(`${text} was refused: ${outcome.kind}`);
    }
  }

  hear(attempt: Attempt, outcome: AppendOutcome): void {
    if (attempt.number !== this.#number || attempt.life !== this.#life) return;
    if (outcome.kind === "accepted" || outcome.kind === "duplicate") {
      this.#number += 1;
      this.#tail = outcome.kind === "accepted" ? outcome.tail : outcome.end;
    } else if (outcome.kind === "tail_moved" && this.#textIn(attempt) === this.#current()) {
      this.conflicts += 1;
      this.#tail = outcome.tail;
    }
  }

  restart(known: ProducerView | undefined): void {
    const hasBegun = known !== undefined && known.epoch > this.#epochBefore;
    const stored = hasBegun ? this.#base + known.lastSequence + 1 : this.#base;
    if (stored < this.#number)
      this.problems.push(`${this.id}: ${this.#number} answered, ${stored}`);
    this.#number = stored;
    this.#epochBefore = known?.epoch ?? this.#epochBefore;
    this.#base = stored;
    this.#life += 1;
  }

  check(text: string): void {
    const own = recordsOf(text).filter((record) => record.text.startsWith(`${this.id}.`));
    for (const [number, record] of own.entries()) {
      const start = record.end - record.text.length;
      // It was made for the tail at which it stands: nothing came between, so no update is lost.
      if (record.text !== this.#textOf(number, start)) {
        this.problems.push(`${this.id}: ${record.text} is append ${number} at ${start}`);
      }
    }
    if (own.length !== this.#count) {
      this.problems.push(`${this.id}: ${own.length} are stored, not ${this.#count}`);
    }
  }

  #current(): string {
    return this.#textOf(this.#number, this.#tail);
  }

  #textIn({ command }: Attempt): string {
    return Buffer.from(command.data).toString();
  }

  #textOf(number: number, tail: number): string {
    return `${this.id}.${number}@${tail};`;
  }
}
