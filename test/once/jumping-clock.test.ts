// Waits, leases and deadlines where `performance.now()` is the wall clock, as on Workers, and that clock is set.
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { systemClock, waitingClock } from "../../src/base/clock.ts";
import { openMemoryStore } from "../../src/streams/stores/memory.ts";
import { BodyBudget } from "../../src/streams/server/body-budget.ts";
import { WholeEngine } from "../../src/streams/engine/whole-engine.ts";
import type { StreamName } from "../../src/streams/core/types.ts";
import { appendCommand, createCommand, keyClaim } from "../../src/testing/commands.ts";
import { acquireLease, processOnce } from "../../src/toolkit/ledger.ts";
import { memoryLedger } from "../../src/toolkit/ledgers/memory.ts";
import { gate, K } from "./stage.ts";

const HOUR_MS = 3_600_000;
const START_MS = Date.UTC(2026, 10, 18);
const JUMPS = [-HOUR_MS, HOUR_MS];
/** Real time: what the ledger's database and the timers go by. */
let realMs = 0;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"], now: START_MS });
  vi.spyOn(performance, "now").mockImplementation(() => Date.now());
  realMs = 0;
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

async function pass(ms: number): Promise<void> {
  // In small steps, as a program that does something.
  for (let leftMs = ms; leftMs > 0; leftMs -= 50) {
    const stepMs = Math.min(50, leftMs);
    await vi.advanceTimersByTimeAsync(stepMs);
    realMs += stepMs;
  }
}

/** Sets the wall clock. Timers go on as before. */
function jump(ms: number): void {
  vi.setSystemTime(Date.now() + ms);
}

/** A ledger as a database has it: with a clock of its own, which is right. */
function ledgerElsewhere() {
  const clock = { ...systemClock, nowMs: () => START_MS + realMs };
  const ledger = memoryLedger({ clock });
  return { ledger, elsewhere: () => ({ ...ledger }) };
}

describe.each(JUMPS)("a wall clock that jumps by %d ms", (jumpMs) => {
  test("ends no wait: it is over when its time is, give or take two seconds", async () => {
    const { ledger, elsewhere } = ledgerElsewhere();
    const done = gate();
    const holder = processOnce(ledger, K, () => done.opened, {
      effect: "repeatable",
      leaseMs: 60_000,
    });
    await pass(100);
    let endedMs: number | undefined;
    const startedMs = realMs;
    const options = { effect: "repeatable", leaseMs: 60_000, waitMs: 10_000 } as const;
    const waiter = processOnce(elsewhere(), K, () => "twice", options).catch((error: unknown) => {
      endedMs = realMs - startedMs;
      return error;
    });
    await pass(3_000);
    jump(jumpMs);
    await pass(4_000);
    expect(endedMs).toBeUndefined();
    await pass(5_000);
    expect(await waiter).toMatchObject({ code: "in_progress" });
    expect(endedMs).toBeGreaterThan(8_000);
    done.open();
    await holder;
  });

  test("ends no lease: work that takes longer than its lease is renewed, and done once", async () => {
    const { ledger, elsewhere } = ledgerElsewhere();
    let runs = 0;
    const done = gate();
    const work = async ({ signal }: { readonly signal: AbortSignal }): Promise<boolean> => {
      runs += 1;
      await done.opened;
      return signal.aborted;
    };
    const options = { effect: "repeatable", leaseMs: 6_000 } as const;
    const first = processOnce(ledger, K, work, options);
    for (let turn = 0; turn < 10; turn += 1) {
      await pass(1_900);
      jump(turn % 2 === 0 ? jumpMs : -jumpMs);
    }
    const second = await processOnce(elsewhere(), K, work, options).catch(
      (error: unknown) => error,
    );
    expect(second).toMatchObject({ code: "in_progress" });
    done.open();
    expect([await first, runs]).toMatchObject([{ result: false, isDuplicate: false }, 1]);
  });

  test("does not keep a lease that is over: its signal aborts in time", async () => {
    const { ledger } = ledgerElsewhere();
    let isCut = false;
    const put = ledger.entries.put.bind(ledger.entries);
    const entries: typeof ledger.entries = {
      ...ledger.entries,
      put: (...args) => (isCut ? Promise.reject(new Error("no database")) : put(...args)),
    };
    const lease = await acquireLease({ ...ledger, entries }, K, { leaseMs: 6_000 });
    if (lease === undefined) throw new Error("the lease is free");
    isCut = true;
    const startedMs = realMs;
    await pass(500);
    jump(jumpMs);
    while (!lease.signal.aborted && realMs - startedMs < 20_000) await pass(50);
    expect(realMs - startedMs).toBeLessThanOrEqual(6_000);
    await lease.release().catch(() => undefined);
  });

  test("cuts no body that comes fast enough, and cuts the one that does not", async () => {
    const budget = new BodyBudget(1024, systemClock);
    const cut: string[] = [];
    const begin = (peer: string) => budget.begin({ peer, cut: () => cut.push(peer) });
    const [quick, slow] = [begin("quick"), begin("slow")];
    for (let second = 0; second < 25; second += 1) {
      quick.take(4_096);
      slow.take(10);
      await pass(1_000);
      if (second === 3) jump(jumpMs);
      if (second === 5) expect(cut).toEqual([]);
    }
    expect(cut).toEqual(["slow"]);
    budget.close();
  });

  test("moves neither of the two clocks by more than a second while a timer runs", async () => {
    for (const clock of [systemClock, waitingClock]) {
      const cancel = clock.after(300, () => undefined);
      const beforeMs = clock.steadyMs();
      jump(jumpMs);
      const afterMs = clock.steadyMs();
      expect(afterMs).toBeGreaterThanOrEqual(beforeMs);
      expect(afterMs).toBeLessThanOrEqual(beforeMs + 1_000);
      cancel();
    }
  });
});

test("G16 a wall clock that is set back neither forgets a key early nor keeps one too long", async () => {
  const engine = new WholeEngine({
    store: openMemoryStore(),
    clock: systemClock,
    jsonRecordsEnd: () => undefined,
    keyDefaults: { windowSeconds: 60, countMax: 100, overflow: "evict" },
  });
  const name = "/a" as StreamName;
  await engine.create(createCommand(name));
  const send = (): ReturnType<typeof engine.append> =>
    engine.append(name, appendCommand("x", { key: keyClaim("k", "x") }));
  expect((await send()).kind).toBe("accepted");
  await pass(20_000);
  jump(-HOUR_MS);
  await pass(20_000);
  expect((await send()).kind).toBe("replayed");
  await pass(61_000);
  expect((await send()).kind).toBe("accepted");
  const closed = engine.close();
  await pass(100);
  await closed;
});

test("where performance.now() counts from the start of the process it is taken as it is", () => {
  vi.restoreAllMocks();
  vi.useRealTimers();
  const before = performance.now();
  const steadyMs = systemClock.steadyMs();
  expect(steadyMs).toBeGreaterThanOrEqual(before);
  expect(steadyMs).toBeLessThan(before + 1_000);
});
