/**
 * Reads a store's directory for the tools: its files, headers and frames, and where the damage is. Recovery stops at
 * the first damage; this continues behind it.
 *
 *   - looking changes nothing: it only calls `list`, and `open` for reading.
 */

import type { Disk } from "./disk.ts";
import {
  decodeSegmentHeader,
  HEADER_BYTES,
  requireKnownFormat,
  SEGMENT_HEADER_BYTES,
  type SegmentHeader,
} from "../journal/format.ts";
import { findFrameBehind, type ScannedFrame, scanSegment } from "../journal/scan.ts";
import { isOfLock } from "./lock.ts";
import { otherStore } from "../journal/replay.ts";
import { parseSegmentName, SPARE_NAME } from "./segments.ts";
import { parseSnapshotName, UNFINISHED_SNAPSHOT } from "./snapshot-file.ts";
import {
  latestMark,
  readStoreCopies,
  STORE_NAME,
  type StoreCopy,
  UNFINISHED_STORE,
} from "./store-file.ts";
import { SECRET_NAME, UNFINISHED_SECRET } from "./secret-file.ts";

export const HEADER_COPIES_AT = [0, 2048] as const;

export interface SegmentFile {
  /** The number in its name. */
  readonly number: number;
  readonly name: string;
  readonly bytes: number;
  /** The first whole copy with this number. */
  readonly header: SegmentHeader | undefined;
  readonly copies: readonly HeaderCopy[];
}

export interface HeaderCopy {
  readonly at: number;
  /** Why the file cannot be used, if so. */
  readonly fault: string | undefined;
}

export interface DirectorySurvey {
  /** Copies of STORE. Undefined if there is no such file. */
  readonly store: readonly StoreCopy[] | undefined;
  /** The id in STORE, or, without STORE, that of the newest whole segment. */
  readonly storeId: string | undefined;
  /** Oldest first. */
  readonly segments: readonly SegmentFile[];
  /** LSNs in the names of the files, newest first. */
  readonly snapshots: readonly number[];
  readonly spares: readonly string[];
  /** Snapshots that were never finished. The next start removes them. */
  readonly unfinished: readonly string[];
  /** Files that do not belong to the store. */
  readonly others: readonly string[];
}

/** Files of the store with one fixed name. */
const OWN_NAMES: ReadonlySet<string> = new Set([STORE_NAME, SECRET_NAME]);

export async function surveyDirectory(disk: Disk): Promise<DirectorySurvey> {
  const names = [...(await disk.list())].sort();
  const store = names.includes(STORE_NAME) ? await readStoreCopies(disk) : undefined;
  const found: SegmentFile[] = [];
  const snapshots: number[] = [];
  const spares: string[] = [];
  const unfinished: string[] = [];
  const others: string[] = [];
  for (const name of names) {
    const number = parseSegmentName(name);
    const lsn = parseSnapshotName(name);
    if (number !== undefined) found.push(await readSegmentFile(disk, name, number));
    else if (lsn !== undefined) snapshots.push(lsn);
    else if (isUnfinished(name)) unfinished.push(name);
    else if (SPARE_NAME.test(name)) spares.push(name);
    else if (!OWN_NAMES.has(name) && !isOfLock(name)) others.push(name);
  }
  found.sort((one, other) => one.number - other.number);
  snapshots.sort((one, other) => other - one);
  const newest = found.findLast(({ header }) => header !== undefined)?.header?.storeId;
  const storeId = latestMark(store ?? [])?.id ?? newest;
  const segments = found.map((segment) => refuseForeign(segment, storeId));
  return { store, storeId, segments, snapshots, spares, unfinished, others };
}

function isUnfinished(name: string): boolean {
  return (
    UNFINISHED_SNAPSHOT.test(name) ||
    /^spare-.*\.tmp$/.test(name) ||
    name === UNFINISHED_STORE ||
    name === UNFINISHED_SECRET
  );
}

/** ID1: nothing in a segment of another store can be used. */
function refuseForeign(segment: SegmentFile, storeId: string | undefined): SegmentFile {
  const { header, copies } = segment;
  if (header === undefined || header.storeId === storeId) return segment;
  const fault = otherStore(header.storeId, storeId ?? "nothing");
  const refused = copies.map((copy) => ({ at: copy.at, fault: copy.fault ?? fault }));
  return { ...segment, header: undefined, copies: refused };
}

