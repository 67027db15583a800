/**
 * Keeps the newest data of all streams in memory, within a limit, so that readers at the tail never touch the disk.
 *
 *   - the cached data of a stream ends at its tail and has no holes;
 *   - the oldest data of all streams is dropped first;
 *   - held memory counts: a small part of a large buffer keeps the whole buffer, and counts as all of it;
 *   - removed streams leave nothing behind that grows with their number;
 *   - an entry is three numbers and a holder, and no object of its own: an object that lives for seconds is what garbage collection
 *     pays most for (decision 0170).
 */

import { assert } from "../../../base/assert.ts";
import { advance, type Offset, type StreamId } from "../../core/types.ts";
import type { Page } from "../../store.ts";
import type { Frame } from "./frame.ts";

interface CachedStream {
  readonly stream: StreamId;
  /** Offsets where the cached appends start; the first `gone` of them have been dropped. */
  starts: Offset[];
  /** Where each of them lies in its memory. */
  places: number[];
  /** The memory that each of them keeps. */
  holders: Holder[];
  gone: number;
  /** Where the last of them ends. */
  end: Offset;
}

/** Memory that entries share: that of a frame, or a piece for copies. */
interface Holder {
  readonly memory: ArrayBufferLike;
  entries: number;
}

/** What an entry costs besides its bytes, and what a stream with entries costs besides those. */
const ENTRY_BYTES = 64;
const STREAM_BYTES = 320;
/**
 * The memory in which copies of small data share a piece. Not Node's pool of small buffers: other parts of the process share that one, so that a
 * few bytes would keep, and count as, the whole of it. It has 8 KiB or 64 KiB, as the version of Node is.
 */
const PIECE_BYTES = 8192;
/** Places in the queue that may be unused before it is shortened. */
const UNUSED_PLACES = 4096;

export class TailCache {
  readonly #bytesMax: number;
  readonly #streams = new Map<StreamId, CachedStream>();
  /** Oldest first; the first `#drained` have been dropped. */
  #queue: CachedStream[] = [];
  #drained = 0;
  /** Places in the queue whose streams were removed. */
  #empty = 0;
  #bytes = 0;
  #lastHolder: Holder | undefined;
  #piece: Uint8Array = EMPTY;
  #pieceUsed = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Places in the queue, including those of removed streams. */
  get places(): number {
    return this.#queue.length;
  }

  /** Adds the data of one frame. Copies borrowed data, and data that would keep more than twice its size. */
  addFrame({ written, data: placed }: Pick<Frame, "written" | "data">): void {
    let shared = 0;
    for (const { borrowed, length } of placed) if (borrowed === undefined) shared += length;
    const isWorthIt = 2 * shared >= written.buffer.byteLength;
    for (const { stream, start, length, at, borrowed } of placed) {
      if (borrowed !== undefined) this.#addCopy(stream, start, borrowed, 0, length);
      else if (isWorthIt)
        this.#keep(stream, start, written.buffer, written.byteOffset + at, length);
      else this.#addCopy(stream, start, written, at, length);
    }
  }

  /** Adds data whose bytes never change. */
  add(stream: StreamId, start: Offset, data: Uint8Array): void {
    this.#keep(stream, start, data.buffer, data.byteOffset, data.length);
  }

