/**
 * The store in a Durable Object. A commit is one row, written in the same turn; nothing is awaited, because the platform holds
 * every answer back until what was written before it is durable (the output gate).
 *
 *   - a commit is one transaction: all of it is there, or nothing;
 *   - after a failed commit the store writes nothing more; reads continue;
 *   - room is checked before SQLite could be full: a full database ends the object, with all that its turn has written.
 *
 * When the commits since the last snapshot are many, a snapshot is written, and their data moves to pages. The two newest
 * snapshots are kept, with the commits since the older one.
 */

import { type Clock, systemClock } from "../../../base/clock.ts";
import { HapaxError } from "../../../base/errors.ts";
import { systemRandom } from "../../../base/random.ts";
import { assert } from "../../../base/assert.ts";
import type { Change } from "../../core/change.ts";
import { ownBytes } from "../../core/trim.ts";
import { advance, type Offset, OFFSET_ZERO, type StreamId, type TimeMs } from "../../core/types.ts";
import type { World } from "../../core/world.ts";
import type { Page, StoreSupport } from "../../store.ts";
import { ByteReader, damage } from "../journal/bytes.ts";
import { DurableWaiters } from "../journal/durable-waiters.ts";
import { NO_EXTENTS } from "../journal/snapshot-extents.ts";
import { FrameBuilder } from "../journal/frame.ts";
import { DATA_HEAD_BYTES, decodeDataHead, decodeDataOnly } from "../journal/records.ts";
import { writeSnapshot } from "../journal/snapshot.ts";
import type {
  DurableObjectStore,
  DurableObjectStoreOptions,
  DurableObjectStoreStats,
  ObjectRecovery,
} from "./contract.ts";
import { Database } from "./database.ts";
import { FrameRows } from "./frame-rows.ts";
import {
  createManifest,
  type Manifest,
  readManifest,
  readSecret,
  writeManifest,
} from "./manifest.ts";
import type { BookRules } from "../../core/books.ts";
import { ObjectRoom } from "./object-room.ts";
import { Pages, type StoredAppend } from "./pages.ts";
import { type RecoveredObject, recoverObject } from "./recovery.ts";
import { dropParts, SnapshotMemory, writeParts } from "./snapshot-parts.ts";
import type { SqliteObjectStorage } from "./storage.ts";
import type { Tail, TailRun } from "./tail.ts";

export async function openInObject(
  storage: SqliteObjectStorage,
  options: DurableObjectStoreOptions,
  rules: BookRules,
): Promise<DurableObjectStore> {
  const { clock = systemClock, random = systemRandom } = options;
  const begunMs = clock.steadyMs();
  const database = new Database(storage);
  const manifest = readManifest(database) ?? createManifest(database, random);
  const rows = new FrameRows(database, manifest.salt);
  const recovered = await recoverObject(database, rows, manifest, rules);
  for (const warning of recovered.warnings) options.onWarning?.(warning);
  return new ObjectStore(database, options, manifest, recovered, clock.steadyMs() - begunMs);
}

class ObjectStore implements DurableObjectStore {
  /** Answers leave when the platform has made them durable on several machines. */
  readonly supports: StoreSupport = { durability: "fsync" };
  readonly world: World;
  readonly room: ObjectRoom;
  readonly recovery: ObjectRecovery;
  readonly #database: Database;
  readonly #rows: FrameRows;
  readonly #pages: Pages;
  readonly #tail: Tail;
  readonly #clock: Clock;
  readonly #options: DurableObjectStoreOptions;
  readonly #recoveryMs: number;
  /** Where the durable data of each stream ends. The world may be ahead. */
  readonly #ends = new Map<StreamId, Offset>();
  readonly #waiters = new DurableWaiters();
  #manifest: Manifest;
  #snapshots: readonly number[];
  #snapshotBytes: number;
  #nextLsn: number;
  #lastCrc: number;
  /** Number of durable changes. */
  #ordinal: number;
  #table: number | undefined;
  #nextRow: number;
  /** Commits and bytes since the last snapshot. */
  #tailCommits: number;
  #tailBytes: number;
  #commits = 0;
  #failure: HapaxError | undefined;
  #isClosed = false;
  #background: Promise<void> | undefined;
  #isDueSoon = false;
  /** After a failed snapshot the next one waits for twice as much. */
  #patience = 1;

