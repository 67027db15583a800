/** Turns errors of the system about a directory into errors that say what is wrong and what to do. */

import { statSync } from "node:fs";
import { HapaxError } from "../../../base/errors.ts";

const REASONS: Readonly<Record<string, string>> = {
  EACCES: "this user may not read or write there; change the owner or the mode",
  EPERM: "this user may not read or write there; change the owner or the mode",
  EROFS: "the file system is read-only",
  ENOENT: "it is not there and cannot be made",
  ENOTDIR: "a part of the path is a file, not a directory",
  EEXIST: "there is a file of that name",
  ENOSPC: "there is no room on the file system",
  EDQUOT: "there is no room left for this user",
  EMFILE: "this process has too many files open",
};

/** Translates the errors that it knows, and returns every other error as it is. */
export function asDirectoryError(error: unknown, directory: string): unknown {
  if (!(error instanceof Error) || !("syscall" in error) || !("code" in error)) return error;
  const code = String(error.code);
  const reason = REASONS[code] ?? error.message;
  const message = `the directory cannot be used (${code}): ${reason}: directory=${directory}`;
  return new HapaxError("directory_unusable", message, { cause: error });
}

/**
 * Warns if other users can write to the directory. It holds every stream and the keys that sign webhooks, and the
 * volumes of containers are often open to all at first.
 */
export function warnOfStrangers(path: string, warn: (warning: string) => void): void {
  const mode = statSync(path).mode & 0o777;
  if (process.platform === "win32" || (mode & 0o022) === 0) return;
  warn(
    `other users may write to the directory (mode ${mode.toString(8)}): they can replace or destroy every stream. ` +
      `Run: chmod 700 ${path}`,
  );
}
