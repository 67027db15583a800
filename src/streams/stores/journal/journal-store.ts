/**
 * The journal: one for all streams. A commit is one frame: one write, durable when it returns, with the data and
 * everything that belongs to it.
 *
 *   - one commit is one frame, and all of a commit is in it;
 *   - after a failed write the store writes nothing more; reads of durable data continue.
 */

import { assert } from "../../../base/assert.ts";
import { type Clock, systemClock } from "../../../base/clock.ts";
import type { Change } from "../../core/change.ts";
import { advance, type Offset, type StreamId, type TimeMs } from "../../core/types.ts";
import type { World } from "../../core/world.ts";
import { HapaxError, isHapaxError } from "../../../base/errors.ts";
import type { Random } from "../../../base/random.ts";
import type { Page, Store, StoreBackup, StoreRoom, StoreStats, StoreSupport } from "../../store.ts";
import { DurableWaiters } from "./durable-waiters.ts";
import type { ExtentIndex, StreamExtents } from "./extents.ts";
import { FrameBuilder } from "./frame.ts";
import { Holds } from "./holds.ts";
import { applyMoves, Placement } from "./placement.ts";
import { readExtents } from "./reading.ts";
import type { Moved } from "./records.ts";
import type { RecoveryProgress, RecoveryReport, ReplayedLog } from "./replay.ts";
import { ReplayBound } from "./replay-bound.ts";
import { seekExtents } from "./seeking.ts";
import type { SegmentLog } from "./segment-log.ts";
import { writeSnapshot } from "./snapshot.ts";
import { TailCache } from "./tail-cache.ts";
import { tidyUp } from "./upkeep.ts";

/** Options of every store with a journal. */
export interface JournalOptions {
  /**
   * How many bytes of the newest data stay in memory, for readers near the tail. More costs time in garbage
   * collection. Default 16 MiB.
   */
  readonly cacheBytes?: number;
  /**
   * After how many bytes of journal a snapshot begins. A start reads at most twice as many. A lower value makes
   * starts faster and writes more. Default 256 MiB.
   */
  readonly snapshotBytes?: number;
  /** After how many changes a snapshot begins. A start reads at most twice as many. Default 2,000,000. */
  readonly snapshotChanges?: number;
  /** After how many milliseconds a snapshot begins, if anything has changed. Default 600,000 (10 minutes). */
  readonly snapshotMs?: number;
  readonly clock?: Clock;
  readonly random?: Random;
  readonly onProgress?: RecoveryProgress;
  /** Called when a snapshot or compaction fails in the background. No data is lost by that. */
  readonly onWarning?: (warning: string) => void;
}

/** Sizes of the journal at this moment. */
export interface JournalStats extends StoreStats {
  readonly segments: number;
  readonly commits: number;
  readonly snapshots: number;
  readonly isFull: boolean;
}

/** What a journal is opened with. */
export interface JournalParts {
  readonly log: SegmentLog;
  readonly replayed: ReplayedLog;
  readonly supports: StoreSupport;
  /** What the store has as its own secret. */
  readonly secret?: (() => Promise<string>) | undefined;
  /** `steadyMs` of the clock before anything was read. */
  readonly begunMs: number;
  /** What the clock of the log said when it was opened, if it has one. */
  readonly openedAtMs?: number;
}

/** Opens a store over a log that was replayed. */
export async function openJournal(
  parts: JournalParts,
  options: JournalOptions,
): Promise<JournalStore> {
  const store = new JournalStore(parts, options);
  if (parts.secret !== undefined) store.secret = parts.secret;
  if (parts.openedAtMs !== undefined) store.openedAtMs = parts.openedAtMs;
  await store.start();
  store.recoveryMs = (options.clock ?? systemClock).steadyMs() - parts.begunMs;
  return store;
}

/** On a full disk, and for a while after: how long to wait for more deletes before their room is freed. */
const FULL_TIDY_MS = 1000;
const TIGHT_TIDY_MS = 5000;
const TIGHT_MS = 600_000;

