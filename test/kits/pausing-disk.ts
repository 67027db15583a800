/** A disk that lets a test do something at moments that are hard to hit: while a snapshot is written, or data is moved. */

import type { Disk } from "../../src/streams/stores/file/disk.ts";
import { UNFINISHED_SNAPSHOT } from "../../src/streams/stores/file/snapshot-file.ts";

export interface Pauses {
  /** Called after each block of a snapshot was made, and before it is written. */
  readonly beforeBlock?: (block: number) => Promise<void>;
  /** Called after each read of a file that is only read. */
  readonly afterRead?: (read: number) => Promise<void>;
}

export function pausing(disk: Disk, { beforeBlock, afterRead }: Pauses): Disk {
  let block = 0;
  let reads = 0;
  return {
    list: () => disk.list(),
    rename: (from, to) => disk.rename(from, to),
    remove: (name) => disk.remove(name),
    syncDirectory: () => disk.syncDirectory(),
    async open(name, mode) {
      const file = await disk.open(name, mode);
      return {
        size: () => file.size(),
        sync: () => file.sync(),
        close: () => file.close(),
        async read(position, length, into) {
          const bytes = await file.read(position, length, into);
          reads += mode === "read" ? 1 : 0;
          if (mode === "read") await afterRead?.(reads);
          return bytes;
        },
        async write(buffers, position) {
          const isSnapshot = UNFINISHED_SNAPSHOT.test(name);
          block += isSnapshot ? 1 : 0;
          if (isSnapshot) await beforeBlock?.(block);
          await file.write(buffers, position);
        },
      };
    },
  };
}