  constructor(
    database: Database,
    options: DurableObjectStoreOptions,
    manifest: Manifest,
    recovered: RecoveredObject,
    recoveryMs: number,
  ) {
    this.#database = database;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#manifest = manifest;
    this.#rows = new FrameRows(database, manifest.salt);
    this.#pages = new Pages(database);
    this.world = recovered.world;
    this.#tail = recovered.tail;
    this.#snapshots = recovered.snapshots;
    this.#snapshotBytes = recovered.snapshotBytes;
    this.#nextLsn = recovered.nextLsn;
    this.#lastCrc = recovered.lastCrc;
    this.#ordinal = recovered.world.version;
    this.#table = manifest.frames.at(-1);
    this.#nextRow = recovered.nextRow;
    this.#tailCommits = recovered.frames;
    this.#tailBytes = recovered.frameBytes;
    this.#recoveryMs = recoveryMs;
    for (const { id, tail } of this.world.byId.values()) this.#ends.set(id, tail);
    this.room = new ObjectRoom(database, options.databaseBytesMax);
    const { frames, warnings } = recovered;
    const { rowsRead } = database;
    this.recovery = { snapshotLsn: recovered.snapshots[0], frames, rowsRead, warnings };
    this.#measure();
    this.#considerSnapshot();
  }

