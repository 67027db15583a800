// A full disk, and deletes that make room on it again.
import { expect, test } from "vitest";
import type { StreamState } from "../../core/stream.ts";
import type { StreamName } from "../../core/types.ts";
import type { SubscriptionSettings } from "../../core/subscription-state.ts";
import type { Engine } from "../../engine/engine.ts";
import { WholeEngine } from "../../engine/whole-engine.ts";
import { type SubscriptionOutside, Subscriptions } from "../../engine/subscriptions.ts";
import { isHapaxError } from "../../../base/errors.ts";
import { appendCommand, createCommand, keyClaim } from "../../../testing/commands.ts";
import { createSimulatedDisk, type SimulatedDisk } from "../../../../test/kits/simulated-disk.ts";
import { createVirtualClock, type VirtualClock } from "../../../testing/virtual-clock.ts";
import { turn, watch } from "../../../../test/kits/watch.ts";
import { subscriptionFormat } from "../../../protocol/subscription.ts";
import { type FileStore, openOnDisk } from "./file-store.ts";
import { STORE_BYTES } from "./store-file.ts";

const SEGMENT_BYTES = 64 * 1024;
const nameOf = (number: number): StreamName => `/s/${number}` as StreamName;

interface Stage {
  readonly disk: SimulatedDisk;
  readonly clock: VirtualClock;
  readonly store: FileStore;
  readonly engine: Engine;
}

/** So many segments fit, and a few snapshots. */
async function openStage(
  segments: number,
  snapshotBytes = 8000,
  courier = NO_COURIER,
): Promise<Stage> {
  const disk = createSimulatedDisk(3);
  const stage = await openAt(disk, createVirtualClock(1_700_000_000_000), courier);
  disk.setCapacity(segments * SEGMENT_BYTES + STORE_BYTES + snapshotBytes);
  return stage;
}

const NO_COURIER: SubscriptionOutside["courier"] = {
  deliver: () => Promise.resolve({ kind: "refused", reason: "no webhooks here" }),
};

async function openAt(
  disk: SimulatedDisk,
  clock: VirtualClock,
  courier = NO_COURIER,
): Promise<Stage> {
  const store = await openOnDisk(
    disk,
    { segmentBytes: SEGMENT_BYTES, snapshotBytes: 2 * SEGMENT_BYTES, cacheBytes: 0, clock },
    async () => {},
  );
  const publicBaseUrl = (): string => "https://hapax.example";
  const engine = new WholeEngine({
    store,
    clock,
    jsonRecordsEnd: () => undefined,
    createSubscriptions: (parts) =>
      new Subscriptions({ ...parts, courier, format: subscriptionFormat, publicBaseUrl }),
  });
  return { disk, clock, store, engine };
}

/** Lets so much time go by, or less if the work is done. */
async function within<T>(clock: VirtualClock, seconds: number, work: Promise<T>): Promise<T> {
  const watched = watch(work);
  for (let second = 0; second < seconds && watched.isWaiting; second += 1) {
    for (let turns = 0; turns < 5; turns += 1) await turn();
    clock.advance(1000);
  }
  if (watched.isWaiting) throw new Error(`nothing came of it in ${seconds} seconds`);
  return work;
}

/** Writes streams of one record each, small and large ones, until the disk is full. */
async function fill({ clock, engine }: Stage, from: number): Promise<number> {
  for (let number = from; ; number += 1) {
    const text = "x".repeat(number % 5 === 0 ? 200 : 6000);
    try {
      await within(clock, 60, engine.create(createCommand(nameOf(number), { text })));
    } catch (error) {
      if (!isHapaxError(error, "store_full")) throw error;
      return number;
    }
  }
}

test("G33 on a full disk deletes are taken and make room, and appends go on without a restart", async () => {
  const stage = await openStage(6, 40_000);
  const { clock, engine } = stage;
  let next = 0;
  for (let round = 0; round < 6; round += 1) {
    const from = next;
    next = await fill(stage, from);
    expect(next - from, `round ${round}`).toBeGreaterThan(20);
    expect(stage.store.stats().isFull).toBe(true);
    // Nine of ten go. The rest keeps a little of every segment alive.
    for (let number = from; number < next; number += 1) {
      if (number % 10 === 0) continue;
      const deleted = await within(clock, 60, engine.delete(nameOf(number)));
      expect(deleted).toMatchObject({ kind: "deleted" });
    }
    for (let seconds = 0; stage.store.stats().isFull && seconds < 120; seconds += 1) {
      for (let turns = 0; turns < 20; turns += 1) await turn();
      clock.advance(1000);
    }
    expect(stage.store.stats().isFull, `round ${round}`).toBe(false);
  }
  for (let number = 0; number < next; number += 10) {
    expect(await engine.look(nameOf(number))).toMatchObject({ kind: "found" });
  }
  await within(clock, 60, engine.close());
});

