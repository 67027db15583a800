/**
 * A directory of backups. Several documents share the files of segments and snapshots.
 *
 *   - a document gets its name when all its files are there and synced: a kill at any moment leaves every earlier backup as it was;
 *   - a file only grows, and only behind what documents name of it, or gets the same bytes again;
 *   - what no document names is removed, after a backup: also what a killed one has left.
 */

import { createHash } from "node:crypto";
import { HapaxError } from "../../../base/errors.ts";
import type { Disk, DiskFile } from "../file/disk.ts";
import { isOfLock } from "../file/lock.ts";
import { FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES } from "../journal/format.ts";
import { BlockCheck, FrameStreamCheck } from "./checks.ts";
import {
  type BackupDocument,
  type BackupFile,
  backupDamage,
  decodeDocument,
  documentFile,
  encodeDocument,
  filesOf,
  isDocumentFile,
  parseSegmentFile,
  parseSnapshotFile,
  type PlannedSegment,
  type PlannedSnapshot,
  segmentFile,
  snapshotFile,
} from "./document.ts";
import {
  type BackupSource,
  type BackupTarget,
  headerOf,
  requireLastFrame,
  requirePiece,
} from "./making.ts";

/** Says what the directory is, and of which store. */
const MARKER = "BACKUPS";
const UNFINISHED = /^(BACKUPS|backup|snapshot)[\w.-]*\.tmp$/;
const STEP_BYTES = 1024 * 1024;

/** A document in a directory of backups. */
export interface KeptDocument {
  readonly name: string;
  readonly document: BackupDocument;
}

/**
 * Reads the documents, newest first. A damaged one is left out, and `onDamage` gets why. `incarnation`: the one that is known to be the
 * last.
 */
export async function listBackups(
  disk: Disk,
  onDamage: (error: HapaxError) => void,
  incarnation?: string,
): Promise<readonly KeptDocument[]> {
  const names = (await disk.list()).filter(isDocumentFile);
  const kept: KeptDocument[] = [];
  for (const name of names) {
    try {
      kept.push({ name, document: decodeDocument(name, await readWhole(disk, name)) });
    } catch (error) {
      if (!(error instanceof HapaxError) || error.code !== "data_damaged") throw error;
      onDamage(error);
    }
  }
  return newestFirst(kept, incarnation);
}

/**
 * Within an incarnation by their LSNs: a clock that was ahead during one backup must not make it the newest. Only the order of
 * incarnations is that of times, because a restore can begin one from any of the earlier ones.
 */
function newestFirst(kept: readonly KeptDocument[], last?: string): readonly KeptDocument[] {
  const endOf = new Map<string, string>();
  for (const { document } of kept) {
    const { incarnation, takenAt } = document;
    // Times of one form are in the order of their texts.
    if (takenAt > (endOf.get(incarnation) ?? "")) endOf.set(incarnation, takenAt);
  }
  const rankOf = ({ incarnation }: BackupDocument): string =>
    `${incarnation === last ? 1 : 0} ${endOf.get(incarnation) ?? ""} ${incarnation}`;
  return kept.toSorted((one, other) => {
    const [rank, otherRank] = [rankOf(one.document), rankOf(other.document)];
    if (rank !== otherRank) return rank > otherRank ? -1 : 1;
    const newer = other.document.lsn - one.document.lsn;
    return newer === 0 && one.name > other.name ? -1 : newer;
  });
}

/** A directory that takes the next backup of a store. The caller has locked it. */
export class BackupFolder implements BackupTarget {
  readonly #disk: Disk;
  readonly #known: ReadonlyMap<string, BackupFile>;
  /** Bytes that were fetched. */
  fetched = 0;

  private constructor(disk: Disk, kept: readonly KeptDocument[]) {
    this.#disk = disk;
    // A file that grew has its size of the newest document.
    const files = kept.toReversed().flatMap(({ document }) => filesOf(document));
    this.#known = new Map(files.map((file) => [file.file, file]));
  }

