/**
 * The files of the journal. One is written, the older ones are read, and the dead ones are reused.
 *
 *   - a segment gets its name only when its header is durable, and is written to only when its name is durable;
 *   - a segment's number is never used twice, so old bytes in a reused file never count as new ones;
 *   - room is made before it is needed: a commit writes into zeros that the file system has already allocated;
 *   - a full disk tears nothing: a segment that could not be made is tried again when there is room.
 */

import { assert } from "../../../base/assert.ts";
import type { Clock } from "../../../base/clock.ts";
import { HapaxError } from "../../../base/errors.ts";
import type { Random } from "../../../base/random.ts";
import type { Disk, DiskFile } from "./disk.ts";
import {
  alignFrame,
  encodeSegmentHeader,
  FORMAT_VERSION,
  SEGMENT_HEADER_BYTES,
} from "../journal/format.ts";
import { ReadBuffers } from "../journal/read-buffers.ts";
import type { FramePlace, JournalSegment, LogSpace, SealedFrame } from "../journal/segment-log.ts";
import { ReadFiles } from "./read-files.ts";
import { isNoRoom } from "./store-file.ts";

export interface Segment extends JournalSegment {
  readonly salt: number;
  /** CRC of the frame before its first one. */
  readonly crcBefore: number;
  /** Where the next frame goes, or where the last one ended. */
  end: number;
}

export interface SegmentOptions {
  readonly segmentBytes: number;
  /** Most files that are open for reading old segments. */
  readonly readFilesMax: number;
  /** Called when there is no room for a segment, and again until there is. */
  readonly onFull: () => void;
}

const ZEROS = Buffer.alloc(1024 * 1024);
const FULL_RETRY_MS = 1000;
const FULL_SHARE = 16;
const FULL_RESERVE_BYTES = 16 * 1024;
/** Room on a full disk that compaction leaves free, so that deletes never wait for it. */
const MOVE_RESERVE_BYTES = 2 * FULL_RESERVE_BYTES;
/**
 * Below this the store refuses even deletes. The rest is for an empty frame behind which a snapshot can begin, and
 * for the last frame.
 */
const FULL_FLOOR_BYTES = 4096;

export function segmentName(number: number): string {
  return `journal-${String(number).padStart(12, "0")}.seg`;
}

export function parseSegmentName(name: string): number | undefined {
  const match = /^journal-([0-9]{12})\.seg$/.exec(name);
  return match === null ? undefined : Number(match[1]);
}

export const SPARE_NAME = /^spare-[0-9]{12}\.(seg|tmp)$/;

/** What a new segment names: its store, and the frame before it. */
export interface SegmentOrigin {
  readonly storeId: string;
  readonly lastCrc: number;
}

interface Spare {
  readonly name: string;
  readonly bytes: number;
}

export class Segments implements LogSpace {
  /** The room for data, kept current. */
  readonly room = { bytes: Number.MAX_SAFE_INTEGER };
  /** Buffers for reads from the segments. */
  readonly buffers = new ReadBuffers();
  readonly #disk: Disk;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #options: SegmentOptions;
  readonly #byNumber = new Map<number, Segment>();
  readonly #readers = new ReadFiles();
  readonly #spares: Spare[] = [];
  #active: Segment | undefined;
  #storeId = "";
  #lastCrc = 0;
  #activeFile: DiskFile | undefined;
  #nextSpare = 1;
  #preparing: Promise<void> | undefined;
  #isFull = false;
  #isHeld = false;
  /** A commit waits for room. */
  #isWaiting = false;
  #isImpatient = false;
  #endPause: () => void = () => undefined;
  #isClosed = false;

  constructor(disk: Disk, clock: Clock, random: Random, options: SegmentOptions) {
    this.#disk = disk;
    this.#clock = clock;
    this.#random = random;
    this.#options = options;
  }

  nameOf(number: number): string {
    return segmentName(number);
  }

