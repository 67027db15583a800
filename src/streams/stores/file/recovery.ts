/**
 * Recovers a store: reads the newest valid snapshot, then applies every frame after it with core's `applyChange`.
 *
 *   RC3  everything that was acknowledged is in the world and in the index again, and nothing that was not written;
 *   RC4  damage is refused with file, offset and LSN; a file that is not understood is not deleted.
 */

import { Restoration } from "../../core/restore.ts";
import { createWorld, type World } from "../../core/world.ts";
import { HapaxError, isHapaxError } from "../../../base/errors.ts";
import { damage } from "../journal/bytes.ts";
import { Chain, type KnownFrame } from "../journal/chain.ts";
import type { Disk } from "./disk.ts";
import { ExtentIndex } from "../journal/extents.ts";
import {
  decodeSegmentHeader,
  requireKnownFormat,
  SEGMENT_HEADER_BYTES,
} from "../journal/format.ts";
import { Placement } from "../journal/placement.ts";
import { findFrameBehind, placedRecordsOf, type ScannedFrame, scanSegment } from "./scan.ts";
import { parseSegmentName, type Segment, segmentName, SPARE_NAME } from "./segments.ts";
import { parseSnapshotName, snapshotName, UNFINISHED_SNAPSHOT } from "./snapshot.ts";
import type { SnapshotHead } from "../journal/snapshot-format.ts";
import { readSnapshot } from "./snapshot-reading.ts";
import { readStoreMark, STORE_NAME, type StoreMark, UNFINISHED_STORE } from "./store-file.ts";

export interface Recovered {
  readonly world: World;
  readonly index: ExtentIndex;
  readonly segments: readonly Segment[];
  readonly spares: readonly string[];
  /** Files of snapshots that were never finished. */
  readonly unfinished: readonly string[];
  /** LSNs of the used snapshot and of older ones, newest first. */
  readonly snapshots: readonly number[];
  readonly nextLsn: number;
  /** CRC of the last frame; 0 if there is none. */
  readonly lastCrc: number;
  /** Undefined if the directory is new. */
  readonly mark: StoreMark | undefined;
  readonly report: RecoveryReport;
}

/** What opening a directory found and did. */
export interface RecoveryReport {
  /** LSN of the snapshot that was used, if any. */
  readonly snapshotLsn: number | undefined;
  readonly frames: number;
  readonly changes: number;
  readonly bytes: number;
  /** The journal ended with an incomplete frame, which was never acknowledged. */
  readonly torn: { readonly file: string; readonly position: number } | undefined;
  /** Snapshots that could not be used, and why. */
  readonly warnings: readonly string[];
}

/** Called from time to time with the bytes read so far and the bytes in all. */
export type RecoveryProgress = (bytes: number, bytesTotal: number) => void;

type FoundSegment = Segment & {
  /** The size of the file when the segment was begun. */
  readonly bytesWhole: number;
};

interface Base {
  readonly world: World;
  readonly index: ExtentIndex;
  readonly restoration: Restoration;
  readonly snapshotLsn: number | undefined;
  readonly snapshotCrc: number;
  readonly warnings: readonly string[];
}

/**
 * Recovers, and only reads. It names left-over files; code that opens the store for writing removes them.
 * `mayLackData` is for the tools: they show what is lost with a missing segment.
 */
export async function recover(
  disk: Disk,
  onProgress: RecoveryProgress,
  mayLackData = false,
): Promise<Recovered> {
  const names = await disk.list();
  const mark = mayLackData ? undefined : await readStoreMark(disk, names);
  const segments = await readSegments(disk, names, mark?.id);
  const snapshots = names
    .map(parseSnapshotName)
    .filter((lsn) => lsn !== undefined)
    .sort((one, other) => other - one);
  if (mark === undefined && !mayLackData && segments.length + snapshots.length > 0) {
    throw damage(STORE_NAME, 0, "it is missing; hapax repair makes it anew");
  }
  const base = await loadBase(disk, snapshots, segments, mark);
  const chain = mayLackData ? undefined : chainOf(base, mark);
  const replay = await replaySegments(disk, base, segments, onProgress, chain);
  if (!mayLackData) requireSegments(base.index, segments);
  if (mark !== undefined) requireEnd(mark, segments, replay.nextLsn);
  return {
    world: base.world,
    index: base.index,
    segments,
    spares: names.filter((name) => SPARE_NAME.test(name)),
    unfinished: names.filter((name) => UNFINISHED_SNAPSHOT.test(name) || name === UNFINISHED_STORE),
    // A snapshot that could not be read must not count as one of the two that are kept.
    snapshots: snapshots.filter((lsn) => lsn <= (base.snapshotLsn ?? -1)),
    nextLsn: replay.nextLsn,
    lastCrc: chain?.lastCrc ?? 0,
    mark,
    report: {
      snapshotLsn: base.snapshotLsn,
      frames: replay.frames,
      changes: replay.changes,
      bytes: replay.bytes,
      torn: replay.torn,
      warnings: base.warnings,
    },
  };
}

