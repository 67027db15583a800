// The heap of deadlines, and the expiry of streams that it drives. PROTOCOL.md §9
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { ExpiryRule, StreamState } from "../core/stream.ts";
import type { StreamName } from "../core/types.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { appendCommand, createCommand } from "../../testing/commands.ts";
import { type GatedStore, openGatedStore } from "../../../test/kits/gated-store.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { createVirtualClock, type VirtualClock } from "../../testing/virtual-clock.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import { Deadlines } from "./deadlines.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";

test("every deadline fires once, at its time, earliest first", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(1000), { maxLength: 50 }), (times) => {
      const clock = createVirtualClock();
      const fired: number[] = [];
      const deadlines = new Deadlines<number>(
        clock,
        () => clock.nowMs(),
        (atMs) => {
          expect(clock.nowMs()).toBe(atMs);
          fired.push(atMs);
        },
      );
      for (const atMs of times) deadlines.add(atMs, atMs);
      clock.advance(1000);
      expect(fired).toEqual(times.toSorted((one, other) => one - other));
      expect(clock.pending).toBe(0);
    }),
  );
});

test("deadlines that are due together fire in slices, each once", () => {
  const turns: (() => void)[] = [];
  const after = (_: number, run: () => void) => {
    turns.push(run);
    return () => undefined;
  };
  const clock = { ...createVirtualClock(), after };
  const fired: number[] = [];
  const deadlines = new Deadlines<number>(
    clock,
    () => 10,
    (item) => fired.push(item),
  );
  const count = 2 * LIMITS.turnStreamsMax + 10;
  for (let item = 0; item < count; item += 1) deadlines.add(10, item);
  const slices: number[] = [];
  for (let next = turns.shift(); next !== undefined; next = turns.shift()) {
    const before = fired.length;
    next();
    slices.push(fired.length - before);
  }
  expect(slices).toEqual([LIMITS.turnStreamsMax, LIMITS.turnStreamsMax, 10]);
  expect(new Set(fired).size).toBe(count);
});

test("there is one timer, however many deadlines there are", () => {
  const clock = createVirtualClock();
  const deadlines = new Deadlines<number>(
    clock,
    () => clock.nowMs(),
    () => undefined,
  );
  for (let atMs = 1000; atMs > 0; atMs -= 1) deadlines.add(atMs, atMs);
  expect(clock.pending).toBe(1);
  clock.advance(500);
  expect(clock.pending).toBe(1);
});

test("a deadline that is added while another one fires is kept", () => {
  const clock = createVirtualClock();
  const fired: number[] = [];
  const deadlines: Deadlines<number> = new Deadlines(
    clock,
    () => clock.nowMs(),
    (atMs) => {
      fired.push(atMs);
      if (atMs < 50) deadlines.add(atMs + 10, atMs + 10);
    },
  );
  deadlines.add(10, 10);
  clock.advance(100);
  expect(fired).toEqual([10, 20, 30, 40, 50]);
});

test("a timer that comes before its time waits again", () => {
  const clock = createVirtualClock();
  const fired: string[] = [];
  const deadlines = new Deadlines<string>(
    clock,
    () => clock.nowMs(),
    (item) => fired.push(item),
  );
  deadlines.add(100, "due");
  clock.jump(-50);
  clock.advance(100);
  expect(fired).toEqual([]);
  clock.advance(50);
  expect(fired).toEqual(["due"]);
});

test("after stop nothing fires and nothing is taken", () => {
  const clock = createVirtualClock();
  const fired: string[] = [];
  const deadlines = new Deadlines<string>(
    clock,
    () => clock.nowMs(),
    (item) => fired.push(item),
  );
  deadlines.add(10, "before");
  deadlines.stop();
  deadlines.add(20, "after");
  clock.advance(100);
  expect([fired, clock.pending]).toEqual([[], 0]);
});

const A = "/a" as StreamName;
const TTL: ExpiryRule = { kind: "ttl", seconds: 16 };
/** The TTL and the 16th of it by which a deadline may be late. */
const LATEST_MS = 17_000;

interface Bench {
  readonly engine: Engine;
  readonly clock: VirtualClock;
  readonly store: GatedStore;
  readonly state: StreamState;
  /** Lets time pass and the commits through that it causes. */
  readonly pass: (ms: number) => Promise<void>;
}

async function openBench(expiry: ExpiryRule): Promise<Bench> {
  const clock = createVirtualClock(1_000_000);
  const store = openGatedStore(openMemoryStore());
  const engine = new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined });
  const release = async (): Promise<void> => {
    for (await turn(); store.waiting.length > 0; await turn()) await store.release();
  };
  void engine.create(createCommand(A, { expiry }));
  await release();
  const state = engine.world.streams.get(A);
  if (state === undefined) throw new Error("the stream is missing");
  const pass = async (ms: number): Promise<void> => {
    clock.advance(ms);
    await release();
  };
  return { engine, clock, store, state, pass };
}