  /** Opens a new or empty directory, or one with backups of this store. */
  static async open(disk: Disk, storeId: string): Promise<BackupFolder> {
    const names = (await disk.list()).filter((name) => !isOfLock(name));
    if (!names.includes(MARKER)) {
      const others = names.filter((name) => !UNFINISHED.test(name));
      if (others.length > 0) {
        const what = `the directory has other files, such as ${others[0] ?? ""}; nothing was changed`;
        throw new HapaxError("directory_unusable", what);
      }
      await writeWhole(disk, MARKER, Buffer.from(`${storeId}\n`, "latin1"));
    } else {
      const found = (await readWhole(disk, MARKER)).toString("latin1").trim();
      if (found !== storeId) {
        const what = `the directory has backups of the store ${found}, the server has ${storeId}`;
        throw new HapaxError("directory_unusable", `${what}; nothing was changed`);
      }
    }
    for (const name of names) if (UNFINISHED.test(name)) await disk.remove(name);
    return new BackupFolder(disk, await listBackups(disk, () => undefined));
  }

  async segment(
    source: BackupSource,
    segment: PlannedSegment,
    lastCrc: number | undefined,
  ): Promise<BackupFile> {
    const name = segmentFile(segment);
    const known = await this.#reuse(name, segment.bytes);
    if (known !== undefined) {
      // The salt says that it is the same use of the segment, and the last frame that it is the same history.
      if (lastCrc !== undefined && known.crc !== lastCrc) throw otherHistory(name);
      return known;
    }
    const isThere = (await this.#disk.list()).includes(name);
    const file = await this.#disk.open(name, isThere ? "write" : "create");
    try {
      const { crc } = await this.#fill(source, segment, lastCrc, file);
      await file.sync();
      const { bytes } = segment;
      return { file: name, bytes, sha256: await sha256Of(file, bytes), crc };
    } finally {
      await file.close();
    }
  }

  /** Goes on behind the last whole frame that is there. */
  async #fill(
    source: BackupSource,
    segment: PlannedSegment,
    lastCrc: number | undefined,
    file: DiskFile,
  ): Promise<FrameStreamCheck> {
    const { bytes } = segment;
    const name = segmentFile(segment);
    const check = new FrameStreamCheck(segment);
    for (let at = SEGMENT_HEADER_BYTES; at < bytes;) {
      const piece = await file.read(at, Math.min(STEP_BYTES, bytes - at));
      if (piece.length === 0 || check.push(piece) !== undefined) break;
      at += piece.length;
    }
    check.rewind();
    if (check.end > SEGMENT_HEADER_BYTES) {
      // Frames do not name the one before. The head of the last one has its time and the checksum of all of it.
      const head = await file.read(check.last, FRAME_HEADER_BYTES);
      const there = await source.readSegment(segment, check.last);
      if (!head.equals(there.subarray(0, head.length))) throw otherHistory(name);
    }
    await file.write([headerOf(source.plan.storeId, segment)], 0);
    for (let at = check.end; at < bytes;) {
      const piece = requirePiece(await source.readSegment(segment, at), bytes - at, name);
      const fault = check.push(piece);
      if (fault !== undefined) throw backupDamage(name, fault);
      await file.write([piece], at);
      at += piece.length;
      this.fetched += piece.length;
    }
    requireLastFrame(check, name, segment, lastCrc);
    return check;
  }

  async snapshot(source: BackupSource, snapshot: PlannedSnapshot): Promise<BackupFile> {
    const { lsn, bytes } = snapshot;
    let piece = requirePiece(await source.readSnapshot(snapshot, 0), bytes, `snapshot ${lsn}`);
    const name = snapshotFile(lsn, piece);
    const known = await this.#reuse(name, bytes);
    if (known !== undefined) return known;
    const unfinished = `${name}.tmp`;
    const check = new BlockCheck();
    const hash = createHash("sha256");
    const file = await this.#disk.open(unfinished, "create");
    try {
      for (let at = 0; ;) {
        const fault = check.push(piece);
        if (fault !== undefined) throw backupDamage(name, fault);
        hash.update(piece);
        await file.write([piece], at);
        at += piece.length;
        this.fetched += piece.length;
        if (at === bytes) break;
        piece = requirePiece(await source.readSnapshot(snapshot, at), bytes - at, name);
      }
      const fault = check.finish();
      if (fault !== undefined) throw backupDamage(name, fault);
      await file.sync();
    } finally {
      await file.close();
    }
    await this.#disk.rename(unfinished, name);
    return { file: name, bytes, sha256: hash.digest("hex") };
  }