/** ID1: the frames that snapshot and STORE name. */
function chainOf({ snapshotLsn, snapshotCrc }: Base, mark: StoreMark | undefined): Chain {
  const known: KnownFrame[] = [];
  if (snapshotLsn !== undefined) {
    known.push({ lsn: snapshotLsn, crc: snapshotCrc, by: snapshotName(snapshotLsn) });
  }
  if (mark !== undefined) known.push({ lsn: mark.lsn, crc: mark.crc, by: STORE_NAME });
  return new Chain(known);
}

/** ID2: checks that the journal reaches as far as STORE says. */
function requireEnd(mark: StoreMark, segments: readonly Segment[], nextLsn: number): void {
  const last = segments.at(-1);
  if ((last?.number ?? 0) < mark.segment) {
    throw damage(segmentName(mark.segment), 0, "the end of the journal is missing: this segment");
  }
  if (nextLsn <= mark.lsn) {
    const what = `the end of the journal is missing: LSN ${nextLsn} to ${mark.lsn}`;
    throw damage(last?.name ?? "the journal", last?.end ?? 0, what);
  }
}

/** `storeId` is undefined if it is not known. */
async function readSegments(
  disk: Disk,
  names: readonly string[],
  storeId: string | undefined,
): Promise<FoundSegment[]> {
  const segments: FoundSegment[] = [];
  for (const name of names) {
    const number = parseSegmentName(name);
    if (number === undefined) continue;
    const file = await disk.open(name, "read");
    try {
      const bytes = await file.size();
      const block = await file.read(0, SEGMENT_HEADER_BYTES);
      requireKnownFormat(name, block);
      const header = decodeSegmentHeader(block);
      if (header === undefined) throw damage(name, 0, "the header is not whole");
      if (header.number !== number) throw damage(name, 16, `it is segment ${header.number}`);
      if (storeId !== undefined && header.storeId !== storeId) {
        throw damage(name, 56, otherStore(header.storeId, storeId));
      }
      const { firstLsn, salt, crcBefore, bytes: bytesWhole } = header;
      segments.push({ number, name, firstLsn, salt, crcBefore, bytes, bytesWhole, end: bytes });
    } finally {
      await file.close();
    }
  }
  return segments.sort((one, other) => one.number - other.number);
}

async function loadBase(
  disk: Disk,
  snapshots: readonly number[],
  segments: readonly Segment[],
  mark: StoreMark | undefined,
): Promise<Base> {
  const warnings: string[] = [];
  for (const lsn of snapshots) {
    const base = emptyBase(warnings);
    const name = snapshotName(lsn);
    let head: SnapshotHead;
    try {
      head = await readSnapshot(disk, name, base.restoration, base.index);
    } catch (error) {
      if (!isHapaxError(error, "data_damaged")) throw error;
      warnings.push(error.message);
      continue;
    }
    // A whole snapshot of another store is no damage to skip: two directories were mixed.
    if (mark !== undefined && head.storeId !== mark.id) {
      throw damage(name, 0, otherStore(head.storeId, mark.id));
    }
    return { ...base, snapshotLsn: head.lsn, snapshotCrc: head.crc };
  }
  const [first] = segments;
  const isWhole = first === undefined ? snapshots.length === 0 : first.firstLsn === 1;
  if (!isWhole) {
    const why = warnings.length === 0 ? "there is no snapshot" : warnings.join("; ");
    throw damage(
      first?.name ?? "the journal",
      0,
      `the journal does not go back far enough: ${why}`,
    );
  }
  return emptyBase(warnings);
}

function emptyBase(warnings: readonly string[]): Base {
  const world = createWorld();
  const index = new ExtentIndex();
  const restoration = new Restoration(world);
  return { world, index, restoration, snapshotLsn: undefined, snapshotCrc: 0, warnings };
}

interface Replay {
  readonly nextLsn: number;
  readonly frames: number;
  readonly changes: number;
  readonly bytes: number;
  readonly torn: RecoveryReport["torn"];
}

