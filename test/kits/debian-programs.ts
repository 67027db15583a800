/** Programs that are packaged by Debian: on a Debian where we may, they are installed. */

import { spawnSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A registry may be slow; a test that waits for it must not hang. */
const INSTALL_MS = 300_000;

const LOCK = join(tmpdir(), "hapax-apt.lock");

/** Reads the list of packages anew and installs one. Its archive is kept in a folder of its own: see `installation`. */
const INSTALL = [
  'archives=$(mktemp -d) && mkdir "$archives/partial" || exit',
  "trap 'rm -rf \"$archives\"' EXIT",
  "apt-get -q update",
  'apt-get -q -o DPkg::Lock::Timeout=300 -o Dir::Cache::archives="$archives" install -y --no-install-recommends "$1"',
].join("\n");

/** A command that installs a package. */
export interface Installation {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
}

/**
 * The command that installs a package here, without starting its service; `undefined` where we may not install.
 *
 * Test files run side by side. `apt-get update` fails while another one runs, so installations take turns. And on the images of
 * containers `apt-get` removes all archives of its common folder when it has ended, also those that another one is about to unpack.
 */
export function installation(debianPackage: string): Installation | undefined {
  if (process.platform !== "linux" || process.getuid?.() !== 0) return undefined;
  const env = { ...process.env, RUNLEVEL: "1", DEBIAN_FRONTEND: "noninteractive" };
  const args = [LOCK, "sh", "-c", INSTALL, "install", debianPackage];
  return { command: "flock", args, env };
}

/** Installs a package where we may. Whether it worked is for the caller to see: it asks the program. */
export function install(debianPackage: string): void {
  const found = installation(debianPackage);
  if (found === undefined) return;
  const { command, args, env } = found;
  const ended = spawnSync(command, args, { encoding: "utf8", env, timeout: INSTALL_MS });
  if (ended.status !== 0)
    console.log(ended.error?.message ?? ended.stderr.trim().split("\n").at(-1));
}

/** Whether a program is here, or could be installed with its package. */
export function hasProgram(
  program: string,
  debianPackage: string,
  question = "--version",
): boolean {
  const works = (): boolean => spawnSync(program, [question], { stdio: "ignore" }).status === 0;
  if (works()) return true;
  install(debianPackage);
  return works();
}
