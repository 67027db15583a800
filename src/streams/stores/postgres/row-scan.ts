/**
 * Reads the rows of a segment for the tools: it continues behind damage, where the replay stops.
 *
 *   - every row is either a part of a frame that is given to `take`, or in one range of damage;
 *   - a row shorter than a part ends a frame, so that a changed length swallows no other frame.
 */

import {
  alignFrame,
  decodeFrameHeader,
  FRAME_HEADER_BYTES,
  isFrameValid,
  SEGMENT_HEADER_BYTES,
} from "../journal/format.ts";
import type { ScannedFrame } from "../journal/scan.ts";
import { type FrameRow, PART_BYTES, type ShardTables } from "./tables.ts";

/** Bytes of a segment that are no valid frames, and the frames that must have been there. */
export interface DamagedRows {
  readonly position: number;
  readonly end: number;
  readonly firstLsn: number;
  readonly lastLsn: number;
}

export interface RowScan {
  readonly frames: number;
  readonly end: number;
  readonly nextLsn: number;
  readonly damage: readonly DamagedRows[];
}

interface ScannedSegment {
  readonly number: number;
  readonly salt: number;
  readonly firstLsn: number;
}

/** `follower`: LSN of the first frame of the segment behind it, if that must follow. */
export async function scanRows(
  tables: Pick<ShardTables, "frames">,
  segment: ScannedSegment,
  follower: number | undefined,
  take: (frame: ScannedFrame) => void,
): Promise<RowScan> {
  const check = new RowCheck(segment, take);
  let from = 0;
  for (;;) {
    const rows = await tables.frames(segment.number, from);
    for (const row of rows) check.add(row);
    const last = rows.at(-1);
    if (last === undefined) return check.finish(follower);
    from = last.position + 1;
  }
}

class RowCheck {
  readonly #salt: number;
  readonly #take: (frame: ScannedFrame) => void;
  readonly #damage: DamagedRows[] = [];
  #parts: Buffer[] = [];
  #bytes = 0;
  #end = SEGMENT_HEADER_BYTES;
  /** Where the damage began that nothing valid has followed yet. */
  #damagedFrom: number | undefined;
  #nextLsn: number;
  #frames = 0;

  constructor({ salt, firstLsn }: ScannedSegment, take: (frame: ScannedFrame) => void) {
    this.#salt = salt;
    this.#take = take;
    this.#nextLsn = firstLsn;
  }

  add({ position, lsn, bytes }: FrameRow): void {
    if (position !== this.#end) this.#giveUp(Math.min(position, this.#end));
    const part = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#parts.push(part);
    this.#bytes += part.length;
    this.#end = position + part.length;
    const start = this.#end - this.#bytes;
    const whole = this.#parts.length === 1 ? part : Buffer.concat(this.#parts);
    const header = decodeFrameHeader(whole, 0, Number.MAX_SAFE_INTEGER);
    const size = header === undefined ? 0 : alignFrame(FRAME_HEADER_BYTES + header.payloadBytes);
    if (header !== undefined && this.#bytes < size && part.length === PART_BYTES) return;
    const isWhole =
      header !== undefined &&
      this.#bytes === size &&
      header.lsn >= this.#nextLsn &&
      header.lsn === lsn &&
      isFrameValid(whole, 0, header, this.#salt);
    if (!isWhole) {
      this.#giveUp(start);
      return;
    }
    this.#parts = [];
    this.#bytes = 0;
    this.#closeDamage(start, header.lsn);
    const used = whole.subarray(0, FRAME_HEADER_BYTES + header.payloadBytes);
    this.#take({ header, position: start, bytes: used });
    this.#nextLsn = header.lsn + 1;
    this.#frames += 1;
  }

  finish(follower: number | undefined): RowScan {
    if (this.#bytes > 0) this.#giveUp(this.#end - this.#bytes);
    const isShort = follower !== undefined && this.#nextLsn < follower;
    if (isShort) this.#damagedFrom ??= this.#end;
    if (this.#damagedFrom !== undefined)
      this.#closeDamage(this.#end, follower ?? this.#nextLsn + 1);
    const nextLsn = isShort ? follower : this.#nextLsn;
    return { frames: this.#frames, end: this.#end, nextLsn, damage: this.#damage };
  }

  #giveUp(from: number): void {
    this.#damagedFrom ??= Math.min(from, this.#end - this.#bytes);
    this.#parts = [];
    this.#bytes = 0;
  }

  #closeDamage(end: number, lsn: number): void {
    const isGap = lsn > this.#nextLsn;
    if (this.#damagedFrom === undefined && !isGap) return;
    const position = this.#damagedFrom ?? end;
    this.#damage.push({ position, end, firstLsn: this.#nextLsn, lastLsn: lsn - 1 });
    this.#damagedFrom = undefined;
  }
}