export class JournalStore implements Store {
  readonly supports: StoreSupport;
  readonly world: World;
  readonly room: StoreRoom;
  readonly recovery: RecoveryReport;
  recoveryMs = 0;
  secret?: () => Promise<string>;
  openedAtMs?: number;
  readonly #clock: Clock;
  readonly #options: JournalOptions;
  readonly #index: ExtentIndex;
  readonly #log: SegmentLog;
  readonly #cache: TailCache;
  #lastCrc: number;
  #snapshots: readonly number[];
  #nextLsn: number;
  /** Number of durable changes. */
  #ordinal: number;
  #writing: Promise<void> = Promise.resolve();
  #isWriting = false;
  #failure: HapaxError | undefined;
  #closing: Promise<void> | undefined;
  #isClosing = false;
  #isClosed = false;
  #commits = 0;
  readonly #bound: ReplayBound;
  #background: Promise<void> | undefined;
  #cancelTimer: () => void = () => undefined;
  /** Data was deleted since room was last freed; perhaps also before the directory was opened. */
  #hasFreed = true;
  /** Streams were trimmed since then: their room comes back with the snapshots, so these come twice as often. */
  #hasTrimmed = false;
  #isTidyingSoon = false;
  #failuresInRow = 0;
  #fullAtMs = -Infinity;
  readonly #waiters = new DurableWaiters();
  readonly #holds: Holds;
  /** Images that would be gone if no backup had held them. */
  #oldImages: readonly number[] = [];

  constructor({ log, replayed, supports }: JournalParts, options: JournalOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.supports = supports;
    this.world = replayed.world;
    this.recovery = replayed.report;
    this.#index = replayed.index;
    this.#snapshots = replayed.snapshots;
    this.#nextLsn = replayed.nextLsn;
    this.#lastCrc = replayed.lastCrc;
    this.#ordinal = replayed.world.version;
    const { snapshotBytes = 256 * 1024 * 1024, snapshotChanges = 2_000_000 } = options;
    const span = { changes: snapshotChanges, bytes: snapshotBytes };
    this.#bound = new ReplayBound(span, this.#ordinal, replayed.report);
    this.#cache = new TailCache(options.cacheBytes ?? 16 * 1024 * 1024);
    this.#log = log;
    this.room = log.room;
    this.#holds = new Holds(log, replayed.index);
  }

