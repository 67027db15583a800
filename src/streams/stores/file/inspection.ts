/** Reports what is in a directory: files, streams, state. It does not check them; verification.ts does. */

import type { StreamState } from "../../core/stream.ts";
import { isHapaxError } from "../../../base/errors.ts";
import type { Disk } from "./disk.ts";
import type { ExtentIndex } from "../journal/extents.ts";
import { recover, type Recovered } from "./recovery.ts";
import { snapshotName } from "./snapshot-file.ts";
import { scanSnapshot } from "../journal/snapshot-scan.ts";
import { followerLsn, scanWholeSegment, type SegmentFile, surveyDirectory } from "./survey.ts";
import { viewOf } from "./view.ts";

export interface SegmentReport {
  readonly number: number;
  readonly file: string;
  readonly fileBytes: number;
  /** Bytes up to the end of the last frame. */
  readonly usedBytes: number;
  /** Bytes of data that streams still have. Undefined if the journal cannot be replayed. */
  readonly liveBytes: number | undefined;
  readonly firstLsn: number | undefined;
  readonly frames: number;
  readonly isDamaged: boolean;
}

export interface SnapshotReport {
  readonly file: string;
  readonly fileBytes: number;
  readonly lsn: number;
  readonly writtenAtMs: number | undefined;
  readonly streams: number;
  /** Why the file cannot be used, if so. */
  readonly fault: string | undefined;
}

export interface StreamReport {
  readonly id: number;
  readonly path: string;
  readonly contentType: string;
  readonly tail: number;
  /** Bytes of the stream's own data. A fork does not count the data of its source. */
  readonly dataBytes: number;
  readonly isClosed: boolean;
  /** The stream is deleted, but forks need its data. */
  readonly isDeleted: boolean;
  readonly producers: number;
  /** Producers whose epoch belongs to a session. */
  readonly sessions: number;
  /** Idempotency keys in its window. */
  readonly keys: number;
  readonly extents: number;
}

export interface StateReport {
  readonly streams: number;
  readonly producers: number;
  readonly sessions: number;
  readonly keys: number;
  readonly subscriptions: number;
  readonly groups: number;
  readonly signingKeys: number;
  readonly dataBytes: number;
  /** Journal time: the latest time of any change. It never goes back, also after a restart. */
  readonly timeMs: number;
  /** Number of changes since the directory was new. */
  readonly changes: number;
}

export interface Inspection {
  readonly segments: readonly SegmentReport[];
  readonly snapshots: readonly SnapshotReport[];
  readonly spares: readonly string[];
  readonly unfinished: readonly string[];
  readonly others: readonly string[];
  /** The first and the last LSN. Undefined if there is no frame. */
  readonly lsn: { readonly first: number; readonly last: number } | undefined;
  readonly torn: { readonly file: string; readonly position: number } | undefined;
  /** The snapshot that a start would use. */
  readonly snapshotUsed: number | undefined;
  /** Undefined if the journal cannot be replayed. Then `refusal` says why. */
  readonly state: StateReport | undefined;
  readonly refusal: string | undefined;
  /** The streams in the order of their creation. */
  readonly streams: () => Iterable<StreamReport>;
}

/** Reads the whole directory once, and changes nothing in it. */
export async function inspectDisk(
  writable: Disk,
  onProgress: (bytes: number, bytesTotal: number) => Promise<void>,
): Promise<Inspection> {
  const disk = viewOf(writable, new Set());
  const survey = await surveyDirectory(disk);
  const snapshots: SnapshotReport[] = [];
  for (const lsn of survey.snapshots) snapshots.push(await inspectSnapshot(disk, lsn));
  const { recovered, refusal } = await tryToRecover(disk);
  const segments: SegmentReport[] = [];
  const bytesTotal = survey.segments.reduce((sum, { bytes }) => sum + bytes, 0);
  let bytes = 0;
  let last = 0;
  for (const [at, segment] of survey.segments.entries()) {
    const follower = followerLsn(survey.segments, at);
    const { report, nextLsn } = await inspectSegment(disk, segment, follower, recovered?.index);
    segments.push(report);
    last = Math.max(last, nextLsn - 1);
    bytes += segment.bytes;
    await onProgress(bytes, bytesTotal);
  }
  const first = segments.find(({ firstLsn }) => firstLsn !== undefined)?.firstLsn;
  return {
    segments,
    snapshots,
    spares: survey.spares,
    unfinished: survey.unfinished,
    others: survey.others,
    lsn: first === undefined || last < first ? undefined : { first, last },
    torn: recovered?.report.torn,
    snapshotUsed: recovered?.report.snapshotLsn,
    state: recovered === undefined ? undefined : reportState(recovered),
    refusal,
    streams: () => (recovered === undefined ? [] : reportStreams(recovered)),
  };
}

