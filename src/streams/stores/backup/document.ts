/**
 * The document of a backup: which files it consists of, with the size and the SHA-256 of each. docs/formats/backup.md.
 *
 *   - it is written last, and a backup without it does not exist;
 *   - its last member is the SHA-256 of all text before it, so a document that was changed is refused;
 *   - it names the beginning of each file, up to a size: a later backup may have made the file longer.
 */

import { createHash } from "node:crypto";
import { crc32 } from "node:zlib";
import { HapaxError } from "../../../base/errors.ts";

const VERSION = 1;

/** What an instant of a store consists of, as the server answers it. */
export interface BackupPlan {
  /** By the clock of the server: RFC 3339 in UTC, with milliseconds. */
  readonly takenAt: string;
  readonly storeId: string;
  /** As `Stream-Incarnation` names it. */
  readonly incarnation: string;
  readonly lsn: number;
  readonly crc: number;
  readonly changes: number;
  readonly segments: readonly PlannedSegment[];
  readonly snapshots: readonly PlannedSnapshot[];
}

export interface PlannedSegment {
  readonly number: number;
  readonly firstLsn: number;
  readonly salt: number;
  readonly crcBefore: number;
  /** With the header. */
  readonly bytes: number;
}

/** CRC of the last frame of each segment, as what follows names it. Undefined where a segment that was given up followed. */
export function lastCrcs({ segments, crc }: BackupPlan): readonly (number | undefined)[] {
  return segments.map(({ number }, at) => {
    const next = segments[at + 1];
    if (next === undefined) return crc;
    return next.number === number + 1 ? next.crcBefore : undefined;
  });
}

export interface PlannedSnapshot {
  readonly lsn: number;
  readonly bytes: number;
}

/** A file of a backup: its first bytes, as many as are named. */
export interface BackupFile {
  readonly file: string;
  readonly bytes: number;
  readonly sha256: string;
  /** Of a segment: the CRC of its last frame. */
  readonly crc?: number;
}

/** All that a backup is. */
export interface BackupDocument extends Omit<BackupPlan, "segments" | "snapshots"> {
  readonly segments: readonly BackupFile[];
  readonly snapshots: readonly BackupFile[];
}

export function segmentFile({ number, salt }: Pick<PlannedSegment, "number" | "salt">): string {
  return `journal-${String(number).padStart(12, "0")}-${salt.toString(16).padStart(8, "0")}.seg`;
}

export function parseSegmentFile(
  name: string,
): { readonly number: number; readonly salt: number } | undefined {
  const [, number = "", salt = ""] = /^journal-(\d{12})-([\da-f]{8})\.seg$/.exec(name) ?? [];
  return number === "" ? undefined : { number: Number(number), salt: Number.parseInt(salt, 16) };
}

const HEAD_BYTES = 64;

/** With a checksum of its head, which names its frame and its time: a snapshot of another history has another name. */
export function snapshotFile(lsn: number, begin: Uint8Array): string {
  const mark = crc32(begin.subarray(0, HEAD_BYTES)).toString(16).padStart(8, "0");
  return `snapshot-${String(lsn).padStart(16, "0")}-${mark}.snap`;
}

export function parseSnapshotFile(name: string): number | undefined {
  const [, lsn] = /^snapshot-(\d{16})-[\da-f]{8}\.snap$/.exec(name) ?? [];
  return lsn === undefined ? undefined : Number(lsn);
}

const DOCUMENT_NAME = /^backup-[\d-]{10}T[\d-]{8}\.\d{3}Z-\d+\.json$/;

/** Sorted by name, backups of one store are sorted by time. */
export function documentFile({ takenAt, lsn }: Pick<BackupPlan, "takenAt" | "lsn">): string {
  const time = takenAt.replaceAll(":", "-");
  return `backup-${time}-${lsn}.json`;
}

export function isDocumentFile(name: string): boolean {
  return DOCUMENT_NAME.test(name);
}

export function filesOf({ segments, snapshots }: BackupDocument): readonly BackupFile[] {
  return [...segments, ...snapshots];
}

export function backupBytes(document: BackupDocument): number {
  return filesOf(document).reduce((sum, { bytes }) => sum + bytes, 0);
}

export function encodeDocument(document: BackupDocument): Buffer {
  const text = JSON.stringify({ hapax: "backup", version: VERSION, ...document }, undefined, 1);
  // Without the closing brace: the checksum comes behind.
  const body = text.slice(0, -2);
  return Buffer.from(`${body},\n "sha256": "${sha256Of(body)}"\n}\n`, "utf8");
}

/** Throws `data_damaged` for anything but a whole document, and `format_unknown` for one of other software. */
export function decodeDocument(name: string, bytes: Uint8Array): BackupDocument {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
  const [whole, body, sha256] = /^([^]*),\n "sha256": "([\da-f]{64})"\n\}\n$/.exec(text) ?? [];
  if (whole === undefined || body === undefined || sha256Of(body) !== sha256) {
    throw backupDamage(name, "the document of the backup does not match its checksum");
  }
  // The checksum covers the text, which encodeDocument wrote.
  const value = JSON.parse(text) as BackupDocument & { readonly version: number };
  if (value.version !== VERSION) {
    const what = `its format is ${value.version}, this version of Hapax knows format ${VERSION}`;
    throw new HapaxError("format_unknown", `${what}: file=${name}`);
  }
  const { takenAt, storeId, incarnation, lsn, crc, changes, segments, snapshots } = value;
  return { takenAt, storeId, incarnation, lsn, crc, changes, segments, snapshots };
}

export function backupDamage(file: string, what: string): HapaxError {
  return new HapaxError("data_damaged", `${what}: file=${file}`);
}

function sha256Of(text: string): string {
  return createHash("sha256").update(text, "utf8").digest("hex");
}
