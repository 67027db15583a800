/**
 * The file SECRET: 64 random hexadecimal digits and a line feed. The server makes the keys that sign webhooks from it. It is apart from
 * the journal, so that copies of the journal and of snapshots sign nothing.
 *
 *   - it is made when it is first needed, and durable before it is used;
 *   - a file that other users of the machine can read or change is refused when the directory is opened.
 */

import fs from "node:fs";
import { join } from "node:path";
import { HapaxError } from "../../../base/errors.ts";
import { type Random, systemRandom } from "../../../base/random.ts";
import { asDirectoryError } from "./directory-error.ts";

export const SECRET_NAME = "SECRET";
export const UNFINISHED_SECRET = "SECRET.tmp";
const SECRET_TEXT = /^([\da-f]{64})\n$/;

export interface DirectorySecret {
  /** Whether the directory had one when it was opened. */
  readonly isThere: boolean;
  /** The secret. Makes it if there is none. */
  readonly get: () => Promise<string>;
}

/** Opens the secret of a directory. The caller holds the directory's lock. */
export async function openSecret(
  directory: string,
  random: Random = systemRandom,
): Promise<DirectorySecret> {
  const path = join(directory, SECRET_NAME);
  await fs.promises.rm(join(directory, UNFINISHED_SECRET), { force: true });
  const found = await readSecret(path);
  let secret = found === undefined ? undefined : Promise.resolve(found);
  const get = (): Promise<string> => {
    if (secret === undefined) {
      const making = makeSecret(directory, random).catch((error: unknown) => {
        // The next caller tries again.
        secret = undefined;
        throw asDirectoryError(error, directory);
      });
      secret = making;
    }
    return secret;
  };
  return { isThere: found !== undefined, get };
}

/** Undefined: there is none. */
async function readSecret(path: string): Promise<string | undefined> {
  const file = await fs.promises.open(path, "r").catch((error: unknown) => {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  });
  if (file === undefined) return undefined;
  try {
    const mode = (await file.stat()).mode & 0o777;
    // Windows has no such modes.
    if (process.platform !== "win32" && (mode & 0o077) !== 0) {
      const shown = mode.toString(8).padStart(4, "0");
      throw unusable(
        path,
        `it has mode ${shown}, so other users can read it: run chmod 600 ${path}`,
      );
    }
    const [, secret] = SECRET_TEXT.exec(await file.readFile("latin1")) ?? [];
    if (secret === undefined) {
      throw unusable(path, "it is damaged: put it back from a copy, or remove it to get new keys");
    }
    return secret;
  } finally {
    await file.close();
  }
}

async function makeSecret(directory: string, random: Random): Promise<string> {
  const secret = random.id() + random.id();
  const unfinished = join(directory, UNFINISHED_SECRET);
  await fs.promises.rm(unfinished, { force: true });
  // Exclusive: what is at this path must not be a link that was put there.
  const file = await fs.promises.open(unfinished, "wx", 0o600);
  try {
    await file.writeFile(`${secret}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  await fs.promises.rename(unfinished, join(directory, SECRET_NAME));
  await syncDirectory(directory);
  return secret;
}

async function syncDirectory(directory: string): Promise<void> {
  // Windows syncs no directories.
  if (process.platform === "win32") return;
  const handle = await fs.promises.open(directory, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function unusable(path: string, why: string): HapaxError {
  return new HapaxError("directory_unusable", `the secret in ${path} cannot be used: ${why}`);
}