  #addCopy(stream: StreamId, start: Offset, bytes: Uint8Array, at: number, length: number): void {
    const source = bytes.subarray(at, at + length);
    if (length > PIECE_BYTES / 2) {
      this.add(stream, start, new Uint8Array(source));
      return;
    }
    if (this.#pieceUsed + length > this.#piece.length) {
      this.#piece = Buffer.allocUnsafeSlow(PIECE_BYTES);
      this.#pieceUsed = 0;
    }
    const { buffer, byteOffset } = this.#piece;
    this.#piece.set(source, this.#pieceUsed);
    this.#keep(stream, start, buffer, byteOffset + this.#pieceUsed, length);
    this.#pieceUsed += length;
  }

  #keep(
    stream: StreamId,
    start: Offset,
    memory: ArrayBufferLike,
    place: number,
    length: number,
  ): void {
    const holder = this.#hold(memory);
    const end = advance(start, length);
    let cached = this.#streams.get(stream);
    if (cached === undefined) {
      // An array that begins with its first element has room for that alone. Most streams need no more.
      cached = { stream, starts: [start], places: [place], holders: [holder], gone: 0, end };
      this.#streams.set(stream, cached);
      this.#bytes += STREAM_BYTES;
    } else {
      assert(cached.end === start, "the cached data of a stream has a hole");
      cached.starts.push(start);
      cached.places.push(place);
      cached.holders.push(holder);
      cached.end = end;
    }
    this.#queue.push(cached);
    this.#bytes += ENTRY_BYTES;
    while (this.#bytes > this.#bytesMax && this.#drained < this.#queue.length) this.#dropOldest();
    const unused = this.#drained + this.#empty;
    if (unused > UNUSED_PLACES && unused * 2 > this.#queue.length) this.#closeRanks();
  }

  /** Removes dropped and removed entries from the queue. */
  #closeRanks(): void {
    const left = this.#queue.slice(this.#drained);
    this.#queue = this.#empty === 0 ? left : left.filter(({ starts }) => starts.length > 0);
    this.#drained = 0;
    this.#empty = 0;
  }

  /** Entries of one buffer follow each other, so the last holder is mostly the right one. */
  #hold(memory: ArrayBufferLike): Holder {
    let holder = this.#lastHolder;
    if (holder?.memory !== memory || holder.entries === 0) {
      holder = { memory, entries: 0 };
      this.#lastHolder = holder;
      this.#bytes += memory.byteLength;
    }
    holder.entries += 1;
    return holder;
  }

  #release(holder: Holder | undefined): void {
    this.#bytes -= ENTRY_BYTES;
    if (holder === undefined) return;
    holder.entries -= 1;
    if (holder.entries > 0) return;
    this.#bytes -= holder.memory.byteLength;
    assert(this.#bytes >= 0, "the cache has freed more than it held");
    if (holder === this.#lastHolder) this.#lastHolder = undefined;
  }

  /** Returns undefined if the page would start before the cached data. */
  read(stream: StreamId, from: Offset, to: Offset, bytesMax: number): Page | undefined {
    const cached = this.#streams.get(stream);
    const first = cached?.starts[cached.gone];
    if (cached === undefined || first === undefined || from < first) return undefined;
    const index = findStart(cached.starts, cached.gone, from);
    const start = cached.starts[index] ?? from;
    // No append holds an offset at the tail.
    if (endOf(cached, index) <= from) return { start: from, appends: [] };
    const appends: Uint8Array[] = [];
    let position = start;
    for (let at = index; at < cached.starts.length && position < to; at += 1) {
      const length = endOf(cached, at) - position;
      if (appends.length > 0 && position + length - start > bytesMax) break;
      const { memory } = cached.holders[at] ?? NO_HOLDER;
      appends.push(Buffer.from(memory, cached.places[at], Math.min(length, to - position)));
      position = advance(position, length);
    }
    return { start, appends };
  }

  remove(stream: StreamId): void {
    const cached = this.#streams.get(stream);
    if (cached === undefined) return;
    this.#streams.delete(stream);
    this.#bytes -= STREAM_BYTES;
    // Its places in the queue stay for a while, and are empty.
    this.#empty += cached.starts.length - cached.gone;
    for (let at = cached.gone; at < cached.holders.length; at += 1) {
      this.#release(cached.holders[at]);
    }
    cached.starts = [];
    cached.places = [];
    cached.holders = [];
    cached.gone = 0;
  }

  #dropOldest(): void {
    const cached = this.#queue[this.#drained];
    this.#drained += 1;
    if (cached === undefined || cached.gone === cached.starts.length) {
      this.#empty -= 1;
      return;
    }
    this.#release(cached.holders[cached.gone]);
    cached.holders[cached.gone] = NO_HOLDER;
    cached.gone += 1;
    if (cached.gone === cached.starts.length) {
      if (this.#streams.get(cached.stream) === cached) {
        this.#streams.delete(cached.stream);
        this.#bytes -= STREAM_BYTES;
      }
    } else if (cached.gone > 64 && cached.gone * 2 > cached.starts.length) {
      cached.starts = cached.starts.slice(cached.gone);
      cached.places = cached.places.slice(cached.gone);
      cached.holders = cached.holders.slice(cached.gone);
      cached.gone = 0;
    }
  }
}

const EMPTY = new Uint8Array(0);
const NO_HOLDER: Holder = { memory: new ArrayBuffer(0), entries: 0 };

function endOf({ starts, end }: CachedStream, index: number): Offset {
  return starts[index + 1] ?? end;
}

function findStart(starts: readonly Offset[], from: number, offset: Offset): number {
  let low = from;
  let high = starts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if ((starts[middle] ?? Infinity) <= offset) low = middle;
    else high = middle - 1;
  }
  return low;
}