  stats(): DurableObjectStoreStats {
    let liveBytes = 0;
    for (const state of this.world.byId.values()) {
      const notYetStored = state.tail - (this.#ends.get(state.id) ?? state.tail);
      liveBytes += Math.max(0, ownBytes(state) - notYetStored);
    }
    const { rowsRead, rowsWritten } = this.#database;
    return {
      liveBytes,
      fileBytes: this.#database.bytes,
      recoveryMs: this.#recoveryMs,
      commits: this.#commits,
      snapshots: this.#snapshots.length,
      rowsRead,
      rowsWritten,
    };
  }

  async commit(changes: readonly Change[]): Promise<void> {
    this.#requireWritable();
    try {
      this.#commit(changes);
    } catch (cause) {
      const reason = cause instanceof Error ? cause.message : String(cause);
      this.#failure = new HapaxError("writes_stopped", `the object failed: ${reason}`, { cause });
      this.#waiters.settle(this.#ordinal, this.#failure);
      throw this.#failure;
    }
    this.#commits += 1;
    this.#waiters.settle(this.#ordinal, undefined);
    this.#measure();
    this.#considerSnapshot();
  }

  async read(stream: StreamId, from: Offset, to: Offset, bytesMax: number): Promise<Page> {
    this.#requireOpen();
    return collect(this.#appendsFrom(stream, from), from, to, bytesMax);
  }

  async seek(stream: StreamId, from: Offset, to: Offset, atMs: TimeMs): Promise<Offset> {
    this.#requireOpen();
    const runs = this.#tail.from(stream, from);
    const isLate = (append: StoredAppend): boolean =>
      append.offset >= from && append.atMs >= atMs && append.offset < to;
    if ((runs[0]?.start ?? Infinity) > from) {
      const begin = this.#pages.beforeTime(stream, from, atMs);
      for (const append of this.#pages.from(stream, begin)) {
        if (isLate(append)) return append.offset;
      }
    }
    for (const run of runs.slice(this.#lastBefore(runs, atMs))) {
      for (const append of this.#readRun(stream, run)) if (isLate(append)) return append.offset;
    }
    return to;
  }

  /** The place of the last run that begins before the time: no run before it has anything of that time. */
  #lastBefore(runs: readonly TailRun[], atMs: TimeMs): number {
    let low = 0;
    let high = runs.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const run = runs[middle];
      if (run === undefined) break;
      const bytes = Math.min(run.bytes, DATA_HEAD_BYTES);
      const head = this.#rows.read(run.table, run.row, run.at, bytes);
      if (decodeDataHead(new ByteReader(head)).atMs < atMs) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  async secret(): Promise<string> {
    this.#requireOpen();
    return readSecret(this.#database);
  }

  async maintain(): Promise<void> {
    await this.#background;
    await this.#startSnapshot();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#waiters.settle(this.#ordinal, new HapaxError("store_closed", "the store is closed"));
    await this.#background;
  }

  #requireOpen(): void {
    if (this.#isClosed) throw new HapaxError("store_closed", "the store of the object is closed");
  }

  #requireWritable(): void {
    this.#requireOpen();
    if (this.#failure !== undefined) throw this.#failure;
  }

  #commit(changes: readonly Change[]): void {
    const { frame, ends } = this.#encode(changes);
    const table = this.#table ?? this.#nextLsn;
    const row = this.#table === undefined ? 1 : this.#nextRow;
    // Everything or nothing, also if a later statement fails: the turn goes on with what is left.
    const rows = this.#database.inTransaction(() => {
      if (this.#table === undefined) this.#createTable(table);
      const written = this.#rows.write(table, row, frame);
      for (const change of changes) this.#freePages(change);
      return written;
    });
    if (this.#table === undefined) this.#manifest = withTable(this.#manifest, table);
    this.#table = table;
    this.#nextRow = row + rows;
    this.#nextLsn += 1;
    this.#lastCrc = frame.crc;
    this.#ordinal += changes.length;
    this.#tailCommits += 1;
    this.#tailBytes += frame.bytes;
    this.#tail.add(table, row, frame.runs);
    for (const [stream, end] of ends) this.#ends.set(stream, end);
    for (const change of changes) this.#forget(change);
  }

  #encode(changes: readonly Change[]) {
    let bytes = 1024 + 64 * changes.length;
    for (const change of changes) if (change.kind === "appended") bytes += change.data.length;
    const builder = new FrameBuilder(Math.min(bytes, 1024 * 1024));
    const ends = new Map<StreamId, Offset>();
    for (const change of changes) {
      if (change.kind === "appended") {
        const { stream, data } = change;
        const start = ends.get(stream) ?? this.#ends.get(stream);
        assert(start !== undefined, `an append names a stream without an end: id=${stream}`);
        builder.data(change, start);
        ends.set(stream, advance(start, data.length));
        continue;
      }
      builder.change(change);
      if (change.kind === "created") ends.set(change.stream, change.fork?.at ?? OFFSET_ZERO);
    }
    const frame = builder.finish({
      lsn: this.#nextLsn,
      ordinal: this.#ordinal,
      timeMs: Math.max(0, this.#clock.nowMs()),
      salt: this.#manifest.salt,
    });
    return { frame, ends };
  }

  #createTable(table: number): void {
    this.#rows.create(table);
    writeManifest(this.#database, withTable(this.#manifest, table));
  }

  #freePages(change: Change): void {
    if (change.kind === "removed") this.#pages.remove(change.stream);
    if (change.kind === "trimmed") this.#pages.trim(change.stream, change.to);
  }

  #forget(change: Change): void {
    if (change.kind === "trimmed") this.#tail.trim(change.stream, change.to);
    if (change.kind !== "removed") return;
    this.#tail.remove(change.stream);
    this.#ends.delete(change.stream);
  }

  /** What is in pages comes before what is in frames. */
  *#appendsFrom(stream: StreamId, from: Offset): Generator<StoredAppend> {
    const runs = this.#tail.from(stream, from);
    if ((runs[0]?.start ?? Infinity) > from) yield* this.#pages.from(stream, from);
    for (const run of runs) yield* this.#readRun(stream, run);
  }

  *#readRun(stream: StreamId, run: TailRun): Generator<StoredAppend> {
    const reader = new ByteReader(this.#rows.read(run.table, run.row, run.at, run.bytes));
    let offset = run.start;
    while (reader.left > 0) {
      const record = decodeDataOnly(reader);
      if (record.stream !== stream || record.start !== offset) {
        const what = `a record of stream ${stream} at ${offset} is not where it was written`;
        throw damage(`hapax_frames_${run.table}`, run.row, what);
      }
      yield { offset, atMs: record.atMs, data: record.data };
      offset = advance(offset, record.data.length);
    }
  }
  #measure(): void {
    this.room.measure(this.#snapshotBytes, this.#tailBytes);
  }

  /** A snapshot is written between two requests, and not with a commit: it takes longer. */
  #considerSnapshot(): void {
    const { snapshotCommits = 1000, snapshotBytes = 4 * 1024 * 1024 } = this.#options;
    const bytes = this.#tailBytes / this.#patience;
    const isDue =
      this.#tailCommits / this.#patience >= snapshotCommits ||
      bytes >= Math.max(snapshotBytes, this.#snapshotBytes) ||
      (this.room.isTight && bytes > snapshotBytes / 4);
    if (!isDue || this.#isDueSoon || this.#failure !== undefined || this.#isClosed) return;
    this.#isDueSoon = true;
    this.#clock.after(0, () => {
      this.#isDueSoon = false;
      if (!this.#isClosed) void this.#startSnapshot().catch(() => undefined);
    });
  }

  #startSnapshot(): Promise<void> {
    this.#background ??= this.#snapshot()
      .catch((error: unknown) => {
        this.#patience *= 2;
        this.#options.onWarning?.(error instanceof Error ? error.message : String(error));
        throw error;
      })
      .finally(() => {
        this.#background = undefined;
      });
    return this.#background;
  }

