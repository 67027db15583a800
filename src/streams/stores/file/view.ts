/**
 * Shows a directory as a repair would leave it: without some files, with one segment cut, with another STORE. Writes
 * nothing.
 */

import { HapaxError } from "../../../base/errors.ts";
import type { Disk, DiskFile } from "./disk.ts";
import { STORE_NAME } from "./store-file.ts";

/** From the position on the file reads as zeros, like a segment that was never written to. */
export interface Cut {
  readonly name: string;
  readonly position: number;
  /** The size of the file afterwards. */
  readonly bytes: number;
}

/** What a repair would change. */
export interface Changes {
  readonly cut?: Cut | undefined;
  /** All bytes of STORE. */
  readonly store?: Buffer | undefined;
}

export function viewOf(disk: Disk, hidden: ReadonlySet<string>, changes: Changes = {}): Disk {
  const { cut, store } = changes;
  const refuse = (): Promise<never> =>
    Promise.reject(new HapaxError("internal", "a tool that looks must not write"));
  return {
    async list() {
      const names = (await disk.list()).filter((name) => !hidden.has(name));
      return store === undefined || names.includes(STORE_NAME) ? names : [...names, STORE_NAME];
    },
    async open(name, mode) {
      if (mode !== "read") return refuse();
      if (name === STORE_NAME && store !== undefined) return fileOf(store);
      const file = await disk.open(name, mode);
      return name === cut?.name ? cutFile(file, cut) : file;
    },
    rename: refuse,
    remove: refuse,
    syncDirectory: refuse,
  };
}

function fileOf(bytes: Buffer): DiskFile {
  const refuse = (): Promise<never> =>
    Promise.reject(new HapaxError("internal", "it is only read"));
  return {
    size: async () => Promise.resolve(bytes.length),
    read: async (position, length) => Promise.resolve(bytes.subarray(position, position + length)),
    write: refuse,
    sync: refuse,
    close: async () => Promise.resolve(),
  };
}

function cutFile(file: DiskFile, cut: Cut): DiskFile {
  return {
    ...file,
    size: async () => Promise.resolve(cut.bytes),
    async read(position, length) {
      const found = await file.read(position, length);
      const whole = Buffer.alloc(Math.min(length, Math.max(0, cut.bytes - position)));
      found.copy(whole, 0, 0, Math.max(0, cut.position - position));
      return whole;
    },
  };
}
