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
    const place = index * 3;
    return {
      start: (this.#starts[index] ?? 0) as Offset,
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

  /** IX3: removes the extents that end at or before the offset, and returns them. A repeated trim removes nothing. */
  trim(to: Offset): readonly Extent[] {
    const gone = this.find(to);
    if (gone === 0) return [];
    const forgotten = Array.from({ length: gone }, (_, index) => this.at(index));
    const count = this.#count - gone;
    const only = count === 1 ? this.at(gone) : undefined;
    this.#starts = count > 1 ? this.#starts?.slice(gone, this.#count) : undefined;
    this.#places = count > 1 ? this.#places?.slice(gone * 3, this.#count * 3) : undefined;
    this.#count = count;
    if (only !== undefined) this.#put(0, only);
    return forgotten;
  }

  #put(index: number, extent: Extent): void {
    if (this.#starts === undefined || this.#places === undefined) {
      this.#start = extent.start;
      this.#segment = extent.segment;
      this.#position = extent.position;
      this.#bytes = extent.bytes;
      return;
    }
    this.#starts[index] = extent.start;
    this.#places[index * 3] = extent.segment;
    this.#places[index * 3 + 1] = extent.position;
    this.#places[index * 3 + 2] = extent.bytes;
  }

  #grow(count: number): void {
    if (count <= 1 || count <= (this.#starts?.length ?? 0)) return;
    const capacity = Math.max(count, (this.#starts?.length ?? 2) * 2);
    const starts = new Float64Array(capacity);
    const places = new Uint32Array(capacity * 3);
    if (this.#starts !== undefined && this.#places !== undefined) {
      starts.set(this.#starts);
      places.set(this.#places);
      this.#starts = starts;
      this.#places = places;
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
  readonly streams = new Map<StreamId, StreamExtents>();
  readonly #liveBytes = new Map<number, number>();

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
    for (let index = 0; index < extents.count; index += 1) {
      const { segment, bytes } = extents.at(index);
      this.#count(segment, -bytes);
    }
  }

  trim(stream: StreamId, to: Offset): void {
    for (const { segment, bytes } of this.streams.get(stream)?.trim(to) ?? []) {
      this.#count(segment, -bytes);
    }
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