async function replaySegments(
  disk: Disk,
  base: Base,
  segments: readonly FoundSegment[],
  onProgress: RecoveryProgress,
  chain: Chain | undefined,
): Promise<Replay> {
  const fromLsn = (base.snapshotLsn ?? 0) + 1;
  const first = segments.findLastIndex((segment) => segment.firstLsn <= fromLsn);
  if (first === -1 && (segments.length > 0 || base.snapshotLsn !== undefined)) {
    throw damage(segments[0]?.name ?? "the journal", 0, `LSN ${fromLsn} is missing`);
  }
  const wanted = first === -1 ? [] : segments.slice(first);
  const bytesTotal = wanted.reduce((sum, segment) => sum + segment.bytes, 0);
  const player = new Player(base, fromLsn);
  let nextLsn = wanted[0]?.firstLsn ?? fromLsn;
  let torn: RecoveryReport["torn"];
  let bytesBefore = 0;
  for (const [at, segment] of wanted.entries()) {
    if (segment.firstLsn !== nextLsn) {
      throw damage(segment.name, 24, `it starts at LSN ${segment.firstLsn}, not ${nextLsn}`);
    }
    const file = await disk.open(segment.name, "read");
    try {
      if (segment.bytes < segment.bytesWhole) {
        const what = `the file has ${segment.bytes} of ${segment.bytesWhole} bytes: its end is missing`;
        throw damage(segment.name, segment.bytes, what);
      }
      requireLink(segment.name, 52, chain?.segment(segment.name, segment));
      const scan = await scanSegment(file, segment.salt, nextLsn, (frame) => {
        const { lsn, crc } = frame.header;
        requireLink(segment.name, frame.position, chain?.frame(segment.name, lsn, crc));
        player.play(frame, segment);
        onProgress(bytesBefore + frame.position, bytesTotal);
      });
      const isLast = at === wanted.length - 1;
      const next = wanted[at + 1];
      const behind = isLast
        ? await findFrameBehind(file, segment.salt, scan.end, scan.nextLsn)
        : undefined;
      if (behind !== undefined || (next !== undefined && next.firstLsn !== scan.nextLsn)) {
        const proof = behind?.lsn ?? next?.firstLsn ?? 0;
        throw damage(segment.name, scan.end, `LSN ${scan.nextLsn} is not valid, LSN ${proof} is`);
      }
      segment.end = scan.end;
      nextLsn = scan.nextLsn;
      if (isLast && scan.isTorn) torn = { file: segment.name, position: scan.end };
    } finally {
      await file.close();
    }
    bytesBefore += segment.bytes;
  }
  if (nextLsn < fromLsn) {
    throw damage(wanted.at(-1)?.name ?? "the journal", 0, `it ends before LSN ${fromLsn}`);
  }
  player.finish();
  return { nextLsn, frames: player.frames, changes: player.changes, bytes: player.bytes, torn };
}

function requireLink(name: string, offset: number, fault: string | undefined): void {
  if (fault !== undefined) throw damage(name, offset, fault);
}

export function otherStore(found: string, expected: string): string {
  return `it belongs to the store ${found}, STORE says ${expected}`;
}

/** Applies frames to the world and to the index. */
class Player {
  readonly #base: Base;
  readonly #fromLsn: number;
  frames = 0;
  changes = 0;
  bytes = 0;

  constructor(base: Base, fromLsn: number) {
    this.#base = base;
    this.#fromLsn = fromLsn;
  }

  play(frame: ScannedFrame, segment: Segment): void {
    const { header } = frame;
    if (header.lsn < this.#fromLsn) return;
    const { restoration, index } = this.#base;
    const placement = new Placement();
    let { ordinal } = header;
    try {
      if (ordinal !== this.#base.world.version) {
        throw new HapaxError("data_damaged", `change ${this.#base.world.version} is missing`);
      }
      for (const { record, at, bytes } of placedRecordsOf(frame)) {
        placement.record(record, at, bytes);
        if (record.kind === "moved") continue;
        restoration.replay(record.change, ordinal);
        ordinal += 1;
      }
      placement.apply(index, segment.number, frame.position);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw damage(segment.name, frame.position, `LSN ${header.lsn}: ${reason}`, error);
    }
    this.frames += 1;
    this.changes += ordinal - header.ordinal;
    this.bytes += frame.bytes.length;
  }

  finish(): void {
    if (!this.#base.restoration.isComplete) {
      throw damage("the journal", 0, "it ends before what its snapshot contains");
    }
  }
}

function requireSegments(index: ExtentIndex, segments: readonly Segment[]): void {
  const known = new Set(segments.map(({ number }) => number));
  for (const number of index.segments()) {
    if (!known.has(number)) throw damage(`segment ${number}`, 0, "it holds data but is missing");
  }
}
