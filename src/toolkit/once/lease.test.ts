import { describe, expect, test } from "vitest";
import { memoryLedger } from "../ledgers/memory.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { GLOBAL } from "../rules/scoped-key.ts";
import { acquireLease, fenced, type HeldLease, type LeaseOptions } from "./lease.ts";

const REPORT = { scope: GLOBAL, key: "report" };

/** What is due has been done when this resolves: nothing here waits for anything but promises. */
const flush = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function stage() {
  const clock = createVirtualClock();
  const ledger = memoryLedger({ clock });
  const options = { leaseMs: 1_000, clock };
  const take = async (more: LeaseOptions = {}): Promise<HeldLease<unknown>> => {
    const lease = await acquireLease(ledger, REPORT, { ...options, ...more });
    if (lease === undefined) throw new Error("another holder has it");
    return lease as HeldLease<unknown>;
  };
  const advance = async (ms: number): Promise<void> => {
    for (let passed = 0; passed < ms; passed += 50) {
      clock.advance(50);
      await flush();
    }
  };
  /** A process that stands still, until the database gives its lease to others. */
  const freeze = async (lease: HeldLease<unknown>): Promise<void> => {
    const place = { kind: "lease", scope: "*", key: "report" };
    await ledger.entries.put(
      place,
      { kind: "owned", token: lease.token },
      {
        state: "running",
        token: "same",
        attempts: 1,
        leaseMs: 0,
        keepMs: 1_000,
        fingerprint: "same",
        data: "same",
      },
    );
  };
  return { clock, ledger, options, take, advance, freeze };
}

describe("a lease", () => {
  test("has one holder at a time, and is free as soon as it is given back", async () => {
    const { ledger, options, take } = stage();
    const all = await Promise.all(
      Array.from({ length: 10 }, () => acquireLease(ledger, REPORT, options)),
    );
    const [held, ...others] = all.filter((one) => one !== undefined);
    expect(others).toEqual([]);
    await held?.release();
    const next = await take();
    expect(next.token).toBeGreaterThan(held?.token ?? Infinity);
    expect(await acquireLease(ledger, { scope: GLOBAL, key: "other" }, options)).toBeDefined();
    expect(
      await acquireLease(ledger, { scope: "tenant", key: "report" }, { ...options }),
    ).toBeDefined();
  });

  test("is waited for as long as was said, and until the signal aborts", async () => {
    const { ledger, options, take, advance } = stage();
    const held = await take();
    const patient = acquireLease(ledger, REPORT, { ...options, waitMs: 5_000 });
    const hasty = acquireLease(ledger, REPORT, { ...options, waitMs: 300 });
    const stop = new AbortController();
    const stopped = acquireLease(ledger, REPORT, {
      ...options,
      waitMs: 5_000,
      signal: stop.signal,
    });
    stopped.catch(() => undefined);
    await advance(400);
    expect(await hasty).toBeUndefined();
    stop.abort(new Error("enough"));
    await expect(stopped).rejects.toThrow("enough");
    await held.release();
    await advance(1_000);
    expect((await patient)?.token).toBeGreaterThan(held.token);
  });

  test("has tokens that only rise, after a release, a loss and a sweep", async () => {
    const { ledger, take, advance, freeze, clock } = stage();
    const tokens: number[] = [];
    const lost = await take();
    tokens.push(lost.token);
    await freeze(lost);
    const second = await take();
    tokens.push(second.token);
    await second.release();
    await advance(50);
    clock.advance(48 * 3_600_000);
    expect(await ledger.entries.sweep(10)).toBe(1);
    tokens.push((await take()).token);
    expect(tokens).toEqual([...new Set(tokens)].toSorted((one, other) => one - other));
  });

  test("is held for as long as it is not given back", async () => {
    const { ledger, options, take, advance } = stage();
    const held = await take();
    await advance(10_000);
    expect(held.signal.aborted).toBe(false);
    expect(await acquireLease(ledger, REPORT, options)).toBeUndefined();
    {
      await using disposed = held;
      expect(disposed.token).toBe(held.token);
    }
    expect(await acquireLease(ledger, REPORT, options)).toBeDefined();
  });

  test("aborts its signal when it was taken", async () => {
    const { take, advance, freeze } = stage();
    const held = await take();
    await freeze(held);
    await take();
    await advance(350);
    expect(held.signal.reason).toMatchObject({ code: "lease_lost" });
    await held.release();
  });

  test("CK4 is not lost by a transaction of its own that takes many leases", async () => {
    const { ledger, options, take, advance } = stage();
    const held = await take();
    const result = await held.transaction(async () => {
      await advance(5_000);
      return "written";
    });
    expect(result).toBe("written");
    await advance(3_000);
    expect(held.signal.aborted).toBe(false);
    expect(await acquireLease(ledger, REPORT, options)).toBeUndefined();
  });

  test("commits nothing after it was taken or given back", async () => {
    const { ledger, take, freeze } = stage();
    let effects = 0;
    const write = (lease: HeldLease<unknown>) =>
      lease.transaction((tx) => {
        effects += 1;
        (tx as { undo(work: () => void): void }).undo(() => (effects -= 1));
      });
    const zombie = await take();
    await write(zombie);
    await freeze(zombie);
    await write(zombie); // No other holder has taken it: it is still the newest.
    const heir = await take();
    await expect(write(zombie)).rejects.toMatchObject({ code: "lease_lost" });
    await write(heir);
    await heir.release();
    await expect(write(heir)).rejects.toMatchObject({ code: "lease_lost" });
    expect(effects).toBe(3);
    const free = { scope: GLOBAL, key: "never taken" };
    const never = ledger.transaction((tx) => fenced(ledger.in(tx), free, 1));
    await expect(never).rejects.toMatchObject({ code: "lease_lost" });
  });

  test("can be proved by any process that its holder gives the token to", async () => {
    const { ledger, take, freeze } = stage();
    const held = await take();
    const { scope, key, token } = held;
    const prove = () => ledger.transaction((tx) => fenced(ledger.in(tx), { scope, key }, token));
    await prove();
    // Outside a transaction another holder could take it right after the check.
    await expect(fenced(ledger, REPORT, token)).rejects.toMatchObject({ code: "invalid_request" });
    await freeze(held);
    await take();
    await expect(prove()).rejects.toMatchObject({ code: "lease_lost" });
  });

  test("does not depend on the wall clock of its process", async () => {
    const { ledger, options, take, advance } = stage();
    // The clock of the database is another one: this one is set back and forth.
    const local = createVirtualClock();
    const held = await take({ clock: local });
    local.jump(3_600_000);
    expect(held.signal.aborted).toBe(false);
    expect(await acquireLease(ledger, REPORT, { ...options, clock: local })).toBeUndefined();
    local.jump(-7_200_000);
    await advance(1_000);
    expect(await acquireLease(ledger, REPORT, { ...options, clock: local })).toBeDefined();
  });

  test("refuses names, times and transactions that make no sense", async () => {
    const { ledger, options } = stage();
    const wrong = acquireLease(ledger, REPORT, { ...options, leaseMs: 1, waitMs: -1 });
    await expect(wrong).rejects.toThrow(/leaseMs.*waitMs/);
    const nameless = acquireLease(ledger, { scope: GLOBAL, key: "" }, options);
    await expect(nameless).rejects.toMatchObject({ code: "invalid_request" });
    await ledger.transaction(async (tx) => {
      const inside = acquireLease(ledger.in(tx), REPORT, options);
      await expect(inside).rejects.toMatchObject({ code: "unsupported" });
    });
  });
});
