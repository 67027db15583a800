/** The journal in tables: a frame is a row, or several of one statement; a segment is a table; an image is rows. */

import { joinBytes } from "../../../base/bytes.ts";
import type { Random } from "../../../base/random.ts";
import { HapaxError } from "../../../base/errors.ts";
import { damage } from "../journal/bytes.ts";
import { alignFrame, SEGMENT_HEADER_BYTES } from "../journal/format.ts";
import { ReadBuffers } from "../journal/read-buffers.ts";
import type {
  FramePlace,
  ImageSink,
  JournalSegment,
  SealedFrame,
  SegmentLog,
} from "../journal/segment-log.ts";
import { segmentTable, type TableContents, type TableSegment } from "./contents.ts";
import type { Fence } from "./fence.ts";
import { PostgresRoom } from "./postgres-room.ts";
import { StatementRefused } from "./session.ts";
import { type FrameMark, type FrameWrite, PART_BYTES, type ShardTables } from "./tables.ts";

/** Positions are numbers of 32 bits in the index. */
const SEGMENT_BYTES_MAX = 2 ** 31;
const UNDEFINED_TABLE = "42P01";

export interface PostgresLogParts {
  readonly tables: ShardTables;
  readonly fence: Fence;
  readonly contents: TableContents;
  readonly room: PostgresRoom;
  readonly epoch: number;
  readonly storeId: string;
  readonly segmentBytes: number;
  readonly random: Random;
  /** The next LSN, and the number of the changes before it. */
  readonly nextLsn: number;
  readonly lastCrc: number;
  /** Ends the ownership. `mark`: the last frame, if it is known to be the last. */
  readonly release: (
    mark: { readonly lsn: number; readonly crc: number } | undefined,
  ) => Promise<void>;
}

export class PostgresLog implements SegmentLog {
  readonly storeId: string;
  readonly room: PostgresRoom;
  readonly space: PostgresRoom;
  readonly buffers = new ReadBuffers();
  readonly #parts: PostgresLogParts;
  readonly #segments: TableSegment[];
  #nextLsn: number;
  #lastCrc: number;
  #before: FrameMark | undefined;
  #mustSweep = true;

