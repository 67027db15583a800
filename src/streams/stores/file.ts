/**
 * The file store: streams in a directory, in one journal.
 *
 * The journal itself is in journal/: journal-store (commits), format and records (the bytes), extents (the index),
 * tail-cache and reading (reads), snapshot, replay, compaction. In file/ is what a directory adds: file-log and segments
 * (the files), store-file, recovery, lock, secret-file.
 */

import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { asDirectoryError, warnOfStrangers } from "./file/directory-error.ts";
import { type FileStore, type FileStoreOptions, openOnDisk } from "./file/file-store.ts";
import { lockDirectory } from "./file/lock.ts";
import { openNodeDisk } from "./file/node-disk.ts";
import { openSecret } from "./file/secret-file.ts";

export type { FileStore, FileStoreOptions } from "./file/file-store.ts";

/**
 * Opens the store in a directory. Creates the directory if it is missing. Only one process at a time can have
 * it open.
 *
 * ```ts
 * import { openFileStore } from "hapax/stores/file";
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 *
 * const store = await openFileStore(mkdtempSync(join(tmpdir(), "hapax-")), { segmentBytes: 1 << 20 });
 * console.assert(store.supports.durability === "fsync");
 * await store.close();
 * ```
 */
export async function openFileStore(
  directory: string,
  options: FileStoreOptions = {},
): Promise<FileStore> {
  const path = resolve(directory);
  try {
    return await openDirectory(path, options);
  } catch (error) {
    throw asDirectoryError(error, path);
  }
}

async function openDirectory(path: string, options: FileStoreOptions): Promise<FileStore> {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const warn = options.onWarning ?? (() => undefined);
  warnOfStrangers(path, warn);
  const lock = await lockDirectory(path, warn);
  try {
    const disk = openNodeDisk(path, (options.durability ?? "fsync") === "fsync");
    const secret = await openSecret(path, options.random);
    const store = await openOnDisk(disk, options, () => lock.release(), secret.get);
    if (!secret.isThere && store.world.signingKeys.length > 0) warn(newKeysText(path));
    return store;
  } catch (error) {
    await lock.release();
    throw error;
  }
}

/** A copy of a directory may have come without it. Nothing that is stored depends on it, so the server goes on. */
function newKeysText(path: string): string {
  return (
    `${path}/SECRET is missing: webhooks are signed with new keys, and receivers must fetch the key set again. ` +
    "To keep the old keys, stop the server and put it back from the directory that this one was copied from"
  );
}
