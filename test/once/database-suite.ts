/** What processOnce, the inbox, leases and versions must do on every database. */

import { expect, test } from "vitest";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import {
  acquireLease,
  createHybridClock,
  createInbox,
  createSweeper,
  fenced,
  getNewest,
  GLOBAL,
  processOnce,
  setIfNewer,
  setVersion,
} from "../../src/toolkit/ledger.ts";

export interface Target<Tx> {
  /** As another process has it. */
  open(): Promise<Ledger<Tx>>;
  write(tx: Tx, text: string): Promise<void>;
  /** Whether such a text was committed, and how often. */
  count(text: string): Promise<number>;
}

let last = 0;
/** A key that no other test has. */
export const fresh = (): string => `key ${(last += 1)}`;

export function databaseSuite<Tx>(target: Target<Tx>): void {
  test("of 64 callers in four processes one has the effect, and all get its result", async () => {
    const key = fresh();
    const ledgers = await Promise.all([1, 2, 3, 4].map(() => target.open()));
    const calls = ledgers.flatMap((ledger, process) =>
      Array.from({ length: 16 }, () =>
        processOnce(
          ledger,
          { scope: GLOBAL, key },
          async ({ tx }) => {
            await target.write(tx, key);
            return process;
          },
          { waitMs: 10_000 },
        ),
      ),
    );
    const results = await Promise.all(calls);
    expect(new Set(results.map(({ result }) => result)).size).toBe(1);
    expect(results.filter(({ isDuplicate }) => !isDuplicate)).toHaveLength(1);
    expect(await target.count(key)).toBe(1);
  });

  test("work that uses its own key in its transaction is refused, and runs once", async () => {
    const [key, ledger] = [fresh(), await target.open()];
    let runs = 0;
    const call = processOnce(ledger, { scope: GLOBAL, key }, async ({ tx }) => {
      runs += 1;
      await target.write(tx, key);
      await processOnce(ledger.in(tx), { scope: GLOBAL, key }, () => "inside");
    });
    await expect(call).rejects.toMatchObject({
      code: "invalid_request",
      message: expect.stringContaining("its own key"),
    });
    expect([runs, await target.count(key)]).toEqual([1, 0]);
  });

  test.each([false, true])(
    "work that throws leaves nothing, and is done by the next call (claimsFirst: %s)",
    async (claimsFirst) => {
      const key = fresh();
      const ledger = await target.open();
      const call = (isFailure: boolean) =>
        processOnce(
          ledger,
          { scope: GLOBAL, key },
          async ({ tx, attempt }) => {
            await target.write(tx, key);
            if (isFailure) throw new RangeError("no");
            return attempt;
          },
          { claimsFirst },
        );
      await expect(call(true)).rejects.toBeInstanceOf(RangeError);
      expect(await target.count(key)).toBe(0);
      expect(await call(false)).toMatchObject({ result: 2, isDuplicate: false });
      expect(await call(false)).toMatchObject({ result: 2, isDuplicate: true });
      expect(await target.count(key)).toBe(1);
    },
  );

  test("a failure is remembered, or forgotten, as was wished", async () => {
    const key = fresh();
    const ledger = await target.open();
    const fail = (): never => {
      throw new RangeError("no");
    };
    const options = { attemptsMax: 1 };
    await expect(
      processOnce(ledger, { scope: GLOBAL, key }, fail, { ...options, onFailure: "forget" }),
    ).rejects.toThrow("no");
    await expect(
      processOnce(ledger, { scope: GLOBAL, key }, fail, { ...options, onFailure: "remember" }),
    ).rejects.toThrow("no");
    await expect(
      processOnce(ledger, { scope: GLOBAL, key }, () => 1, options),
    ).rejects.toMatchObject({
      code: "failure_kept",
      cause: { name: "RangeError" },
    });
  });

  test("OC5 work elsewhere that was left is asked for", async () => {
    const key = fresh();
    const ledger = await target.open();
    const asked: string[] = [];
    const call = () =>
      processOnce(
        ledger,
        { scope: GLOBAL, key },
        (): string => {
          throw new Error("timeout");
        },
        {
          effect: "probed",
          reconcile: async (question) => {
            asked.push(question.key);
            return { kind: "done", result: "found" };
          },
        },
      );
    await expect(call()).rejects.toThrow("timeout");
    expect(await call()).toMatchObject({ result: "found", isDuplicate: true });
    expect(asked).toHaveLength(1);
  });

  test("in the caller's transaction everything stays or goes with it", async () => {
    const key = fresh();
    const ledgers = [await target.open(), await target.open()] as const;
    const call = (ledger: Ledger<Tx>, isUndone: boolean) =>
      ledger.transaction(async (tx) => {
        const once = await processOnce(ledger.in(tx), { scope: GLOBAL, key }, async (context) => {
          await target.write(context.tx, key);
          return "done";
        });
        if (isUndone) throw new Error("no");
        return once.isDuplicate;
      });
    await expect(call(ledgers[0], true)).rejects.toThrow("no");
    expect(await target.count(key)).toBe(0);
    const all = await Promise.all(
      [0, 1, 0, 1].map((one) => call(ledgers[one === 0 ? 0 : 1], false)),
    );
    expect(all.filter((isDuplicate) => !isDuplicate)).toHaveLength(1);
    expect(await target.count(key)).toBe(1);
  });

  test("a message has its effect once, also beside a delivery that fails", async () => {
    const id = fresh();
    const inboxes = await Promise.all(
      [1, 2, 3].map(async () =>
        createInbox(await target.open(), { consumer: "billing", retainMs: 60_000 }),
      ),
    );
    const handle = async (index: number) =>
      await inboxes[index % 3]?.handle({ scope: "shop", key: id }, async (tx) => {
        await target.write(tx, id);
        if (index === 0) throw new Error("no");
      });
    const all = await Promise.allSettled(Array.from({ length: 12 }, (_, index) => handle(index)));
    const told = all.map((one) => (one.status === "fulfilled" ? one.value?.isDuplicate : "failed"));
    expect(told.filter((one) => one === false)).toHaveLength(1);
    expect(told.filter((one) => typeof one !== "boolean").length).toBeLessThan(2);
    expect(await target.count(id)).toBe(1);
  });

  test("a lease has one holder, and the one before commits nothing", async () => {
    const name = fresh();
    const ledgers = await Promise.all([1, 2, 3].map(() => target.open()));
    const held = await Promise.all(
      ledgers.map((ledger) =>
        acquireLease(ledger, { scope: GLOBAL, key: name }, { leaseMs: 60_000 }),
      ),
    );
    const [lease, ...others] = held.filter((one) => one !== undefined);
    expect(others).toEqual([]);
    if (lease === undefined) throw new Error("the lease has no holder");
    await lease.transaction((tx) => target.write(tx, name));
    await lease.release();
    const [ledger] = ledgers;
    if (ledger === undefined) throw new Error("there is no ledger");
    const next = await acquireLease(ledger, { scope: GLOBAL, key: name }, { leaseMs: 60_000 });
    expect(next?.token).toBeGreaterThan(lease.token);
    const late = lease.transaction((tx) => target.write(tx, name));
    await expect(late).rejects.toMatchObject({ code: "lease_lost" });
    const identity = { scope: GLOBAL, key: name };
    await ledger.transaction((tx) => fenced(ledger.in(tx), identity, next?.token ?? 0));
    await next?.release();
    expect(await target.count(name)).toBe(1);
  });

  test("of writes at once that expect the same version one is applied", async () => {
    const key = fresh();
    const ledgers = await Promise.all([1, 2, 3].map(() => target.open()));
    for (const expected of [0, 1]) {
      const write = (ledger: Ledger<Tx>, id: string) =>
        ledger.transaction((tx) =>
          setVersion(ledger.in(tx), { scope: "s", key }, { expected, id }),
        );
      const all = await Promise.all(ledgers.map((ledger, index) => write(ledger, `${index}`)));
      expect(all.filter(({ kind }) => kind === "applied")).toHaveLength(1);
      expect(all.filter(({ kind }) => kind === "conflict")).toHaveLength(2);
      const winner = all.findIndex(({ kind }) => kind === "applied");
      const [ledger] = ledgers;
      if (ledger === undefined) throw new Error("there is no ledger");
      expect(await write(ledger, `${winner}`)).toEqual({
        kind: "duplicate",
        version: expected + 1,
      });
    }
  });

  test("of writes with stamps the newest stays, in every order and of many at once", async () => {
    const thing = { scope: "s", key: fresh() };
    const ledgers = await Promise.all([1, 2, 3].map(() => target.open()));
    const clock = createHybridClock({ node: "a" });
    const stamps = Array.from({ length: 9 }, () => clock.now());
    const value = new TextEncoder().encode("value");
    const all = await Promise.all(
      stamps.toReversed().map((stamp, index) => {
        const ledger = ledgers[index % 3];
        if (ledger === undefined) throw new Error("there is no ledger");
        return index % 2 === 0
          ? setIfNewer(ledger, thing, { stamp, value })
          : ledger.transaction((tx) => setIfNewer(ledger.in(tx), thing, { stamp, value }));
      }),
    );
    expect(all.every(({ kind }) => kind === "applied" || kind === "older")).toBe(true);
    const [ledger] = ledgers;
    if (ledger === undefined) throw new Error("there is no ledger");
    expect(await getNewest(ledger, thing)).toEqual({ stamp: stamps.at(-1), value });
  });

  test("what is past its retention is deleted, and nothing else", async () => {
    const [old, young] = [fresh(), fresh()];
    const ledger = await target.open();
    const note = (id: string, retainMs: number) =>
      createInbox(ledger, { consumer: "swept", retainMs }).handle({ scope: "s", key: id }, () => 1);
    await note(old, 1);
    await note(young, 60_000);
    const sweeper = createSweeper(ledger, { batchMax: 3, pauseMs: 0 });
    const left = async () =>
      (await ledger.entries.scan({ kind: "inbox", max: 100 })).map(({ place }) => place.key);
    while ((await left()).includes(old)) await sweeper.sweepOnce();
    expect(await left()).toContain(young);
  });
}
