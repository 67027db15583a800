/** Reads files with secrets on Node. A file that other users of the machine can read or change is refused. */

import { open } from "node:fs/promises";
import { HapaxError } from "../../base/errors.ts";

/** More than any file of keys has. */
const FILE_BYTES_MAX = 64 * 1024;

/** The text of a file. Throws `invalid_options` if it cannot be read, is too large, or is not for its owner alone. */
export async function readSecretFile(path: string, bytesMax = FILE_BYTES_MAX): Promise<string> {
  const file = await open(path, "r").catch((error: unknown) => {
    throw refused(path, `it cannot be read (${codeOf(error)})`, error);
  });
  try {
    // Of the open file and not of its path, which may name another file by now.
    const found = await file.stat();
    const { size, mode } = found;
    if (!found.isFile()) throw refused(path, "it is not a file");
    if (size > bytesMax) throw refused(path, `it has more than ${bytesMax} bytes`);
    // Windows has no such modes.
    if (process.platform !== "win32" && (mode & 0o077) !== 0) {
      const shown = (mode & 0o777).toString(8).padStart(4, "0");
      throw refused(
        path,
        `it has mode ${shown}, so other users of this machine can read or change it: run chmod 600 ${path}`,
      );
    }
    return await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

function refused(path: string, why: string, cause?: unknown): HapaxError {
  return new HapaxError("invalid_options", `the secrets in ${path} cannot be used: ${why}`, {
    cause,
  });
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : String(error);
}
