/**
 * Puts a backup into a directory, and checks it in the same step.
 *
 *   - until everything is checked the file COPY is there, and no server opens the directory;
 *   - every byte is compared with the SHA-256 of the document, and then everything with everything, as `hapax verify` does;
 *   - the first thing that the store commits is its next incarnation;
 *   - a restore that was killed is begun anew, and leaves nothing else in the directory.
 */

import { createHash } from "node:crypto";
import { systemClock } from "../../../base/clock.ts";
import { HapaxError } from "../../../base/errors.ts";
import { formatIncarnation } from "../../../base/incarnation.ts";
import { systemRandom } from "../../../base/random.ts";
import type { Disk, DiskFile } from "../file/disk.ts";
import { openOnDisk } from "../file/file-store.ts";
import { isOfLock } from "../file/lock.ts";
import { UNFINISHED_COPY } from "../file/recovery.ts";
import { segmentName } from "../file/segments.ts";
import { snapshotName } from "../file/snapshot-file.ts";
import { encodeStoreFile, STORE_NAME, type StoreMark } from "../file/store-file.ts";
import { verifyDisk } from "../file/verification.ts";
import { viewOf } from "../file/view.ts";
import {
  decodeSegmentHeader,
  encodeSegmentHeader,
  requireKnownFormat,
  SEGMENT_HEADER_BYTES,
} from "../journal/format.ts";
import { beginIncarnation } from "./incarnations.ts";
import {
  type BackupDocument,
  type BackupFile,
  backupBytes,
  backupDamage,
  filesOf,
  parseSegmentFile,
  parseSnapshotFile,
} from "./document.ts";
import type { TarFile } from "./tar.ts";

/** A backup as it is read: its files, and the document, which may come after them. */
export interface BackupReader {
  files(): AsyncIterable<TarFile>;
  /** To be called when all files were read. */
  document(): Promise<BackupDocument>;
}

export interface RestoreEvents {
  readonly onProgress: (
    step: "restoring" | "verifying",
    bytes: number,
    total: number,
  ) => Promise<void>;
}

/** What a restore has made. */
export interface RestoreReport {
  readonly storeId: string;
  /** The new one. */
  readonly incarnation: string;
  readonly takenAt: string;
  readonly lsn: number;
  readonly segments: number;
  readonly snapshots: number;
  readonly streams: number;
  readonly records: number;
  readonly bytes: number;
}

/** What the file COPY says of a restore. */
const MARK = "restore\n";
/** The segment that the next incarnation begins. Segments of the server follow, as large as it makes them. */
const FIRST_SEGMENT_BYTES = 1024 * 1024;

/** Reads a backup and compares it with its document. Nothing is written. */
export async function checkBackup(
  reader: BackupReader,
  onProgress: (bytes: number) => Promise<void>,
): Promise<BackupDocument> {
  const found: BackupFile[] = [];
  let bytes = 0;
  for await (const { name, bytes: size, content } of reader.files()) {
    const hash = createHash("sha256");
    for await (const piece of content) {
      hash.update(piece);
      bytes += piece.length;
      await onProgress(bytes);
    }
    found.push({ file: name, bytes: size, sha256: hash.digest("hex") });
  }
  const document = await reader.document();
  requireSame(found, document);
  return document;
}

/** Restores into an empty directory, or into one that an interrupted restore has left. The caller has locked it. */
export async function restoreBackup(
  reader: BackupReader,
  disk: Disk,
  secret: string | undefined,
  events: RestoreEvents,
): Promise<RestoreReport> {
  await beginRestore(disk);
  let bytes = 0;
  const tell = async (more: number): Promise<void> => {
    bytes += more;
    await events.onProgress("restoring", bytes, 0);
  };
  const found: BackupFile[] = [];
  for await (const file of reader.files()) found.push(await putFile(disk, file, tell));
  await disk.syncDirectory();
  const document = await reader.document();
  requireSame(found, document);
  const mark = markOf(document);
  const { streams, records } = await verifyRestored(disk, mark, events);
  await writeWhole(disk, STORE_NAME, encodeStoreFile(mark));
  if (secret !== undefined) await writeWhole(disk, "SECRET", Buffer.from(`${secret}\n`, "latin1"));
  const incarnation = await beginNext(disk);
  await disk.remove(UNFINISHED_COPY);
  await disk.syncDirectory();
  const { storeId, takenAt, lsn, segments, snapshots } = document;
  const counts = { segments: segments.length, snapshots: snapshots.length, streams, records };
  return { storeId, incarnation, takenAt, lsn, ...counts, bytes: backupBytes(document) };
}

async function beginRestore(disk: Disk): Promise<void> {
  const unmarked = `${UNFINISHED_COPY}.tmp`;
  const all = (await disk.list()).filter((name) => !isOfLock(name));
  // A kill has left it, and nothing else was made.
  if (all.includes(unmarked)) await disk.remove(unmarked);
  const names = all.filter((name) => name !== unmarked);
  if (names.includes(UNFINISHED_COPY)) {
    if ((await readText(disk, UNFINISHED_COPY)) !== MARK) {
      const what = "the directory has an unfinished copy of a store; nothing was changed";
      throw new HapaxError("directory_unusable", what);
    }
    for (const name of names) if (name !== UNFINISHED_COPY) await disk.remove(name);
    return;
  }
  if (names.length > 0) {
    throw new HapaxError("directory_unusable", "the directory is not empty; nothing was changed");
  }
  // Under its name it is whole, so that the next restore knows it.
  await writeWhole(disk, UNFINISHED_COPY, Buffer.from(MARK, "latin1"));
}

