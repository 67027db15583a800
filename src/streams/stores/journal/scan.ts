/**
 * Reads a segment frame by frame, and tells its end from damage.
 *
 *   RC1  a frame that was cut short with nothing valid behind it is the torn end of the journal;
 *   RC2  an invalid frame with a valid one behind it is damage, and is never skipped.
 */

import { ByteReader } from "./bytes.ts";
import {
  alignFrame,
  decodeFrameHeader,
  FRAME_ALIGN,
  FRAME_HEADER_BYTES,
  FRAME_MAGIC,
  type FrameHeader,
  isFrameValid,
  SEGMENT_HEADER_BYTES,
} from "./format.ts";
import { type DecodedRecord, decodeRecord } from "./records.ts";
import type { ByteSource } from "./segment-log.ts";

const WINDOW_BYTES = 4 * 1024 * 1024;

export interface ScannedFrame {
  readonly header: FrameHeader;
  /** Position in the segment's file. */
  readonly position: number;
  /** The whole frame. */
  readonly bytes: Buffer;
}

export interface ScanEnd {
  /** Where the next frame would be. */
  readonly end: number;
  readonly nextLsn: number;
  /** The segment ends with bytes that are neither a frame nor zero: an incomplete frame. */
  readonly isTorn: boolean;
}

/** Calls `take` for each frame from `from` on; stops at the first place without a valid one. */
export async function scanSegment(
  file: ByteSource,
  salt: number,
  firstLsn: number,
  take: (frame: ScannedFrame) => void,
  from: number = SEGMENT_HEADER_BYTES,
): Promise<ScanEnd> {
  const fileBytes = await file.size();
  let nextLsn = firstLsn;
  let position = from;
  let windowBytes = WINDOW_BYTES;
  for (;;) {
    const length = Math.max(0, Math.min(windowBytes, fileBytes - position));
    const window = await file.read(position, length);
    let at = 0;
    let header = decodeFrameHeader(window, at, fileBytes - position);
    while (header !== undefined && header.lsn === nextLsn) {
      const bytes = FRAME_HEADER_BYTES + header.payloadBytes;
      if (at + bytes > window.length || !isFrameValid(window, at, header, salt)) break;
      take({ header, position: position + at, bytes: window.subarray(at, at + bytes) });
      nextLsn += 1;
      at += alignFrame(bytes);
      header = decodeFrameHeader(window, at, fileBytes - position - at);
    }
    position += at;
    const isCutByWindow = at + neededBytes(header) > window.length && position < fileBytes;
    if (isCutByWindow && (at > 0 || window.length < fileBytes - position)) {
      windowBytes = Math.max(WINDOW_BYTES, neededBytes(header));
      continue;
    }
    const rest = window.subarray(at, at + FRAME_HEADER_BYTES);
    return { end: position, nextLsn, isTorn: rest.some((byte) => byte !== 0) };
  }
}

/** Returns how many bytes the next frame needs. */
function neededBytes(header: FrameHeader | undefined): number {
  return FRAME_HEADER_BYTES + (header?.payloadBytes ?? 0);
}

/** RC2: finds the first valid frame at or after `from` that has at least this LSN. */
export async function findFrameBehind(
  file: ByteSource,
  salt: number,
  from: number,
  lsnMin: number,
): Promise<{ readonly position: number; readonly lsn: number } | undefined> {
  const fileBytes = await file.size();
  for (let position = from; position < fileBytes; position += WINDOW_BYTES) {
    const length = Math.min(WINDOW_BYTES + FRAME_HEADER_BYTES, fileBytes - position);
    const window = await file.read(position, length);
    for (let at = 0; at + FRAME_HEADER_BYTES <= window.length; at += FRAME_ALIGN) {
      if (window.readUInt32LE(at) !== FRAME_MAGIC) continue;
      const header = decodeFrameHeader(window, at, fileBytes - position - at);
      if (header === undefined || header.lsn < lsnMin) continue;
      const bytes = FRAME_HEADER_BYTES + header.payloadBytes;
      const frame = await file.read(position + at, bytes);
      if (isFrameValid(frame, 0, header, salt)) return { position: position + at, lsn: header.lsn };
    }
  }
  return undefined;
}

/** A record and where it lies in its frame. */
export interface PlacedRecord {
  readonly record: DecodedRecord;
  readonly at: number;
  readonly bytes: number;
}

export function* placedRecordsOf(frame: ScannedFrame): Generator<PlacedRecord> {
  const reader = new ByteReader(frame.bytes, FRAME_HEADER_BYTES);
  for (let count = 0; count < frame.header.records; count += 1) {
    const at = reader.position;
    const record = decodeRecord(reader);
    yield { record, at, bytes: reader.position - at };
  }
}
