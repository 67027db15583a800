/**
 * Reads files on Node that decide who may come in: those with secrets, which no other user of the machine may read or change, and those
 * with public keys of others, which no other user may change. An owner may change a file of any mode, so the owner must be
 * trusted, too.
 */

import { type FileHandle, open, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { HapaxError } from "../../base/errors.ts";

/** More than any file of keys has. */
const FILE_BYTES_MAX = 64 * 1024;
/** What others must not be allowed to do. */
const NOT_FOR_OTHERS = { secret: 0o077, trusted: 0o022 } as const;

/** The text of a file. Throws `invalid_options` if it cannot be read, is too large, or is not for its owner alone. */
export function readSecretFile(path: string, bytesMax = FILE_BYTES_MAX): Promise<string> {
  return readChecked(path, bytesMax, "secret");
}

/** The same for a file that others may read, but not change. */
export function readTrustedFile(path: string, bytesMax = FILE_BYTES_MAX): Promise<string> {
  return readChecked(path, bytesMax, "trusted");
}

async function readChecked(
  path: string,
  bytesMax: number,
  kind: keyof typeof NOT_FOR_OTHERS,
): Promise<string> {
  const file = await open(path, "r").catch((error: unknown) => {
    throw refused(path, `it cannot be read (${codeOf(error)})`, error);
  });
  try {
    await checkOpen(file, path, bytesMax, NOT_FOR_OTHERS[kind]);
    return await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

async function checkOpen(
  file: FileHandle,
  path: string,
  bytesMax: number,
  notForOthers: number,
): Promise<void> {
  // Of the open file and not of its path, which may name another file by now.
  const found = await file.stat();
  const { size, mode, uid } = found;
  if (!found.isFile()) throw refused(path, "it is not a file");
  if (size > bytesMax) throw refused(path, `it has more than ${bytesMax} bytes`);
  // Windows has no such modes.
  if (process.platform !== "win32" && (mode & notForOthers) !== 0) {
    const shown = (mode & 0o777).toString(8).padStart(4, "0");
    const [may, right] =
      (notForOthers & 0o044) === 0 ? ["change it", "go-w"] : ["read or change it", "600"];
    throw refused(
      path,
      `it has mode ${shown}, so other users of this machine can ${may}: run chmod ${right} ${path}`,
    );
  }
  const problem = await ownerProblem(path, uid);
  if (problem !== undefined) throw refused(path, problem);
}

/** What is wrong with the owner of a file. Undefined: nothing. */
export async function ownerProblem(path: string, uid: number): Promise<string | undefined> {
  const me = process.geteuid?.();
  if (me === undefined) return undefined;
  const directory = await stat(dirname(path)).catch(() => undefined);
  if (isTrustedOwner(uid, me, directory?.uid)) return undefined;
  return `it belongs to the user ${uid}, who can change it, and this process runs as the user ${me}: run chown ${me} ${path}`;
}

/**
 * Root can change every file, so it is trusted with each. A process of root works for the owner of a directory when it is asked to
 * work in it, as `hapax tokens` does.
 */
export function isTrustedOwner(
  uid: number,
  processUid: number,
  directoryUid: number | undefined,
): boolean {
  return uid === processUid || uid === 0 || (processUid === 0 && uid === directoryUid);
}

function refused(path: string, why: string, cause?: unknown): HapaxError {
  return new HapaxError("invalid_options", `the file ${path} cannot be used: ${why}`, {
    cause,
  });
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : String(error);
}
