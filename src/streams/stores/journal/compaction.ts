/**
 * Compaction writes the live data of mostly dead segments again, in stream order, at the journal's end. It is data
 * like any other: a crash at any point leaves it in at least one place.
 *
 *   - compaction changes no stream: same bytes, same offsets, same times, same cuts between appends;
 *   - a segment is given up only if it holds nothing alive and no snapshot needs its frames;
 *   - compaction never waits for room, and leaves the room that deletes need.
 */

import type { Offset, StreamId } from "../../core/types.ts";
import type { Extent, ExtentIndex, StreamExtents } from "./extents.ts";
import type { Moved } from "./records.ts";
import { readForMove } from "./reading.ts";
import type { SegmentLog } from "./segment-log.ts";

/** With a smaller share of live data, a segment is worth compacting. */
const LIVE_SHARE_MAX = 0.5;
/** Bytes of one write of compaction. Small, because commits wait behind it. */
const MOVE_BYTES = 256 * 1024;
const FULL_MOVE_BYTES = 16 * 1024;

/**
 * Writes moved records as one frame, which is durable when the promise resolves. False if there was no room for it.
 */
export type WriteMoved = (records: readonly Moved[]) => Promise<boolean>;

/**
 * Finds the segments that are worth compacting, but never the one that is being written. On a full disk: those with
 * the least live data, and only as many as there is room for, because a segment that is moved out in part frees
 * nothing.
 */
export function findVictims(log: SegmentLog, index: ExtentIndex): ReadonlySet<number> {
  const segments = log.segments();
  const last = segments.at(-1)?.number;
  const victims = segments
    .map(({ number, bytes }) => ({ number, bytes, live: index.liveBytes(number) }))
    .filter(({ number, bytes, live }) => {
      return number !== last && live > 0 && live < bytes * LIVE_SHARE_MAX;
    })
    .sort((one, other) => one.live - other.live);
  let room = log.space.moveRoomBytes();
  const chosen = new Set<number>();
  for (const { number, live } of victims) {
    room -= live;
    if (room < 0) break;
    chosen.add(number);
  }
  return chosen;
}

/** Moves everything alive out of the victims, unless it must stop before. Returns the bytes that it moved. */
export async function moveOut(
  log: SegmentLog,
  index: ExtentIndex,
  victims: ReadonlySet<number>,
  write: WriteMoved,
  mustStop: (movedBytes: number) => boolean = () => false,
): Promise<number> {
  let pending: Moved[] = [];
  let pendingBytes = 0;
  let movedBytes = 0;
  // A frame must fit into the rest of a segment.
  const frameBytes = Math.min(MOVE_BYTES, Math.max(FULL_MOVE_BYTES, log.space.moveRoomBytes() / 4));
  const flush = async (): Promise<boolean> => {
    if (pending.length === 0) return true;
    const records = pending;
    const bytes = pendingBytes;
    pending = [];
    pendingBytes = 0;
    if (!(await write(records))) return false;
    movedBytes += bytes;
    return true;
  };
  // A live iterator: streams may appear and disappear meanwhile. New ones have nothing in old segments.
  for (const [stream, extents] of index.streams) {
    for (const group of groupsIn(extents, victims, frameBytes)) {
      for (const { offset, atMs, data } of await readForMove(log, stream, group)) {
        pending.push({ kind: "moved", atMs, stream, start: offset, data });
        pendingBytes += data.length;
      }
      // Only whole extents may be moved together, so a frame ends between groups.
      if (pendingBytes >= frameBytes) {
        if (!(await flush()) || mustStop(movedBytes)) return movedBytes;
      }
      if (!isAlive(index, stream, extents)) break;
    }
  }
  await flush();
  return movedBytes;
}

function isAlive(index: ExtentIndex, stream: StreamId, extents: StreamExtents): boolean {
  return index.streams.get(stream) === extents;
}

/** Yields runs of neighbouring extents that lie in victims, in parts of about one write. */
function groupsIn(
  extents: StreamExtents,
  victims: ReadonlySet<number>,
  bytesMax: number,
): readonly Extent[][] {
  const groups: Extent[][] = [];
  let group: Extent[] = [];
  let bytes = 0;
  let end: Offset | undefined;
  for (let at = 0; at < extents.count; at += 1) {
    const extent = extents.at(at);
    if (!victims.has(extent.segment) || bytes >= bytesMax) {
      if (group.length > 0) groups.push(group);
      group = [];
      bytes = 0;
    }
    if (!victims.has(extent.segment)) continue;
    group.push(extent);
    bytes += extent.bytes;
    end = extent.start;
  }
  if (group.length > 0 && end !== undefined) groups.push(group);
  return groups;
}
