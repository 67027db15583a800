/**
 * Carries out a repair. Before it changes a file it keeps the original in `quarantine-<time>/` in the directory, with
 * a file that says what was done. Keeps the rules of repair.ts.
 */

import { copyFile, mkdir, open, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { HapaxError } from "../../../base/errors.ts";
import { HEADER_BYTES, SEGMENT_HEADER_BYTES } from "../journal/format.ts";
import type { RepairAction } from "./repair.ts";
import { encodeStoreFile, STORE_NAME, type StoreMark, UNFINISHED_STORE } from "./store-file.ts";

const COPY_BYTES = 1024 * 1024;

/** Carries out the actions. Returns the folder with the originals, and writes `story` into it as JSON. */
export async function carryOut(
  directory: string,
  actions: readonly RepairAction[],
  timeText: string,
  story: unknown,
): Promise<string> {
  const quarantine = `quarantine-${timeText.replaceAll(/[:.]/g, "-")}`;
  const folder = join(directory, quarantine);
  await mkdir(folder, { mode: 0o700 });
  await writeWhole(
    join(folder, "repair.json"),
    Buffer.from(`${JSON.stringify(story, undefined, 2)}\n`),
  );
  await syncFolders(folder, directory);
  for (const action of actions) {
    if (action.kind === "set_aside")
      await rename(join(directory, action.file), join(folder, action.file));
    else if (action.kind === "restore_header") await restoreHeader(directory, folder, action);
    else if (action.kind === "cut") await cutSegment(directory, folder, action);
    else if (action.kind === "lengthen") await lengthen(directory, action);
    else await writeStore(directory, folder, action.mark);
    await syncFolders(folder, directory);
  }
  return quarantine;
}

async function restoreHeader(
  directory: string,
  folder: string,
  { file, fromCopyAt, toCopyAt }: Extract<RepairAction, { kind: "restore_header" }>,
): Promise<void> {
  const segment = await open(join(directory, file), "r+");
  try {
    const block = Buffer.alloc(SEGMENT_HEADER_BYTES);
    await segment.read(block, 0, SEGMENT_HEADER_BYTES, 0);
    await writeWhole(join(folder, `${file}.header`), block);
    const copy = block.subarray(fromCopyAt, fromCopyAt + HEADER_BYTES);
    await writeAt(segment, copy, toCopyAt);
    await segment.sync();
  } finally {
    await segment.close();
  }
}

async function cutSegment(
  directory: string,
  folder: string,
  { file, position, bytes }: Extract<RepairAction, { kind: "cut" }>,
): Promise<void> {
  const segment = await open(join(directory, file), "r+");
  try {
    const { size } = await segment.stat();
    const kept = await open(join(folder, file), "wx", 0o600);
    try {
      for (let at = 0; at < size; at += COPY_BYTES) {
        const { buffer, bytesRead } = await segment.read(
          Buffer.alloc(COPY_BYTES),
          0,
          COPY_BYTES,
          at,
        );
        await writeAt(kept, buffer.subarray(0, bytesRead), at);
      }
      await kept.sync();
    } finally {
      await kept.close();
    }
    await syncFolders(folder);
    // From the end to the front: if this is interrupted, the rest is still recognised as damage.
    for (let end = Math.max(size, bytes); end > position; end -= COPY_BYTES) {
      const from = Math.max(position, end - COPY_BYTES);
      await writeAt(segment, Buffer.alloc(end - from), from);
    }
    await segment.sync();
  } finally {
    await segment.close();
  }
}

/** Fills with zeros that the file system has allocated, and not with a hole: a commit must not find the disk full. */
async function lengthen(
  directory: string,
  { file, bytes }: Extract<RepairAction, { kind: "lengthen" }>,
): Promise<void> {
  const segment = await open(join(directory, file), "r+");
  try {
    const { size } = await segment.stat();
    for (let at = size; at < bytes; at += COPY_BYTES) {
      await writeAt(segment, Buffer.alloc(Math.min(COPY_BYTES, bytes - at)), at);
    }
    await segment.sync();
  } finally {
    await segment.close();
  }
}

async function writeStore(directory: string, folder: string, mark: StoreMark): Promise<void> {
  const path = join(directory, STORE_NAME);
  const unfinished = join(directory, UNFINISHED_STORE);
  await rm(unfinished, { force: true });
  await writeWhole(unfinished, encodeStoreFile(mark));
  try {
    await copyFile(path, join(folder, STORE_NAME));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error; // There is none to keep.
  }
  await syncFolders(folder);
  await rename(unfinished, path);
}

async function writeWhole(path: string, bytes: Uint8Array): Promise<void> {
  const file = await open(path, "wx", 0o600);
  try {
    await writeAt(file, bytes, 0);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function writeAt(
  file: Awaited<ReturnType<typeof open>>,
  bytes: Uint8Array,
  position: number,
): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    const { bytesWritten } = await file.write(bytes, done, bytes.length - done, position + done);
    if (bytesWritten === 0) throw new HapaxError("store_full", "the file system wrote nothing");
    done += bytesWritten;
  }
}

async function syncFolders(...folders: readonly string[]): Promise<void> {
  if (process.platform === "win32") return; // Windows has no such call.
  for (const path of folders) {
    const folder = await open(path, "r");
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }
}
