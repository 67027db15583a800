/**
 * Files that are written once, on Node: a file gets its name when all of it is on the disk, and the name is on the disk when the
 * call returns. A write that fails removes its file. A process that dies in between leaves a `.new-` file behind, which no process
 * reads, and which a later process removes when it is old.
 *
 * The modules of Node are passed in: code that must also load where there are none imports them late.
 */

import { systemClock } from "../../base/clock.ts";
import { systemRandom } from "../../base/random.ts";

/** How files begin that have no name yet. */
export const NAMELESS = ".new-";
/** A write takes less. */
const OLD_MS = 3_600_000;

/** The modules of Node that are needed. */
export interface FileTools {
  readonly fs: typeof import("node:fs").promises;
  readonly path: typeof import("node:path");
}

export async function syncFolder({ fs }: FileTools, path: string): Promise<void> {
  // Windows cannot open folders, and keeps names without a sync.
  if (process.platform === "win32") return;
  const folder = await fs.open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** Makes a folder, and those above it, if they do not exist. Syncs the folders that keep the names of new ones. */
export async function makeFolder(tools: FileTools, folder: string): Promise<void> {
  const made = await tools.fs.mkdir(folder, { recursive: true, mode: 0o700 });
  if (made !== undefined)
    await syncAbove(tools, folder, tools.path.dirname(tools.path.resolve(made)));
}

/** Syncs the folders above one, up to `top`. */
export async function syncAbove(tools: FileTools, folder: string, top: string): Promise<void> {
  const { path } = tools;
  for (let at = path.dirname(path.resolve(folder)); ; at = path.dirname(at)) {
    await syncFolder(tools, at);
    if (at === path.resolve(top) || at === path.dirname(at)) return;
  }
}

/**
 * Removes the `.new-` files of processes that died, which are older than an hour. Call it once, before the first write. That is
 * safe, also if a clock is wrong: a process that still lives cannot give its removed file a name, and gets an error for its write.
 */
export async function removeOld({ fs, path }: FileTools, folder: string): Promise<void> {
  try {
    for (const name of await fs.readdir(folder)) {
      if (!name.startsWith(NAMELESS)) continue;
      const file = path.join(folder, name);
      const stat = await fs.stat(file).catch(unlessMissing);
      if (stat !== undefined && systemClock.nowMs() - stat.mtimeMs > OLD_MS)
        await fs.rm(file, { force: true });
    }
  } catch {
    // They only take room. A folder that cannot be used says so at the write.
  }
}

/** Writes and syncs a file that has no name yet. Returns its path. A write that fails leaves no file. */
export async function writeNameless(
  { fs, path }: FileTools,
  folder: string,
  content: string | Uint8Array,
): Promise<string> {
  const written = path.join(folder, `${NAMELESS}${systemRandom.id()}`);
  const file = await fs.open(written, "wx", 0o600);
  return await orRemove(fs, written, async () => {
    try {
      await file.writeFile(content);
      await file.sync();
    } finally {
      await file.close();
    }
    return written;
  });
}

/** Takes a step with a file that has no name yet. Removes the file if that throws: on a full disk it would take the room. */
export async function orRemove<T>(
  fs: FileTools["fs"],
  written: string,
  step: () => Promise<T>,
): Promise<T> {
  try {
    return await step();
  } catch (error) {
    await fs.rm(written, { force: true }).catch(() => undefined);
    throw error;
  }
}

/** Gives the file its name, and keeps the first one. Returns false if the name is taken. */
export async function nameIfFree(
  { fs }: FileTools,
  written: string,
  path: string,
): Promise<boolean> {
  return await orRemove(fs, written, async () => {
    try {
      await fs.link(written, path);
      return true;
    } catch (error) {
      if (codeOf(error) === "EEXIST") return false;
      throw error;
    }
  });
}

/** Takes the place of a result if a file is missing. Throws all other errors. */
export function unlessMissing(error: unknown): undefined {
  if (codeOf(error) !== "ENOENT") throw error;
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}
