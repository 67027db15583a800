/**
 * The records that wait to be sent. Decides how many of them go into one batch.
 *
 *   - batches are taken in the order of the calls, and records that are put back stand in front again;
 *   - a batch has at most `bytesMax` bytes and `recordsMax` records; a single record that is larger goes alone;
 *   - a record with conditions of its own (a close, If-Match, Stream-Seq) is a batch of its own.
 */

import type { HapaxError } from "../base/errors.ts";
import { type WaitingRecord, type Listener, sizeOf } from "./entries.ts";

/** The end of one record: stored, or not confirmed. */
export type Ending = { readonly receipt: Receipt } | NotConfirmed;

/** The end of a record that was not confirmed. */
export interface NotConfirmed {
  readonly error: HapaxError;
  readonly outcome: "not_stored" | "unknown";
  readonly isCause: boolean;
  /** The cause was refused for good. So the records behind it are not stored, and another writer can send them. */
  readonly isOpen: boolean;
}

/** Confirms that the server has stored an append. */
export interface Receipt {
  /**
   * The offset after the batch. `undefined` if the server did not send it: some servers do not for
   * a repetition, and sometimes only a later batch shows that this one is stored.
   */
  readonly offset: string | undefined;
  readonly epoch: number;
  /** The number of the batch. All records of a batch have the same. Under a new random id the numbers begin anew. */
  readonly sequence: number;
  /** An earlier attempt had stored it. */
  readonly isDuplicate: boolean;
}

/** The most memory that a record takes beside its content. Counted so that tiny records are limited too. */
export const RECORD_OVERHEAD_BYTES = 128;

export interface BatchLimits {
  readonly bytesMax: number;
  readonly recordsMax: number;
}

/** The queue of records. It counts the characters of texts as bytes: the real number is known when they are sent. */
export class Backlog {
  // A queue with a moving start: taking from the front of a long array would copy it each time.
  #entries: WaitingRecord[] = [];
  #start = 0;
  contentBytes = 0;

  /** The memory that the records take, in bytes. */
  get heldBytes(): number {
    return this.contentBytes + this.length * RECORD_OVERHEAD_BYTES;
  }

  /** The number of records. */
  get length(): number {
    return this.#entries.length - this.#start;
  }

  /** The conditions of the next batch. */
  get conditions(): WaitingRecord["conditions"] {
    return this.#entries[this.#start]?.conditions;
  }

  push(entry: WaitingRecord): void {
    this.#entries.push(entry);
    this.contentBytes += sizeOf([entry]);
  }

  putBack(entries: readonly WaitingRecord[]): void {
    this.#entries = [...entries, ...this.#entries.slice(this.#start)];
    this.#start = 0;
    this.contentBytes += sizeOf(entries);
  }

  /** Removes the record of a listener. Returns false if it is not here any more. */
  remove(listener: Listener): boolean {
    const at = this.#entries.findIndex((entry) => entry.listener === listener);
    if (at < this.#start) return false;
    this.contentBytes -= sizeOf(this.#entries.splice(at, 1));
    return true;
  }

  /** Whether the next batch cannot grow any more. */
  isFull({ bytesMax, recordsMax }: BatchLimits): boolean {
    return this.length >= recordsMax || this.contentBytes >= bytesMax;
  }

  /** Takes the records of the next batch; at least one if there is one. */
  take({ bytesMax, recordsMax }: BatchLimits): readonly WaitingRecord[] {
    const taken: WaitingRecord[] = [];
    let bytes = 1; // The frame of an array is one more than its commas.
    for (let at = this.#start; at < this.#entries.length; at += 1) {
      const entry = this.#entries[at];
      if (entry === undefined) break;
      bytes += sizeOf([entry]);
      const isAlone = (entry.conditions ?? taken[0]?.conditions) !== undefined;
      const isFull = isAlone || bytes > bytesMax || taken.length >= recordsMax;
      if (isFull && taken.length > 0) break;
      taken.push(entry);
    }
    this.contentBytes -= sizeOf(taken);
    this.#start += taken.length;
    // Taken records are not held for long, and each copy has fewer records than were taken since the last one.
    if (this.#start > this.length) {
      this.#entries = this.#entries.slice(this.#start);
      this.#start = 0;
    }
    return taken;
  }

  takeAll(): readonly WaitingRecord[] {
    this.contentBytes = 0;
    return this.#entries.splice(this.#start);
  }
}
