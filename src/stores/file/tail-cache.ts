/**
 * The newest data of all streams in memory, bounded: readers at the tail never touch the disk.
 *
 *   TC1  what a stream has here ends at its tail and has no holes;
 *   TC2  the oldest data of all goes first, whichever stream it belongs to.
 */

import { advance, type Offset, type StreamId } from "../../core/types.ts";
import type { Page } from "../../store.ts";

interface CachedStream {
  /** Offsets where the cached appends start; the first `gone` of them have been dropped. */
  starts: Offset[];
  appends: Uint8Array[];
  gone: number;
}

/** What an entry costs besides its bytes, and what a stream with entries costs besides those. */
const ENTRY_BYTES = 160;
const STREAM_BYTES = 320;

export class TailCache {
  readonly #bytesMax: number;
  readonly #streams = new Map<StreamId, CachedStream>();
  /** Oldest first; the first `#drained` have been dropped. */
  #queue: CachedStream[] = [];
  #owners: StreamId[] = [];
  #drained = 0;
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.#bytes;
  }

  add(stream: StreamId, start: Offset, data: Uint8Array): void {
    let cached = this.#streams.get(stream);
    if (cached === undefined) {
      // Arrays that begin with their first element have room for that alone: most streams stay so.
      cached = { starts: [start], appends: [data], gone: 0 };
      this.#streams.set(stream, cached);
      this.#bytes += STREAM_BYTES;
    } else {
      cached.starts.push(start);
      cached.appends.push(data);
    }
    this.#queue.push(cached);
    this.#owners.push(stream);
    this.#bytes += data.length + ENTRY_BYTES;
    while (this.#bytes > this.#bytesMax && this.#drained < this.#queue.length) this.#dropOldest();
    if (this.#drained > 4096 && this.#drained * 2 > this.#queue.length) {
      this.#queue = this.#queue.slice(this.#drained);
      this.#owners = this.#owners.slice(this.#drained);
      this.#drained = 0;
    }
  }

  /** Undefined when the page would start before what is kept. */
  read(stream: StreamId, from: Offset, to: Offset, bytesMax: number): Page | undefined {
    const cached = this.#streams.get(stream);
    const first = cached?.starts[cached.gone];
    if (cached === undefined || first === undefined || from < first) return undefined;
    const index = findStart(cached.starts, cached.gone, from);
    const start = cached.starts[index] ?? from;
    // Nothing holds an offset at the tail.
    if (start + (cached.appends[index]?.length ?? 0) <= from) return { start: from, appends: [] };
    const appends: Uint8Array[] = [];
    let position = start;
    for (let at = index; at < cached.appends.length && position < to; at += 1) {
      const append = cached.appends[at];
      if (append === undefined) break;
      if (appends.length > 0 && position + append.length - start > bytesMax) break;
      const left = to - position;
      appends.push(append.length <= left ? append : append.subarray(0, left));
      position = advance(position, append.length);
    }
    return { start, appends };
  }

  remove(stream: StreamId): void {
    const cached = this.#streams.get(stream);
    if (cached === undefined) return;
    this.#streams.delete(stream);
    this.#bytes -= STREAM_BYTES;
    // Its places in the queue stay and are found empty.
    for (let at = cached.gone; at < cached.appends.length; at += 1) {
      this.#bytes -= (cached.appends[at]?.length ?? 0) + ENTRY_BYTES;
    }
    cached.starts = [];
    cached.appends = [];
    cached.gone = 0;
  }

  #dropOldest(): void {
    const cached = this.#queue[this.#drained];
    const owner = this.#owners[this.#drained];
    this.#drained += 1;
    const append = cached?.appends[cached.gone];
    if (cached === undefined || append === undefined) return;
    this.#bytes -= append.length + ENTRY_BYTES;
    cached.appends[cached.gone] = EMPTY;
    cached.gone += 1;
    if (cached.gone === cached.appends.length) {
      if (owner !== undefined && this.#streams.get(owner) === cached) {
        this.#streams.delete(owner);
        this.#bytes -= STREAM_BYTES;
      }
    } else if (cached.gone > 64 && cached.gone * 2 > cached.appends.length) {
      cached.starts = cached.starts.slice(cached.gone);
      cached.appends = cached.appends.slice(cached.gone);
      cached.gone = 0;
    }
  }
}

const EMPTY = new Uint8Array(0);

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