  async finish(document: BackupDocument): Promise<void> {
    // The names of the files first, then the one that makes them count.
    await this.#disk.syncDirectory();
    await writeWhole(this.#disk, documentFile(document), encodeDocument(document));
    await sweep(this.#disk);
  }

  /** A file that a document names with this size is not read again: `--check` and a restore do that. */
  async #reuse(name: string, bytes: number): Promise<BackupFile | undefined> {
    const known = this.#known.get(name);
    if (known?.bytes !== bytes || !(await this.#disk.list()).includes(name)) return undefined;
    const file = await this.#disk.open(name, "read");
    try {
      return (await file.size()) >= bytes ? known : undefined;
    } finally {
      await file.close();
    }
  }
}

/**
 * Removes all but the newest backups, and the files that only they had. Returns the names of what it removed. `made`: a backup of the
 * incarnation that the server is in.
 */
export async function keepNewest(
  disk: Disk,
  count: number,
  made?: BackupDocument,
): Promise<readonly string[]> {
  const kept = await listBackups(disk, () => undefined, made?.incarnation);
  const removed = kept.slice(count).map(({ name }) => name);
  for (const name of removed) await disk.remove(name);
  // Before their files: a document without a file would be a damaged backup.
  await disk.syncDirectory();
  await sweep(disk);
  return removed;
}

/** Removes the files that no document names. With a damaged document nothing: it may name any of them. */
async function sweep(disk: Disk): Promise<void> {
  let isSure = true;
  const kept = await listBackups(disk, () => {
    isSure = false;
  });
  if (!isSure) return;
  const named = new Set(kept.flatMap(({ document }) => filesOf(document).map(({ file }) => file)));
  for (const name of await disk.list()) {
    const isOurs = parseSegmentFile(name) !== undefined || parseSnapshotFile(name) !== undefined;
    if (isOurs && !named.has(name)) await disk.remove(name);
  }
}

/** The data of the server was put back without a restore: the same segment goes on with other frames. */
function otherHistory(name: string): HapaxError {
  const what = `${name} has other frames in these backups than at the server: the data of the server has gone back in time`;
  const next = "make a new backup into another directory, and see hapax restore --in-place";
  return new HapaxError("directory_unusable", `${what}; ${next}`);
}

async function sha256Of(file: DiskFile, bytes: number): Promise<string> {
  const hash = createHash("sha256");
  for (let at = 0; at < bytes;) {
    const piece = await file.read(at, Math.min(STEP_BYTES, bytes - at));
    if (piece.length === 0) throw new HapaxError("data_damaged", "a file ends too early");
    hash.update(piece);
    at += piece.length;
  }
  return hash.digest("hex");
}

export async function readWhole(disk: Disk, name: string): Promise<Buffer> {
  const file = await disk.open(name, "read");
  try {
    return await file.read(0, await file.size());
  } finally {
    await file.close();
  }
}

/** A file with its name is whole, and durable. */
async function writeWhole(disk: Disk, name: string, bytes: Uint8Array): Promise<void> {
  const unfinished = `${name}.tmp`;
  if ((await disk.list()).includes(unfinished)) await disk.remove(unfinished);
  const file = await disk.open(unfinished, "create");
  try {
    await file.write([bytes], 0);
    await file.sync();
  } finally {
    await file.close();
  }
  await disk.rename(unfinished, name);
  await disk.syncDirectory();
}
