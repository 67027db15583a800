/** One seed of the power cut test: several lives of one store on a disk that fails it. */

import type { Engine } from "../../src/streams/engine/engine.ts";
import { WholeEngine } from "../../src/streams/engine/whole-engine.ts";
import { createSeededRandom, type SeededRandom } from "../../src/testing/seeded-random.ts";
import { createSimulatedDisk, type SimulatedDisk } from "../kits/simulated-disk.ts";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";
import { isHapaxError } from "../../src/base/errors.ts";
import {
  type FileStore,
  type FileStoreOptions,
  openOnDisk,
} from "../../src/streams/stores/file/file-store.ts";
import { History } from "./history.ts";
import { Workload } from "./workload.ts";

export interface PowerCutReport {
  readonly commits: number;
  readonly cuts: number;
  readonly kills: number;
  readonly faults: number;
  readonly snapshots: number;
  /** Every call of every disk, in order. */
  readonly trace: readonly string[];
}

/** The most calls before the power goes. Fewer than a recovery takes, at times. */
const CALLS_MAX = 400;

export async function runPowerCuts(seed: number): Promise<PowerCutReport> {
  const random = createSeededRandom(seed * 7919 + 1);
  const clock = createVirtualClock(1_700_000_000_000);
  const history = new History();
  const workload = new Workload(random, clock);
  const tally = { cuts: 0, kills: 0, faults: 0, snapshots: 0 };
  const trace: string[] = [];
  let disk = createSimulatedDisk(seed);
  const segmentBytes = 16_384 << random.below(3);
  const lives = 2 + random.below(4);
  for (let life = 0; life < lives; life += 1) {
    const hasFault = random.below(6) === 0;
    disk.stopAt(1 + random.below(CALLS_MAX));
    if (hasFault) disk.failAt(1 + random.below(CALLS_MAX), "EIO");
    tally.faults += hasFault ? 1 : 0;
    const opened = openOnDisk(
      disk,
      { ...optionsFor(random, segmentBytes), clock, random },
      async () => {},
    );
    const stopped = disk.stopped.then(() => undefined);
    const store = await Promise.race([opened, stopped]).catch(allowFault(hasFault));
    // After a failed sync the kernel may show what it has forgotten to write: only a power cut tells.
    const isLying = hasFault && store === undefined;
    if (store !== undefined) {
      await Promise.race([live(store, history, workload, 12), stopped]).catch(allowFault(hasFault));
      tally.snapshots += store.stats().snapshots;
    }
    const isKill = random.below(3) === 0 && !isLying;
    tally[isKill ? "kills" : "cuts"] += 1;
    trace.push(...disk.log.map(({ kind, what }) => `${kind} ${what}`));
    disk = isKill ? disk.kill() : disk.crash();
  }
  const store = await openOnDisk(
    disk,
    { ...optionsFor(random, segmentBytes), clock, random },
    async () => {},
  );
  const engine = await live(store, history, workload, 3);
  await store.maintain();
  await workload.finish(engine);
  await history.checkData(store);
  trace.push(...disk.log.map(({ kind, what }) => `${kind} ${what}`));
  await engine.close();
  await checkReopened(disk.crash(), history);
  return { ...tally, commits: history.commits, trace };
}

/** Recovers, checks and works until something stops it. */
async function live(
  store: FileStore,
  history: History,
  workload: Workload,
  steps: number,
): Promise<Engine> {
  await history.check(store);
  const engine = new WholeEngine({
    // The world has some, and this run does not deliver.
    createSubscriptions: () => undefined,
    store: history.watch(store),
    clock: workload.clock,
    jsonRecordsEnd: () => undefined,
  });
  await workload.checkSeen(engine);
  await workload.run(engine, steps);
  return engine;
}

async function checkReopened(disk: SimulatedDisk, history: History): Promise<void> {
  const store = await openOnDisk(disk, { segmentBytes: 32_768 }, async () => {});
  await history.check(store);
  await store.close();
}

/** Small, so that segments roll, are given up and are used again within a few commits. */
function optionsFor(random: SeededRandom, segmentBytes: number): FileStoreOptions {
  return {
    segmentBytes,
    cacheBytes: random.below(3) * 8192,
    snapshotBytes: 4096 + random.below(40_000),
  };
}

/** A planted fault stops the store, or the opening of it, and nothing else does. */
function allowFault(hasFault: boolean): (error: unknown) => undefined {
  return (error) => {
    const isPlanted =
      isHapaxError(error, "writes_stopped") || String(error).includes("EIO: simulated");
    if (!hasFault || !isPlanted) throw error;
    return undefined;
  };
}
