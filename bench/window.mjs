/**
 * `node bench/window.mjs`: what the dedup window of a log needs. Memory and snapshot of 100,000 ids, the time to write and to
 * recover them, and writes a second into files, with ids and without.
 *
 * Memory is what the process has more than before, after garbage collection: heap and array buffers. It is measured after the ids
 * were written, after as many again have pushed them out, and in a new process that has recovered them.
 *
 * Bounds that it holds: 10 MB and one second for 100,000 ids.
 */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { fileObjects, objectLog, openWindow } from "../dist/toolkit/window.js";
import { formatMachine, machineOf } from "./machine.mjs";

const IDS = 100_000;
const CALLERS = 1_000;
const GAP = 10_000;
const SOME = 20_000;
const MEMORY_BYTES_MAX = 10_000_000;
const RECOVERY_MS_MAX = 1_000;
const payload = new TextEncoder().encode("x".repeat(100));

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc");

/** Heap and array buffers, after garbage collection. */
async function memory() {
  for (let round = 0; round < 3; round += 1) {
    collect();
    await new Promise((resolve) => setImmediate(resolve));
  }
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return { heapUsed, arrayBuffers };
}

const more = (after, before) => {
  const heap = after.heapUsed - before.heapUsed;
  const buffers = after.arrayBuffers - before.arrayBuffers;
  return { heap, buffers, sum: heap + buffers };
};

const timed = async (work) => {
  const startMs = performance.now();
  const result = await work();
  return { result, ms: Math.round(performance.now() - startMs) };
};

const open = (objects, options) =>
  openWindow({ log: objectLog(objects), snapshots: objects, keysMax: IDS, ...options });

async function fill(window, from, count, hasId = true) {
  for (let at = from; at < from + count; at += CALLERS) {
    const some = Array.from({ length: Math.min(CALLERS, from + count - at) }, (_, index) => {
      return window.write(hasId ? `payment ${at + index}` : undefined, payload);
    });
    await Promise.all(some);
  }
}

/** In a process of its own: what it takes to have the window again. */
async function recover(folder) {
  const objects = fileObjects(folder);
  const before = await memory();
  const startCpu = process.cpuUsage();
  const { result, ms } = await timed(() => open(objects));
  const cpu = process.cpuUsage(startCpu);
  const cpuMs = Math.round((cpu.user + cpu.system) / 1_000);
  const held = more(await memory(), before);
  const { keys, recovery } = result.stats;
  console.log(JSON.stringify({ ms, cpuMs, held, keys, entries: recovery.entries }));
}

function recovered(folder) {
  const program = [fileURLToPath(import.meta.url), folder];
  return JSON.parse(execFileSync(process.execPath, program, { encoding: "utf8" }));
}

const mega = (bytes) => `${(bytes / 1e6).toFixed(2)} MB`;
const held = ({ heap, buffers, sum }) =>
  `${mega(sum)} (heap ${mega(heap)}, buffers ${mega(buffers)})`;
const perSecond = (count, ms) => `${Math.round((count * 1000) / ms).toLocaleString("en-US")}/s`;

async function main(folder) {
  console.log(formatMachine(machineOf(folder)));
  // The code is loaded and compiled before anything is measured.
  const warm = await open(fileObjects(join(folder, "warm")), { snapshotKeys: 10_000_000 });
  await fill(warm, 0, 5_000);
  await warm.close();

  const place = join(folder, "log");
  const objects = fileObjects(place);
  const window = await open(objects, { snapshotKeys: 10_000_000, durationMs: 3_600_000 });
  const before = await memory();
  const filled = await timed(() => fill(window, 0, IDS));
  const full = more(await memory(), before);
  await fill(window, IDS, IDS);
  const churn = more(await memory(), before);
  const saved = await timed(() => window.snapshot());
  const [name] = await objects.list("snapshots/");
  const snapshotBytes = (await objects.get(name)).length;
  const alone = recovered(place);

  const next = await open(objects, { snapshotKeys: 10_000_000, durationMs: 3_600_000 });
  await fill(next, 2 * IDS, GAP);
  const afterGap = recovered(place);
  const none = { snapshots: fileObjects(join(folder, "none")) };
  const scanned = await timed(() => open(objects, none));
  const duplicates = await timed(() => fill(scanned.result, IDS + GAP, SOME));
  const plain = await timed(() => fill(scanned.result, 0, SOME, false));

  console.log(`
${IDS.toLocaleString("en-US")} ids of a window, entries of ${payload.length} bytes, ${CALLERS.toLocaleString("en-US")} callers, files with fsync
memory      ${held(full)}
            ${held(churn)} after as many again
            ${held(alone.held)} in the process that recovered them
snapshot    ${mega(snapshotBytes)}, written in ${saved.ms} ms
recovery    ${alone.ms} ms in a new process, ${alone.cpuMs} ms of CPU (${alone.entries} entries read again)
            ${afterGap.ms} ms with a gap of ${GAP.toLocaleString("en-US")}, ${afterGap.cpuMs} ms of CPU
            ${scanned.ms} ms without a snapshot
writes      ${perSecond(IDS, filled.ms)} with ids, ${perSecond(SOME, plain.ms)} without, duplicates ${perSecond(SOME, duplicates.ms)}`);
  if (alone.keys !== IDS) throw new Error(`the window has ${alone.keys} ids`);
  const bytes = Math.max(full.sum, churn.sum, alone.held.sum, snapshotBytes);
  if (bytes > MEMORY_BYTES_MAX || alone.ms > RECOVERY_MS_MAX) {
    console.log("over the bounds");
    process.exitCode = 1;
  }
}

const [, , recovering] = process.argv;
if (recovering === undefined) {
  const folder = mkdtempSync(join(tmpdir(), "hapax-bench-window-"));
  await main(folder).finally(() => rmSync(folder, { recursive: true, force: true }));
} else await recover(recovering);
