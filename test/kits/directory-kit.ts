/** Directories for the tests of the tools: made by the store, damaged by hand, read from memory. */

import { mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Change } from "../../src/streams/core/change.ts";
import type { TimeMs } from "../../src/streams/core/types.ts";
import { type FileStore, openFileStore } from "../../src/streams/stores/file.ts";
import type { Disk } from "../../src/streams/stores/file/disk.ts";
import { type StoreProblem, verifyDisk } from "../../src/streams/stores/file/verification.ts";
import { appended, created, pattern, write } from "../../src/testing/store-case-kit.ts";

export const SEGMENT_BYTES = 16_384;

export function freshDirectory(): string {
  return mkdtempSync(join(tmpdir(), "hapax-tools-"));
}

export type Files = ReadonlyMap<string, Buffer>;

/** Every file below, by its path in the directory. */
export function filesOf(directory: string): Map<string, Buffer> {
  const files = new Map<string, Buffer>();
  for (const name of readdirSync(directory, { recursive: true, encoding: "utf8" })) {
    if (statSync(join(directory, name)).isFile())
      files.set(name, readFileSync(join(directory, name)));
  }
  return files;
}

/** A disk that only reads, from bytes in memory. */
export function diskOf(files: Files): Disk {
  const refuse = (): Promise<never> => Promise.reject(new Error("this disk is only read"));
  return {
    list: async () => [...files.keys()],
    open: async (name) => {
      const bytes = files.get(name);
      if (bytes === undefined) throw new Error(`no file ${name}`);
      return {
        size: async () => bytes.length,
        read: async (position, length) => bytes.subarray(position, position + length),
        write: refuse,
        sync: refuse,
        close: async () => undefined,
      };
    },
    rename: refuse,
    remove: refuse,
    syncDirectory: refuse,
  };
}

export async function verify(disk: Disk) {
  const problems: StoreProblem[] = [];
  const result = await verifyDisk(disk, {
    onProblem: async (problem) => void problems.push(problem),
    onProgress: async () => undefined,
  });
  return { ...result, found: problems };
}

/** The same files with some bytes changed. */
export function changed(files: Files, name: string, change: (bytes: Buffer) => void): Files {
  const bytes = Buffer.from(files.get(name) ?? []);
  change(bytes);
  return new Map([...files, [name, bytes]]);
}

export function flip(directory: string, name: string, position: number): void {
  const bytes = readFileSync(join(directory, name));
  bytes[position] = (bytes[position] ?? 0) ^ 0x10;
  writeFileSync(join(directory, name), bytes);
}

export const segmentFile = (number: number): string =>
  `journal-${String(number).padStart(12, "0")}.seg`;

const append = (id: number, bytes: number, seed: number): Change =>
  appended(id, pattern(bytes, seed), { atMs: seed as TimeMs });

/**
 * Streams 1 and 2, one frame for each of `frames` appends of 1,000 bytes, eleven frames in a segment; frame 1
 * creates them. `maintainAt` writes a snapshot after that many.
 */
export async function fillDirectory(
  directory: string,
  frames: number,
  maintainAt: readonly number[] = [],
): Promise<void> {
  const store = await openFileStore(directory, { segmentBytes: SEGMENT_BYTES });
  await write(store, created(1), created(2));
  for (let count = 1; count <= frames; count += 1) {
    await write(store, append(1 + (count % 2), 1000, count));
    if (maintainAt.includes(count)) await store.maintain();
  }
  await store.close();
}

export async function tailsOf(directory: string): Promise<readonly number[]> {
  const store: FileStore = await openFileStore(directory, { segmentBytes: SEGMENT_BYTES });
  try {
    return [...store.world.byId.values()].map(({ tail }) => tail);
  } finally {
    await store.close();
  }
}
