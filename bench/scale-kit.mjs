/** What the steps of bench/scale.mjs share: a directory, an engine on it, and what they measure. */

import { systemClock } from "../dist/base/clock.js";
import { Engine } from "../dist/streams/engine/engine.js";
import { openFileStore } from "../dist/streams/stores/file.js";
import { jsonRecordEnd } from "../dist/protocol/json.js";

const [, , , directory = "", share = "1"] = process.argv;
export const SHARE = Number(share);
export const MILLION = Math.round(1_000_000 * SHARE);
const BATCH = 512;
const TYPE = "application/octet-stream";
const NEVER = { kind: "never" };
export const RECORD = Buffer.alloc(100, "x");

export async function openEngine(options) {
  const start = performance.now();
  const store = await openFileStore(directory, { durability: "os", ...options });
  const engine = new Engine({ store, clock: systemClock, jsonRecordsEnd: jsonRecordEnd });
  return { store, engine, restartSeconds: (performance.now() - start) / 1000 };
}

export function rssMB() {
  return process.memoryUsage().rss / 1_000_000;
}

export function nameOf(number) {
  return `/v1/stream/tenant-${number % 1000}/order-${number}`;
}

/** `keys`: what the stream says of its window, if anything. */
export function createCommand(name, data, keys) {
  const rest = { isClosed: false, isNew: false, fork: undefined };
  return { name, contentType: TYPE, expiry: NEVER, ...rest, keys, data };
}

export function appendCommand(data, producer, key) {
  const rest = { closes: false, streamSeq: undefined, expectedTail: undefined };
  return { data, contentType: TYPE, ...rest, producer, key };
}

/** Runs `count` commands, as many at once as a busy server has running requests. */
export async function inBatches(count, run) {
  for (let from = 0; from < count; from += BATCH) {
    const waiting = [];
    for (let number = from; number < Math.min(count, from + BATCH); number += 1) {
      waiting.push(run(number));
    }
    await Promise.all(waiting);
  }
}

/** The longest time between two turns of the event loop while a snapshot is written and appends go on. */
async function pauseDuring(engine, name, run) {
  let pauseMs = 0;
  let last = performance.now();
  let isOver = false;
  let appended = Promise.resolve();
  const turn = () => {
    const now = performance.now();
    pauseMs = Math.max(pauseMs, now - last);
    last = now;
    if (!isOver) setImmediate(turn);
  };
  const appendOn = async () => {
    while (!isOver) {
      await engine.append(name, appendCommand(RECORD, undefined));
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  setImmediate(turn);
  appended = appendOn();
  const start = performance.now();
  await run();
  const seconds = (performance.now() - start) / 1000;
  isOver = true;
  await appended;
  return { pauseMs, seconds };
}

/** A noisy machine stops processes as well: the best of three snapshots is what ours cost. */
export async function measureSnapshots(store, engine, name) {
  const runs = [];
  for (let run = 0; run < 3; run += 1) {
    await engine.append(name, appendCommand(RECORD, undefined));
    runs.push(await pauseDuring(engine, name, () => store.maintain()));
  }
  const pauseMs = Math.min(...runs.map((run) => run.pauseMs));
  const worstPauseMs = Math.max(...runs.map((run) => run.pauseMs));
  return { pauseMs, worstPauseMs, snapshotSeconds: Math.min(...runs.map((run) => run.seconds)) };
}

/** Sends what was measured and ends as a kill does: nothing is closed, and no snapshot is written. */
export function leaveKilled(measured) {
  process.send(measured, () => process.kill(process.pid, "SIGKILL"));
  return new Promise(() => undefined);
}
