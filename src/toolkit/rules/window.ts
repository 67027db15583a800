/**
 * The dedup window of a log: which ids it has stored, and where. One writer at a time has the window.
 *
 *   WD1  the same id has the same position for as long as it is in the window, also while the outcome of its first write is
 *        unknown; the same id with other content is refused;
 *   WD3  ids leave by log time and by count, oldest first, and only after they are stored; ids that are being written have a
 *        limit of their own;
 *   WD5  an id that says its time, and may have been stored and forgotten, does not count as new.
 *
 * Log time is the time that is stored with the entries. It never goes back, and stands still while nothing is written: an
 * outage empties no window. So the window follows from the log alone, and a scan of the log makes the same one. Pure.
 */

import { assert } from "../../base/assert.ts";
import { type KeyMark, KeyWindow } from "../../base/key-window.ts";

/** Where an entry is in a log. */
export interface LogPosition {
  readonly segment: number;
  /** The number of the entry in its segment. */
  readonly entry: number;
}

/** How much a window remembers. */
export interface WindowBounds {
  /** Ids are forgotten when the log has gone on for so long, in milliseconds of log time. */
  readonly durationMs: number;
  /** The most ids. The oldest is forgotten first. */
  readonly keysMax: number;
}

/** How far a segment was read. What follows is the gap that a recovery reads. */
export interface Watermark {
  readonly segment: number;
  /** The last entry that the window knows; -1 if it knows none. */
  readonly entry: number;
  /** Where the batch of that entry starts. A recovery reads it again, and so finds out whether the log still has it. */
  readonly start: number;
  /** Nothing can follow in this segment, and all of it was read. */
  readonly isSealed: boolean;
}

/** An entry that is stored. `start` is where its batch begins. */
export interface StoredId extends LogPosition {
  readonly mark: KeyMark;
  readonly atMs: number;
}

/** An id that is being written. Its outcome may be unknown; its position stays. */
export interface PendingId {
  readonly id: string;
  readonly mark: KeyMark;
}

/** The time before all times: nothing was forgotten. */
export const NEVER_MS = -1;

/** Which ordinals are in which segment: runs, because entries follow each other in a segment. */
class SegmentRuns {
  readonly #ordinals: number[] = [];
  readonly #segments: number[] = [];
  #gone = 0;

