/** The journal in a directory: segments and snapshots are files, and STORE says who writes and how far they go. */

import type { Clock } from "../../../base/clock.ts";
import type { Random } from "../../../base/random.ts";
import type { StoreRoom } from "../../store.ts";
import type { ReadBuffers } from "../journal/read-buffers.ts";
import type {
  FramePlace,
  ImageSink,
  JournalSegment,
  LogCopies,
  LogSpace,
  SealedFrame,
  SegmentLog,
} from "../journal/segment-log.ts";
import type { Disk } from "./disk.ts";
import type { Recovered } from "./recovery.ts";
import { Segments } from "./segments.ts";
import { putSnapshotFile, snapshotName } from "./snapshot-file.ts";
import { type LastFrame, Ownership } from "./store-file.ts";

export interface FileLogParts {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly random: Random;
  readonly segmentBytes: number;
  readonly recovered: Recovered;
  /** Called when the log is closed, also after an error. */
  readonly release: () => Promise<void>;
}

export class FileLog implements SegmentLog {
  readonly storeId: string;
  readonly room: StoreRoom;
  readonly space: LogSpace;
  readonly buffers: ReadBuffers;
  readonly #parts: FileLogParts;
  readonly #segments: Segments;
  #ownership: Ownership | undefined;
  #last: LastFrame;
  #onFull: () => void = () => undefined;

  constructor(parts: FileLogParts) {
    const { disk, clock, random, segmentBytes, recovered } = parts;
    this.#parts = parts;
    this.storeId = recovered.mark?.id ?? random.id();
    this.#last = { lsn: recovered.nextLsn - 1, crc: recovered.lastCrc };
    this.#segments = new Segments(disk, clock, random, {
      segmentBytes,
      readFilesMax: 64,
      onFull: () => this.#onFull(),
    });
    this.room = this.#segments.room;
    this.space = this.#segments;
    this.buffers = this.#segments.buffers;
  }

  async start(onFull: () => void): Promise<void> {
    const { disk, clock, random, recovered } = this.#parts;
    this.#onFull = onFull;
    for (const name of recovered.unfinished) await disk.remove(name);
    const { segments, spares, mark, lastCrc } = recovered;
    const id = this.storeId;
    // First: `adopt` syncs the end that a killed process left in the page cache, and STORE names only what is
    // durable.
    await this.#segments.adopt(segments, spares, { storeId: id, lastCrc });
    const known = { id, segment: segments.at(-1)?.number ?? 0, ...this.#last };
    this.#ownership = await Ownership.take(disk, mark, random, known, clock.steadyMs());
    if (this.#segments.active === undefined) await this.#ensureRoom(0);
    this.#segments.prepare();
  }

  async append<Sealed extends SealedFrame>(
    bytes: number,
    seal: (salt: number) => Sealed,
  ): Promise<Sealed & FramePlace> {
    const steadyMs = this.#parts.clock.steadyMs();
    // Most frames need neither a check nor a new segment, and do not wait for either.
    if (this.#ownership?.isCheckDue(steadyMs) === true) await this.#ownership.check(steadyMs);
    if (!this.#segments.hasRoom(bytes)) await this.#ensureRoom(bytes);
    const frame = seal(this.#segments.active?.salt ?? 0);
    const place = await this.#segments.write(frame);
    this.#last = { lsn: this.#last.lsn + 1, crc: frame.crc };
    return { ...frame, ...place };
  }

  nameOf(segment: number): string {
    return this.#segments.nameOf(segment);
  }

  read(segment: number, position: number, length: number, into?: Buffer): Promise<Buffer> {
    return this.#segments.read(segment, position, length, into);
  }

  segments(): readonly JournalSegment[] {
    return this.#segments.list();
  }

  retire(segment: number): Promise<void> {
    return this.#segments.retire(segment);
  }

  putImage(lsn: number, write: (sink: ImageSink) => Promise<void>): Promise<void> {
    return putSnapshotFile(this.#parts.disk, lsn, write);
  }

  dropImage(lsn: number): Promise<void> {
    return this.#parts.disk.remove(snapshotName(lsn));
  }

  readonly copies: LogCopies = {
    segments: () =>
      this.#segments.list().map(({ number, firstLsn, salt, crcBefore, end }) => {
        return { number, firstLsn, salt, crcBefore, end };
      }),
    openImage: (lsn) => this.#parts.disk.open(snapshotName(lsn), "read"),
  };

  async close(isWhole: boolean): Promise<void> {
    // STORE knows the last LSN too. If the end goes missing while the store is closed, the next start sees that.
    if (isWhole) await this.#ownership?.closed(this.#last).catch(() => undefined);
    try {
      await this.#segments.close();
      await this.#ownership?.close();
    } finally {
      await this.#parts.release(); // Also after an error the directory is free for the next process.
    }
  }

  async #ensureRoom(bytes: number): Promise<void> {
    const before = this.#segments.active;
    const nowMs = this.#parts.clock.nowMs();
    await this.#segments.ensureRoom(bytes, this.#last.lsn + 1, nowMs);
    const { active } = this.#segments;
    if (active !== before && active !== undefined) {
      await this.#ownership?.rolled(active.number, this.#last);
    }
  }
}
