/**
 * Keeps a reader's position in a file.
 *
 *   - the file holds one whole offset at every instant: the new one is written beside it, synced, and renamed over
 *     it;
 *   - a file that does not hold one offset is refused: to begin anew would repeat every effect.
 */

import { open, readFile, rename } from "node:fs/promises";
import { dirname } from "node:path";
import type { PositionStore } from "../../client/positions.ts";
import { HapaxError } from "../../base/errors.ts";

/**
 * Offsets have up to 255 printable characters, and positions also name a life. The line break shows that the file is
 * whole.
 */
const WHOLE = /^([\x21-\x7e]{1,300})\n$/;

/**
 * Returns a position store in a file, which survives a power cut. Use one file for each reader; its folder
 * must exist.
 *
 * ```ts
 * import { mkdtemp } from "node:fs/promises";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { filePosition } from "hapax/node";
 *
 * const path = join(await mkdtemp(join(tmpdir(), "orders-")), "position");
 * await filePosition(path).save("0000000000000000_0000000000000042");
 * console.assert((await filePosition(path).load()) === "0000000000000000_0000000000000042");
 * ```
 */
export function filePosition(path: string): PositionStore {
  return {
    async load() {
      let text: string;
      try {
        text = await readFile(path, "utf8");
      } catch (error) {
        if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
        throw error;
      }
      const offset = WHOLE.exec(text)?.[1];
      if (offset !== undefined) return offset;
      throw new HapaxError("data_damaged", `the position file holds no offset file=${path}`);
    },
    async save(offset) {
      const draft = `${path}.new`;
      await written(draft, `${offset}\n`);
      await rename(draft, path);
      await synced(dirname(path));
    },
  };
}

async function written(path: string, text: string): Promise<void> {
  const file = await open(path, "w");
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Syncs a folder, which makes a rename durable. Windows cannot open folders, and needs no such sync. */
async function synced(folder: string): Promise<void> {
  if (process.platform === "win32") return;
  const handle = await open(folder, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