  add(ordinal: number, segment: number): void {
    if (this.#segments.at(-1) === segment) return;
    this.#ordinals.push(ordinal);
    this.#segments.push(segment);
  }

  of(ordinal: number): number {
    let low = this.#gone;
    let high = this.#ordinals.length;
    while (high - low > 1) {
      const middle = (low + high) >>> 1;
      if ((this.#ordinals[middle] ?? 0) <= ordinal) low = middle;
      else high = middle;
    }
    const segment = this.#segments[low];
    assert(segment !== undefined, "WD1 an entry of the window has a segment");
    return segment;
  }

  dropTo(ordinal: number): void {
    while ((this.#ordinals[this.#gone + 1] ?? Infinity) <= ordinal) this.#gone += 1;
    if (this.#gone < 1024) return;
    this.#ordinals.splice(0, this.#gone);
    this.#segments.splice(0, this.#gone);
    this.#gone = 0;
  }

  get memoryBytes(): number {
    return this.#ordinals.length * 16;
  }
}

/** The window itself: stored ids, ids that are being written, and how far the log was read. */
export class WindowState {
  readonly bounds: WindowBounds;
  readonly keys = new KeyWindow();
  readonly watermarks = new Map<number, Watermark>();
  readonly pending = new Map<string, PendingId>();
  /** Who began the last segment that was read; empty if the log does not say. */
  writer = "";
  readonly #runs = new SegmentRuns();
  #newestMs = 0;
  #forgottenToMs = NEVER_MS;

  constructor(bounds: WindowBounds) {
    this.bounds = bounds;
  }

  get size(): number {
    return this.keys.next - this.keys.first;
  }

  /** Log time: that of the newest entry. */
  get newestMs(): number {
    return this.#newestMs;
  }

  /** Log time of the newest id that was forgotten; `NEVER_MS` if none was. */
  get forgottenToMs(): number {
    return this.#forgottenToMs;
  }

  /** Memory of the stored ids, in bytes. */
  get memoryBytes(): number {
    return this.keys.memoryBytes + this.#runs.memoryBytes;
  }

  positionOf(ordinal: number): LogPosition {
    return { segment: this.#runs.of(ordinal), entry: this.keys.endOf(ordinal) };
  }

  /** Notes an id of the log. If the log has it twice, the first position stands. */
  applyStored({ mark, segment, entry, atMs }: StoredId): void {
    this.applyTime(atMs);
    if (this.keys.find(mark) !== undefined) return;
    const ordinal = this.keys.next;
    this.keys.add(mark, entry, this.#newestMs);
    this.#runs.add(ordinal, segment);
    this.#evict();
  }

  /** Notes the time of an entry, also of one without an id. Log time never goes back. */
  applyTime(atMs: number): void {
    if (atMs <= this.#newestMs) return;
    this.#newestMs = atMs;
    this.#evict();
  }

  /** Notes that the log may have had ids up to this time that the window does not know. */
  applyForgotten(toMs: number): void {
    this.#forgottenToMs = Math.max(this.#forgottenToMs, toMs);
  }

  /** WD3 */
  #evict(): void {
    const { keys } = this;
    const { durationMs, keysMax } = this.bounds;
    const first = Math.max(keys.firstAfter(this.#newestMs - durationMs), keys.next - keysMax);
    if (first <= keys.first) return;
    this.applyForgotten(keys.timeOf(first - 1));
    keys.evictTo(first);
    this.#runs.dropTo(first);
  }
}

/** A caller's wish to write under an id. */
export interface WriteRequest {
  readonly id: string;
  readonly mark: KeyMark;
  /** When the first attempt was made, by the sender's clock. Undefined: not known. */
  readonly sentAtMs: number | undefined;
}

/** The result of `decideWrite()`. */
export type WriteDecision =
  /** It is stored. */
  | { readonly kind: "duplicate"; readonly position: LogPosition; readonly atMs: number }
  /** It is being written: join that. */
  | { readonly kind: "pending" }
  /** The id stands for other content. */
  | { readonly kind: "mismatch" }
  /** It may have been stored and forgotten. */
  | { readonly kind: "expired" }
  /** It is new. `isProven` is false if it could also be a retry of what was forgotten: it does not say its time. */
  | { readonly kind: "new"; readonly isProven: boolean };

/**
 * Decides a write. `skewMs` is how far the clocks of senders and writers may be apart: an entry could have been stored that much
 * before its sender's time.
 */
export function decideWrite(
  state: WindowState,
  { id, mark, sentAtMs }: WriteRequest,
  skewMs: number,
): WriteDecision {
  const pending = state.pending.get(id);
  if (pending !== undefined)
    return { kind: isSameContent(pending.mark, mark) ? "pending" : "mismatch" };
  const ordinal = state.keys.find(mark);
  if (ordinal !== undefined) {
    if (!state.keys.isSameBody(ordinal, mark)) return { kind: "mismatch" };
    const position = state.positionOf(ordinal);
    return { kind: "duplicate", position, atMs: state.keys.timeOf(ordinal) };
  }
  const { forgottenToMs } = state;
  if (forgottenToMs === NEVER_MS) return { kind: "new", isProven: true };
  if (sentAtMs === undefined) return { kind: "new", isProven: false };
  if (sentAtMs <= forgottenToMs + skewMs) return { kind: "expired" };
  return { kind: "new", isProven: true };
}

function isSameContent(one: KeyMark, other: KeyMark): boolean {
  return one.every((word, at) => word === other[at]);
}
