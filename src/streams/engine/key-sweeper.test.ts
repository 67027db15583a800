// Idle streams forget their keys in time, a few at once. PROTOCOL.md §16.1
import { describe, expect, test } from "vitest";
import type { Change } from "../core/change.ts";
import { KEY_DEFAULTS } from "../core/keys.ts";
import type { Offset, StreamName, TimeMs } from "../core/types.ts";
import { openMemoryStore } from "../stores/memory.ts";
import type { Store } from "../store.ts";
import { appendCommand, createCommand, keyClaim } from "../../testing/commands.ts";
import { openFaultyStore } from "../../../test/kits/faulty-store.ts";
import { openGatedStore } from "../../../test/kits/gated-store.ts";
import { createVirtualClock, type VirtualClock } from "../../testing/virtual-clock.ts";
import { turn } from "../../../test/kits/watch.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";
import { KeySweeper } from "./key-sweeper.ts";

const A = "/a" as StreamName;
const KEYS = {
  windowSeconds: 10,
  countMax: undefined,
  overflow: undefined,
  isFromContent: false,
} as const;

function openEngine(store: Store): { engine: Engine; clock: VirtualClock } {
  const clock = createVirtualClock(1_000_000);
  return { engine: new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined }), clock };
}

async function addKeys(engine: Engine, count: number): Promise<void> {
  const keys = Array.from({ length: count }, (_, index) => keyClaim(`k${index}`, "x"));
  await Promise.all(keys.map((key) => engine.append(A, appendCommand("x", { key }))));
}

function windowOf(engine: Engine): readonly [first: number, next: number, bytes: number] {
  const window = engine.world.streams.get(A)?.keys?.window;
  if (window === undefined) throw new Error("there is no window");
  return [window.first, window.next, window.memoryBytes];
}

/** Sizes of the evictions that were committed, in order. */
function watchEvictions(inner: Store): { store: Store; steps: number[] } {
  const steps: number[] = [];
  let evicted = 0;
  const store: Store = {
    ...inner,
    commit(changes: readonly Change[]) {
      for (const change of changes) {
        if (change.kind !== "keys_evicted") continue;
        steps.push(change.evictTo - evicted);
        evicted = change.evictTo;
      }
      return inner.commit(changes);
    },
  };
  return { store, steps };
}

