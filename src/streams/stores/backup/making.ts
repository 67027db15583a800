/** Makes a backup: from an instant of a server, into a directory or a stream. docs/formats/backup.md. */

import { encodeSegmentHeader, FORMAT_VERSION, SEGMENT_HEADER_BYTES } from "../journal/format.ts";
import type { FrameStreamCheck } from "./checks.ts";
import {
  type BackupDocument,
  type BackupFile,
  type BackupPlan,
  backupDamage,
  lastCrcs,
  type PlannedSegment,
  type PlannedSnapshot,
} from "./document.ts";

/** Where a backup comes from: a server that keeps an instant. */
export interface BackupSource {
  readonly plan: BackupPlan;
  /** Reads some bytes, at least one, from a place before the end of the segment. */
  readSegment(segment: PlannedSegment, from: number): Promise<Uint8Array>;
  readSnapshot(snapshot: PlannedSnapshot, from: number): Promise<Uint8Array>;
}

/** Where it goes. Each file is checked before it counts, and no file counts before `finish`. */
export interface BackupTarget {
  /** `lastCrc`: of its last frame, if that is known. */
  segment(
    source: BackupSource,
    segment: PlannedSegment,
    lastCrc: number | undefined,
  ): Promise<BackupFile>;
  snapshot(source: BackupSource, snapshot: PlannedSnapshot): Promise<BackupFile>;
  finish(document: BackupDocument): Promise<void>;
}

/** Called with what is done of all bytes, fetched or there before. */
export type BackupProgress = (bytes: number, bytesTotal: number) => Promise<void>;

export async function makeBackup(
  source: BackupSource,
  target: BackupTarget,
  onProgress: BackupProgress,
): Promise<BackupDocument> {
  const { segments: planned, snapshots: plannedSnapshots, ...facts } = source.plan;
  const bytesTotal = [...planned, ...plannedSnapshots].reduce((sum, { bytes }) => sum + bytes, 0);
  let done = 0;
  const tell = async (file: BackupFile): Promise<BackupFile> => {
    done += file.bytes;
    await onProgress(done, bytesTotal);
    return file;
  };
  const segments: BackupFile[] = [];
  const crcs = lastCrcs(source.plan);
  for (const [at, segment] of planned.entries()) {
    segments.push(await tell(await target.segment(source, segment, crcs[at])));
  }
  const snapshots: BackupFile[] = [];
  for (const snapshot of plannedSnapshots) {
    snapshots.push(await tell(await target.snapshot(source, snapshot)));
  }
  const document: BackupDocument = { ...facts, segments, snapshots };
  await target.finish(document);
  return document;
}

/** The same for a segment of any length: a later backup goes on behind its end. */
export function headerOf(storeId: string, segment: PlannedSegment): Buffer {
  const { number, firstLsn, salt, crcBefore } = segment;
  const place = { number, firstLsn, salt, crcBefore, bytes: SEGMENT_HEADER_BYTES, storeId };
  return encodeSegmentHeader({ version: FORMAT_VERSION, ...place, timeMs: 0 });
}

/** Throws unless the frames end where the plan says, with the frame that it names. */
export function requireLastFrame(
  check: FrameStreamCheck,
  file: string,
  { bytes }: PlannedSegment,
  lastCrc: number | undefined,
): void {
  if (check.end !== bytes) throw backupDamage(file, `a frame at ${check.end} is not whole`);
  if (lastCrc === undefined || lastCrc === check.crc) return;
  throw backupDamage(file, `LSN ${check.lsn} is not the frame that the server names`);
}

/** Throws unless the source has answered some bytes, and not too many. */
export function requirePiece(piece: Uint8Array, left: number, file: string): Uint8Array {
  if (piece.length > 0 && piece.length <= left) return piece;
  throw backupDamage(file, `the server answered ${piece.length} bytes, ${left} are left`);
}
