/**
 * The index: where in the journal the data of each stream lies.
 *
 * An extent is a run of consecutive data records of one stream in one frame. It costs 20 bytes, so ten million
 * appends cost at most 200 MB. Compaction joins runs again.
 *
 *   IX1  the extents of a stream follow each other in its offsets, without hole or overlap;
 *   IX2  the live bytes of a segment are the bytes of the extents that point into it;
 *   IX3  a trim removes whole extents that end at or before its offset, and nothing else.
 */

import { assert } from "../../../base/assert.ts";
import { IdMap } from "../../../base/id-map.ts";
import type { Offset, StreamId } from "../../core/types.ts";

export interface Extent {
  /** Offset in the stream where the first record's data starts. */
  readonly start: Offset;
  readonly segment: number;
  /** Position of the first record in the segment's file. */
  readonly position: number;
  /** Size of the records on disk. */
  readonly bytes: number;
}

/** Most bytes of an extent. To find one record, more should not be read. */
export const EXTENT_BYTES_MAX = 128 * 1024;

/**
 * The extents of one stream. Most streams have one, so plain members hold the first. With the second all move to
 * typed arrays that grow.
 */
export class StreamExtents {
  #count = 0;
  /** Places at the beginning of the arrays that a trim has left. */
  #head = 0;
  #start: Offset;
  #segment = 0;
  #position = 0;
  #bytes = 0;
  #starts: Float64Array | undefined;
  #places: Uint32Array | undefined; // segment, position, bytes
  /** Offset after the last record. */
  end: Offset;

  constructor(start: Offset) {
    this.#start = start;
    this.end = start;
  }

  get count(): number {
    return this.#count;
  }

  /** Offset of the first byte that is kept, or the end if none is. */
  get first(): Offset {
    return this.#count === 0 ? this.end : this.at(0).start;
  }

