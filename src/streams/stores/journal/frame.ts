/**
 * Builds a frame: one commit in as few buffers as possible, with the places of its data.
 *
 * Small data is copied beside its record, because one buffer is written faster than many. Large data is written from
 * the caller's buffer. The tail cache shares the copies of small data. Of large data it makes its own copy after the
 * write, because the caller may reuse its buffer.
 */

import { assert } from "../../../base/assert.ts";
import { crc32 } from "node:zlib";
import type { Change } from "../../core/change.ts";
import { advance, type Offset, type StreamId } from "../../core/types.ts";
import { ByteWriter } from "./bytes.ts";
import { joinCrc } from "./crc.ts";
import type { Extent } from "./extents.ts";
import { EXTENT_BYTES_MAX } from "./extents.ts";
import { alignFrame, FRAME_HEADER_BYTES, FRAME_MAGIC } from "./format.ts";
import { encodeChange, encodeDataRecord, type Moved } from "./records.ts";

/** From this size on, a copy costs more than a buffer of its own. */
const LARGE_BYTES = 16 * 1024;
/** A frame of one or two small appends is not worth memory of its own. */
const OWN_BYTES = 640;

/** Consecutive data records of one stream in one frame. */
export interface DataRun {
  readonly stream: StreamId;
  readonly start: Offset;
  end: Offset;
  /** Position of the first record, from the start of the frame. */
  readonly at: number;
  bytes: number;
}

/** Data in a frame, or beside it. */
export interface PlacedData {
  readonly stream: StreamId;
  readonly start: Offset;
  readonly length: number;
  /** Where its copy begins in `written`, if it has one. */
  readonly at: number;
  /** Undefined: it was copied. Else these bytes, which belong to the caller: make a copy to keep them. */
  readonly borrowed: Uint8Array | undefined;
}

export interface Frame {
  readonly buffers: readonly Uint8Array[];
  readonly bytes: number;
  readonly crc: number;
  readonly runs: readonly DataRun[];
  /** Everything but borrowed data. */
  readonly written: Uint8Array;
  readonly data: readonly PlacedData[];
}

export interface FrameStart {
  readonly lsn: number;
  readonly ordinal: number;
  readonly timeMs: number;
  readonly salt: number;
}

/** Collects the runs of data records, in the frame's order. The code that reads a frame uses it too. */
export class Runs {
  readonly list: DataRun[] = [];

  add(stream: StreamId, start: Offset, end: Offset, at: number, bytes: number): void {
    const last = this.list.at(-1);
    if (
      last !== undefined &&
      last.stream === stream &&
      last.end === start &&
      last.at + last.bytes === at &&
      last.bytes + bytes <= EXTENT_BYTES_MAX
    ) {
      last.end = end;
      last.bytes += bytes;
      return;
    }
    this.list.push({ stream, start, end, at, bytes });
  }
}

export function toExtent(run: DataRun, segment: number, framePosition: number): Extent {
  return { start: run.start, segment, position: framePosition + run.at, bytes: run.bytes };
}

interface Piece {
  /** How many bytes of the writer come before this data. */
  readonly at: number;
  readonly data: Uint8Array;
  /** The checksum of the data, which its record has too. */
  readonly crc: number;
}

export class FrameBuilder {
  readonly #writer: ByteWriter;
  readonly #pieces: Piece[] = [];
  readonly #placed: PlacedData[] = [];
  readonly #runs = new Runs();
  #largeBytes = 0;
  #records = 0;

  constructor(bytesExpected: number) {
    // The cache of tails keeps the memory of a frame with enough data, and none that other parts of the process share.
    this.#writer = new ByteWriter(FRAME_HEADER_BYTES + bytesExpected, bytesExpected > OWN_BYTES);
    this.#writer.zeros(FRAME_HEADER_BYTES);
  }

  get bytes(): number {
    return this.#writer.length + this.#largeBytes;
  }

  change(change: Exclude<Change, { kind: "appended" }>): void {
    encodeChange(this.#writer, change);
    this.#records += 1;
  }

  /** Adds an append, or a moved part of one, that starts at `start` in its stream. */
  data(record: Extract<Change, { kind: "appended" }> | Moved, start: Offset): void {
    const at = this.bytes;
    const { data, stream } = record;
    const crc = encodeDataRecord(this.#writer, record, start);
    const copyAt = data.length < LARGE_BYTES ? this.#writer.length : undefined;
    if (copyAt === undefined) {
      this.#pieces.push({ at: this.#writer.length, data, crc });
      this.#largeBytes += data.length;
    } else {
      this.#writer.raw(data);
    }
    this.#records += 1;
    if (data.length === 0) return; // A close alone has nothing to read.
    const { length } = data;
    const borrowed = copyAt === undefined ? data : undefined;
    this.#placed.push({ stream, start, length, at: copyAt ?? 0, borrowed });
    this.#runs.add(stream, start, advance(start, length), at, this.bytes - at);
  }

  /** Completes the frame. Read `frameBytes` before, to choose the segment that gives the salt. */
  finish(start: FrameStart): Frame {
    const bytes = this.bytes;
    this.#writer.zeros(alignFrame(bytes) - bytes);
    const written = this.#writer.bytes();
    written.writeUInt32LE(FRAME_MAGIC, 0);
    written.writeUInt32LE(bytes - FRAME_HEADER_BYTES, 8);
    written.writeUInt32LE(this.#records, 12);
    const header = new ByteWriter(24);
    header.u64(start.lsn);
    header.u64(start.ordinal);
    header.u64(start.timeMs);
    written.set(header.bytes(), 16);
    const buffers = this.#cut(written);
    const size = buffers.reduce((sum, buffer) => sum + buffer.length, 0);
    assert(size === alignFrame(bytes), "a frame has other bytes than its header says");
    const crc = this.#checksum(written, bytes - this.#largeBytes, start.salt);
    written.writeUInt32LE(crc, 4);
    const data = this.#placed;
    return { buffers, bytes, crc, runs: this.#runs.list, written, data };
  }

  /** Computes the CRC of the frame without its first eight bytes and without the zeros at its end. Large data was summed with its record. */
  #checksum(written: Buffer, end: number, salt: number): number {
    let crc = salt;
    let from = 8;
    for (const piece of this.#pieces) {
      crc = joinCrc(crc32(written.subarray(from, piece.at), crc), piece.crc, piece.data.length);
      from = piece.at;
    }
    return crc32(written.subarray(from, end), crc);
  }

  #cut(written: Buffer): Uint8Array[] {
    if (this.#pieces.length === 0) return [written];
    const buffers: Uint8Array[] = [];
    let from = 0;
    for (const { at, data } of this.#pieces) {
      buffers.push(written.subarray(from, at), data);
      from = at;
    }
    if (from < written.length) buffers.push(written.subarray(from));
    return buffers;
  }
}
