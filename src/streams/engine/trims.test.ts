// Cuts and rules over an engine: what is answered when, what readers get, and what many streams cost. PROTOCOL.md §23
import { afterEach, describe, expect, test } from "vitest";
import type { GroupSettings } from "../core/group-state.ts";
import type { Offset, StreamName } from "../core/types.ts";
import type { RetentionRule } from "../core/trim.ts";
import { appendCommand, createCommand, joinedText } from "../../testing/commands.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { openGatedStore } from "../../../test/kits/gated-store.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { openMemoryStore } from "../stores/memory.ts";
import type { Store } from "../store.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";
import { Holding } from "./holdings.ts";

const A = "/a" as StreamName;
const opened: Engine[] = [];
afterEach(async () => {
  for (const engine of opened.splice(0)) await engine.close();
});

function open(store: Store = openMemoryStore(), retentionDefault?: RetentionRule) {
  const clock = createVirtualClock(1_000_000);
  const engine = new WholeEngine({
    store,
    clock,
    jsonRecordsEnd: () => undefined,
    retentionDefault,
  });
  opened.push(engine);
  const append = (text: string, name = A) => engine.append(name, appendCommand(text));
  const read = async (from: number, name = A): Promise<string> => {
    const look = await engine.look(name);
    if (look.kind !== "found") return look.kind;
    return joinedText((await engine.read(look.state, from as Offset, 1_000_000)).appends);
  };
  const earliest = async (name = A): Promise<number> => {
    const look = await engine.look(name);
    return look.kind === "found" ? look.earliest : -1;
  };
  const cut = (before: number, dropsNeeded = false) =>
    engine.trim(A, { before: before as Offset, dropsNeeded });
  return { engine, clock, append, read, earliest, cut };
}

const seconds = (count: number): RetentionRule => ({
  seconds: count,
  bytes: undefined,
  dropsNeeded: false,
});
const bytes = (count: number): RetentionRule => ({
  seconds: undefined,
  bytes: count,
  dropsNeeded: false,
});

describe("a cut", () => {
  test("G110 W2 is answered when it is durable, and until then readers get what they got before", async () => {
    const store = openGatedStore(openMemoryStore());
    const { engine, append, cut, read, earliest } = open(store);
    for (const work of [
      () => engine.create(createCommand(A)),
      () => append("one"),
      () => append("two"),
    ]) {
      const watched = watch<unknown>(work());
      for (await turn(); watched.isWaiting; await turn()) await store.release();
    }
    const watched = watch(cut(3));
    await turn();
    expect([await earliest(), await read(0)]).toEqual([0, "onetwo"]);
    expect(watched.isWaiting).toBe(true);
    await store.release();
    await turn();
    expect([watched.isWaiting, await earliest(), await read(3)]).toEqual([false, 3, "two"]);
    await expect(read(0)).rejects.toMatchObject({ code: "offset_trimmed" });
    store.open();
  });

  test("G110 begins at an append, and the offsets behind it stay", async () => {
    const { engine, append, cut, read, earliest } = open();
    await engine.create(createCommand(A));
    for (const text of ["one", "two", "three"]) await append(text);
    expect(await cut(5)).toEqual({ kind: "trimmed", earliest: 3, isRepeated: false });
    expect(await cut(5)).toEqual({ kind: "trimmed", earliest: 3, isRepeated: true });
    expect([await read(3), await read(6), await read(7)]).toEqual(["twothree", "three", "three"]);
    expect(await cut(12)).toEqual({ kind: "beyond_tail", tail: 11 });
    expect(await cut(11)).toMatchObject({ kind: "trimmed", earliest: 11 });
    await append("four");
    expect([await read(11), await earliest()]).toEqual(["four", 11]);
  });

  test("G111 leaves what a group needs, and the group as it is when it is dropped", async () => {
    const { engine, append, cut } = open();
    await engine.create(createCommand(A));
    for (const text of ["one", "two"]) await append(text);
    const settings: GroupSettings = {
      pattern: undefined,
      streams: [A],
      start: { kind: "beginning" },
      leaseMs: 1000,
    };
    await engine.groups.create("g", settings);
    expect(await cut(3)).toEqual({ kind: "needed", needed: { from: 0, by: "group" } });
    expect(await cut(3, true)).toMatchObject({ kind: "trimmed", earliest: 3 });
    expect(engine.world.groups.byId.get("g")?.cursors.get(A)?.offset).toBe(0);
    // A group that comes now begins where there is something to read.
    await engine.groups.create("h", settings);
    expect(engine.world.groups.byId.get("h")?.cursors.get(A)?.offset).toBe(3);
  });

  test("G110 a fork cannot leave its source where that was trimmed", async () => {
    const { engine, append, cut } = open();
    await engine.create(createCommand(A));
    for (const text of ["one", "two"]) await append(text);
    await cut(3);
    const fork = (anchor: number) =>
      engine.create(
        createCommand(`/f${anchor}`, {
          fork: { sourceName: A, anchor: anchor as Offset, subOffset: 0 },
        }),
      );
    expect(await fork(0)).toMatchObject({ kind: "invalid_fork" });
    expect(await fork(3)).toMatchObject({ kind: "created" });
  });

  test("G110 of a fork and a cut at the same moment one is refused", async () => {
    for (let wait = 0; wait < 24; wait += 1) {
      const { engine, append, cut } = open();
      await engine.create(createCommand(A));
      for (const text of ["one", "two"]) await append(text);
      const fork = { sourceName: A, anchor: 3 as Offset, subOffset: 0 };
      const forked = engine.create(createCommand("/f", { fork }));
      for (let step = 0; step < wait; step += 1) await Promise.resolve();
      const both = await Promise.all([forked, cut(6)]);
      const kinds = both.map(({ kind }) => kind).join(" and ");
      expect(["created and needed", "invalid_fork and trimmed"], `${wait}`).toContain(kinds);
    }
  });

  test("G50 what was trimmed counts for no namespace", async () => {
    const { engine, append, cut } = open();
    await engine.create(createCommand(A));
    const holding = await engine.holdings.open(undefined);
    for (const text of ["one", "two"]) await append(text);
    expect(holding.bytes).toBe(6);
    await cut(3);
    expect(holding.bytes).toBe(3);
    const again = new Holding(undefined);
    for (const step of again.count(engine.world)) expect(step).toBeUndefined();
    expect(again.bytes).toBe(3);
    await engine.delete(A);
    expect(holding.bytes).toBe(0);
  });
});