test("G33 what was deleted before a restart makes room after it, without another request", async () => {
  const before = await openStage(6, 40_000);
  const { clock, disk } = before;
  const next = await fill(before, 0);
  for (let number = 0; number < next; number += 1) await before.engine.delete(nameOf(number));
  await within(clock, 60, before.engine.close());
  const stage = await openAt(disk, clock);
  for (let seconds = 0; seconds < 30; seconds += 1) {
    for (let turns = 0; turns < 20; turns += 1) await turn();
    clock.advance(1000);
  }
  expect(stage.store.stats().isFull).toBe(false);
  expect((await fill(stage, next)) - next).toBeGreaterThan(20);
  await within(clock, 60, stage.engine.close());
});

test("G33 on a full disk reads and forgotten keys leave the room alone that deletes need", async () => {
  const stage = await openStage(6, 40_000);
  const { clock, engine, store } = stage;
  const ttl = "/ttl" as StreamName;
  const keyed = "/keyed" as StreamName;
  await engine.create(createCommand(ttl, { text: "x", expiry: { kind: "ttl", seconds: 3200 } }));
  await engine.create(createCommand(keyed));
  for (let number = 0; number < 200; number += 1) {
    const key = keyClaim(`${number}`, "x");
    void engine.append(keyed, appendCommand("x", { key }));
    await turn();
    clock.advance(1500);
  }
  const next = await fill(stage, 0);
  // More than a day: every key is older than its window then, and the stream is read every minute.
  for (let minute = 0; minute < 1600; minute += 1) {
    for (let part = 0; part < 40; part += 1) clock.advance(1525);
    engine.touch(stateOf(engine, ttl));
    await turn();
  }
  for (let turns = 0; turns < 50; turns += 1) await turn();
  for (let number = 0; number < next; number += 1) {
    const deleted = await within(clock, 60, engine.delete(nameOf(number)));
    expect(deleted).toMatchObject({ kind: "deleted" });
  }
  for (let seconds = 0; store.stats().isFull && seconds < 60; seconds += 1) {
    for (let turns = 0; turns < 20; turns += 1) await turn();
    clock.advance(1000);
  }
  expect(store.stats().isFull).toBe(false);
  expect(await engine.look(ttl)).toMatchObject({ kind: "found" });
  await within(clock, 60, engine.close());
});

test("G33 on a full disk subscriptions leave the room alone that deletes need, and lose no wake-up", async () => {
  let deliveries = 0;
  const stage = await openStage(6, 40_000, {
    deliver: () => {
      deliveries += 1;
      return Promise.resolve({ kind: "failed", reason: "the receiver is away" });
    },
  });
  const { clock, engine, store } = stage;
  const { subscriptions } = engine;
  await subscriptions.start();
  const orders = "/v1/stream/orders" as StreamName;
  const wakeStream = "/v1/stream/wakes" as StreamName;
  const contentType = "application/json";
  await engine.create(createCommand(orders, { contentType }));
  await engine.create(createCommand(wakeStream, { contentType }));
  const pull: SubscriptionSettings = {
    way: { kind: "pull_wake", wakeStream },
    pattern: undefined,
    streams: [orders],
    leaseMs: 1000,
    description: undefined,
  };
  await subscriptions.subscribe("pull", pull);
  const way = { kind: "webhook", url: "https://receiver.example/hook" } as const;
  // Long enough for the signature of a delivery, while the clock is moved.
  await subscriptions.subscribe("hook", { ...pull, way, leaseMs: 60_000 });
  await engine.append(orders, appendCommand("1,", { contentType }));
  const next = await fill(stage, 0);
  let deliveriesBefore = 0;
  for (let round = 0; round < 400; round += 1) {
    // By now the claims have used up the room that is not kept for deletes.
    if (round === 200) deliveriesBefore = deliveries;
    const claim = watch(subscriptions.claim("pull", "worker").catch(() => undefined));
    for (let turns = 0; claim.isWaiting && turns < 50; turns += 1) await turn();
    clock.advance(1100);
    await turn();
  }
  expect(deliveries - deliveriesBefore).toBeLessThan(2);
  for (let number = 0; number < next; number += 1) {
    const deleted = await within(clock, 60, engine.delete(nameOf(number)));
    expect(deleted).toMatchObject({ kind: "deleted" });
  }
  for (let seconds = 0; store.stats().isFull && seconds < 60; seconds += 1) {
    for (let turns = 0; turns < 20; turns += 1) await turn();
    clock.advance(1000);
  }
  expect(store.stats().isFull).toBe(false);
  expect(await subscriptions.claim("pull", "worker")).toMatchObject({ kind: "claimed" });
  const deliveriesFull = deliveries;
  for (let seconds = 0; deliveries === deliveriesFull && seconds < 400; seconds += 1) {
    for (let turns = 0; turns < 20; turns += 1) await turn();
    clock.advance(1000);
  }
  expect(deliveries).toBeGreaterThan(deliveriesFull);
  subscriptions.stop();
  await within(clock, 60, engine.close());
});