  async start(): Promise<void> {
    await this.#log.start(() => {
      // What backups hold may be the room that is missing.
      if (this.#holds.endAll()) this.#hasFreed = true;
      this.#considerBackground();
    });
    this.#armTimer();
    // A process that did not live long enough for a snapshot must not make the next replay longer.
    this.#considerBackground();
  }

  stats(): JournalStats {
    let liveBytes = 0;
    for (const segment of this.#index.segments()) liveBytes += this.#index.liveBytes(segment);
    return {
      segments: this.#log.segments().length,
      fileBytes: this.#log.space.fileBytes,
      liveBytes,
      recoveryMs: this.recoveryMs,
      commits: this.#commits,
      snapshots: this.#snapshots.length,
      isFull: this.#log.space.isFull,
    };
  }

  commit(changes: readonly Change[]): Promise<void> {
    return this.#bound.admit(() => this.#exclusive(() => this.#commit(changes)));
  }

  async read(stream: StreamId, from: Offset, to: Offset, bytesMax: number): Promise<Page> {
    this.#requireOpen();
    const cached = this.#cache.read(stream, from, to, bytesMax);
    if (cached !== undefined) return cached;
    const page = await this.#look(stream, (extents) =>
      readExtents(this.#log, stream, extents, from, to, bytesMax),
    );
    return page ?? { start: from, appends: [] };
  }

  async seek(stream: StreamId, from: Offset, to: Offset, atMs: TimeMs): Promise<Offset> {
    this.#requireOpen();
    const found = await this.#look(stream, (extents) =>
      seekExtents(this.#log, stream, extents, from, to, atMs),
    );
    return found ?? to;
  }

  /** Looks something up in the data of a stream. Undefined: it has none. */
  async #look<Found>(
    stream: StreamId,
    look: (extents: StreamExtents) => Promise<Found>,
  ): Promise<Found | undefined> {
    for (let attempt = 1; ; attempt += 1) {
      const extents = this.#index.streams.get(stream);
      if (extents === undefined) return undefined;
      try {
        return await look(extents);
      } catch (error) {
        // Compaction may have moved the data meanwhile. Then the next attempt finds it at its new place.
        if (!isHapaxError(error, "data_damaged") || attempt === 3) throw error;
      }
    }
  }

  async backup(): Promise<StoreBackup> {
    this.#requireOpen();
    this.#holds.requireBackups();
    const before = this.#writing;
    let finish: () => void = () => undefined;
    this.#writing = new Promise((done) => {
      finish = done;
    });
    try {
      // Between two commits the journal ends after a whole frame. After a failed one it stays there, and can be backed up too.
      await before;
      this.#requireOpen();
      const lsn = this.#nextLsn - 1;
      const [image] = this.#snapshots;
      const held = this.#holds.take({ lsn, crc: this.#lastCrc, changes: this.#ordinal, image });
      finish();
      return await held.open();
    } finally {
      finish();
    }
  }

  async maintain(): Promise<void> {
    await this.#background;
    await this.#startBackground();
    const failure = this.#failure;
    if (failure !== undefined) throw failure;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#isClosing = true;
    this.#cancelTimer();
    // Room may never come. Commits that wait for it fail now, and the last frame below does not wait either.
    this.#log.space.stopWaiting();
    await this.#background;
    // An empty frame shows that everything before it was complete. Later damage is then recognised as damage.
    if (this.#failure === undefined) await this.commit([]).catch(() => undefined);
    this.#isClosed = true;
    this.#waiters.settle(this.#ordinal, new HapaxError("store_closed", "the store is closed"));
    await this.#log.close(this.#failure === undefined);
  }

  #requireOpen(): void {
    if (this.#isClosed) throw new HapaxError("store_closed", "the store is closed");
  }

  /** Runs one write at a time, in the order of the calls, so that a busy writer does not keep compaction out. */
  async #exclusive<T>(run: () => Promise<T>): Promise<T> {
    const before = this.#writing;
    let finish: () => void = () => undefined;
    this.#writing = new Promise((done) => {
      finish = done;
    });
    await before;
    assert(!this.#isWriting, "S2 two writes at once");
    this.#isWriting = true;
    try {
      this.#requireOpen();
      if (this.#failure !== undefined) throw this.#failure;
      return await run();
    } catch (error) {
      if (!this.#isClosed) this.#fail(error);
      throw error;
    } finally {
      this.#isWriting = false;
      finish();
    }
  }

  /** Takes no further commit, as after a failed one. */
  stop(cause: Error): void {
    this.#fail(cause);
  }

  #fail(cause: unknown): void {
    const reason = cause instanceof Error ? cause.message : String(cause);
    this.#failure ??= isOver(cause)
      ? cause
      : new HapaxError("writes_stopped", `the journal failed: ${reason}`, { cause });
    this.#waiters.settle(this.#ordinal, this.#failure);
  }

  async #commit(changes: readonly Change[]): Promise<void> {
    let bytes = 64 * changes.length;
    for (const change of changes) if (change.kind === "appended") bytes += change.data.length;
    const builder = new FrameBuilder(Math.min(bytes + 256, 1024 * 1024));
    const placement = new Placement();
    const ends = new Map<StreamId, Offset>();
    for (const change of changes) {
      if (change.kind === "appended") {
        const { stream } = change;
        const start = ends.get(stream) ?? this.#endOf(stream);
        builder.data(change, start);
        ends.set(stream, advance(start, change.data.length));
        continue;
      }
      builder.change(change);
      placement.change(change);
      if (change.kind === "created") ends.set(change.stream, change.fork?.at ?? (0 as Offset));
    }
    const frame = await this.#writeFrame(builder, changes.length);
    placement.runs(frame.runs);
    placement.apply(this.#index, frame.segment, frame.position);
    this.#cache.addFrame(frame);
    for (const change of changes) {
      if (change.kind === "removed") this.#cache.remove(change.stream);
      if (change.kind === "removed" || change.kind === "trimmed") this.#hasFreed = true;
      if (change.kind === "trimmed") this.#hasTrimmed = true;
    }
    this.#commits += 1;
    this.#waiters.settle(this.#ordinal, undefined);
    this.#considerBackground();
  }

  #endOf(stream: StreamId): Offset {
    const end = this.#index.streams.get(stream)?.end;
    if (end === undefined) throw new HapaxError("internal", `stream ${stream} is not in the index`);
    return end;
  }

  async #writeFrame(builder: FrameBuilder, changes: number) {
    const frame = await this.#log.append(builder.bytes, (salt) =>
      builder.finish({
        lsn: this.#nextLsn,
        ordinal: this.#ordinal,
        timeMs: Math.max(0, this.#clock.nowMs()),
        salt,
      }),
    );
    this.#nextLsn += 1;
    this.#lastCrc = frame.crc;
    this.#ordinal += changes;
    this.#bound.written(changes, frame.bytes);
    return frame;
  }

  /** Resolves when everything that the world has now is durable. */
  #settled(): Promise<void> {
    const ordinal = this.world.version;
    this.#bound.snapshotNeeds(ordinal);
    if (ordinal <= this.#ordinal) return Promise.resolve();
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    return this.#waiters.wait(ordinal);
  }

  #considerBackground(): void {
    if (this.#isClosing || this.#failure !== undefined) return;
    const isDue = this.#bound.isDue || (this.#hasTrimmed && this.#bound.isHalfDue);
    if (isDue) void this.#startBackground();
    else if (this.#hasFreed && this.#isTight) this.#tidySoon();
  }

  /** The disk is full, or was full not long ago. Then the room of deleted data is freed early. */
  get #isTight(): boolean {
    const nowMs = this.#clock.steadyMs();
    if (this.#log.space.isFull) this.#fullAtMs = nowMs;
    return nowMs - this.#fullAtMs < TIGHT_MS;
  }

  /** On a full disk, frees the room of deleted data after a moment, and not with the next snapshot. */
  #tidySoon(): void {
    if (this.#isTidyingSoon) return;
    this.#isTidyingSoon = true;
    const waitMs = this.#log.space.isFull ? FULL_TIDY_MS : TIGHT_TIDY_MS;
    // After failures it waits up to a minute, because each failure is a warning.
    this.#clock.after(waitMs * 2 ** Math.min(this.#failuresInRow, 6), () => {
      this.#isTidyingSoon = false;
      if (!this.#isClosing && this.#hasFreed) void this.#startBackground();
    });
  }

  #armTimer(): void {
    this.#cancelTimer = this.#clock.after(this.#options.snapshotMs ?? 600_000, () => {
      if (this.#isClosing) return;
      if (this.#bound.hasChanges) void this.#startBackground();
      this.#armTimer();
    });
  }

  /** Runs snapshot, freeing of room, and compaction: one after the other, never two at a time. Never rejects. */
  #startBackground(): Promise<void> {
    this.#bound.workBegins();
    this.#hasFreed = false;
    this.#hasTrimmed = false;
    this.#background ??= this.#tidyUp()
      .catch((error: unknown) => {
        this.#hasFreed = true; // On a full disk this makes it try again.
        if (isOver(error)) this.#fail(error);
        this.#failuresInRow += 1;
        this.#options.onWarning?.(error instanceof Error ? error.message : String(error));
      })
      .finally(() => {
        this.#background = undefined;
        this.#considerBackground();
        if (this.#background === undefined) this.#bound.workEnds();
      });
    return this.#background;
  }

  async #tidyUp(): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    await tidyUp({
      log: this.#log,
      index: this.#index,
      bound: this.#bound,
      olderSnapshot: () => this.#snapshots[1],
      writeSnapshot: () => this.#writeSnapshot(),
      writeMoved: (records) => this.#writeMoved(records),
      isHeld: (segment) => this.#holds.holdsSegment(segment),
      isClosing: () => this.#isClosing,
      isTight: this.#isTight,
    });
    this.#failuresInRow = 0;
  }

  async #writeSnapshot(): Promise<void> {
    const lsn = this.#nextLsn - 1;
    const ordinal = this.#ordinal;
    if (this.#snapshots[0] === lsn) return;
    this.#bound.snapshotBegins();
    const crc = this.#lastCrc;
    const { storeId } = this.#log;
    const head = { storeId, lsn, crc, ordinal, writtenAtMs: this.#clock.nowMs() };
    await this.#log.putImage(lsn, (sink) =>
      writeSnapshot(sink, this.world, this.#index, head, () => this.#settled()),
    );
    this.#bound.snapshotCompleted();
    const [newest, older, ...rest] = [lsn, ...this.#snapshots];
    this.#snapshots = older === undefined ? [newest ?? lsn] : [newest ?? lsn, older];
    const olds = [...this.#oldImages, ...rest];
    this.#oldImages = olds.filter((old) => this.#holds.holdsImage(old));
    for (const old of olds) if (!this.#oldImages.includes(old)) await this.#log.dropImage(old);
  }

  /** Writes nothing and returns false if the free room is reserved for others. */
  #writeMoved(records: readonly Moved[]): Promise<boolean> {
    let bytes = 1024;
    for (const { data } of records) bytes += data.length + 32;
    const builder = new FrameBuilder(bytes);
    for (const record of records) builder.data(record, record.start);
    return this.#exclusive(async () => {
      if (!(await this.#log.space.hasRoomToMove(builder.bytes))) return false;
      const frame = await this.#writeFrame(builder, 0);
      applyMoves(this.#index, frame.runs, frame.segment, frame.position);
      return true;
    });
  }
}

/** Errors that say by themselves who goes on, and that this store never will. */
function isOver(error: unknown): error is HapaxError {
  return isHapaxError(error, "shard_moved") || isHapaxError(error, "engine_went_back");
}
