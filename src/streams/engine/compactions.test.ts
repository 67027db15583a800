// Changelogs over an engine: the state that is read is the state that was written, at every moment. PROTOCOL.md §26
import { afterEach, describe, expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import { decodeText, joinBytes } from "../../base/bytes.ts";
import { createSimulatedDisk, type SimulatedDisk } from "../../../test/kits/simulated-disk.ts";
import { recordKey } from "../../protocol/compaction.ts";
import { jsonRecordEnd, jsonRecordEndAfter } from "../../protocol/json.ts";
import { appendCommand, createCommand } from "../../testing/commands.ts";
import { createSeededRandom } from "../../testing/seeded-random.ts";
import { createVirtualClock, type VirtualClock } from "../../testing/virtual-clock.ts";
import { turn } from "../../../test/kits/watch.ts";
import type { CompactionRule } from "../core/compaction.ts";
import type { GroupSettings } from "../core/group-state.ts";
import type { Offset, StreamName } from "../core/types.ts";
import { openOnDisk } from "../stores/file/file-store.ts";
import { openMemoryStore } from "../stores/memory.ts";
import type { Store } from "../store.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";

const A = "/a" as StreamName;
const JSON_TYPE = { contentType: "application/json" };
const RULE: CompactionRule = { key: "id", tombstone: "value", lagSeconds: 0 };

const opened: Engine[] = [];
afterEach(async () => {
  for (const engine of opened.splice(0)) await engine.close();
});

interface Options {
  readonly store?: Store;
  readonly keysMax?: number;
  readonly bytesMin?: number;
}

function open({ store = openMemoryStore(), keysMax = 1000, bytesMin = 2000 }: Options = {}) {
  const clock = createVirtualClock(1_000_000);
  return { ...openWith(store, clock, keysMax, bytesMin), clock };
}

function openWith(
  store: Store,
  clock: typeof systemClock | VirtualClock,
  keysMax: number,
  bytesMin: number,
) {
  const faults: unknown[] = [];
  const engine = new WholeEngine({
    store,
    clock,
    jsonRecordsEnd: jsonRecordEnd,
    records: { endAfter: jsonRecordEndAfter, keyOf: recordKey },
    compaction: { keysMax, bytesMin },
    onFault: (error) => faults.push(error),
  });
  opened.push(engine);
  return { engine, faults };
}

const create = (engine: Engine, compaction: CompactionRule | "none" = RULE) =>
  engine.create(
    createCommand(A, { ...JSON_TYPE, ...(compaction === "none" ? {} : { compaction }) }),
  );

const write = (engine: Engine, ...records: readonly object[]) =>
  engine.append(
    A,
    appendCommand(records.map((record) => `${JSON.stringify(record)},`).join(""), JSON_TYPE),
  );

/** Lets a pass work until nothing more happens. */
async function settle(clock: VirtualClock): Promise<void> {
  for (let round = 0; round < 400; round += 1) {
    clock.advance(2);
    await turn();
  }
}

interface Kept {
  readonly id?: string;
  readonly value?: unknown;
}

async function recordsOf(engine: Engine, from?: number): Promise<readonly Kept[]> {
  const look = await engine.look(A);
  if (look.kind !== "found") throw new Error(look.kind);
  const parts: Uint8Array[] = [];
  for (let at = (from ?? look.earliest) as Offset; at < look.tail;) {
    const page = await engine.read(look.state, at, 100_000);
    parts.push(...page.appends.map((append) => new Uint8Array(append)));
    at = page.next;
    page.release();
  }
  return JSON.parse(`[${decodeText(joinBytes(parts)).slice(0, -1)}]`) as readonly Kept[];
}

const folded = (records: readonly Kept[], onto = new Map<string, unknown>()) => {
  for (const { id, value } of records) {
    if (id === undefined) continue;
    if (value === undefined) onto.delete(id);
    else onto.set(id, value);
  }
  return onto;
};

const sizeOf = async (engine: Engine): Promise<number> => {
  const look = await engine.look(A);
  return look.kind === "found" ? look.tail - look.earliest : -1;
};

const value = (n: number) => ({ n, text: "v".repeat(20) });

describe("a changelog", () => {
  test("G147 keeps the newest record of each key, and what has no key, and its size is bounded", async () => {
    const { engine, clock, faults } = open();
    await create(engine);
    await write(engine, { other: 1 });
    for (let n = 0; n < 1000; n += 1) await write(engine, { id: `k${n % 20}`, value: value(n) });
    await write(engine, { id: "k3" });
    await settle(clock);
    for (let n = 0; n < 60; n += 1) await write(engine, { id: `k${n % 3}`, value: value(n) });
    await settle(clock);
    const records = await recordsOf(engine);
    expect(records.filter(({ id }) => id === undefined)).toEqual([{ other: 1 }]);
    const state = folded(records);
    expect(state.size).toBe(19);
    expect(state.get("k1")).toEqual(value(58));
    expect(state.get("k7")).toEqual(value(987));
    expect(await sizeOf(engine)).toBeLessThan(4000);
    const { passes, droppedBytes, records: dropped, lastAtMs } = engine.meter.compaction;
    expect(passes.done).toBeGreaterThan(0);
    expect(dropped).toBeGreaterThan(900);
    expect(droppedBytes).toBeGreaterThan(50_000);
    expect(lastAtMs).toBeGreaterThan(1_000_000);
    expect(faults).toEqual([]);
  });

  test("G147 says little again when nearly nothing was replaced", async () => {
    const { engine, clock } = open();
    await create(engine);
    for (let n = 0; n < 200; n += 1) await write(engine, { id: `k${n}`, value: value(n) });
    await settle(clock);
    expect(engine.meter.compaction).toMatchObject({ repeatedBytes: 0, records: 0 });
    expect(engine.meter.compaction.passes.little).toBeGreaterThan(0);
    expect(await recordsOf(engine)).toHaveLength(200);
  });

  test.each([
    [1, 1000],
    [2, 25],
    [3, 10],
  ])(
    "G147 is the state that was written, for readers that begin anew and that go on, with writers all the time: seed %i",
    async (seed, keysMax) => {
      const store = openMemoryStore();
      const { engine, faults } = openWith(store, systemClock, keysMax, 2000);
      await create(engine);
      const random = createSeededRandom(seed);
      const model: Map<string, unknown>[] = [new Map()];
      const pending: Promise<unknown>[] = [];
      let acknowledged = 0;
      // The record `clock` says how much of the history a reader has seen.
      const step = (): void => {
        const next = new Map(model.at(-1));
        const n = model.length;
        const records: { id: string; value?: unknown }[] = [];
        for (let count = random.below(4); count >= 0; count -= 1) {
          const id = `k${random.below(random.below(3) === 0 ? 40 : 5)}`;
          const large = random.below(60) === 0 ? "x".repeat(150_000) : "x".repeat(random.below(60));
          if (random.below(5) === 0) {
            next.delete(id);
            records.push({ id });
          } else {
            next.set(id, { n, large });
            records.push({ id, value: { n, large } });
          }
        }
        next.set("clock", n);
        records.push({ id: "clock", value: n });
        model.push(next);
        pending.push(
          write(engine, ...records).then(() => {
            acknowledged = Math.max(acknowledged, n);
          }),
        );
      };
      const reader = { at: 0, state: new Map<string, unknown>(), restarts: 0 };
      const follow = async (): Promise<void> => {
        const look = await engine.look(A);
        if (look.kind !== "found") throw new Error(look.kind);
        if (reader.at < look.earliest) {
          Object.assign(reader, { at: look.earliest, state: new Map() });
          reader.restarts += 1;
        }
        if (reader.at === look.tail) return;
        const records = await recordsOf(engine, reader.at);
        folded(records, reader.state);
        reader.at = look.tail;
      };
      for (let n = 0; n < 500; n += 1) {
        for (let count = random.below(6); count >= 0; count -= 1) step();
        if (random.below(2) === 0) await turn();
        if (random.below(12) === 0) await new Promise((resolve) => setTimeout(resolve, 3));
        if (random.below(6) > 0) continue;
        const least = acknowledged;
        const state = await recordsOf(engine)
          .then((records) => folded(records))
          .catch(() => undefined); // It was trimmed while it was read.
        if (state === undefined || state.size === 0) continue;
        const seen = state.get("clock") as number;
        expect(seen).toBeGreaterThanOrEqual(least);
        expect(state).toEqual(model[seen]);
        await follow().catch(() => undefined);
      }
      await Promise.all(pending);
      for (let wait = 0; wait < 1000 && engine.meter.compaction.records < 100; wait += 1) {
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      await follow();
      expect(reader.state).toEqual(model.at(-1));
      expect(folded(await recordsOf(engine))).toEqual(model.at(-1));
      expect(engine.meter.compaction.records).toBeGreaterThanOrEqual(100);
      expect(faults).toEqual([]);
    },
    60_000,
  );

  test("G149 leaves what is younger than its lag, also after a restart", async () => {
    const store = openMemoryStore();
    const { engine, clock } = open({ store });
    await create(engine, { ...RULE, lagSeconds: 100 });
    for (let n = 0; n < 100; n += 1) await write(engine, { id: "k", value: value(n) });
    await settle(clock);
    expect(await recordsOf(engine)).toHaveLength(100);
    clock.advance(90_000);
    await settle(clock);
    expect(await recordsOf(engine)).toHaveLength(100);
    for (let n = 0; n < 10; n += 1) await write(engine, { id: "k", value: value(n) });
    clock.advance(30_000);
    await settle(clock);
    const kept = (await recordsOf(engine)).length;
    expect(kept).toBeGreaterThanOrEqual(10);
    expect(kept).toBeLessThan(15);
  });

  test("G149 leaves what a group needs, and goes on when the group has", async () => {
    const { engine, clock } = open();
    await create(engine);
    const settings: GroupSettings = {
      pattern: undefined,
      streams: [A],
      start: { kind: "beginning" },
      leaseMs: 1000,
    };
    await engine.groups.create("g", settings);
    for (let n = 0; n < 200; n += 1) await write(engine, { id: "k", value: value(n) });
    await settle(clock);
    expect(await recordsOf(engine)).toHaveLength(200);
    await engine.groups.delete("g");
    clock.advance(30_000);
    await settle(clock);
    expect((await recordsOf(engine)).length).toBeLessThan(30);
  });

  test("G149 leaves a stream that is closed, that has no rule any more, and that is no JSON", async () => {
    const { engine, clock } = open();
    await create(engine, "none");
    for (let n = 0; n < 200; n += 1) await write(engine, { id: "k", value: value(n) });
    await settle(clock);
    expect(await recordsOf(engine)).toHaveLength(200);
    await engine.setCompaction(A, RULE);
    await settle(clock);
    expect((await recordsOf(engine)).length).toBeLessThan(30);
    await engine.setCompaction(A, undefined);
    for (let n = 0; n < 200; n += 1) await write(engine, { id: "k", value: value(n) });
    await settle(clock);
    expect((await recordsOf(engine)).length).toBeGreaterThanOrEqual(200);
    expect(await engine.setCompaction("/none" as StreamName, RULE)).toEqual({ kind: "missing" });
    await engine.create(createCommand("/text"));
    expect(await engine.setCompaction("/text" as StreamName, RULE)).toMatchObject({
      kind: "not_json",
    });
    await engine.append(A, appendCommand("", { ...JSON_TYPE, closes: true }));
    await engine.setCompaction(A, RULE);
    await settle(clock);
    expect((await recordsOf(engine)).length).toBeGreaterThanOrEqual(200);
  });

  test("a fork of a changelog keeps its source, and is a changelog of its own", async () => {
    const { engine, clock } = open();
    await create(engine);
    for (let n = 0; n < 50; n += 1) await write(engine, { id: `k${n % 5}`, value: value(n) });
    const fork = { sourceName: A, anchor: undefined, subOffset: 0 };
    await engine.create(createCommand("/f", { ...JSON_TYPE, fork, compaction: RULE }));
    for (let n = 0; n < 300; n += 1) {
      await write(engine, { id: "k0", value: value(n) });
      await engine.append(
        "/f" as StreamName,
        appendCommand(`${JSON.stringify({ id: "k1", value: value(n) })},`, JSON_TYPE),
      );
    }
    await settle(clock);
    expect(await recordsOf(engine)).toHaveLength(350);
    const look = await engine.look("/f" as StreamName);
    if (look.kind !== "found") throw new Error(look.kind);
    expect(look.tail - look.earliest).toBeLessThan(4000);
    const page = await engine.read(look.state, look.earliest, 100_000);
    const text = decodeText(joinBytes(page.appends)).slice(0, -1);
    const state = folded(JSON.parse(`[${text}]`) as readonly Kept[]);
    expect([...state.keys()].toSorted()).toEqual(["k0", "k1", "k2", "k3", "k4"]);
    expect(state.get("k1")).toEqual(value(299));
    expect(state.get("k0")).toEqual(value(45));
  });
});

describe("a crash", () => {
  const SETTINGS = { segmentBytes: 16_384, cacheBytes: 0 };
  const openStore = (disk: SimulatedDisk) => openOnDisk(disk, SETTINGS, async () => {});

  /** A history that ends with the disk. Returns the writes that were acknowledged. */
  async function live(disk: SimulatedDisk): Promise<number> {
    let acknowledged = 0;
    const store = await openStore(disk);
    const { engine } = openWith(store, systemClock, 1000, 1500);
    opened.pop();
    await create(engine);
    for (let n = 1; n <= 120; n += 1) {
      await write(
        engine,
        n % 7 === 0 ? { id: `k${n % 5}` } : { id: `k${n % 5}`, value: value(n) },
        { id: "clock", value: n },
      );
      acknowledged = n;
      if (n % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 8));
    }
    return acknowledged;
  }

  function modelAt(clock: number): ReadonlyMap<string, unknown> {
    const state = new Map<string, unknown>();
    for (let n = 1; n <= clock; n += 1) {
      if (n % 7 === 0) state.delete(`k${n % 5}`);
      else state.set(`k${n % 5}`, value(n));
      state.set("clock", n);
    }
    return state;
  }

  test("G147 at any call of the disk leaves a state that was written, with everything that was acknowledged", async () => {
    const whole = createSimulatedDisk(1);
    await live(whole);
    const calls = whole.log.length;
    expect(calls).toBeGreaterThan(100);
    let passes = 0;
    for (let at = 20; at < calls; at += 3) {
      const disk = createSimulatedDisk(at);
      disk.stopAt(at);
      let acknowledged = 0;
      const living = (async () => {
        const store = await openStore(disk);
        const { engine } = openWith(store, systemClock, 1000, 1500);
        opened.pop();
        await create(engine);
        for (let n = 1; n <= 120; n += 1) {
          await write(
            engine,
            n % 7 === 0 ? { id: `k${n % 5}` } : { id: `k${n % 5}`, value: value(n) },
            { id: "clock", value: n },
          );
          acknowledged = n;
          passes = Math.max(passes, engine.meter.compaction.passes.done);
          if (n % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 4));
        }
      })();
      await Promise.race([living, disk.stopped]);
      const store = await openStore(at % 2 === 0 ? disk.crash() : disk.kill());
      const { engine } = openWith(store, systemClock, 1000, 1e9);
      const look = await engine.look(A);
      if (look.kind !== "found") {
        expect(acknowledged).toBe(0);
        continue;
      }
      if (look.tail === 0) continue;
      expect(look.state.compaction).toEqual(RULE);
      const state = folded(await recordsOf(engine));
      const seen = state.get("clock") as number;
      expect(seen).toBeGreaterThanOrEqual(acknowledged);
      expect(state).toEqual(modelAt(seen));
      await engine.close();
      opened.pop();
    }
    expect(passes).toBeGreaterThan(0);
  }, 120_000);
});
