/** Running the tools of node_modules, and printing what they did. Shared by the other scripts. */

import { spawn } from "node:child_process";
import { realpathSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("..", import.meta.url)).replace(/[/\\]$/, "");

/** Whether the module is the script that was started, not one that another script imports. */
export function isMain(moduleUrl) {
  const started = process.argv[1];
  return started !== undefined && realpathSync(started) === realpathSync(fileURLToPath(moduleUrl));
}

/** Path of a tool's executable, without npx: that would cost half a second and may go online. */
export function tool(name, base = root) {
  return join(base, "node_modules", ".bin", process.platform === "win32" ? `${name}.cmd` : name);
}

/**
 * Runs a command to its end and never rejects for a non-zero exit. With `show` the output goes to
 * the terminal as it comes, else it is collected. After `limitMs` the process is killed with all
 * that it started: a worker in an endless loop outlives its parent otherwise.
 */
export function run(command, args, { cwd = root, env = {}, show = false, limitMs } = {}) {
  const startMs = performance.now();
  const isLimited = limitMs !== undefined && process.platform !== "win32";
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd,
      env: { ...process.env, ...env },
      stdio: show ? "inherit" : ["ignore", "pipe", "pipe"],
      shell: process.platform === "win32",
      detached: isLimited,
    });
    const kill = () => {
      if (isLimited && child.pid !== undefined) killGroup(child.pid);
      else child.kill("SIGKILL");
    };
    if (isLimited) process.on("exit", kill);
    let output = "";
    let isTimedOut = false;
    const collect = (chunk) => (output += chunk);
    child.stdout?.setEncoding("utf8").on("data", collect);
    child.stderr?.setEncoding("utf8").on("data", collect);
    const timer =
      limitMs === undefined
        ? undefined
        : setTimeout(() => {
            isTimedOut = true;
            kill();
          }, limitMs);
    child.on("error", reject);
    child.on("close", (code) => {
      clearTimeout(timer);
      process.off("exit", kill);
      resolve({ code: code ?? 1, output, isTimedOut, tookMs: performance.now() - startMs });
    });
  });
}

export function killGroup(pid) {
  try {
    process.kill(-pid, "SIGKILL");
  } catch (error) {
    // It ended by itself in the meantime.
    if (error.code !== "ESRCH") throw error;
  }
}

export function seconds(ms) {
  return `${(ms / 1000).toFixed(1)} s`;
}

/** Runs `work` over the items, `width` at a time, and keeps the order of the results. */
export async function inParallel(items, width, work) {
  const results = [];
  let next = 0;
  const lane = async () => {
    while (next < items.length) {
      const index = next++;
      results[index] = await work(items[index], index);
    }
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, lane));
  return results;
}
