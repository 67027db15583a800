/**
 * A memory of idempotency keys, of a stream or of a log: a window of entries, first in, first out.
 *
 *   KW1  a key is found, under its own ordinal, exactly while its entry is in the window;
 *   KW2  entries get consecutive ordinals and leave in that order; one that stays is as it was added;
 *   KW3  times never go back from one entry to the next;
 *   KW4  memory follows the entries: 10 MB at most for 100,000, 80 MB for 1,000,000, 1 KiB for one, and nothing when
 *        all are evicted.
 *
 * A window with up to 64 entries is searched one by one; a larger one has an index. streams/core/keys.ts and
 * toolkit/rules/window.ts decide which entries are in the window, and when. PROTOCOL.md §16. Pure.
 */

import { KeyEntries, MARK_WORDS, type KeyMark } from "./key-window-entries.ts";
import { KeyIndex } from "./key-window-index.ts";
import { assert } from "./assert.ts";

export type { KeyMark } from "./key-window-entries.ts";

const SCANNED_MAX = 64;
/**
 * A window with so few entries drops its index. The limit is well below 64, so that a window around 64 does not build
 * one each time.
 */
const INDEXED_MIN = 32;

/** What decisions can read of a window. */
export interface KeyWindowView<End extends number = number, Time extends number = number> {
  /** Ordinal of the oldest entry. It equals the number of entries that were evicted. */
  readonly first: number;
  /** Ordinal of the next entry. */
  readonly next: number;
  /** Returns the ordinal of the entry that has the mark's key, if it is in the window. */
  find(mark: KeyMark): number | undefined;
  /** Whether the entry has the same body fingerprint as the mark. */
  isSameBody(ordinal: number, mark: KeyMark): boolean;
  /** Place of what was stored under the key: the end offset of an append, the number of an entry. */
  endOf(ordinal: number): End;
  timeOf(ordinal: number): Time;
  /** Returns the first ordinal whose time is later, or `next`. All before it are as old or older. */
  firstAfter(timeMs: number): number;
  /** Returns a copy, for snapshots. */
  markOf(ordinal: number): KeyMark;
  /** Memory of the entries and their index, used or not. */
  readonly memoryBytes: number;
}

/** The window itself. Only code that applies changes uses it. */
export class KeyWindow<
  End extends number = number,
  Time extends number = number,
> implements KeyWindowView<End, Time> {
  readonly #entries: KeyEntries;
  #index: KeyIndex | undefined;

  /** An empty window that has evicted `first` entries before. */
  constructor(first = 0) {
    assert(Number.isSafeInteger(first) && first >= 0, "KW2 an ordinal is a whole number");
    this.#entries = new KeyEntries(first);
  }

  get first(): number {
    return this.#entries.first;
  }

  get next(): number {
    return this.#entries.next;
  }

  get memoryBytes(): number {
    return this.#entries.memoryBytes + (this.#index?.memoryBytes ?? 0);
  }

  find(mark: KeyMark): number | undefined {
    return this.#index === undefined ? this.#entries.scan(mark) : this.#index.find(mark);
  }

  isSameBody(ordinal: number, mark: KeyMark): boolean {
    return this.#entries.hasBody(ordinal, mark);
  }

  endOf(ordinal: number): End {
    // Cast: only `add` writes it.
    return this.#entries.endOf(ordinal) as End;
  }

  timeOf(ordinal: number): Time {
    return this.#entries.timeOf(ordinal) as Time;
  }

  firstAfter(timeMs: number): number {
    let low = this.first;
    let high = this.next;
    while (low < high) {
      const middle = low + Math.floor((high - low) / 2);
      if (this.timeOf(middle) > timeMs) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  markOf(ordinal: number): KeyMark {
    return this.#entries.markOf(ordinal);
  }

  /** Adds a key. It must not be in the window, and its time must not be before that of the last entry. */
  add(mark: KeyMark, end: End, atMs: Time): void {
    assert(mark.length === MARK_WORDS, "KW2 a mark has six words");
    assert(this.find(mark) === undefined, "KW1 a key is added that is in the window");
    const isFirst = this.next === this.first;
    assert(isFirst || atMs >= this.timeOf(this.next - 1), "KW3 time goes back");
    const ordinal = this.#entries.add(mark, end, atMs);
    if (this.#index !== undefined) this.#index.add(ordinal);
    else if (this.#entries.size > SCANNED_MAX) this.#index = new KeyIndex(this.#entries);
  }

  /** Drops all entries before the ordinal, if there are any. Takes time in proportion to their number. */
  evictTo(ordinal: number): void {
    assert(ordinal <= this.next, "KW2 entries are evicted that were never added");
    if (ordinal <= this.first) return;
    assert(Number.isSafeInteger(ordinal), "KW2 an ordinal is a whole number");
    if (this.next - ordinal <= INDEXED_MIN) this.#index = undefined;
    if (this.#index !== undefined) {
      for (let gone = this.first; gone < ordinal; gone += 1) this.#index.remove(gone);
    }
    this.#entries.dropTo(ordinal);
  }
}
