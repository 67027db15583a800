/**
 * Checks what a backup receives, piece by piece, before it counts: the checksum and the number of every frame, and the checksum of
 * every block of a snapshot. Memory: the frame, or the block, that is not whole yet.
 */

import { crc32 } from "node:zlib";
import {
  alignFrame,
  decodeFrameHeader,
  FRAME_HEADER_BYTES,
  isFrameValid,
  SEGMENT_HEADER_BYTES,
} from "../journal/format.ts";
import { BLOCK, BLOCK_HEADER_BYTES } from "../journal/snapshot-format.ts";
import type { PlannedSegment } from "./document.ts";

/** Bytes that are not used up yet. */
class Pieces {
  #pieces: Buffer[] = [];
  length = 0;

  add(piece: Uint8Array): void {
    this.#pieces.push(Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength));
    this.length += piece.length;
  }

  /** All of them as one. Called only when there is enough, so that a long frame is joined once. */
  whole(): Buffer {
    const [first] = this.#pieces;
    const whole =
      this.#pieces.length === 1 && first !== undefined ? first : Buffer.concat(this.#pieces);
    this.#pieces = [whole];
    return whole;
  }

  drop(bytes: number): void {
    if (this.length === 0) return;
    const rest = this.whole().subarray(bytes);
    this.#pieces = [rest];
    this.length = rest.length;
  }
}

/** The frames of a segment, behind its header. */
export class FrameStreamCheck {
  readonly #salt: number;
  readonly #pieces = new Pieces();
  #wanted = FRAME_HEADER_BYTES;
  #nextLsn: number;
  /** Behind the last whole frame, and where that begins. */
  end = SEGMENT_HEADER_BYTES;
  last = SEGMENT_HEADER_BYTES;
  /** Of the last whole frame, or of the frame before the first one. */
  crc: number;

  constructor({ salt, firstLsn, crcBefore }: PlannedSegment) {
    this.#salt = salt;
    this.#nextLsn = firstLsn;
    this.crc = crcBefore;
  }

  get lsn(): number {
    return this.#nextLsn - 1;
  }

  /** Forgets what is behind the last whole frame. */
  rewind(): void {
    this.#pieces.drop(this.#pieces.length);
    this.#wanted = FRAME_HEADER_BYTES;
  }

  /** Returns what is wrong with the frame at `end`, if anything is. */
  push(piece: Uint8Array): string | undefined {
    const pieces = this.#pieces;
    pieces.add(piece);
    while (pieces.length >= this.#wanted) {
      const bytes = pieces.whole();
      const header = decodeFrameHeader(bytes, 0, Number.MAX_SAFE_INTEGER);
      if (header === undefined) return `there is no frame at ${this.end}`;
      const size = alignFrame(FRAME_HEADER_BYTES + header.payloadBytes);
      if (pieces.length < size) {
        this.#wanted = size;
        return undefined;
      }
      if (!isFrameValid(bytes, 0, header, this.#salt)) {
        return `LSN ${this.#nextLsn} at ${this.end} does not match its checksum`;
      }
      if (header.lsn !== this.#nextLsn) return `LSN ${this.#nextLsn} is missing at ${this.end}`;
      pieces.drop(size);
      this.#wanted = FRAME_HEADER_BYTES;
      this.#nextLsn += 1;
      this.crc = header.crc;
      this.last = this.end;
      this.end += size;
    }
    return undefined;
  }
}

/** The blocks of a snapshot. */
export class BlockCheck {
  readonly #pieces = new Pieces();
  #wanted = BLOCK_HEADER_BYTES;
  #position = 0;
  #isEnded = false;

  push(piece: Uint8Array): string | undefined {
    const pieces = this.#pieces;
    pieces.add(piece);
    while (pieces.length >= this.#wanted) {
      const bytes = pieces.whole();
      if (this.#isEnded) return `there is more behind the end at ${this.#position}`;
      const size = BLOCK_HEADER_BYTES + bytes.readUInt32LE(0);
      if (pieces.length < size) {
        this.#wanted = size;
        return undefined;
      }
      const payload = bytes.subarray(BLOCK_HEADER_BYTES, size);
      if (crc32(payload) !== bytes.readUInt32LE(4)) {
        return `the block at ${this.#position} has another checksum`;
      }
      this.#isEnded = payload[0] === BLOCK.end;
      pieces.drop(size);
      this.#wanted = BLOCK_HEADER_BYTES;
      this.#position += size;
    }
    return undefined;
  }

  /** What is wrong with the whole of it. */
  finish(): string | undefined {
    return this.#isEnded && this.#pieces.length === 0 ? undefined : "it is not whole";
  }
}
