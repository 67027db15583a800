import { describe, expect, test } from "vitest";
import type { Entries } from "../ledgers/ledger.ts";
import { memoryLedger } from "../ledgers/memory.ts";
import type { Meter } from "../meters/meter.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { createInbox } from "./inbox.ts";
import { processOnce } from "./process-once.ts";
import { createSweeper } from "./sweeper.ts";

/** What is due has been done when this resolves: nothing here waits for anything but promises. */
const flush = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function stage(messages: number) {
  const clock = createVirtualClock();
  const memory = memoryLedger({ clock });
  const batches: number[] = [];
  let failure: Error | undefined;
  const sweep: Entries["sweep"] = async (max) => {
    if (failure !== undefined) throw failure;
    const swept = await memory.entries.sweep(max);
    batches.push(swept);
    return swept;
  };
  const ledger = { ...memory, entries: { ...memory.entries, sweep } };
  const inbox = createInbox(ledger, { consumer: "c", retainMs: 1_000, clock });
  for (let id = 1; id <= messages; id += 1)
    await inbox.handle({ scope: "s", key: `${id}` }, () => undefined);
  const counters = new Map<string, number>();
  const levels = new Map<string, number>();
  const meter: Meter = {
    add: (name, value) => void counters.set(name, (counters.get(name) ?? 0) + value),
    set: (name, value, labels) => void levels.set(`${name} ${labels?.["primitive"]}`, value),
  };
  const advance = async (ms: number): Promise<void> => {
    for (let passed = 0; passed < ms; passed += 50) {
      clock.advance(50);
      await flush();
    }
  };
  const fail = (error: Error | undefined): void => {
    failure = error;
  };
  const left = async () => (await memory.entries.scan({ kind: "inbox", max: 1_000 })).length;
  return { clock, ledger, batches, meter, counters, levels, advance, fail, left };
}

describe("a sweeper", () => {
  test("deletes what is past its retention, in batches, with pauses between them", async () => {
    const { clock, ledger, batches, meter, counters, advance } = await stage(25);
    const options = { clock, meter, batchMax: 10, pauseMs: 100 };
    const sweeper = createSweeper(ledger, options);
    expect(await sweeper.sweepOnce()).toBe(0);
    clock.advance(1_000);
    batches.length = 0;
    const sweep = sweeper.sweepOnce();
    await flush();
    expect(batches).toEqual([10]);
    await advance(300);
    expect(await sweep).toBe(25);
    expect(batches).toEqual([10, 10, 5]);
    expect(counters.get("swept_total")).toBe(25);
  });

  test("tells how old the oldest work is that has begun and not ended", async () => {
    const { clock, ledger, meter, levels } = await stage(0);
    const sweeper = createSweeper(ledger, { clock, meter });
    let finish: () => void = () => undefined;
    const work = processOnce(
      ledger,
      { scope: "s", key: "k" },
      () => new Promise<void>((resolve) => (finish = resolve)),
      { effect: "repeatable", clock },
    );
    await flush();
    clock.advance(4_000);
    await sweeper.sweepOnce();
    expect(levels.get("oldest_pending_seconds once")).toBe(4);
    expect(levels.get("oldest_pending_seconds http")).toBe(0);
    finish();
    await work;
    await sweeper.sweepOnce();
    expect(levels.get("oldest_pending_seconds once")).toBe(0);
  });

  test("goes on after a failure, and tells it", async () => {
    const { clock, ledger, advance, fail, left } = await stage(5);
    const errors: unknown[] = [];
    const onError = (error: unknown): void => {
      errors.push(error);
      throw new Error("nor can this be told");
    };
    const sweeper = createSweeper(ledger, { clock, everyMs: 1_000, onError });
    const failure = new Error("the database is gone");
    fail(failure);
    sweeper.start();
    sweeper.start();
    await advance(1_300);
    expect(errors).toEqual([failure]);
    expect(await left()).toBe(5);
    fail(undefined);
    await advance(1_300);
    expect(await left()).toBe(0);
    expect(errors).toHaveLength(1);
    await sweeper.stop();
  });

  test("does nothing any more after it was stopped, and can be started again", async () => {
    const { clock, ledger, advance, left, batches } = await stage(30);
    const random = { unit: () => 0.6, id: () => "" };
    const options = { clock, random, everyMs: 1_000, batchMax: 10, pauseMs: 500, onError: fail };
    function fail(error: unknown): never {
      throw error;
    }
    const sweeper = createSweeper(ledger, options);
    sweeper.start();
    await advance(1_250);
    expect(batches.at(-1)).toBe(10);
    await sweeper.stop();
    const before = await left();
    expect(before).toBeGreaterThan(0);
    await advance(5_000);
    expect(await left()).toBe(before);
    expect(clock.pending).toBe(0);
    sweeper.start();
    await advance(3_000);
    expect(await left()).toBe(0);
    await sweeper.stop();
  });

  test("refuses options that make no sense, all together", async () => {
    const { ledger } = await stage(0);
    expect(() => createSweeper(ledger, { everyMs: 1, batchMax: 0, pauseMs: -1 })).toThrow(
      /everyMs.*batchMax.*pauseMs/,
    );
  });
});