  /** Oldest first. */
  list(): readonly Segment[] {
    return [...this.#byNumber.values()].sort((one, other) => one.number - other.number);
  }

  get active(): Segment | undefined {
    return this.#active;
  }

  /** Whether there was no room for the next segment. */
  get isFull(): boolean {
    return this.#isFull;
  }

  /** Bytes that the files take on disk. */
  get fileBytes(): number {
    let bytes = 0;
    for (const segment of this.#byNumber.values()) bytes += segment.bytes;
    for (const spare of this.#spares) bytes += spare.bytes;
    return bytes;
  }

  /**
   * Returns how much data still fits. A small append takes many times its own bytes, so this promises only a part of
   * the free room.
   */
  #roomBytes(): number {
    if (!this.#isFull) return Number.MAX_SAFE_INTEGER;
    const left = this.#leftBytes();
    if (left < FULL_FLOOR_BYTES || this.#isWaiting) return -2;
    const room = Math.floor((left - FULL_RESERVE_BYTES) / FULL_SHARE);
    // Below zero: a create without data needs room too. The reserve is for deletes, which free some.
    return room > 0 ? room : -1;
  }

  /** Everything that changes the room calls it. */
  #measureRoom(): void {
    this.room.bytes = this.#roomBytes();
  }

  #setFull(isFull: boolean): void {
    this.#isFull = isFull;
    this.#measureRoom();
  }

  #addSpare(spare: Spare): void {
    this.#spares.push(spare);
    this.#measureRoom();
  }

  #leftBytes(): number {
    let left = this.#active === undefined ? 0 : this.#active.bytes - this.#active.end;
    for (const spare of this.#spares) left += spare.bytes - SEGMENT_HEADER_BYTES;
    return left;
  }

  /** How much compaction may write. */
  moveRoomBytes(): number {
    return this.#isFull ? Math.max(0, this.#leftBytes() - MOVE_RESERVE_BYTES) : Infinity;
  }

  /**
   * Whether a frame of this size has room that deletes do not need. The room is there already or can be made
   * now.
   */
  async hasRoomToMove(frameBytes: number): Promise<boolean> {
    const needed = alignFrame(frameBytes);
    await this.#preparing;
    if (!this.#isFull && !this.#fits(needed)) await this.#tryPrepare(needed);
    if (!this.#fits(needed)) return false;
    return needed <= this.moveRoomBytes();
  }

  #fits(needed: number): boolean {
    const active = this.#active;
    if (active !== undefined && active.end + needed <= active.bytes) return true;
    return this.#spares.some(({ bytes }) => bytes >= needed + SEGMENT_HEADER_BYTES);
  }

  async #tryPrepare(needed: number): Promise<void> {
    try {
      const bytes = Math.max(needed + SEGMENT_HEADER_BYTES, this.#options.segmentBytes);
      this.#addSpare(await this.#prepareSpare(bytes));
    } catch (error) {
      if (!isNoRoom(error)) throw error;
      this.#setFull(true);
      this.#retryLater();
    }
  }

  /** Runs without making spares. On a full disk a spare would take the room that a snapshot needs to free some. */
  async forImage(write: () => Promise<void>): Promise<void> {
    this.#isHeld = this.#isFull;
    try {
      await this.#preparing;
      await write().catch(async (error: unknown) => {
        if (!isNoRoom(error) || !(await this.#giveUpSpare())) throw error;
        await write();
      });
    } finally {
      this.#isHeld = false;
    }
  }

  /** Removes a spare, if the current writes have room without it: a snapshot may need the room more. */
  async #giveUpSpare(): Promise<boolean> {
    await this.#preparing;
    const active = this.#active;
    if (active === undefined || active.bytes - active.end < MOVE_RESERVE_BYTES) return false;
    const spare = this.#spares.pop();
    if (spare === undefined) return false;
    this.#setFull(true);
    await this.#disk.remove(spare.name);
    return true;
  }

  /** Takes the segments that recovery found. Writing continues at the end of the last one. */
  async adopt(
    segments: readonly Segment[],
    spares: readonly string[],
    origin: SegmentOrigin,
  ): Promise<void> {
    this.#storeId = origin.storeId;
    this.#lastCrc = origin.lastCrc;
    for (const segment of segments) this.#byNumber.set(segment.number, segment);
    for (const name of spares) {
      const number = Number(name.slice(6, 18));
      this.#nextSpare = Math.max(this.#nextSpare, number + 1);
      if (name.endsWith(".tmp")) {
        await this.#disk.remove(name);
        continue;
      }
      const file = await this.#disk.open(name, "read");
      const bytes = await file.size();
      await file.close();
      this.#addSpare({ name, bytes });
    }
    // A killed process may have left names that are not on the disk yet. Everything later depends on them.
    await this.#disk.syncDirectory();
    const last = this.list().at(-1);
    if (last === undefined) return;
    this.#active = last;
    this.#activeFile = await this.#disk.open(last.name, "durable");
    // The data that a killed process left in the page cache may not be on the disk yet.
    await this.#activeFile.sync();
  }

  /** Makes sure that a frame of this size fits into the active segment. Begins a new segment if it does not. */
  async ensureRoom(frameBytes: number, nextLsn: number, nowMs: number): Promise<void> {
    if (!this.hasRoom(frameBytes)) await this.#roll(alignFrame(frameBytes), nextLsn, nowMs);
  }

  /** Whether a frame of this size fits into the active segment. */
  hasRoom(frameBytes: number): boolean {
    const active = this.#active;
    return active !== undefined && active.end + alignFrame(frameBytes) <= active.bytes;
  }

  /** Writes a frame. Resolves with its place when it is durable. */
  async write(frame: SealedFrame): Promise<FramePlace> {
    const active = this.#active;
    const file = this.#activeFile;
    if (active === undefined || file === undefined) {
      throw new HapaxError("store_closed", "the journal is closed");
    }
    assert(this.room.bytes === this.#roomBytes(), "the room is not what the segments leave");
    const position = active.end;
    await file.write(frame.buffers, position);
    active.end = position + alignFrame(frame.bytes);
    this.#measureRoom();
    this.#lastCrc = frame.crc;
    return { segment: active.number, position };
  }

  async read(number: number, position: number, length: number, into?: Buffer): Promise<Buffer> {
    const segment = this.#byNumber.get(number);
    if (segment === undefined) {
      throw new HapaxError("data_damaged", `segment ${segmentName(number)} is missing`);
    }
    // The active segment has a second file for reading: the first one is closed when the segment is full.
    const filesMax = this.#options.readFilesMax;
    return this.#readers.use(this.#disk, segment.name, filesMax, (file) =>
      file.read(position, length, into),
    );
  }

  /** Removes a dead segment and keeps its file for a later one. */
  async retire(number: number): Promise<void> {
    const segment = this.#byNumber.get(number);
    if (segment === undefined || segment === this.#active) return;
    this.#byNumber.delete(number);
    await this.#readers.forget(segment.name);
    if (segment.bytes !== this.#options.segmentBytes || this.#spares.length >= 2) {
      await this.#disk.remove(segment.name);
      await this.#disk.syncDirectory();
      return;
    }
    const name = this.#spareName("seg");
    await this.#disk.rename(segment.name, name);
    // Before the file is reused: after a power cut the new segment must not have the old name.
    await this.#disk.syncDirectory();
    this.#spares.push({ name, bytes: segment.bytes });
    this.#setFull(false);
  }

  /** Prepares the next segment in the background, if there is none. */
  prepare(): void {
    if (this.#preparing !== undefined || this.#spares.length > 0 || this.#isClosed) return;
    if (this.#isHeld) {
      this.#retryLater();
      return;
    }
    this.#preparing = this.#prepareSpare(this.#options.segmentBytes)
      .then((spare) => {
        this.#setFull(false);
        if (!this.#isClosed) this.#addSpare(spare);
      })
      .catch((error: unknown) => {
        // The commit that needs the segment tries again and gets the error. Here only the flag is set.
        this.#setFull(isNoRoom(error));
      })
      .finally(() => {
        this.#preparing = undefined;
        if (this.#isFull) this.#retryLater();
      });
  }

  #retryLater(): void {
    if (this.#isClosed) return;
    this.#options.onFull();
    this.#clock.after(FULL_RETRY_MS, () => {
      this.prepare();
    });
  }

  /** From now on no commit waits for room: it gets room at once, or an error. */
  stopWaiting(): void {
    this.#isImpatient = true;
    this.#endPause();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#preparing;
    await this.#readers.close();
    await this.#activeFile?.close();
    this.#activeFile = undefined;
  }

  async #roll(frameBytes: number, firstLsn: number, nowMs: number): Promise<void> {
    const spare = await this.#takeSpare(frameBytes);
    const number = (this.#active?.number ?? 0) + 1;
    const name = segmentName(number);
    // Unpredictable, so that no payload can pretend to be a frame.
    const salt = Number.parseInt(this.#random.id().slice(0, 8), 16);
    const { bytes } = spare;
    const [storeId, crcBefore] = [this.#storeId, this.#lastCrc];
    const place = { number, firstLsn, salt, bytes, crcBefore };
    const header = { version: FORMAT_VERSION, ...place, timeMs: nowMs, storeId };
    const old = this.#activeFile;
    const file = await this.#disk.open(spare.name, "durable");
    await file.write([encodeSegmentHeader(header)], 0);
    await this.#disk.rename(spare.name, name);
    await this.#disk.syncDirectory();
    const end = SEGMENT_HEADER_BYTES;
    const segment: Segment = { ...place, name, end };
    this.#byNumber.set(number, segment);
    this.#active = segment;
    this.#activeFile = file;
    this.#measureRoom();
    await old?.close();
    this.prepare();
  }

  async #takeSpare(frameBytes: number): Promise<Spare> {
    const needed = frameBytes + SEGMENT_HEADER_BYTES;
    for (;;) {
      await this.#preparing;
      const index = this.#spares.findIndex((spare) => spare.bytes >= needed);
      const [found] = index === -1 ? [] : this.#spares.splice(index, 1);
      this.#measureRoom();
      if (found !== undefined) return found;
      try {
        const bytes = Math.max(needed, this.#options.segmentBytes);
        const spare = await this.#prepareSpare(bytes);
        this.#setFull(false);
        return spare;
      } catch (error) {
        // Without a first segment there is nothing to wait for. The caller that opens the store gets the error.
        if (!isNoRoom(error) || this.#isClosed || this.#active === undefined) throw error;
        if (this.#isImpatient) {
          throw new HapaxError("store_full", "closed while a commit waited for room", {
            cause: error,
          });
        }
        // The commit that needs the segment was admitted before the disk was full. It waits, and nothing is lost.
        this.#isWaiting = true;
        this.#setFull(true);
        await this.#pause();
        this.#isWaiting = false;
        this.#measureRoom();
      }
    }
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#clock.after(FULL_RETRY_MS, resolve);
      this.#endPause = () => {
        cancel();
        resolve();
      };
    });
  }

  async #prepareSpare(bytes: number): Promise<Spare> {
    const unfinished = this.#spareName("tmp");
    const file = await this.#disk.open(unfinished, "create");
    try {
      for (let at = 0; at < bytes; at += ZEROS.length) {
        await file.write([ZEROS.subarray(0, Math.min(ZEROS.length, bytes - at))], at);
      }
      await file.sync();
    } catch (error) {
      await file.close();
      await this.#disk.remove(unfinished);
      throw error;
    }
    await file.close();
    const name = unfinished.replace(/tmp$/, "seg");
    await this.#disk.rename(unfinished, name);
    return { name, bytes };
  }

  #spareName(ending: "seg" | "tmp"): string {
    const number = this.#nextSpare;
    this.#nextSpare += 1;
    return `spare-${String(number).padStart(12, "0")}.${ending}`;
  }
}
