/**
 * The lines of Node that Hapax supports, and their programs. Each comes from npm, in the package `node-<platform>-<architecture>`,
 * and is kept in a folder for all runs. They are not among the dependencies: those packages are for one platform each, and
 * `node` itself would put its program before yours on the path of every script.
 */

import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** The release of each supported line that is tested. docs/guides/runtimes.md has them, too. */
export const NODE_LINES = ["22.23.3", "24.21.0", "26.10.0"];

/** A registry may be slow; a run that waits for it must not hang. */
const DOWNLOAD_MS = 300_000;
const CACHE = join(tmpdir(), `hapax-node-${process.getuid?.() ?? 0}`);
const isWindows = process.platform === "win32";

/** `{ version, path }`, or `{ version, missing }` with the reason why there is none. */
export function nodeProgram(version) {
  const folder = `${CACHE}-${version}`;
  const path = join(folder, "package", "bin", isWindows ? "node.exe" : "node");
  if (isVersion(path, version)) return { version, path };
  const name = `node-${isWindows ? "win" : process.platform}-${process.arch}`;
  const fresh = mkdtempSync(`${CACHE}-new-`);
  try {
    const packed = execute("npm", ["pack", "--silent", `${name}@${version}`], fresh).trim();
    execute("tar", ["-xzf", packed.split("\n").at(-1)], fresh);
    rmSync(join(fresh, packed.split("\n").at(-1)));
    chmodSync(join(fresh, "package", "bin", isWindows ? "node.exe" : "node"), 0o755);
    renameSync(fresh, folder);
  } catch (error) {
    // Another process may have been faster.
    if (!existsSync(path)) return { version, missing: `${name}@${version}: ${error.message}` };
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
  if (isVersion(path, version)) return { version, path };
  return { version, missing: `${name}@${version} was downloaded, and does not run here` };
}

function isVersion(path, version) {
  if (!existsSync(path)) return false;
  return spawnSync(path, ["--version"], { encoding: "utf8" }).stdout?.trim() === `v${version}`;
}

function execute(command, args, cwd) {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    cwd,
    encoding: "utf8",
    timeout: DOWNLOAD_MS,
    shell: isWindows,
  });
  if (status === 0) return stdout;
  throw new Error(error?.message ?? stderr.trim().split("\n").at(-1));
}