  at(index: number): Extent {
    if (this.#starts === undefined || this.#places === undefined) {
      assert(index === 0 && this.#count === 1, "IX1 an extent is asked for that is not there");
      return {
        start: this.#start,
        segment: this.#segment,
        position: this.#position,
        bytes: this.#bytes,
      };
    }
    const at = this.#head + index;
    const place = at * 3;
    return {
      start: (this.#starts[at] ?? 0) as Offset,
      segment: this.#places[place] ?? 0,
      position: this.#places[place + 1] ?? 0,
      bytes: this.#places[place + 2] ?? 0,
    };
  }

  /** Adds a run at the end; a run that continues the last one on disk joins it. */
  add(extent: Extent, end: Offset): void {
    assert(extent.start === this.end, "IX1 an extent does not follow the one before it");
    this.end = end;
    if (this.#count > 0) {
      const last = this.at(this.#count - 1);
      const isNext =
        last.segment === extent.segment && last.position + last.bytes === extent.position;
      if (isNext && last.bytes + extent.bytes <= EXTENT_BYTES_MAX) {
        this.#put(this.#count - 1, { ...last, bytes: last.bytes + extent.bytes });
        return;
      }
    }
    this.#grow(this.#count + 1);
    this.#put(this.#count, extent);
    this.#count += 1;
  }

  /**
   * Returns the index of the extent that holds the offset, or the number of extents if the offset is at or after the
   * end.
   */
  find(offset: Offset): number {
    if (offset >= this.end) return this.#count;
    let low = 0;
    let high = this.#count - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if (this.at(middle).start <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Replaces the extents from `from` up to, not including, `to`. */
  replace(from: number, to: number, extents: readonly Extent[]): void {
    const tail: Extent[] = [];
    for (let index = to; index < this.#count; index += 1) tail.push(this.at(index));
    this.#grow(from + extents.length + tail.length);
    this.#count = from;
    for (const extent of [...extents, ...tail]) {
      this.#put(this.#count, extent);
      this.#count += 1;
    }
  }

  /** IX3: removes the extents that end at or before the offset. A repeated trim removes nothing. */
  trim(to: Offset, forget: (segment: number, bytes: number) => void): void {
    const gone = this.find(to);
    if (gone === 0) return;
    this.eachSegment(gone, forget);
    const count = this.#count - gone;
    const only = count === 1 ? this.at(gone) : undefined;
    this.#head += gone;
    this.#count = count;
    if (count <= 1) {
      this.#starts = undefined;
      this.#places = undefined;
      this.#head = 0;
      if (only !== undefined) this.#put(0, only);
    } else if (this.#head > this.#count) {
      // What is left is moved seldom: each time the arrays are at least halved.
      const end = this.#head + this.#count;
      this.#starts = this.#starts?.slice(this.#head, end);
      this.#places = this.#places?.slice(this.#head * 3, end * 3);
      this.#head = 0;
    }
  }

  /** Calls for the first `count` extents, once for neighbours in one segment. */
  eachSegment(count: number, call: (segment: number, bytes: number) => void): void {
    if (this.#places === undefined) {
      if (count > 0) call(this.#segment, this.#bytes);
      return;
    }
    let segment = -1;
    let bytes = 0;
    for (let at = this.#head; at < this.#head + count; at += 1) {
      const next = this.#places[at * 3] ?? 0;
      if (next !== segment && bytes > 0) {
        call(segment, bytes);
        bytes = 0;
      }
      segment = next;
      bytes += this.#places[at * 3 + 2] ?? 0;
    }
    if (bytes > 0) call(segment, bytes);
  }

  #put(index: number, extent: Extent): void {
    if (this.#starts === undefined || this.#places === undefined) {
      this.#start = extent.start;
      this.#segment = extent.segment;
      this.#position = extent.position;
      this.#bytes = extent.bytes;
      return;
    }
    const at = this.#head + index;
    this.#starts[at] = extent.start;
    this.#places[at * 3] = extent.segment;
    this.#places[at * 3 + 1] = extent.position;
    this.#places[at * 3 + 2] = extent.bytes;
  }

  #grow(count: number): void {
    if (count <= 1 || this.#head + count <= (this.#starts?.length ?? 0)) return;
    const capacity = Math.max(count, this.#count * 2, 4);
    const starts = new Float64Array(capacity);
    const places = new Uint32Array(capacity * 3);
    if (this.#starts !== undefined && this.#places !== undefined) {
      const end = this.#head + this.#count;
      starts.set(this.#starts.subarray(this.#head, end));
      places.set(this.#places.subarray(this.#head * 3, end * 3));
      this.#starts = starts;
      this.#places = places;
      this.#head = 0;
      return;
    }
    const first = this.#count === 1 ? this.at(0) : undefined;
    this.#starts = starts;
    this.#places = places;
    if (first !== undefined) this.#put(0, first);
  }
}

/** The extents of all streams, and the live bytes of each segment. */
export class ExtentIndex {
  readonly streams = new IdMap<StreamId, StreamExtents>();
  readonly #liveBytes = new Map<number, number>();
  /** Streams that a snapshot has from a later offset on. */
  readonly trimmed = new Set<StreamId>();

  create(stream: StreamId, start: Offset): StreamExtents {
    const extents = new StreamExtents(start);
    this.streams.set(stream, extents);
    return extents;
  }

  add(stream: StreamId, extent: Extent, end: Offset): void {
    const extents = this.streams.get(stream);
    if (extents === undefined) return;
    extents.add(extent, end);
    this.#count(extent.segment, extent.bytes);
  }

  remove(stream: StreamId): void {
    const extents = this.streams.get(stream);
    if (extents === undefined) return;
    this.streams.delete(stream);
    extents.eachSegment(extents.count, (segment, bytes) => {
      this.#count(segment, -bytes);
    });
  }

  trim(stream: StreamId, to: Offset): void {
    this.streams.get(stream)?.trim(to, (segment, bytes) => {
      this.#count(segment, -bytes);
    });
  }

  /** Points a part of a stream to its new place. */
  move(stream: StreamId, from: number, to: number, extents: readonly Extent[]): void {
    const current = this.streams.get(stream);
    if (current === undefined) return;
    for (let index = from; index < to; index += 1) {
      const { segment, bytes } = current.at(index);
      this.#count(segment, -bytes);
    }
    for (const { segment, bytes } of extents) this.#count(segment, bytes);
    current.replace(from, to, extents);
  }

  /** Segments that hold live data. */
  segments(): Iterable<number> {
    return this.#liveBytes.keys();
  }

  liveBytes(segment: number): number {
    return this.#liveBytes.get(segment) ?? 0;
  }

  #count(segment: number, bytes: number): void {
    const next = (this.#liveBytes.get(segment) ?? 0) + bytes;
    if (next === 0) this.#liveBytes.delete(segment);
    else this.#liveBytes.set(segment, next);
  }
}
