/**
 * Opens what an object has kept: the newest whole snapshot, then every commit after it, through the same restoration as the file
 * store (core/restore.ts).
 *
 *   - everything that was acknowledged is in the world again, and nothing that was not committed;
 *   - a damaged snapshot is passed over for the older one, with a longer replay; a damaged commit is refused.
 */

import { Restoration } from "../../core/restore.ts";
import type { Offset, StreamId } from "../../core/types.ts";
import type { BookRules } from "../../core/books.ts";
import { createWorldOf, type World } from "../../core/world.ts";
import { HapaxError, isHapaxError } from "../../../base/errors.ts";
import { damage } from "../journal/bytes.ts";
import { Runs } from "../journal/frame.ts";
import { placedRecordsOf } from "../journal/scan.ts";
import { NO_EXTENTS } from "../journal/snapshot-extents.ts";
import { readSnapshot } from "../journal/snapshot-reading.ts";
import type { Database } from "./database.ts";
import { type FrameRows, type PlacedFrame, ROW_BYTES_MAX } from "./frame-rows.ts";
import type { Manifest } from "./manifest.ts";
import { readParts, SnapshotMemory, snapshotTable } from "./snapshot-parts.ts";
import { Tail } from "./tail.ts";

export interface RecoveredObject {
  readonly world: World;
  readonly tail: Tail;
  /** LSNs of the snapshots that can be used, newest first. */
  readonly snapshots: readonly number[];
  readonly snapshotBytes: number;
  readonly nextLsn: number;
  readonly lastCrc: number;
  /** The next row of the newest table of frames. */
  readonly nextRow: number;
  /** Commits and bytes after the snapshot. */
  readonly frames: number;
  readonly frameBytes: number;
  readonly warnings: readonly string[];
}

interface Base {
  readonly world: World;
  readonly restoration: Restoration;
  readonly snapshotLsn: number;
  readonly snapshotBytes: number;
}

export async function recoverObject(
  database: Database,
  rows: FrameRows,
  manifest: Manifest,
  rules: BookRules,
): Promise<RecoveredObject> {
  const warnings: string[] = [];
  for (const lsn of manifest.snapshots) {
    try {
      const base = await loadSnapshot(database, manifest, lsn, rules);
      const snapshots = manifest.snapshots.filter((other) => other <= lsn);
      return { ...replay(rows, manifest, base), snapshots, warnings };
    } catch (error) {
      // A damaged commit is met again with the older snapshot, and is refused there.
      if (!isHapaxError(error, "data_damaged") && !(error instanceof SyntaxError)) throw error;
      warnings.push(error.message);
    }
  }
  if (manifest.frames[0] !== undefined && manifest.frames[0] !== 1) {
    const why = warnings.length === 0 ? "there is no snapshot" : warnings.join("; ");
    throw damage(
      "hapax_frames",
      manifest.frames[0],
      `the commits do not go back far enough: ${why}`,
    );
  }
  const base = { ...emptyBase(rules), snapshotLsn: 0, snapshotBytes: 0 };
  return { ...replay(rows, manifest, base), snapshots: [], warnings };
}

function emptyBase(rules: BookRules): Pick<Base, "world" | "restoration"> {
  const world = createWorldOf(rules);
  return { world, restoration: new Restoration(world) };
}

async function loadSnapshot(
  database: Database,
  manifest: Manifest,
  lsn: number,
  rules: BookRules,
): Promise<Base> {
  const base = emptyBase(rules);
  const bytes = readParts(database, lsn);
  const memory = new SnapshotMemory([bytes]);
  const table = snapshotTable(lsn);
  const head = await readSnapshot(memory, table, base.restoration, NO_EXTENTS);
  if (head.storeId !== manifest.storeId || head.lsn !== lsn) {
    throw damage(table, 0, `it is snapshot ${head.lsn} of the store ${head.storeId}`);
  }
  return { ...base, snapshotLsn: lsn, snapshotBytes: bytes.length };
}

type Replayed = Omit<RecoveredObject, "snapshots" | "warnings">;

function replay(rows: FrameRows, manifest: Manifest, base: Base): Replayed {
  const { world, restoration, snapshotLsn, snapshotBytes } = base;
  const tail = new Tail();
  const player = new Player(restoration, world, tail, snapshotLsn + 1, manifest.pagedTo);
  const first = manifest.frames.findLastIndex((lsn) => lsn <= snapshotLsn + 1);
  const wanted = first === -1 ? manifest.frames : manifest.frames.slice(first);
  let nextRow = 1;
  for (const table of wanted) {
    nextRow = 1;
    for (const frame of rows.scan(table)) {
      player.play(frame, table);
      nextRow = frame.row + Math.ceil(frame.bytes.length / ROW_BYTES_MAX);
    }
  }
  if (!restoration.isComplete) {
    throw damage("hapax_frames", snapshotLsn, "the commits end before what the snapshot contains");
  }
  const { nextLsn, lastCrc, frames, frameBytes } = player;
  return { world, tail, snapshotBytes, nextLsn, lastCrc, nextRow, frames, frameBytes };
}

class Player {
  readonly #restoration: Restoration;
  readonly #world: World;
  readonly #tail: Tail;
  readonly #pagedTo: number;
  nextLsn: number;
  lastCrc = 0;
  frames = 0;
  frameBytes = 0;

  constructor(
    restoration: Restoration,
    world: World,
    tail: Tail,
    nextLsn: number,
    pagedTo: number,
  ) {
    this.#restoration = restoration;
    this.#world = world;
    this.#tail = tail;
    this.nextLsn = nextLsn;
    this.#pagedTo = pagedTo;
  }

  play(frame: PlacedFrame, table: number): void {
    const { header } = frame;
    // A table begins with a snapshot, and a snapshot that failed leaves one that is older.
    if (header.lsn < this.nextLsn) return;
    try {
      if (header.lsn !== this.nextLsn) throw missing(`LSN ${this.nextLsn}`);
      if (header.ordinal !== this.#world.version) throw missing(`change ${this.#world.version}`);
      this.#apply(frame, table);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw damage(`hapax_frames_${table}`, frame.row, `LSN ${header.lsn}: ${reason}`, error);
    }
    this.nextLsn += 1;
    this.lastCrc = header.crc;
    this.frames += 1;
    this.frameBytes += frame.bytes.length;
  }

  #apply(frame: PlacedFrame, table: number): void {
    const runs = new Runs();
    const removed: StreamId[] = [];
    const trimmed: (readonly [StreamId, Offset])[] = [];
    let { ordinal } = frame.header;
    for (const { record, at, bytes } of placedRecordsOf(frame)) {
      if (record.kind === "moved") throw new HapaxError("data_damaged", "it has moved data");
      const { change } = record;
      if (record.kind === "appended" && record.change.data.length > 0) {
        const { stream, data } = record.change;
        runs.add(stream, record.start, (record.start + data.length) as Offset, at, bytes);
      }
      if (change.kind === "removed") removed.push(change.stream);
      if (change.kind === "trimmed") trimmed.push([change.stream, change.to]);
      this.#restoration.replay(change, ordinal);
      ordinal += 1;
    }
    if (frame.header.lsn <= this.#pagedTo) return;
    this.#tail.add(table, frame.row, runs.list);
    for (const [stream, to] of trimmed) this.#tail.trim(stream, to);
    for (const stream of removed) this.#tail.remove(stream);
  }
}

function missing(what: string): HapaxError {
  return new HapaxError("data_damaged", `${what} is missing`);
}
