/**
 * The journal's bytes. docs/formats/journal.md describes them in prose; tests with golden files check both.
 *
 * A segment is a file of fixed size: a header block, then frames, then zeros. All numbers are little-endian.
 *
 *   header block, 4096 bytes: the same 96 bytes twice, at 0 and at 2048, zeros between
 *     0   8  "HAPAXJNL"
 *     8   4  format version, 1
 *     12  4  CRC-32 of bytes 16..95, started with the format version
 *     16  8  number of the segment: never used twice, also when the file is
 *     24  8  LSN of its first frame
 *     32  4  salt: the start value of every CRC of a frame in this segment
 *     36  8  time of activation, ms since 1970
 *     44  8  size of the file
 *     52  4  CRC of the frame before its first one; 0 before LSN 1
 *     56  16 store id, as in STORE (store-file.ts)
 *     72  24 zeros
 *
 *   frame, at a multiple of 8: one commit, all or nothing
 *     0   4  "HPXF"
 *     4   4  CRC-32 of bytes 8.. to the end of the payload, started with the segment's salt
 *     8   4  payload length
 *     12  4  count of records
 *     16  8  LSN: one more than the frame's before it
 *     24  8  ordinal of the first change: how many changes the world has had before it
 *     32  8  time of writing, ms since 1970; for people, records have their own
 *     40     payload: records (records.ts), then zeros up to the next multiple of 8
 *
 *   - a frame is valid only in the segment, and in the use of the segment, that it was written to;
 *   - a frame that was not written completely is not valid;
 *   - a file that other software has written is refused and not touched; it does not count as damage.
 */

import { crc32 } from "node:zlib";
import { HapaxError } from "../../../base/errors.ts";
import { ByteReader, ByteWriter } from "./bytes.ts";

/** The format that this version writes and reads. */
export const FORMAT_VERSION = 1;
export const SEGMENT_HEADER_BYTES = 4096;
const HEADER_COPY_AT = 2048;
/** Size of one copy of a segment's header. */
export const HEADER_BYTES = 96;
const SEGMENT_MAGIC = Buffer.from("HAPAXJNL", "latin1");
export const FRAME_HEADER_BYTES = 40;
export const FRAME_MAGIC = Buffer.from("HPXF", "latin1").readUInt32LE(0);
export const FRAME_ALIGN = 8;

export interface SegmentHeader {
  readonly version: number;
  readonly number: number;
  readonly firstLsn: number;
  readonly salt: number;
  readonly timeMs: number;
  /** Size of the file. A shorter file has lost something. */
  readonly bytes: number;
  /**
   * CRC of the frame with the LSN before `firstLsn`. It contains that frame's salt, so the segment follows only that
   * frame.
   */
  readonly crcBefore: number;
  /** 32 hexadecimal digits. */
  readonly storeId: string;
}

export interface FrameHeader {
  readonly crc: number;
  readonly payloadBytes: number;
  readonly records: number;
  readonly lsn: number;
  readonly ordinal: number;
  readonly timeMs: number;
}

export function encodeSegmentHeader(header: SegmentHeader): Buffer {
  const body = new ByteWriter(HEADER_BYTES);
  body.u64(header.number);
  body.u64(header.firstLsn);
  body.u32(header.salt);
  body.u64(header.timeMs);
  body.u64(header.bytes);
  body.u32(header.crcBefore);
  body.raw(Buffer.from(header.storeId, "hex"));
  body.zeros(HEADER_BYTES - 16 - body.length);
  const copy = new ByteWriter(HEADER_BYTES);
  copy.raw(SEGMENT_MAGIC);
  copy.u32(header.version);
  copy.u32(crc32(body.bytes(), header.version));
  copy.raw(body.bytes());
  const block = Buffer.alloc(SEGMENT_HEADER_BYTES);
  block.set(copy.bytes(), 0);
  block.set(copy.bytes(), HEADER_COPY_AT);
  return block;
}

/** Returns undefined if neither copy is whole. Returns an unknown version as it is. */
export function decodeSegmentHeader(block: Buffer): SegmentHeader | undefined {
  if (block.length < SEGMENT_HEADER_BYTES) return undefined;
  return decodeHeaderCopy(block, 0) ?? decodeHeaderCopy(block, HEADER_COPY_AT);
}

function decodeHeaderCopy(block: Buffer, at: number): SegmentHeader | undefined {
  const copy = block.subarray(at, at + HEADER_BYTES);
  if (!copy.subarray(0, 8).equals(SEGMENT_MAGIC)) return undefined;
  const reader = new ByteReader(copy, 8);
  const version = reader.u32();
  if (reader.u32() !== crc32(copy.subarray(16), version)) return undefined;
  const number = reader.u64();
  const firstLsn = reader.u64();
  const salt = reader.u32();
  const timeMs = reader.u64();
  const bytes = reader.u64();
  const crcBefore = reader.u32();
  const storeId = reader.raw(16).toString("hex");
  return { version, number, firstLsn, salt, timeMs, bytes, crcBefore, storeId };
}

/** Throws `format_unknown` if other software has written this segment's header block. Lets damage pass. */
export function requireKnownFormat(name: string, block: Buffer): void {
  const version = decodeSegmentHeader(block)?.version;
  if (version !== undefined && version !== FORMAT_VERSION) throw unknownFormat(name, version);
}

export function unknownFormat(name: string, version: number): HapaxError {
  const what = `its format is ${version}, this version of Hapax knows format ${FORMAT_VERSION}`;
  return new HapaxError("format_unknown", `${what}; nothing was changed: file=${name}`);
}

export function alignFrame(bytes: number): number {
  return Math.ceil(bytes / FRAME_ALIGN) * FRAME_ALIGN;
}

/** Returns undefined if there is no frame here that could fit into `bytesMax`. */
export function decodeFrameHeader(
  bytes: Buffer,
  at: number,
  bytesMax: number,
): FrameHeader | undefined {
  if (at + FRAME_HEADER_BYTES > bytes.length || bytes.readUInt32LE(at) !== FRAME_MAGIC) {
    return undefined;
  }
  const payloadBytes = bytes.readUInt32LE(at + 8);
  if (FRAME_HEADER_BYTES + payloadBytes > bytesMax) return undefined;
  const lsn = readU64(bytes, at + 16);
  const ordinal = readU64(bytes, at + 24);
  const timeMs = readU64(bytes, at + 32);
  if (lsn === undefined || ordinal === undefined || timeMs === undefined) return undefined;
  return {
    crc: bytes.readUInt32LE(at + 4),
    payloadBytes,
    records: bytes.readUInt32LE(at + 12),
    lsn,
    ordinal,
    timeMs,
  };
}

function readU64(bytes: Buffer, at: number): number | undefined {
  const value = bytes.readUInt32LE(at + 4) * 4_294_967_296 + bytes.readUInt32LE(at);
  return Number.isSafeInteger(value) ? value : undefined;
}

/** Whether the frame at `at` is what was written. The whole frame must lie in `bytes`. */
export function isFrameValid(
  bytes: Buffer,
  at: number,
  header: FrameHeader,
  salt: number,
): boolean {
  const end = at + FRAME_HEADER_BYTES + header.payloadBytes;
  return end <= bytes.length && crc32(bytes.subarray(at + 8, end), salt) === header.crc;
}
