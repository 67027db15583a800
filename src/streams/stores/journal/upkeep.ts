/**
 * The background work of a store: it writes a snapshot, frees room, and compacts.
 *
 * A segment is freed after two snapshots. Usually the second one comes by itself. On a full disk the store does
 * not wait for it: it repeats the work, behind an empty frame, as long as that frees something.
 */

import { findVictims, moveOut, type WriteMoved } from "./compaction.ts";
import type { ExtentIndex } from "./extents.ts";
import type { ReplayBound } from "./replay-bound.ts";
import type { SegmentLog } from "./segment-log.ts";

/** What one turn of compaction may move even if a snapshot is due: half a second of a slow disk. */
const MOVE_BYTES_MIN = 32 * 1024 * 1024;
/** How often the work repeats on a full disk. Two snapshots and the rest of compaction need three. */
const FULL_TURNS_MAX = 6;

export interface UpkeepParts {
  readonly log: SegmentLog;
  readonly index: ExtentIndex;
  readonly bound: ReplayBound;
  /** LSN of the older of the two snapshots. */
  readonly olderSnapshot: () => number | undefined;
  readonly writeSnapshot: () => Promise<void>;
  /** Writes nothing and returns false if the free room is reserved for others. */
  readonly writeMoved: WriteMoved;
  /** Whether a backup holds a segment. */
  readonly isHeld: (segment: number) => boolean;
  readonly isClosing: () => boolean;
  /** The disk was full a while ago, so every segment counts. */
  readonly isTight: boolean;
}

export async function tidyUp(parts: UpkeepParts): Promise<void> {
  const { log, writeSnapshot } = parts;
  const { space } = log;
  let wasFull = parts.isTight;
  for (let turns = 1; ; turns += 1) {
    wasFull ||= space.isFull;
    await space.forImage(writeSnapshot);
    const retired = await retireSegments(parts);
    const movedBytes = await compact(parts);
    wasFull ||= space.isFull;
    const hasDead = hasDeadSegment(parts);
    const isGaining = retired > 0 || movedBytes > 0 || hasDead;
    if (!isGaining || !wasFull || turns === FULL_TURNS_MAX || parts.isClosing()) break;
    // A frame without records, so that the next snapshot gets another LSN.
    if (!(await parts.writeMoved([]))) break;
  }
  space.prepare();
}

/** The last segment is being written, and does not count. */
function hasDeadSegment({ log, index, isHeld }: UpkeepParts): boolean {
  return log.segments().some(({ number }, at, all) => {
    return at < all.length - 1 && index.liveBytes(number) === 0 && !isHeld(number);
  });
}

/** Frees only segments that neither the older of the two snapshots nor a backup needs. */
async function retireSegments({ log, index, olderSnapshot, isHeld }: UpkeepParts): Promise<number> {
  const older = olderSnapshot();
  let retired = 0;
  if (older === undefined) return retired;
  const list = log.segments();
  for (const [at, segment] of list.entries()) {
    const next = list[at + 1];
    if (next === undefined || next.firstLsn > older + 1) break;
    if (index.liveBytes(segment.number) > 0 || isHeld(segment.number)) continue;
    await log.retire(segment.number);
    retired += 1;
  }
  return retired;
}

function compact({ log, index, bound, writeMoved }: UpkeepParts): Promise<number> {
  const victims = findVictims(log, index);
  if (victims.size === 0) return Promise.resolve(0);
  // A snapshot that is due comes first, but every turn moves something.
  const mustStop = (bytes: number): boolean =>
    bound.isFull || (bytes >= MOVE_BYTES_MIN && bound.isDue);
  return moveOut(log, index, victims, writeMoved, mustStop);
}
