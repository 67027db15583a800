/**
 * The parts of a changelog, oldest first, and what is still needed of each: so that a pipeline compacts its own changelog.
 * Decision 0147.
 *
 * The newest value of a key that lies in the oldest part is appended again; a part without newest values is trimmed. So a
 * changelog is always a whole: what is missing at its beginning is said again behind it.
 *
 *   - a trim takes no newest value and no owner: they were stored again before, by a transaction that is committed;
 *   - a trim that comes late, also that of an overtaken member, takes nothing that is needed later;
 *   - with writes, a changelog stays below twice its newest values and a constant.
 */

import { assert } from "../../base/assert.ts";

/** Appends of the changelog that follow each other. */
export interface LogPart {
  /** The offset of its first record. The first part may have none: nothing is trimmed before it. */
  readonly start: string;
  chars: number;
  /** Newest values of keys in it, and the owner. */
  needed: number;
}

/** A changelog of this size is left alone. */
const CHARS_MIN = 64 * 1024;
/** Fewer characters make no part of their own. */
const PART_CHARS_MIN = 4 * 1024;
/** What a transaction repeats at most, beside its own records. A single value may be larger. */
const REPEATED_CHARS_MAX = 256 * 1024;
/** Nothing is repeated for so many characters after a trim was refused; then twice as many, and so on. */
const PAUSE_CHARS = 256 * 1024;

export class StateLog {
  readonly #parts: LogPart[] = [{ start: "", chars: 0, needed: 0 }];
  #chars = 0;
  /** Characters of parts that are not needed and not trimmed. */
  #freeChars = 0;
  #askedChars = 0;
  #pauseChars = PAUSE_CHARS;
  #pausedChars = 0;
  /** Where the changelog ends. Undefined: an answer was lost. */
  #tail: string | undefined = "";

  /** The characters of the parts that are kept. */
  get chars(): number {
    return this.#chars;
  }

  get oldest(): LogPart {
    const [oldest] = this.#parts;
    assert(oldest !== undefined, "a changelog has no part");
    return oldest;
  }

  get newest(): LogPart {
    return this.#parts.at(-1) ?? this.oldest;
  }

  /** Forgets everything: the changelog is read from its beginning. */
  clear(): void {
    this.#parts.splice(0, Infinity, { start: "", chars: 0, needed: 0 });
    this.#chars = 0;
    this.#freeChars = 0;
    this.#tail = "";
  }

  /** Returns the part of the records that follow. `neededChars`: the characters of all newest values. */
  begin(neededChars: number): LogPart {
    const grain = Math.max(PART_CHARS_MIN, neededChars / 32);
    if (this.#tail !== undefined && this.newest.chars >= grain) {
      this.#parts.push({ start: this.#tail, chars: 0, needed: 0 });
    }
    return this.newest;
  }

  /** Counts a record of the newest part. */
  add(chars: number): void {
    this.newest.chars += chars;
    this.#chars += chars;
    this.#pausedChars = Math.max(0, this.#pausedChars - chars);
  }

  /** The records end here. Undefined: the server did not say where. */
  end(tail: string | undefined): void {
    this.#tail = tail;
    while (this.#parts.length > 1 && this.oldest.needed === 0) {
      const { chars } = this.oldest;
      this.#parts.shift();
      this.#chars -= chars;
      this.#freeChars += chars;
    }
  }

  /** How many characters a transaction may repeat that has written so many by itself. */
  repeatable(writtenChars: number, neededChars: number): number {
    if (this.#pausedChars > 0 || this.#parts.length === 1) return 0;
    if (this.#chars <= 1.5 * neededChars + CHARS_MIN) return 0;
    return Math.min(2 * writtenChars, REPEATED_CHARS_MAX);
  }

  /** Returns the offset before which the changelog can be trimmed, if that is worth a call. Each is returned once. */
  takeTrim(neededChars: number): string | undefined {
    const { start } = this.oldest;
    if (this.#pausedChars > 0 || this.#freeChars === 0 || start === "") return undefined;
    if (this.#freeChars < CHARS_MIN / 4 + neededChars / 16) return undefined;
    this.#askedChars = this.#freeChars;
    this.#freeChars = 0;
    return start;
  }

  /** The server has not trimmed. What was to be trimmed will be later. */
  refused(): void {
    this.#freeChars += this.#askedChars;
    this.#pausedChars = this.#pauseChars;
    this.#pauseChars *= 2;
  }

  trimmed(): void {
    this.#pauseChars = PAUSE_CHARS;
  }
}