describe("expiry", () => {
  test("an expired stream is removed by its timer, through a commit like any other", async () => {
    const { engine, clock, store, state } = await openBench(TTL);
    clock.advance(LATEST_MS - 1);
    expect(store.waiting).toEqual([]);
    clock.advance(1);
    await store.arrival();
    expect(store.waiting).toEqual([[{ kind: "removed", atMs: 1_017_000, stream: state.id }]]);
    const look = watch(engine.look(A).then(({ kind }) => kind));
    await turn();
    expect(look.isWaiting).toBe(true);
    await store.release();
    await turn();
    expect(look.value).toBe("missing");
    await engine.close();
    expect(clock.pending).toBe(0);
  });

  test("the first request for an expired stream ends it, and waits for that", async () => {
    const asks: readonly ((engine: Engine) => Promise<{ kind: string }>)[] = [
      (engine) => engine.append(A, appendCommand("x")),
      (engine) => engine.delete(A),
      (engine) => engine.look(A),
    ];
    for (const ask of asks) {
      const { engine, clock, store } = await openBench({ kind: "at", timeMs: 1_005_000 });
      // The wall clock is set forward: the timer does not notice, but the next request does.
      clock.jump(5_000);
      const answer = watch(ask(engine));
      await store.arrival();
      await turn();
      expect(answer.isWaiting).toBe(true);
      await store.release();
      await turn();
      expect(answer.value).toEqual({ kind: "missing" });
      await engine.close();
    }
  });

  test("a path whose stream has expired can be created anew at once, in one commit", async () => {
    const { engine, clock, store, state } = await openBench({ kind: "at", timeMs: 1_005_000 });
    clock.jump(5_000);
    const answer = watch(engine.create(createCommand(A, { text: "new" })));
    await store.arrival();
    expect(store.waiting[0]?.map(({ kind }) => kind)).toEqual(["removed", "created", "appended"]);
    store.open();
    await turn();
    expect(answer.value).toMatchObject({ kind: "created", tail: 3 });
    expect(engine.world.streams.get(A)?.id).not.toBe(state.id);
    await engine.close();
  });

  test("a stream that forks need expires softly, and its fork lives on", async () => {
    const { engine, store, pass } = await openBench({ kind: "at", timeMs: 1_005_000 });
    const fork = { sourceName: A, anchor: undefined, subOffset: 0 };
    const expiry: ExpiryRule = { kind: "at", timeMs: 2_000_000 };
    void engine.create(createCommand("/b", { fork, expiry }));
    await pass(0);
    await pass(5_000);
    expect((await engine.look(A)).kind).toBe("gone");
    expect((await engine.look("/b" as StreamName)).kind).toBe("found");
    await pass(1_000_000);
    expect(engine.world.byId.size).toBe(0);
    store.open();
    await engine.close();
  });

  test("reads and writes hold a sliding expiry off: never early, at most a 16th late", async () => {
    const { engine, state, pass } = await openBench(TTL);
    for (let count = 0; count < 20; count += 1) {
      await pass(15_999);
      expect((await engine.look(A)).kind).toBe("found");
      if (count % 2 === 0) engine.touch(state);
      else void engine.append(A, appendCommand("x"));
      await pass(0);
    }
    await pass(15_999);
    expect((await engine.look(A)).kind).toBe("found");
    await pass(LATEST_MS - 15_999);
    expect((await engine.look(A)).kind).toBe("missing");
    await engine.close();
  });

  test("a refused write counts as a use, and an absolute expiry is moved by nothing", async () => {
    for (const [expiry, expected] of [
      [TTL, "found"],
      [{ kind: "at", timeMs: 1_016_000 }, "missing"],
    ] as const) {
      const { engine, pass } = await openBench(expiry);
      await pass(10_000);
      void engine.append(A, appendCommand("x", { contentType: "text/html" }));
      await pass(10_000);
      expect((await engine.look(A)).kind).toBe(expected);
      await engine.close();
    }
  });

  test("live readers hold a TTL off, and it starts anew when the last one leaves", async () => {
    const { engine, state, pass } = await openBench(TTL);
    const leaves = [0, 1].map(() => engine.listen(state, () => undefined));
    for (let count = 0; count < 10; count += 1) await pass(LATEST_MS);
    expect((await engine.look(A)).kind).toBe("found");
    leaves[0]?.();
    await pass(LATEST_MS * 3);
    expect((await engine.look(A)).kind).toBe("found");
    leaves[1]?.();
    await pass(15_999);
    expect((await engine.look(A)).kind).toBe("found");
    await pass(LATEST_MS);
    expect((await engine.look(A)).kind).toBe("missing");
    await engine.close();
  });

  test("a live reader does not delay an absolute expiry, and receives the end", async () => {
    const { engine, state, pass } = await openBench({ kind: "at", timeMs: 1_005_000 });
    const told: boolean[] = [];
    engine.listen(state, ({ isGone }) => told.push(isGone));
    await pass(4_999);
    expect(told).toEqual([]);
    await pass(1);
    expect(told).toEqual([true]);
    await engine.close();
  });

  // A clock that is set back must not give changes an earlier time.
  test("journal time does not follow a clock that is set back", async () => {
    const { engine, clock } = await openBench(TTL);
    const before = engine.nowMs();
    clock.jump(-3_600_000);
    expect(engine.nowMs()).toBe(before);
    clock.advance(100_000);
    expect(engine.nowMs()).toBeGreaterThan(before + 99_898);
    expect(engine.nowMs()).toBeLessThanOrEqual(before + 100_000);
  });

  test("a store that is opened with mortal streams lets them end", async () => {
    const inner = openMemoryStore();
    const clock = createVirtualClock(0);
    const parts = { store: inner, clock, jsonRecordsEnd: () => undefined };
    await new WholeEngine(parts).create(createCommand(A, { expiry: TTL }));
    // A second engine over the same store stands for a restart: it knows only what the store knows.
    const restarted = new WholeEngine(parts);
    clock.advance(LATEST_MS);
    await restarted.settled();
    expect(restarted.world.byId.size).toBe(0);
  });
});