async function tryToRecover(disk: Disk): Promise<{
  readonly recovered: Recovered | undefined;
  readonly refusal: string | undefined;
}> {
  try {
    return { recovered: await recover(disk, () => undefined), refusal: undefined };
  } catch (error) {
    if (!isHapaxError(error, "data_damaged")) throw error;
    return { recovered: undefined, refusal: error.message };
  }
}

async function inspectSegment(
  disk: Disk,
  segment: SegmentFile,
  follower: number | undefined,
  index: ExtentIndex | undefined,
) {
  const { number, name, bytes, header, copies } = segment;
  const liveBytes = index?.liveBytes(number);
  const base = { number, file: name, fileBytes: bytes, liveBytes, firstLsn: header?.firstLsn };
  if (header === undefined) {
    return { report: { ...base, usedBytes: 0, frames: 0, isDamaged: true }, nextLsn: 0 };
  }
  const scan = await scanWholeSegment(disk, { ...segment, header }, follower, () => undefined);
  const isDamaged = scan.damage.length > 0 || copies.some(({ fault }) => fault !== undefined);
  const report = { ...base, usedBytes: scan.end, frames: scan.frames, isDamaged };
  return { report, nextLsn: scan.nextLsn };
}

async function inspectSnapshot(disk: Disk, lsn: number): Promise<SnapshotReport> {
  const scan = await scanSnapshot(await disk.open(snapshotName(lsn), "read"), snapshotName(lsn));
  return {
    file: scan.name,
    fileBytes: scan.bytes,
    lsn,
    writtenAtMs: scan.head?.writtenAtMs,
    streams: scan.streams,
    fault: scan.fault === undefined ? undefined : `${scan.fault.what} offset=${scan.fault.offset}`,
  };
}

function reportState({ world, index }: Recovered): StateReport {
  let producers = 0;
  let sessions = 0;
  let keys = 0;
  let dataBytes = 0;
  for (const state of world.byId.values()) {
    producers += state.producers?.size ?? 0;
    sessions += sessionsOf(state);
    keys += keysOf(state);
    dataBytes += keptBytes(state, index);
  }
  return {
    streams: world.byId.size,
    producers,
    sessions,
    keys,
    subscriptions: world.subscriptions.byId.size,
    groups: world.groups.byId.size,
    signingKeys: world.signingKeys.length,
    dataBytes,
    timeMs: world.timeMs,
    changes: world.version,
  };
}

function* reportStreams({ world, index }: Recovered): Generator<StreamReport> {
  for (const state of world.byId.values()) {
    yield {
      id: state.id,
      path: state.name,
      contentType: state.contentType,
      tail: state.tail,
      dataBytes: keptBytes(state, index),
      isClosed: state.isClosed,
      isDeleted: state.isDeleted,
      producers: state.producers?.size ?? 0,
      sessions: sessionsOf(state),
      keys: keysOf(state),
      extents: index.streams.get(state.id)?.count ?? 0,
    };
  }
}

function sessionsOf({ producers }: StreamState): number {
  let count = 0;
  for (const { session } of producers?.values() ?? []) if (session !== undefined) count += 1;
  return count;
}

function keysOf({ keys }: StreamState): number {
  return keys?.window === undefined ? 0 : keys.window.next - keys.window.first;
}

function keptBytes({ id, tail }: StreamState, index: ExtentIndex): number {
  return tail - (index.streams.get(id)?.first ?? tail);
}