async function readSegmentFile(disk: Disk, name: string, number: number): Promise<SegmentFile> {
  const file = await disk.open(name, "read");
  try {
    const block = await file.read(0, SEGMENT_HEADER_BYTES);
    requireKnownFormat(name, block);
    const found = HEADER_COPIES_AT.map((at) => readHeaderCopy(block, at, number));
    const copies = found.map(({ at, fault }) => ({ at, fault }));
    const header = found.find(({ fault }) => fault === undefined)?.header;
    return { number, name, bytes: await file.size(), header, copies };
  } finally {
    await file.close();
  }
}

function readHeaderCopy(block: Buffer, at: number, number: number) {
  // The decoder takes either copy, so it gets one at a time.
  const alone = Buffer.alloc(SEGMENT_HEADER_BYTES);
  // An empty file, or a short one, has no such copy.
  if (at < block.length) block.copy(alone, at, at, Math.min(block.length, at + HEADER_BYTES));
  const header = decodeSegmentHeader(alone);
  let fault: string | undefined;
  if (block.length < SEGMENT_HEADER_BYTES) fault = "the file ends within its header";
  else if (header === undefined) fault = "it does not match its checksum";
  else if (header.number !== number) fault = `it is the header of segment ${header.number}`;
  return { at, fault, header };
}

/** A range of a segment without the frames that should be there. */
export interface DamagedRange {
  readonly position: number;
  /** Where the next valid frame begins, or the end of the file. */
  readonly end: number;
  readonly firstLsn: number;
  /** Less than `firstLsn` if no frame is missing and only its place is wrong. */
  readonly lastLsn: number;
}

export interface SegmentScan {
  readonly frames: number;
  /** Behind the last valid frame. */
  readonly end: number;
  /** One more than the LSN of the last written frame, as far as can be seen. */
  readonly nextLsn: number;
  readonly damage: readonly DamagedRange[];
  /** There are bytes behind the last frame that are no frame: the process ended during a write. */
  readonly isTorn: boolean;
}

/**
 * Reads every valid frame of a segment, also behind damage. `followerLsn` is the first LSN of the segment right after
 * it; it says where this one must end.
 */
export async function scanWholeSegment(
  disk: Disk,
  segment: { readonly name: string; readonly bytes: number; readonly header: SegmentHeader },
  followerLsn: number | undefined,
  take: (frame: ScannedFrame) => void,
): Promise<SegmentScan> {
  const { salt, firstLsn } = segment.header;
  const damage: DamagedRange[] = [];
  let frames = 0;
  let position = SEGMENT_HEADER_BYTES;
  let lsn = firstLsn;
  const count = (frame: ScannedFrame): void => {
    frames += 1;
    take(frame);
  };
  const file = await disk.open(segment.name, "read");
  try {
    for (;;) {
      const scan = await scanSegment(file, salt, lsn, count, position);
      const isWhole = scan.nextLsn === followerLsn;
      const behind = isWhole
        ? undefined
        : await findFrameBehind(file, salt, scan.end, scan.nextLsn);
      if (behind === undefined) {
        if (followerLsn !== undefined && !isWhole) {
          const { end, nextLsn } = scan;
          const lastLsn = followerLsn - 1;
          damage.push({ position: end, end: segment.bytes, firstLsn: nextLsn, lastLsn });
        }
        const nextLsn = followerLsn ?? scan.nextLsn;
        const isTorn = followerLsn === undefined && scan.isTorn;
        return { frames, end: scan.end, nextLsn, damage, isTorn };
      }
      const { end, nextLsn } = scan;
      damage.push({
        position: end,
        end: behind.position,
        firstLsn: nextLsn,
        lastLsn: behind.lsn - 1,
      });
      position = behind.position;
      lsn = behind.lsn;
    }
  } finally {
    await file.close();
  }
}

/** Returns the first LSN of the segment that must come right after this one, if that is there and readable. */
export function followerLsn(segments: readonly SegmentFile[], at: number): number | undefined {
  const next = segments[at + 1];
  if (next === undefined || next.number !== (segments[at]?.number ?? 0) + 1) return undefined;
  return next.header?.firstLsn;
}