describe("a rule", () => {
  test("G112 by bytes keeps a stream that grows at its size", async () => {
    for (const append of ["0123456789", "0".repeat(27), "0".repeat(70)]) {
      const { engine, append: add, earliest } = open();
      await engine.create(createCommand(A, { retention: bytes(1000) }));
      for (let tail = append.length; tail < 8000; tail += append.length) {
        await add(append);
        // After every append, and not only where the rule could have cut: a 16th and two appends more.
        const kept = tail - (await earliest());
        expect(kept).toBeGreaterThanOrEqual(Math.min(tail, 1000));
        expect(kept).toBeLessThanOrEqual((1000 * 17) / 16 + 2 * append.length);
        expect(engine.storeStats().liveBytes).toBe(kept);
      }
    }
  });

  test("G112 by age goes by journal time, also without appends and after a restart", async () => {
    const store = openMemoryStore();
    const { engine, clock, append, earliest } = open(store);
    await engine.create(createCommand(A, { retention: seconds(60) }));
    await append("one");
    clock.advance(59_999);
    expect(await earliest()).toBe(0);
    clock.advance(1);
    await engine.settled();
    expect(await earliest()).toBe(3);
    await append("two");
    // Another process over the same store.
    const next = open(store);
    next.clock.advance(200_000);
    await next.engine.settled();
    expect(await next.earliest()).toBe(6);
  });

  test("G112 that is set on a stream that is too large trims it at once", async () => {
    const { engine, append, earliest } = open();
    await engine.create(createCommand(A));
    for (let at = 0; at < 100; at += 1) await append("0123456789");
    expect(await engine.setRetention(A, bytes(95))).toEqual({ kind: "set" });
    expect(await earliest()).toBe(900);
    expect(await engine.setRetention("/b" as StreamName, bytes(1))).toEqual({ kind: "missing" });
  });

  test("G112 trims nothing of a stream that is created anew at the path meanwhile", async () => {
    const { engine, append, earliest } = open();
    await engine.create(createCommand(A));
    for (let at = 0; at < 100; at += 1) await append("0123456789");
    const set = engine.setRetention(A, bytes(95));
    // All of it is one commit.
    const anew = [engine.delete(A), engine.create(createCommand(A))];
    const appends = Array.from({ length: 200 }, () => append("9876543210"));
    expect(await set).toEqual({ kind: "set" });
    await Promise.all([...anew, ...appends]);
    expect(await earliest()).toBe(0);
  });

  test("G112 of the server is for new streams that say nothing, and is not compared", async () => {
    const store = openMemoryStore();
    const before = open(store);
    await before.engine.create(createCommand("/old"));
    const { engine } = open(store, bytes(100));
    await engine.create(createCommand(A));
    await engine.create(createCommand("/own", { retention: seconds(5) }));
    const rule = (name: string) => engine.world.streams.get(name as StreamName)?.retained?.rule;
    expect([rule("/old"), rule("/a"), rule("/own")]).toEqual([undefined, bytes(100), seconds(5)]);
    const again = open(store, bytes(7)).engine;
    expect(await again.create(createCommand(A))).toMatchObject({ kind: "exists" });
    expect(await again.create(createCommand(A, { retention: bytes(7) }))).toMatchObject({
      kind: "conflict",
      reason: "Stream-Retention",
    });
  });

  test("G34 the age of many streams ends in slices, with one timer", async () => {
    const { engine, clock } = open();
    const count = 20_000;
    const names = Array.from({ length: count }, (_, at) => `/s/${at}`);
    const retention = seconds(60);
    await Promise.all(
      names.map((name) => engine.create(createCommand(name, { retention, text: "data" }))),
    );
    const { world } = engine;
    const after = clock.after.bind(clock);
    let largest = 0;
    let timers = 0;
    clock.after = (delayMs, run) => {
      timers += 1;
      return after(delayMs, () => {
        const before = world.version;
        run();
        largest = Math.max(largest, world.version - before);
      });
    };
    const version = world.version;
    clock.advance(60_000);
    clock.advance(1000);
    expect(world.version - version).toBe(count);
    expect(largest).toBeLessThanOrEqual(LIMITS.turnStreamsMax);
    expect(timers).toBeLessThanOrEqual(2 + count / LIMITS.turnStreamsMax);
    await engine.settled();
  });
});