function stateOf(engine: Engine, name: StreamName): StreamState {
  const state = engine.world.streams.get(name);
  if (state === undefined) throw new Error(`the stream is missing: ${name}`);
  return state;
}

test("while a commit waits for room none is promised, and not even a delete is taken", async () => {
  const stage = await openStage(3);
  const { disk, clock, engine } = stage;
  await engine.create(createCommand(nameOf(0), { text: "small" }));
  await turn();
  // Two segments are there. The store does not know yet that there is no room for a third.
  disk.setCapacity(0);
  const large = Array.from({ length: 4 }, (_, at) =>
    watch(engine.create(createCommand(nameOf(1 + at), { text: "x".repeat(40_000) }))),
  );
  for (let turns = 0; turns < 50; turns += 1) await turn();
  expect(large.some(({ isWaiting }) => isWaiting)).toBe(true);
  expect(engine.isFull).toBe(true);
  await expect(async () => engine.delete(nameOf(0))).rejects.toMatchObject({ code: "store_full" });
  disk.setCapacity(Infinity);
  for (const one of large) if (one.isWaiting) await within(clock, 10, untilDone(one));
  expect(engine.isFull).toBe(false);
  expect(await within(clock, 10, engine.delete(nameOf(0)))).toMatchObject({ kind: "deleted" });
  await within(clock, 60, engine.close());
});

async function untilDone(watched: { readonly isWaiting: boolean }): Promise<void> {
  while (watched.isWaiting) await turn();
}

test("compaction that has no room keeps neither deletes nor appends waiting", async () => {
  const stage = await openStage(6, 40_000);
  const { clock, engine } = stage;
  const next = await fill(stage, 0);
  const gone = (number: number): boolean => number % 5 > 1 || number % 5 === 0;
  // A third of every segment stays alive: much more than there is room to move.
  for (let number = 0; number < next; number += 1) {
    if (gone(number)) await within(clock, 60, engine.delete(nameOf(number)));
  }
  for (let seconds = 0; seconds < 20; seconds += 1) {
    for (let turns = 0; turns < 20; turns += 1) await turn();
    clock.advance(1000);
  }
  for (let number = 0; number < next; number += 1) {
    if (!gone(number)) await within(clock, 60, engine.delete(nameOf(number)));
  }
  for (let seconds = 0; stage.store.stats().isFull && seconds < 120; seconds += 1) {
    for (let turns = 0; turns < 20; turns += 1) await turn();
    clock.advance(1000);
  }
  expect((await fill(stage, next)) - next).toBeGreaterThan(20);
  await within(clock, 60, engine.close());
});

test("a snapshot that finds no room gets that of a spare", async () => {
  const stage = await openStage(4);
  const { disk, clock, engine, store } = stage;
  const next = await fill(stage, 0);
  for (let number = 0; number < next; number += 1) {
    if (number % 10 !== 0) await within(clock, 60, engine.delete(nameOf(number)));
  }
  let bytes = 0;
  for (const name of await disk.list()) bytes += await sizeOf(disk, name);
  disk.setCapacity(bytes); // Not one byte more than the files have.
  await within(clock, 120, store.maintain());
  expect(store.stats().segments).toBeLessThan(4);
  await within(clock, 60, engine.close());
});

async function sizeOf(disk: SimulatedDisk, name: string): Promise<number> {
  const file = await disk.open(name, "read").catch(() => undefined);
  if (file === undefined) return 0; // It was just removed.
  const bytes = await file.size();
  await file.close();
  return bytes;
}
