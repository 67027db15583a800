/**
 * The file of API keys on Node: `tokens.json` in the directory of the streams, or another path.
 *
 *   - only its owner may read it. A file that other users can read or write is refused, also if it was fit before;
 *   - a change is written to a file beside it, synced and renamed: a reader sees the old document or the new one. A change that
 *     was reported as done survives a power cut;
 *   - two programs that change it take turns. The lock ends with the process that holds it.
 *
 * PROTOCOL.md §21.8.
 */

import { lchown, mkdir, open, realpath, rename, rm, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { isHapaxError } from "../../base/errors.ts";
import { systemRandom } from "../../base/random.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import {
  encodeKeyDocument,
  type KeyChange,
  type ApiKeyRecord,
  parseKeyDocument,
} from "../access/key-document.ts";
import { type Lock, lockDirectory } from "../stores/file/lock.ts";
import { readSecretFile } from "./node-secret-file.ts";

/** How long a change waits for another one. A change takes a few milliseconds. */
const LOCK_WAIT_MS = 10_000;

/** Reads the keys. Undefined: there is no file. Throws `invalid_options` for a file that cannot be used. */
export async function readKeyFile(path: string): Promise<readonly ApiKeyRecord[] | undefined> {
  let text: string;
  try {
    text = await readSecretFile(path, LIMITS.keyFileBytesMax);
  } catch (error) {
    if (error instanceof Error && isMissing(error.cause)) return undefined;
    throw error;
  }
  return parseKeyDocument(text, path);
}

/** Changes the keys. `decide` gets those of this moment, and no other change comes in between. Makes a file that is not there. */
export async function changeKeyFile<T>(
  given: string,
  decide: (keys: readonly ApiKeyRecord[]) => KeyChange<T>,
): Promise<T> {
  await mkdir(dirname(resolve(given)), { recursive: true, mode: 0o700 });
  // A link stays one: the file that it names is changed.
  const path = await realpath(given).catch(() => resolve(given));
  const lock = await lockKeyFile(path);
  try {
    const { keys, answer } = decide((await readKeyFile(path)) ?? []);
    await replaceFile(path, encodeKeyDocument(keys));
    return answer;
  } finally {
    await lock.release();
  }
}

async function lockKeyFile(path: string): Promise<Lock> {
  const directory = `${path}.lock`;
  const made = await mkdir(directory, { recursive: true, mode: 0o700 });
  if (made !== undefined) await giveToOwner(path, directory);
  for (let waitedMs = 0; ;) {
    try {
      return await lockDirectory(directory);
    } catch (error) {
      if (!isHapaxError(error, "directory_locked") || waitedMs >= LOCK_WAIT_MS) throw error;
    }
    const pauseMs = 10 + systemRandom.unit() * 40;
    await delay(pauseMs);
    waitedMs += pauseMs;
  }
}

async function replaceFile(path: string, text: string): Promise<void> {
  const written = `${path}.new-${systemRandom.id()}`;
  try {
    const file = await open(written, "wx", 0o600);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await giveToOwner(path, written);
    await rename(written, path);
  } catch (error) {
    await rm(written, { force: true });
    throw error;
  }
  await syncDirectory(dirname(path));
}

/** What root makes belongs to the owner of the keys, so that a server that runs as another user can read it. */
async function giveToOwner(path: string, made: string): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = await stat(path).catch(() => stat(dirname(path)));
  if (uid !== 0) await lchown(made, uid, gid);
}

/** Windows cannot open directories, and keeps names without a sync. */
async function syncDirectory(path: string): Promise<void> {
  if (process.platform === "win32") return;
  const directory = await open(path, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}