  async #snapshot(): Promise<void> {
    this.#requireWritable();
    const lsn = this.#nextLsn - 1;
    const last = this.#table;
    if (last === undefined || this.#snapshots[0] === lsn) return;
    if (!this.room.fitsSnapshot)
      throw new HapaxError("store_full", "there is no room for a snapshot");
    // Commits that come meanwhile go to a table of their own, so that this one can be dropped whole.
    const [tailCommits, tailBytes] = [this.#tailCommits, this.#tailBytes];
    if (last !== lsn + 1) this.#beginTable(lsn + 1);
    const memory = new SnapshotMemory();
    const { storeId } = this.#manifest;
    const [crc, ordinal] = [this.#lastCrc, this.#ordinal];
    const head = { storeId, lsn, crc, ordinal, writtenAtMs: Math.max(0, this.#clock.nowMs()) };
    await writeSnapshot(memory, this.world, NO_EXTENTS, head, () => this.#settled());
    this.#requireWritable();
    this.#finishSnapshot(lsn, memory.bytes);
    this.#patience = 1;
    this.#tailCommits -= tailCommits;
    this.#tailBytes -= tailBytes;
    this.#measure();
  }

  #beginTable(table: number): void {
    this.#database.inTransaction(() => {
      this.#createTable(table);
    });
    this.#manifest = withTable(this.#manifest, table);
    this.#table = table;
    this.#nextRow = 1;
  }

  /** Writes the snapshot, moves the data of the commits before it to pages, and drops what is needed no more: at once. */
  #finishSnapshot(lsn: number, bytes: Buffer): void {
    const snapshots = [lsn, ...this.#snapshots].slice(0, 2);
    const older = snapshots[1] ?? 0;
    const frames = this.#manifest.frames.filter((table) => table > older);
    const manifest = { ...this.#manifest, snapshots, frames, pagedTo: lsn };
    this.#database.inTransaction(() => {
      writeParts(this.#database, lsn, bytes);
      for (const [stream, runs] of this.#tail.upTo(lsn)) {
        this.#pages.add(stream, this.#appendsOf(stream, runs));
      }
      for (const old of this.#manifest.snapshots) {
        if (!snapshots.includes(old)) dropParts(this.#database, old);
      }
      for (const table of this.#manifest.frames) {
        if (!frames.includes(table)) this.#rows.drop(table);
      }
      writeManifest(this.#database, manifest);
    });
    this.#manifest = manifest;
    this.#snapshots = snapshots;
    this.#snapshotBytes = bytes.length;
    this.#tail.forget(lsn);
  }

  *#appendsOf(stream: StreamId, runs: readonly TailRun[]): Generator<StoredAppend> {
    for (const run of runs) yield* this.#readRun(stream, run);
  }

  /** Resolves when everything that the world has now is durable. */
  #settled(): Promise<void> {
    const { version } = this.world;
    if (version <= this.#ordinal) return Promise.resolve();
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    return this.#waiters.wait(version);
  }
}

function withTable(manifest: Manifest, table: number): Manifest {
  return { ...manifest, frames: [...manifest.frames, table] };
}

/** A page of whole appends, without holes. */
function collect(found: Iterable<StoredAppend>, from: Offset, to: Offset, bytesMax: number): Page {
  const appends: Uint8Array[] = [];
  let start: Offset | undefined;
  let [bytes, position] = [0, from];
  for (const { offset, data } of found) {
    const end = advance(offset, data.length);
    if (end <= position) continue;
    // Data before it was trimmed.
    if (offset > position || offset >= to || position >= to) break;
    if (bytes > 0 && bytes + data.length > bytesMax) break;
    start ??= offset;
    appends.push(end <= to ? data : data.subarray(0, to - offset));
    bytes += data.length;
    position = end;
  }
  return { start: start ?? from, appends };
}