describe("an idle stream", () => {
  test("gives back the memory of its keys soon after their time", async () => {
    const { engine, clock } = openEngine(openMemoryStore());
    await engine.create(createCommand(A, { keys: KEYS }));
    await addKeys(engine, 500);
    expect(engine.keyedStreams.size).toBe(1);
    clock.advance(9_999);
    expect(windowOf(engine).slice(0, 2)).toEqual([0, 500]);
    clock.advance(1_001);
    expect(windowOf(engine)).toEqual([500, 500, 0]);
    expect(engine.keyedStreams.size).toBe(0);
    expect(engine.meter.keysExpired).toBe(500);
    await engine.settled();
    // It is looked after again as soon as it has a key.
    await addKeys(engine, 1);
    expect(engine.keyedStreams.size).toBe(1);
    clock.advance(11_000);
    expect(windowOf(engine)).toEqual([501, 501, 0]);
    await engine.close();
  });

  test("forgets many keys in steps of 2,000", async () => {
    const { store, steps } = watchEvictions(openMemoryStore());
    const { engine, clock } = openEngine(store);
    await engine.create(createCommand(A, { keys: KEYS }));
    await addKeys(engine, 7000);
    clock.advance(10_000);
    await engine.settled();
    expect(steps).toEqual([2000]);
    clock.advance(10);
    await engine.settled();
    expect(steps).toEqual([2000, 2000, 2000, 1000]);
    await engine.close();
  });

  test("keys that came later stay until their own time", async () => {
    const { engine, clock } = openEngine(openMemoryStore());
    await engine.create(createCommand(A, { keys: KEYS }));
    await engine.append(A, appendCommand("x", { key: keyClaim("early", "x") }));
    clock.advance(6_000);
    await engine.append(A, appendCommand("x", { key: keyClaim("late", "x") }));
    clock.advance(5_000);
    expect(windowOf(engine).slice(0, 2)).toEqual([1, 2]);
    clock.advance(6_000);
    expect(windowOf(engine)).toEqual([2, 2, 0]);
    await engine.close();
  });

  test("is looked after again when a store with keys is opened", async () => {
    const store = openMemoryStore();
    const before = openEngine(store);
    await before.engine.create(createCommand(A, { keys: KEYS }));
    await addKeys(before.engine, 3);
    // A second engine over the same store stands for a restart: it knows only what the store knows.
    const after = openEngine(store);
    expect(after.engine.keyedStreams.size).toBe(1);
    after.clock.advance(11_000);
    expect(windowOf(after.engine)).toEqual([3, 3, 0]);
    await after.engine.close();
  });

  test("KD2 keeps a key while its own append is not durable, however late it is", async () => {
    const store = openGatedStore(openMemoryStore());
    const { engine, clock } = openEngine(store);
    const created = engine.create(createCommand(A, { keys: KEYS }));
    await store.arrival();
    await store.release();
    await created;
    const added = addKeys(engine, 2);
    await store.arrival();
    clock.advance(60_000);
    expect(windowOf(engine).slice(0, 2)).toEqual([0, 2]);
    await store.release();
    await added;
    clock.advance(1_000);
    expect(windowOf(engine)).toEqual([2, 2, 0]);
    store.open();
    await engine.close();
  });
});

describe("nothing is swept", () => {
  test("after the engine was closed", async () => {
    const { engine, clock } = openEngine(openMemoryStore());
    await engine.create(createCommand(A, { keys: KEYS }));
    await addKeys(engine, 3);
    await engine.close();
    clock.advance(3_600_000);
    expect(windowOf(engine).slice(0, 2)).toEqual([0, 3]);
    expect(clock.pending).toBe(0);
  });

  test("after writes have stopped, and no timer goes round for it", async () => {
    const store = openFaultyStore(openMemoryStore());
    const { engine, clock } = openEngine(store);
    await engine.create(createCommand(A, { keys: KEYS }));
    await addKeys(engine, 5000);
    store.failNextCommit();
    await expect(engine.append(A, appendCommand("lost"))).rejects.toMatchObject({
      code: "writes_stopped",
    });
    clock.advance(60_000);
    expect(windowOf(engine).slice(0, 2)).toEqual([0, 5000]);
    expect(clock.pending).toBe(0);
    await engine.close();
  });

  test("when it is stopped while keys are left, or when its stream has gone", async () => {
    const store = openMemoryStore();
    const { engine } = openEngine(store);
    await engine.create(createCommand(A, { keys: KEYS }));
    await addKeys(engine, 3);
    const state = engine.world.streams.get(A);
    if (state === undefined) throw new Error("there is no stream");
    let isThere = true;
    const submitted: unknown[] = [];
    const clock = createVirtualClock(1_000_000);
    const sweeper = new KeySweeper({
      clock,
      nowMs: () => clock.nowMs() as TimeMs,
      defaults: KEY_DEFAULTS,
      find: () => (isThere ? state : undefined),
      durableTail: () => Infinity as Offset,
      submit: (change) => {
        submitted.push(change);
        return "written";
      },
    });
    sweeper.watch(state);
    expect([...sweeper.watched]).toEqual([state.id]);
    isThere = false;
    clock.advance(11_000);
    await turn();
    expect(submitted).toEqual([]);
    expect(sweeper.watched.size).toBe(0);
    isThere = true;
    sweeper.watch(state);
    sweeper.stop();
    clock.advance(60_000);
    expect(submitted).toEqual([]);
    await engine.close();
  });
});
