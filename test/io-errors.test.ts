// The disk refuses one call of a scripted run, each in turn: no false answer, and a restart puts it right.
import { expect, test } from "vitest";
import type { StreamName } from "../src/streams/core/types.ts";
import type { Engine } from "../src/streams/engine/engine.ts";
import { WholeEngine } from "../src/streams/engine/whole-engine.ts";
import { isHapaxError } from "../src/base/errors.ts";
import { LIMITS } from "../src/protocol/limits.ts";
import { type FileStore, openOnDisk } from "../src/streams/stores/file/file-store.ts";
import { STORE_BYTES } from "../src/streams/stores/file/store-file.ts";
import { appendCommand, createCommand, producerClaim } from "../src/testing/commands.ts";
import { createSeededRandom } from "../src/testing/seeded-random.ts";
import { createSimulatedDisk, type DiskFault, type SimulatedDisk } from "./kits/simulated-disk.ts";
import { createVirtualClock, type VirtualClock } from "../src/testing/virtual-clock.ts";
import { turn, watch } from "./kits/watch.ts";
import { History } from "./crash/history.ts";

const LIMIT_MS = 60_000;
const SETTINGS = { segmentBytes: 16_384, snapshotBytes: 12_000, cacheBytes: 4096 };
const KEPT = "/kept" as StreamName;

interface Run {
  readonly disk: SimulatedDisk;
  readonly history: History;
  readonly clock: VirtualClock;
  /** What the first refused call was told. */
  readonly refusal: unknown;
}

/** Creates, appends, rolls, snapshots, compacts, forks, closes and deletes. Stops at the first refusal. */
async function runScript(engine: Engine, rounds: number): Promise<void> {
  await engine.create(createCommand(KEPT));
  for (let round = 0; round < rounds; round += 1) {
    const passing = `/passing/${round}` as StreamName;
    await engine.create(createCommand(passing, { text: "x".repeat(5000) }));
    const producer = producerClaim("p", 0, round);
    await engine.append(KEPT, appendCommand(`record ${round};`.padEnd(700, "."), { producer }));
    const fork = { sourceName: KEPT, anchor: undefined, subOffset: 0 };
    await engine.create(createCommand(`/fork/${round}`, { fork, text: "own" }));
    await engine.append(passing, appendCommand("last", { closes: true }));
    await engine.delete(passing);
  }
}

/** Lets time go by until the work is done: a full disk is looked at again after a while. */
async function withTime<T>(clock: VirtualClock, work: Promise<T>): Promise<T> {
  let isDone = false;
  const watched = work.finally(() => {
    isDone = true;
  });
  watched.catch(() => undefined);
  while (!isDone) {
    await turn();
    clock.advance(1000);
  }
  return watched;
}

/** A store that has been used before, as a killed process left it. */
async function writeFirst(history: History, clock: VirtualClock): Promise<SimulatedDisk> {
  const disk = createSimulatedDisk(9);
  const random = createSeededRandom(8);
  const store = await openOnDisk(disk, { ...SETTINGS, clock, random }, async () => {});
  await runScript(engineOver(store, history, clock), 2);
  await store.maintain();
  return disk.kill();
}

function engineOver(store: FileStore, history: History, clock: VirtualClock): Engine {
  return new WholeEngine({ store: history.watch(store), clock, jsonRecordsEnd: () => undefined });
}

async function runWithFault(call: number, fault: DiskFault): Promise<Run> {
  const clock = createVirtualClock(1_700_000_000_000);
  const random = createSeededRandom(9);
  const history = new History();
  const disk = await writeFirst(history, clock);
  disk.failAt(call, fault);
  let refusal: unknown;
  try {
    const opening = openOnDisk(disk, { ...SETTINGS, clock, random }, async () => {});
    const store = await withTime(clock, opening);
    await history.check(store);
    const engine = engineOver(store, history, clock);
    try {
      await withTime(clock, runScript(engine, 5));
      await withTime(clock, store.maintain());
    } catch (error) {
      refusal = error;
      expect(isHapaxError(error, "writes_stopped"), String(error)).toBe(true);
      // Stopped for good, and what was answered can still be read.
      expect(engine.stopped).toBeDefined();
      await expect(store.commit([])).rejects.toMatchObject({ code: "writes_stopped" });
      await history.checkData(store);
    }
    await withTime(clock, engine.close());
  } catch (error) {
    if (refusal === undefined && !String(error).includes("simulated")) throw error;
    refusal ??= error;
  }
  return { disk, history, clock, refusal };
}

/** After a restart everything that was answered is there, and the script runs to its end. */
async function checkRestart({ history, clock }: Run, disk: SimulatedDisk): Promise<void> {
  const store = await openOnDisk(disk, { ...SETTINGS, clock }, async () => {});
  await history.check(store);
  const engine = engineOver(store, history, clock);
  await withTime(clock, runScript(engine, 6));
  await history.checkData(store);
  const look = await engine.look(KEPT);
  expect(look).toMatchObject({ kind: "found", tail: 6 * 700 });
  await engine.close();
}

