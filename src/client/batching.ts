/**
 * What waits to be sent, and how much of it goes into one batch.
 *
 *   BQ1  batches are taken in the order of the calls, and what is put back stands in front again;
 *   BQ2  a batch has at most `bytesMax` bytes and `recordsMax` records; a single piece that is larger goes alone;
 *   BQ3  a piece with conditions of its own (a close, If-Match, Stream-Seq) is a batch of its own.
 */

import type { HapaxError } from "../errors.ts";
import type { Piece } from "./records.ts";

/** How one piece of data ended. */
export type Ending =
  | { readonly kind: "stored"; readonly receipt: Receipt }
  | {
      readonly kind: "unconfirmed";
      readonly error: HapaxError;
      readonly outcome: "not_stored" | "unknown";
      readonly isCause: boolean;
      /** The cause was refused for good, so that what stood behind it can be sent by another writer. */
      readonly isOpen: boolean;
    };

/** The server's word that an append is stored. */
export interface Receipt {
  /**
   * Where the stream went on after the batch. `undefined` if the server did not say so: some do not for
   * a repetition, and a batch can be known as stored by a later one alone.
   */
  readonly offset: string | undefined;
  readonly epoch: number;
  /** The number of the batch. All records of a batch have the same. */
  readonly sequence: number;
  /** An earlier attempt had stored it. */
  readonly isDuplicate: boolean;
}

/** One piece of data on its way. */
export interface Item {
  readonly data: unknown;
  /** Nothing for a close without data. */
  readonly piece: Piece | undefined;
  /** Headers of an append that goes alone. */
  readonly conditions: Readonly<Record<string, string>> | undefined;
  readonly end: (ending: Ending) => void;
}

/** What one item takes in memory beside its content, roughly: so that tiny ones are limited too. */
const ITEM_OVERHEAD_BYTES = 128;
/** What stands between two records, and around them. */
const SEPARATOR_BYTES = 1;

export interface BatchLimits {
  readonly bytesMax: number;
  readonly recordsMax: number;
}

/** The line of items. */
export class Backlog {
  // A queue with a moving start: taking from the front of a long array would copy it each time.
  #items: Item[] = [];
  #start = 0;
  /** Bytes of the content. */
  contentBytes = 0;

  get length(): number {
    return this.#items.length - this.#start;
  }

  get first(): Item | undefined {
    return this.#items[this.#start];
  }

  push(item: Item): void {
    this.#items.push(item);
    this.contentBytes += sizeOf(item);
  }

  /** BQ1. */
  putBack(items: readonly Item[]): void {
    this.#items = [...items, ...this.#items.slice(this.#start)];
    this.#start = 0;
    for (const item of items) this.contentBytes += sizeOf(item);
  }

  /** Takes out one item, if it is still here. */
  remove(item: Item): boolean {
    const at = this.#items.indexOf(item, this.#start);
    if (at < 0) return false;
    this.#items.splice(at, 1);
    this.contentBytes -= sizeOf(item);
    return true;
  }

  /** Whether the next batch cannot grow any more. */
  isFull({ bytesMax, recordsMax }: BatchLimits): boolean {
    return this.length >= recordsMax || this.contentBytes + 2 >= bytesMax;
  }

  /** BQ2, BQ3. The items of the next batch; at least one if there is one. */
  take({ bytesMax, recordsMax }: BatchLimits): Item[] {
    let bytes = 2;
    let end = this.#start;
    for (; end < this.#items.length && end - this.#start < recordsMax; end += 1) {
      const item = this.#items[end];
      if (item === undefined) break;
      bytes += sizeOf(item) + SEPARATOR_BYTES;
      if (end > this.#start && (bytes > bytesMax || item.conditions !== undefined)) break;
      if (item.conditions !== undefined) {
        end += 1;
        break;
      }
    }
    const taken = this.#items.slice(this.#start, end);
    this.#start = end;
    for (const item of taken) this.contentBytes -= sizeOf(item);
    this.#shrink();
    return taken;
  }

  takeAll(): readonly Item[] {
    const taken = this.#items.slice(this.#start);
    this.#items = [];
    this.#start = 0;
    this.contentBytes = 0;
    return taken;
  }

  #shrink(): void {
    if (this.#start < 1024 || this.#start * 2 < this.#items.length) return;
    this.#items = this.#items.slice(this.#start);
    this.#start = 0;
  }
}

function sizeOf(item: Item): number {
  return item.piece?.size ?? 0;
}

/** What an item counts against the limits of memory. */
export function weightOf(item: Item): number {
  return sizeOf(item) + ITEM_OVERHEAD_BYTES;
}
