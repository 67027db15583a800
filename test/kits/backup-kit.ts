/** Backups of a store in the test's own process, and what a restored directory has. */

import type { Disk } from "../../src/streams/stores/file/disk.ts";
import { openOnDisk } from "../../src/streams/stores/file/file-store.ts";
import type { BackupDocument } from "../../src/streams/stores/backup/document.ts";
import { BackupFolder, listBackups } from "../../src/streams/stores/backup/folder.ts";
import { type BackupSource, makeBackup } from "../../src/streams/stores/backup/making.ts";
import { folderReader } from "../../src/streams/stores/backup/readers.ts";
import { type RestoreReport, restoreBackup } from "../../src/streams/stores/backup/restoring.ts";
import type { Store } from "../../src/streams/store.ts";
import { FIRST_INCARNATION, formatIncarnation } from "../../src/base/incarnation.ts";
import { describeWorld } from "../../src/testing/store-case-kit.ts";
import type { Offset, TimeMs } from "../../src/streams/core/types.ts";

const nothing = (): Promise<void> => Promise.resolve();

/** An instant of a store, read in small parts, so that much happens between them. */
export async function sourceOf(
  store: Store,
  partBytes = 4096,
  between: () => Promise<void> = nothing,
  takenAtMs?: number,
): Promise<BackupSource & { readonly release: () => void; readonly reads: string[] }> {
  const backup = await store.backup?.();
  if (backup === undefined) throw new Error("the store has no backups");
  const { storeId, lsn, crc, changes, segments, images } = backup;
  const reads: string[] = [];
  return {
    plan: {
      takenAt: new Date(takenAtMs ?? 1_700_000_000_000 + lsn * 1000).toISOString(),
      storeId,
      incarnation: formatIncarnation(store.world.incarnation),
      lsn,
      crc,
      changes,
      segments: segments.map(({ end: bytes, ...segment }) => ({ ...segment, bytes })),
      snapshots: images,
    },
    reads,
    release: () => {
      backup.release();
    },
    async readSegment({ number, bytes }, from) {
      reads.push(`segment ${number} ${from}`);
      const part = await backup.readSegment(number, from, Math.min(partBytes, bytes - from));
      await between();
      return part;
    },
    async readSnapshot({ lsn: image, bytes }, from) {
      reads.push(`snapshot ${image} ${from}`);
      return backup.readImage(image, from, Math.min(partBytes, bytes - from));
    },
  };
}

/** One backup into a directory of backups. */
export async function backUp(
  store: Store,
  folder: Disk,
  between?: () => Promise<void>,
  takenAtMs?: number,
): Promise<{ readonly document: BackupDocument; readonly reads: readonly string[] }> {
  const source = await sourceOf(store, 4096, between, takenAtMs);
  try {
    const target = await BackupFolder.open(folder, source.plan.storeId);
    return { document: await makeBackup(source, target, nothing), reads: source.reads };
  } finally {
    source.release();
  }
}

/** Restores a backup of a directory of backups: the newest, or the one that is named. */
export async function restoreTo(disk: Disk, folder: Disk, name?: string): Promise<RestoreReport> {
  const kept = await listBackups(folder, (error) => {
    throw error;
  });
  const found = name === undefined ? kept[0] : kept.find((one) => one.name === name);
  if (found === undefined) throw new Error("there is no such backup");
  return restoreBackup(folderReader(folder, found.document), disk, undefined, {
    onProgress: nothing,
  });
}

/** All that a store has, but its incarnation. */
export async function contentOf(store: Store): Promise<string> {
  const { world } = store;
  const data: string[] = [];
  for (const { id, tail, fork } of world.byId.values()) {
    const pieces: Uint8Array[] = [];
    for (let at: number = fork?.at ?? 0; at < tail;) {
      const page = await store.read(id, at as Offset, tail, 1 << 20);
      if (page.start !== at || page.appends.length === 0)
        throw new Error(`a hole at ${at} of ${id}`);
      pieces.push(...page.appends.map((append) => Uint8Array.from(append)));
      for (const append of page.appends) at += append.length;
      page.release?.();
    }
    data.push(`${id}:${Buffer.concat(pieces).toString("base64")}`);
  }
  // A restore commits the next incarnation, at its own time.
  const same = { incarnation: FIRST_INCARNATION, timeMs: 0 as TimeMs };
  const described = describeWorld({ ...world, ...same });
  return `${described}\n${data.toSorted().join("\n")}`;
}

export async function contentOfDisk(disk: Disk): Promise<string> {
  const store = await openOnDisk(disk, { segmentBytes: 16_384 }, nothing);
  try {
    return await contentOf(store);
  } finally {
    await store.close();
  }
}
