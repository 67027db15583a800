/**
 * Streams in memory: for tests, and for data that may end with the process. It is the shortest store, so read it before you write one
 * of your own.
 */

import type { Change } from "../core/change.ts";
import type { Offset, StreamId, TimeMs } from "../core/types.ts";
import { createWorld } from "../core/world.ts";
import { HapaxError } from "../../base/errors.ts";
import { systemRandom } from "../../base/random.ts";
import type { Page, Store } from "../store.ts";

/** Options of a memory store. */
export interface MemoryStoreOptions {
  /** The most bytes of data that the store takes. Beyond that, writes get `store_full`. Default: no limit. */
  readonly bytesMax?: number;
}

interface MemoryStream {
  readonly starts: Offset[];
  readonly appends: Uint8Array[];
  readonly times: TimeMs[];
  bytes: number;
}

/**
 * Opens a store that lives as long as the process.
 *
 * ```ts
 * import { openMemoryStore } from "hapax/stores/memory";
 *
 * const store = openMemoryStore({ bytesMax: 64 * 1024 * 1024 });
 * console.assert(store.supports.durability === "memory");
 * await store.close();
 * ```
 */
export function openMemoryStore(options: MemoryStoreOptions = {}): Store {
  const world = createWorld();
  const streams = new Map<StreamId, MemoryStream>();
  let liveBytes = 0;
  const room = { bytes: options.bytesMax ?? Number.MAX_SAFE_INTEGER };
  const secret = systemRandom.id() + systemRandom.id();
  let isOpen = true;

  function requireOpen(): void {
    if (!isOpen) throw new HapaxError("store_closed", "the memory store is closed");
  }

  function keep(change: Change): void {
    if (change.kind === "created") {
      const start = change.fork?.at ?? 0;
      streams.set(change.stream, { starts: [start as Offset], appends: [], times: [], bytes: 0 });
    } else if (change.kind === "removed") {
      const freed = streams.get(change.stream)?.bytes ?? 0;
      room.bytes += freed;
      liveBytes -= freed;
      streams.delete(change.stream);
    } else if (change.kind === "trimmed") {
      const stream = streams.get(change.stream);
      const freed = stream === undefined ? 0 : trim(stream, change.to);
      room.bytes += freed;
      liveBytes -= freed;
    } else if (change.kind === "appended" && change.data.length > 0) {
      const stream = streams.get(change.stream);
      const start = stream?.starts.at(-1);
      if (stream === undefined || start === undefined) return;
      // The body of a request is a window into a much larger network buffer: keep the bytes only.
      stream.appends.push(new Uint8Array(change.data));
      stream.times.push(change.atMs);
      stream.starts.push((start + change.data.length) as Offset);
      stream.bytes += change.data.length;
      room.bytes -= change.data.length;
      liveBytes += change.data.length;
    }
  }

  return {
    supports: { durability: "memory" },
    world,
    room,
    stats: () => ({ liveBytes, fileBytes: liveBytes, recoveryMs: 0 }),
    async commit(changes: readonly Change[]): Promise<void> {
      requireOpen();
      for (const change of changes) keep(change);
    },
    async read(id: StreamId, from: Offset, to: Offset, bytesMax: number): Promise<Page> {
      requireOpen();
      const stream = streams.get(id);
      if (stream === undefined) return { start: from, appends: [] };
      return readPage(stream, from, to, bytesMax);
    },
    async seek(id: StreamId, from: Offset, to: Offset, atMs: TimeMs): Promise<Offset> {
      requireOpen();
      const stream = streams.get(id);
      return stream === undefined ? to : findTime(stream, from, to, atMs);
    },
    async secret(): Promise<string> {
      return secret;
    },
    async close(): Promise<void> {
      isOpen = false;
      streams.clear();
    },
  };
}

/** Drops whole appends before the offset. Returns their bytes. */
function trim(stream: MemoryStream, to: Offset): number {
  const count = findAppend(stream.starts, to);
  const from = stream.starts[0] ?? 0;
  stream.starts.splice(0, count);
  stream.appends.splice(0, count);
  stream.times.splice(0, count);
  const freed = (stream.starts[0] ?? 0) - from;
  stream.bytes -= freed;
  return freed;
}

function readPage(stream: MemoryStream, from: Offset, to: Offset, bytesMax: number): Page {
  const first = findAppend(stream.starts, from);
  const start = stream.starts[first];
  if (start === undefined || start > from) return { start: from, appends: [] };
  const appends: Uint8Array[] = [];
  let bytes = 0;
  for (let index = first; index < stream.appends.length; index += 1) {
    const append = stream.appends[index];
    const left = to - start - bytes;
    if (append === undefined || left <= 0) break;
    if (bytes > 0 && bytes + append.length > bytesMax) break;
    appends.push(append.length <= left ? append : append.subarray(0, left));
    bytes += append.length;
  }
  return { start, appends };
}

/** Finds the append that holds the offset: the last one that starts at or before it. */
function findAppend(starts: readonly Offset[], offset: Offset): number {
  let low = 0;
  let high = starts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if ((starts[middle] ?? Infinity) <= offset) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Finds where the first append begins, from `from` on, that has this time or a later one. */
function findTime({ starts, times }: MemoryStream, from: Offset, to: Offset, atMs: TimeMs): Offset {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const isOld = (times[middle] ?? 0) < atMs || (starts[middle] ?? 0) < from;
    if (isOld) low = middle + 1;
    else high = middle;
  }
  return Math.min(starts[low] ?? to, to) as Offset;
}
