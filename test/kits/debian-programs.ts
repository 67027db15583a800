/** Programs that are packaged by Debian: on a Debian where we may, they are installed. */

import { spawnSync } from "node:child_process";

/** A registry may be slow; a test that waits for it must not hang. */
const INSTALL_MS = 300_000;

/** Whether a program is here, or could be installed with its package. */
export function hasProgram(
  program: string,
  debianPackage: string,
  question = "--version",
): boolean {
  const works = (): boolean => spawnSync(program, [question], { stdio: "ignore" }).status === 0;
  if (works()) return true;
  if (process.platform !== "linux" || process.getuid?.() !== 0) return false;
  // Installed, and not started as a service.
  const env = { ...process.env, RUNLEVEL: "1", DEBIAN_FRONTEND: "noninteractive" };
  const apt = ["-q", "-o", "DPkg::Lock::Timeout=300"];
  for (const parts of [["update"], ["install", "-y", "--no-install-recommends", debianPackage]])
    execute("apt-get", [...apt, ...parts], env);
  return works();
}

function execute(command: string, args: readonly string[], env: NodeJS.ProcessEnv): void {
  const { status, stderr } = spawnSync(command, args, {
    encoding: "utf8",
    env,
    timeout: INSTALL_MS,
  });
  if (status !== 0) console.log(stderr.trim().split("\n").at(-1));
}
