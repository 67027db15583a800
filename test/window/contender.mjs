/**
 * A writer that shares a log with others: `node contender.mjs <options as JSON>`. It opens the log, writes ids, and opens it again
 * whenever another one has fenced it, until all of its ids are acknowledged. Prints each acknowledgement as a line.
 */

import { writeSync } from "node:fs";
import * as api from "../../dist/toolkit/window.js";

const { store, ids, clockMs, contenders } = JSON.parse(process.argv[2] ?? "{}");
const objects = store.folder === undefined ? api.s3Objects(store) : api.fileObjects(store.folder);
const encoder = new TextEncoder();
const TURN = 2;
const PAUSE_MS = 10;

const pause = (delayMs) => new Promise((resolve) => setTimeout(resolve, delayMs));

const clock = {
  // Its clock is wrong by so much.
  nowMs: () => Date.now() + clockMs,
  steadyMs: () => performance.now(),
  after(delayMs, run) {
    const timer = setTimeout(() => run(), delayMs);
    return () => clearTimeout(timer);
  },
};

const left = new Set(ids);
let fences = 0;
let haveAllHadIt = false;

/** How many writers have had the log. */
async function writersOf(log) {
  const { segments } = await log.extent();
  return new Set(segments.map(({ writer }) => writer)).size;
}

/** Writes until another writer has the log. */
async function work() {
  const log = api.objectLog(objects, { segmentEntriesMax: 7 });
  const options = { durationMs: 86_400_000, snapshotKeys: 10, clock };
  const window = await api.openWindow({ log, snapshots: objects, ...options });
  while (left.size > 0) {
    const some = [...left].toSorted(() => Math.random() - 0.5).slice(0, TURN);
    await Promise.all(
      some.map(async (id) => {
        const { position } = await window.write(id, encoder.encode(`bytes of ${id}`));
        writeSync(1, `${JSON.stringify({ id, position })}\n`);
        left.delete(id);
      }),
    );
    // Others get their chance to fence this one: no one is done before all have had the log.
    do {
      await pause(PAUSE_MS);
      haveAllHadIt ||= (await writersOf(log)) >= contenders;
    } while (!haveAllHadIt);
  }
}

while (left.size > 0) {
  await work().catch(async (error) => {
    if (error.code !== "lease_lost" && error.code !== "in_progress") throw error;
    fences += 1;
    await pause(Math.random() * 3 * PAUSE_MS * fences);
  });
}
writeSync(1, `${JSON.stringify({ fences })}\n`);
process.exit(0);