/** A file whose sync failed is not synced or written again: its next sync would lie. */
function checkNoRetry(disk: SimulatedDisk, call: number, fault: DiskFault): void {
  const failed = disk.log[call - 1];
  // On this disk a sync needs no room: only EIO makes it fail.
  const canFail = failed?.kind === "write" || (failed?.kind === "sync" && fault === "EIO");
  if (failed === undefined || !canFail) return;
  const [name] = failed.what.split(" ");
  const later = disk.log.slice(call).filter(({ kind, what }) => {
    return (kind === "sync" || kind === "write") && what.split(" ")[0] === name;
  });
  expect(later, `after call ${call}, ${failed.kind} ${failed.what}`).toEqual([]);
}

for (const fault of ["EIO", "ENOSPC", "short"] as const) {
  test(
    `${fault} at every call of a run loses nothing that was answered`,
    async () => {
      const { disk: whole, refusal } = await runWithFault(Infinity, fault);
      expect(refusal).toBeUndefined();
      const kinds = new Set(whole.log.map(({ kind }) => kind));
      expect(kinds.size).toBe(10);
      let refused = 0;
      for (let call = 1; call <= whole.log.length; call += 1) {
        const run = await runWithFault(call, fault);
        if (run.refusal !== undefined) refused += 1;
        checkNoRetry(run.disk, call, fault);
        await checkRestart(run, call % 2 === 0 ? run.disk.crash() : run.disk.kill());
      }
      expect(refused).toBeGreaterThan(0);
    },
    LIMIT_MS,
  );
}

test("a full disk answers store_full, tears nothing, and goes on by itself when there is room", async () => {
  const disk = createSimulatedDisk(4);
  const clock = createVirtualClock(1_700_000_000_000);
  const history = new History();
  const store = await openOnDisk(disk, { ...SETTINGS, clock }, async () => {});
  const engine = engineOver(store, history, clock);
  await engine.create(createCommand(KEPT));
  disk.setCapacity(3 * 16_384 + STORE_BYTES + 100);
  let accepted = 0;
  let refusal: unknown;
  while (refusal === undefined) {
    const appending = (async () => engine.append(KEPT, appendCommand("y".repeat(900))))();
    await withTime(clock, appending).then(
      () => (accepted += 1),
      (error: unknown) => (refusal = error),
    );
  }
  expect(refusal).toMatchObject({ code: "store_full", status: 507 });
  expect(accepted).toBeGreaterThan(20);
  expect(engine.stopped).toBeUndefined();
  await history.checkData(store);
  disk.setCapacity(Infinity);
  await turn();
  clock.advance(1000);
  await turn();
  for (let more = 0; more < 40; more += 1) {
    await withTime(clock, engine.append(KEPT, appendCommand("z".repeat(900))));
  }
  await history.checkData(store);
  await engine.close();
  const reopened = await openOnDisk(disk.crash(), { ...SETTINGS, clock }, async () => {});
  await history.check(reopened);
  expect(reopened.world.streams.get(KEPT)?.tail).toBe((accepted + 40) * 900);
  await reopened.close();
});

test("a store that finds no room for its first segment says so instead of waiting", async () => {
  const disk = createSimulatedDisk(4);
  disk.setCapacity(1000);
  await expect(openOnDisk(disk, SETTINGS, async () => {})).rejects.toMatchObject({
    code: "ENOSPC",
  });
});

test("W2 W3 an engine that is closed on a full disk ends, and appends that were not written fail", async () => {
  const clock = createVirtualClock(1_700_000_000_000);
  const disk = createSimulatedDisk(4);
  const store = await openOnDisk(disk, { ...SETTINGS, clock }, async () => {});
  const engine = new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined });
  await engine.create(createCommand(KEPT));
  await turn();
  // Admitted before anybody knows that the disk is full: two segments are there, a third is not.
  disk.setCapacity(0);
  const appends = Array.from({ length: 6 }, (_, at) =>
    watch(engine.append(KEPT, appendCommand(String(at).repeat(9000)))),
  );
  const later = watch(engine.append(KEPT, appendCommand("later")));
  for (let count = 0; count < 50; count += 1) await turn();
  expect([...appends, later].some(({ isWaiting }) => isWaiting)).toBe(true);
  const closing = watch(engine.close());
  for (let count = 0; count < 50; count += 1) await turn();
  // As long as it may still get on, it is waited for.
  expect(closing.isWaiting).toBe(true);
  clock.advance(LIMITS.closeStallMs);
  for (let count = 0; count < 50; count += 1) await turn();
  expect(closing).toMatchObject({ isWaiting: false, error: undefined });
  const answers = [...appends, later];
  expect(answers.some(({ isWaiting }) => isWaiting)).toBe(false);
  const refused = answers.filter(({ error }) => error !== undefined);
  expect(refused.length).toBeGreaterThan(0);
  for (const { error } of refused) expect(isHapaxError(error, "writes_stopped")).toBe(true);
  const after = disk.kill();
  after.setCapacity(Infinity);
  const again = await openOnDisk(after, { ...SETTINGS, clock }, async () => {});
  const [stream] = again.world.byId.values();
  const acked = appends.filter(({ value }) => value?.kind === "accepted").length * 9000;
  expect(stream?.tail).toBe(acked + (later.value?.kind === "accepted" ? 5 : 0));
  await again.close();
});
