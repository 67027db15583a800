/**
 * Backups of a journal: each is an instant between two commits, and keeps what the journal was at that instant until it is
 * released.
 *
 *   - a segment that a backup names is not retired, and its image is not dropped, as long as the backup holds them;
 *   - the frames before the ends that a backup names never change: a journal is only written behind them;
 *   - room for writes comes first: on a full disk backups are over, and a read of one that is over fails.
 */

import { HapaxError } from "../../../base/errors.ts";
import type { BackupImage, BackupSegment, StoreBackup } from "../../store.ts";
import type { ExtentIndex } from "./extents.ts";
import type { SegmentLog } from "./segment-log.ts";

/** The journal at the instant of a backup. */
export interface Instant {
  readonly lsn: number;
  readonly crc: number;
  readonly changes: number;
  /** LSN of the newest image, if there is one. */
  readonly image: number | undefined;
}

export class Holds {
  readonly #log: SegmentLog;
  readonly #index: ExtentIndex;
  readonly #held = new Set<Held>();

  constructor(log: SegmentLog, index: ExtentIndex) {
    this.#log = log;
    this.#index = index;
  }

  /** Throws unless this journal has backups at this moment. */
  requireBackups(): void {
    if (this.#log.copies === undefined) throw unsupported();
    if (this.#log.space.isFull) throw over();
  }

  /** Not async: what is held is of one instant. */
  take(instant: Instant): HeldBackup {
    const { copies } = this.#log;
    if (copies === undefined) throw unsupported();
    const segments = this.#neededOf(copies.segments(), instant.image);
    const held = new Held(this.#log, instant, segments, () => this.#held.delete(held));
    this.#held.add(held);
    return held;
  }

  holdsSegment(number: number): boolean {
    for (const { segments } of this.#held) {
      if (segments.some((segment) => segment.number === number)) return true;
    }
    return false;
  }

  holdsImage(lsn: number): boolean {
    for (const { instant } of this.#held) if (instant.image === lsn) return true;
    return false;
  }

  /** Ends all backups, so that what they hold can be given up. Returns whether there was one. */
  endAll(): boolean {
    const all = [...this.#held];
    for (const held of all) held.release();
    return all.length > 0;
  }

  /** Without segments that hold nothing alive and that no replay from the image reads. */
  #neededOf(segments: readonly BackupSegment[], image = 0): readonly BackupSegment[] {
    const first = segments.findLastIndex(({ firstLsn }) => firstLsn <= image + 1);
    return segments.filter(({ number }, at) => at >= first || this.#index.liveBytes(number) > 0);
  }
}

/** What a backup is before its images have their sizes. */
export type HeldBackup = Held;

class Held {
  readonly instant: Instant;
  readonly segments: readonly BackupSegment[];
  readonly #log: SegmentLog;
  readonly #onEnd: () => void;
  #isOver = false;

  constructor(
    log: SegmentLog,
    instant: Instant,
    segments: readonly BackupSegment[],
    onEnd: () => void,
  ) {
    this.#log = log;
    this.instant = instant;
    this.segments = segments;
    this.#onEnd = onEnd;
  }

  release(): void {
    this.#isOver = true;
    this.#onEnd();
  }

  async open(): Promise<StoreBackup> {
    const { lsn, crc, changes } = this.instant;
    try {
      const images = await this.#images();
      return {
        storeId: this.#log.storeId,
        lsn,
        crc,
        changes,
        segments: this.segments,
        images,
        readSegment: (number, position, length) =>
          this.#whileHeld(() => this.#log.read(number, position, length)),
        readImage: (image, position, length) =>
          this.#whileHeld(() => this.#readImage(image, position, length)),
        release: () => {
          this.release();
        },
      };
    } catch (error) {
      this.release();
      throw error;
    }
  }

  async #images(): Promise<readonly BackupImage[]> {
    const { image } = this.instant;
    const source = image === undefined ? undefined : await this.#log.copies?.openImage(image);
    if (image === undefined || source === undefined) return [];
    try {
      return [{ lsn: image, bytes: await source.size() }];
    } finally {
      await source.close();
    }
  }

  async #readImage(lsn: number, position: number, length: number): Promise<Uint8Array> {
    const source = await this.#log.copies?.openImage(lsn);
    if (source === undefined) throw unsupported();
    try {
      return await source.read(position, length);
    } finally {
      await source.close();
    }
  }

  /** What is read after the end may be of another use of the file: it is not handed out. */
  async #whileHeld(read: () => Promise<Uint8Array>): Promise<Uint8Array> {
    if (this.#isOver) throw over();
    try {
      const bytes = await read();
      if (this.#isOver) throw over();
      return bytes;
    } catch (error) {
      throw this.#isOver ? over() : error;
    }
  }
}

function over(): HapaxError {
  return new HapaxError(
    "backup_over",
    "the disk of the server is full: room for writes comes first",
  );
}

function unsupported(): HapaxError {
  const what = "the streams are in PostgreSQL: they are in the backups of that database";
  return new HapaxError("unsupported", `${what}, see docs/guides/postgres-store.md`);
}
