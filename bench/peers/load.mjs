/** Compiles the load of the peers at its first use, and runs it beside a server whose CPU time it reads. */

import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { renameSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Failure } from "../../scripts/prepare.mjs";

const SOURCE = fileURLToPath(new URL("load.c", import.meta.url));
/** Where programs are kept that a run has compiled or downloaded. */
export const CACHE = join(tmpdir(), `hapax-peers-${process.getuid?.() ?? 0}`);
const TICK_MS = 10;

/** The path of the program that this source is. */
export function compileLoad() {
  const source = readFileSync(SOURCE);
  const digest = createHash("sha256").update(source).digest("hex").slice(0, 16);
  const program = join(CACHE, `load-${digest}`);
  if (existsSync(program)) return program;
  mkdirSync(CACHE, { recursive: true });
  const fresh = `${program}.${process.pid}`;
  try {
    execFileSync("cc", ["-O2", "-o", fresh, SOURCE], { stdio: ["ignore", "ignore", "pipe"] });
  } catch (error) {
    throw new Failure(`the load needs a C compiler: cc ${SOURCE} failed\n${error.message}`);
  }
  renameSync(fresh, program);
  return program;
}

/**
 * Runs the load once. `options` are those of load.c; what is bytes or text goes through a file. `during` is awaited between the
 * start and the end of what is measured, for a load that holds.
 */
export async function runLoad(options, pids, during) {
  const folder = mkdtempSync(join(tmpdir(), "hapax-load-"));
  const args = [];
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined) continue;
    const isFile = FILES.has(name);
    const path = join(folder, name);
    if (isFile) writeFileSync(path, value);
    args.push(`--${name}`, isFile ? path : String(value));
  }
  try {
    return await run(args, pids, during);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const FILES = new Set(["hello", "request", "reader-hello", "reader-again"]);

async function run(args, pids, during) {
  const child = spawn(compileLoad(), args, { stdio: ["pipe", "pipe", "pipe"] });
  let words = "";
  child.stderr.on("data", (chunk) => (words += chunk));
  const ended = new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  const cpu = [];
  let result;
  for await (const line of createInterface({ input: child.stdout })) {
    if (line.startsWith("{")) result = JSON.parse(line);
    else cpu.push(cpuMsOf(pids));
    if (line === "end") child.stdin.end("\n");
    if (line === "start" && during !== undefined) {
      try {
        await during();
      } finally {
        child.stdin.end();
      }
    }
  }
  const code = await ended;
  if (code !== 0 || result === undefined) throw new Error(`the load failed: ${words.trim()}`);
  const [before = 0, after = before] = cpu;
  return {
    ...result,
    perSecond: result.count / Math.max(result.seconds, 1e-9),
    // From 100 on the load is the limit.
    loadPercent: result.loadSeconds > 0 ? (100 * result.loadSeconds) / result.seconds : undefined,
    cpuMicros: ((after - before) * 1000) / Math.max(1, result.count),
  };
}

/** The CPU time of the processes and of all that they have started. */
export function cpuMsOf(pids) {
  let ticks = 0;
  for (const pid of withChildren(pids)) {
    const fields = fieldsOf(pid);
    if (fields !== undefined) ticks += Number(fields[11]) + Number(fields[12]);
  }
  return ticks * TICK_MS;
}

export function rssBytesOf(pids) {
  let bytes = 0;
  for (const pid of withChildren(pids)) {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    bytes += Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1] ?? 0) * 1024;
  }
  return bytes;
}

/** After the name of the process, which may hold anything. */
function fieldsOf(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    return text.slice(text.lastIndexOf(")") + 2).split(" ");
  } catch {
    return undefined; // It has ended.
  }
}

/** A database may have a process for each connection. */
function withChildren(pids) {
  const all = new Set(pids);
  const parents = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => [Number(pid), Number(fieldsOf(pid)?.[1])]);
  for (let size = -1; size !== all.size;) {
    size = all.size;
    for (const [pid, parent] of parents) if (all.has(parent)) all.add(pid);
  }
  return all;
}