/** Writes a file under the name that the store gives it. */
async function putFile(
  disk: Disk,
  { name, bytes, content }: TarFile,
  tell: (bytes: number) => Promise<void>,
): Promise<BackupFile> {
  const segment = parseSegmentFile(name);
  const lsn = parseSnapshotFile(name);
  const own = segment === undefined ? snapshotName(lsn ?? 0) : segmentName(segment.number);
  if (segment === undefined && lsn === undefined)
    throw backupDamage(name, "no backup has such a file");
  if ((await disk.list()).includes(own)) throw backupDamage(name, "it is there twice");
  const hash = createHash("sha256");
  const file = await disk.open(own, "create");
  try {
    let at = 0;
    for await (const piece of content) {
      hash.update(piece);
      await file.write([piece], at);
      at += piece.length;
      await tell(piece.length);
    }
    if (segment !== undefined) await sizeHeader(file, name, bytes);
    await file.sync();
  } finally {
    await file.close();
  }
  return { file: name, bytes, sha256: hash.digest("hex") };
}

/** In a backup a segment may grow. In a store its header has the size of its file. */
async function sizeHeader(file: DiskFile, name: string, bytes: number): Promise<void> {
  const block = await file.read(0, SEGMENT_HEADER_BYTES);
  requireKnownFormat(name, block);
  const header = decodeSegmentHeader(block);
  const named = parseSegmentFile(name);
  if (header === undefined || header.number !== named?.number || header.salt !== named.salt) {
    throw backupDamage(name, "it is not the segment that its name says");
  }
  await file.write([encodeSegmentHeader({ ...header, bytes })], 0);
}

/** Throws unless the files are those of the document, byte for byte. */
function requireSame(found: readonly BackupFile[], document: BackupDocument): void {
  const wanted = new Map(filesOf(document).map((file) => [file.file, file]));
  for (const { file, bytes, sha256 } of found) {
    const named = wanted.get(file);
    if (named === undefined) throw backupDamage(file, "the document does not name it");
    if (named.bytes !== bytes || named.sha256 !== sha256) {
      throw backupDamage(file, "it is not what the document says: other bytes");
    }
    wanted.delete(file);
  }
  for (const file of wanted.keys()) throw backupDamage(file, "it is missing");
}

function markOf({ storeId, lsn, crc, segments }: BackupDocument): StoreMark {
  const last = segments.at(-1);
  const segment = last === undefined ? 0 : (parseSegmentFile(last.file)?.number ?? 0);
  const owner = systemRandom.id().slice(0, 16);
  return { id: storeId, epoch: 1, owner, segment, lsn, crc, isClosed: true };
}

async function verifyRestored(disk: Disk, mark: StoreMark, { onProgress }: RestoreEvents) {
  const view = viewOf(disk, new Set([UNFINISHED_COPY]), { store: encodeStoreFile(mark) });
  let first: string | undefined;
  const result = await verifyDisk(view, {
    onProgress: (bytes, total) => onProgress("verifying", bytes, total),
    onProblem: ({ file, offset, what, meaning }) => {
      first ??= `${file} offset ${offset}: ${what}; ${meaning}`;
      return Promise.resolve();
    },
  });
  if (result.problems > 0 || result.torn !== undefined) {
    throw new HapaxError(
      "data_damaged",
      `the backup is not sound: ${first ?? "it ends within a frame"}`,
    );
  }
  return result;
}

/** Begins the next incarnation of a directory whose data went back in time. The caller has locked it. */
export async function beginNext(disk: Disk): Promise<string> {
  const shown: Disk = {
    list: async () => (await disk.list()).filter((name) => name !== UNFINISHED_COPY),
    open: (name, mode) => disk.open(name, mode),
    rename: (from, to) => disk.rename(from, to),
    remove: (name) => disk.remove(name),
    syncDirectory: () => disk.syncDirectory(),
  };
  const options = { segmentBytes: FIRST_SEGMENT_BYTES };
  const store = await openOnDisk(shown, options, () => Promise.resolve());
  try {
    const parts = { clock: systemClock, random: systemRandom };
    const commit = store.commit.bind(store);
    return formatIncarnation(await beginIncarnation({ world: store.world, commit }, parts));
  } finally {
    await store.close();
  }
}

async function readText(disk: Disk, name: string): Promise<string> {
  const file = await disk.open(name, "read");
  try {
    return (await file.read(0, 64)).toString("latin1");
  } finally {
    await file.close();
  }
}

async function writeWhole(disk: Disk, name: string, bytes: Uint8Array): Promise<void> {
  const file = await disk.open(`${name}.tmp`, "create");
  try {
    await file.write([bytes], 0);
    await file.sync();
  } finally {
    await file.close();
  }
  await disk.rename(`${name}.tmp`, name);
  await disk.syncDirectory();
}
