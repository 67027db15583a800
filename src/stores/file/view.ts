/** A directory as it would be: without some files, and with one segment cut short. Nothing is written. */

import { HapaxError } from "../../errors.ts";
import type { Disk, DiskFile } from "./disk.ts";

/** From the position on the file reads as zeros, as a segment that was never written to. */
export interface Cut {
  readonly name: string;
  readonly position: number;
}

export function viewOf(disk: Disk, hidden: ReadonlySet<string>, cut?: Cut): Disk {
  const refuse = (): Promise<never> =>
    Promise.reject(new HapaxError("internal", "TL1 a tool that looks must not write"));
  return {
    list: async () => (await disk.list()).filter((name) => !hidden.has(name)),
    async open(name, mode) {
      if (mode !== "read") return refuse();
      const file = await disk.open(name, mode);
      return name === cut?.name ? cutFile(file, cut.position) : file;
    },
    rename: refuse,
    remove: refuse,
    syncDirectory: refuse,
  };
}

function cutFile(file: DiskFile, cutAt: number): DiskFile {
  return {
    ...file,
    async read(position, length) {
      const bytes = await file.read(position, length);
      const from = Math.max(0, cutAt - position);
      return from >= bytes.length ? bytes : Buffer.from(bytes).fill(0, from);
    },
  };
}