  constructor(parts: PostgresLogParts) {
    const { contents, room, storeId, nextLsn, lastCrc } = parts;
    this.#parts = parts;
    this.storeId = storeId;
    this.room = room;
    this.space = room;
    this.#segments = [...contents.segments];
    this.#nextLsn = nextLsn;
    this.#lastCrc = lastCrc;
    this.#before = contents.last;
    for (const { end } of this.#segments) room.add(end - SEGMENT_HEADER_BYTES);
    for (const lsn of contents.images) room.image(lsn, contents.imageBytes(lsn));
  }

  async start(onFull: () => void): Promise<void> {
    this.room.onFull = onFull;
    await this.#sweep();
    if (this.#segments.length === 0) await this.#roll();
  }

  async append<Sealed extends SealedFrame>(
    bytes: number,
    seal: (salt: number) => Sealed,
  ): Promise<Sealed & FramePlace> {
    const needed = alignFrame(bytes);
    let active = this.#segments.at(-1);
    const hasFrames = active !== undefined && active.end > SEGMENT_HEADER_BYTES;
    if (active === undefined || (hasFrames && active.end + needed > this.#segmentBytes)) {
      active = await this.#roll();
    }
    const frame = seal(active.salt);
    const position = active.end;
    const write: FrameWrite = {
      kind: "frame",
      segment: active.number,
      position,
      lsn: this.#nextLsn,
      ordinal: ordinalOf(frame),
      parts: cut(frame.buffers),
      before: this.#before,
    };
    await this.#parts.fence.write(write);
    active.end = position + needed;
    this.room.add(needed);
    const { epoch } = this.#parts;
    this.#before = { segment: active.number, position, lsn: this.#nextLsn, epoch };
    this.#nextLsn += 1;
    this.#lastCrc = frame.crc;
    return { ...frame, segment: active.number, position };
  }

  nameOf(segment: number): string {
    return segmentTable(segment);
  }

  async read(segment: number, position: number, length: number, into?: Buffer): Promise<Buffer> {
    let pieces;
    try {
      pieces = await this.#parts.tables.read(segment, position, length);
    } catch (error) {
      throw readError(error, segment);
    }
    const whole = into ?? Buffer.allocUnsafe(length);
    let end = position;
    for (const piece of pieces) {
      if (piece.position !== end) break; // A row is missing. The reader finds too few bytes, and says so.
      whole.set(piece.bytes, end - position);
      end += piece.bytes.length;
    }
    return whole.subarray(0, end - position);
  }

  segments(): readonly JournalSegment[] {
    return this.#segments.map((segment) => ({ ...segment, bytes: this.#sizeOf(segment) }));
  }

  async retire(segment: number): Promise<void> {
    const at = this.#segments.findIndex(({ number }) => number === segment);
    const found = this.#segments[at];
    if (found === undefined || at === this.#segments.length - 1) return;
    await this.#parts.fence.write({ kind: "retired", number: segment });
    this.#segments.splice(at, 1);
    this.room.add(SEGMENT_HEADER_BYTES - found.end);
    this.#mustSweep = true;
  }

  async putImage(lsn: number, write: (sink: ImageSink) => Promise<void>): Promise<void> {
    const { fence } = this.#parts;
    let held: Uint8Array[] = [];
    let heldBytes = 0;
    let bytes = 0;
    let part = 0;
    const flush = async (isLast: boolean): Promise<void> => {
      let whole = joinBytes(held);
      for (; whole.length >= PART_BYTES || (isLast && whole.length > 0); part += 1) {
        await fence.write({ kind: "image_part", lsn, part, bytes: whole.subarray(0, PART_BYTES) });
        whole = whole.subarray(PART_BYTES);
      }
      held = [whole];
      heldBytes = whole.length;
    };
    await write({
      async write(block) {
        held.push(block);
        heldBytes += block.length;
        bytes += block.length;
        if (heldBytes >= PART_BYTES) await flush(false);
      },
    });
    await flush(true);
    await fence.write({ kind: "image", lsn, bytes });
    this.room.image(lsn, bytes);
    if (this.#mustSweep) await this.#sweep();
  }

  async dropImage(lsn: number): Promise<void> {
    await this.#parts.fence.write({ kind: "image_dropped", lsn });
    this.room.image(lsn, 0);
    await this.#sweep();
  }

  async close(isWhole: boolean): Promise<void> {
    const mark = isWhole ? { lsn: this.#nextLsn - 1, crc: this.#lastCrc } : undefined;
    await this.#parts.release(mark);
  }

  get #segmentBytes(): number {
    return Math.min(this.#parts.segmentBytes, SEGMENT_BYTES_MAX);
  }

  /** The active segment counts as full: compaction compares live bytes with what a segment takes. */
  #sizeOf(segment: TableSegment): number {
    return segment === this.#segments.at(-1) ? this.#segmentBytes : segment.end;
  }

  async #roll(): Promise<TableSegment> {
    const number = (this.#segments.at(-1)?.number ?? 0) + 1;
    // Unpredictable, so that no payload can pretend to be a frame.
    const salt = Number.parseInt(this.#parts.random.id().slice(0, 8), 16);
    const row = { number, firstLsn: this.#nextLsn, salt, crcBefore: this.#lastCrc };
    await this.#parts.fence.write({ kind: "segment", segment: row });
    const end = SEGMENT_HEADER_BYTES;
    const segment: TableSegment = { ...row, name: segmentTable(number), bytes: end, end };
    this.#segments.push(segment);
    return segment;
  }

  /** Drops what nothing names. A failure costs room alone; the next image tries again. */
  async #sweep(): Promise<void> {
    const { tables, epoch } = this.#parts;
    this.#mustSweep = await tables.sweep(epoch).then(
      () => false,
      () => true,
    );
  }
}

/** Cuts a frame into rows. Most frames are one row, and one buffer, which is not copied. */
function cut(buffers: readonly Uint8Array[]): readonly Uint8Array[] {
  const [only] = buffers;
  const whole = buffers.length === 1 && only !== undefined ? only : joinBytes(buffers);
  if (whole.length <= PART_BYTES) return [whole];
  const parts: Uint8Array[] = [];
  for (let at = 0; at < whole.length; at += PART_BYTES) {
    parts.push(whole.subarray(at, at + PART_BYTES));
  }
  return parts;
}

/** The ordinal in the header of a sealed frame. */
function ordinalOf({ buffers }: SealedFrame): number {
  const [head] = buffers;
  if (head === undefined) return 0;
  const view = new DataView(head.buffer, head.byteOffset, head.byteLength);
  return view.getUint32(28, true) * 2 ** 32 + view.getUint32(24, true);
}

function readError(error: unknown, segment: number): unknown {
  if (error instanceof StatementRefused && error.state === UNDEFINED_TABLE) {
    return damage(segmentTable(segment), 0, "it is missing", error);
  }
  if (error instanceof HapaxError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return new HapaxError("unreachable", `the database cannot be read: ${reason}`, { cause: error });
}
