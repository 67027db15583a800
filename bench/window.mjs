/**
 * `node bench/window.mjs`: what the dedup window of a log needs. Memory and snapshot of 100,000 ids, the time to encode and to
 * recover them, and writes a second into files, with ids and without.
 *
 * Bounds that it holds: 10 MB and one second for 100,000 ids.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileObjects, objectLog, openWindow } from "../dist/toolkit/window.js";
import { formatMachine, machineOf } from "./machine.mjs";

const IDS = 100_000;
const MEMORY_BYTES_MAX = 10_000_000;
const RECOVERY_MS_MAX = 1_000;
const encoder = new TextEncoder();
const payload = encoder.encode("x".repeat(100));

const folder = mkdtempSync(join(tmpdir(), "hapax-bench-window-"));
const timed = async (work) => {
  const startMs = performance.now();
  const result = await work();
  return { result, ms: Math.round(performance.now() - startMs) };
};

const open = (objects, options) =>
  openWindow({ log: objectLog(objects), snapshots: objects, keysMax: IDS, ...options });

async function fill(window, from, count, hasId = true) {
  for (let at = from; at < from + count; at += 1_000) {
    const some = Array.from({ length: Math.min(1_000, from + count - at) }, (_, index) => {
      return window.write(hasId ? `payment ${at + index}` : undefined, payload);
    });
    await Promise.all(some);
  }
}

async function main() {
  console.log(formatMachine(machineOf(folder)));
  const objects = fileObjects(join(folder, "log"));
  const window = await open(objects, { snapshotKeys: 10_000_000 });
  const filled = await timed(() => fill(window, 0, IDS));
  const { memoryBytes } = window.stats;
  const saved = await timed(() => window.snapshot());
  const [name] = await objects.list("snapshots/");
  const snapshotBytes = (await objects.get(name)).length;
  const recovered = await timed(() => open(objects));
  const { keys, recovery } = recovered.result.stats;
  const scanned = await timed(() =>
    openWindow({
      log: objectLog(objects),
      snapshots: fileObjects(join(folder, "none")),
      keysMax: IDS,
    }),
  );
  const gap = 10_000;
  await fill(scanned.result, IDS, gap);
  const afterGap = await timed(() => open(objects));
  const duplicates = await timed(() => fill(afterGap.result, gap, 50_000));
  const plain = await timed(() => fill(afterGap.result, 0, 50_000, false));

  const perSecond = (count, ms) => `${Math.round((count * 1000) / ms).toLocaleString("en-US")}/s`;
  console.log(`
${IDS.toLocaleString("en-US")} ids of a window, entries of ${payload.length} bytes, 1,000 callers, files with fsync
memory      ${(memoryBytes / 1e6).toFixed(2)} MB (${(memoryBytes / IDS).toFixed(1)} bytes an id)
snapshot    ${(snapshotBytes / 1e6).toFixed(2)} MB, written in ${saved.ms} ms
recovery    ${recovered.ms} ms with a snapshot (${recovery.entries} entries read again), ${afterGap.ms} ms with a gap of ${gap}
            ${scanned.ms} ms without a snapshot
writes      ${perSecond(IDS, filled.ms)} with ids, ${perSecond(50_000, plain.ms)} without, duplicates ${perSecond(50_000, duplicates.ms)}`);
  if (keys !== IDS) throw new Error(`the window has ${keys} ids`);
  const bytes = Math.max(memoryBytes, snapshotBytes);
  if (bytes > MEMORY_BYTES_MAX || recovered.ms > RECOVERY_MS_MAX) {
    console.log("over the bounds");
    process.exitCode = 1;
  }
}

await main().finally(() => rmSync(folder, { recursive: true, force: true }));
