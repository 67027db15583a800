// processOnce: who does the work, who joins, who waits, and what they get.
import { describe, expect, test } from "vitest";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import type { MemoryTransaction } from "../../src/toolkit/ledgers/memory.ts";
import { GLOBAL, InProgress, processOnce } from "../../src/toolkit/ledger.ts";
import { K, flush, gate, stage } from "./stage.ts";

describe("processOnce", () => {
  test("does the work once, and answers its result to everybody who asks again", async () => {
    const { ledger, effects, write, options, count, levels, clock } = stage();
    const pay = (): Promise<unknown> =>
      processOnce(
        ledger,
        K,
        ({ tx, attempt }) => {
          write(tx, "paid");
          return { attempt };
        },
        { ...options, retainMs: 10_000 },
      );
    expect(await pay()).toEqual({ result: { attempt: 1 }, isDuplicate: false, token: 1 });
    clock.advance(2_500);
    expect(await pay()).toEqual({ result: { attempt: 1 }, isDuplicate: true, token: 1 });
    expect(effects).toEqual(["paid"]);
    expect([count("claims_total"), count("duplicates_total")]).toEqual([1, 1]);
    expect(levels.get("window_headroom_ratio")).toBe(0.75);
    clock.advance(7_500);
    expect(await pay()).toMatchObject({ isDuplicate: false });
    expect(effects).toEqual(["paid", "paid"]);
  });

  test("keeps the keys of two scopes apart, with any characters", async () => {
    const { ledger, options } = stage();
    const places = [
      ["a", "b/c"],
      ["a/b", "c"],
      ['a","b', "c"],
      ["a", 'b","c'],
      ["A", "b/c"],
      ["ä", "b%2Fc"],
    ] as const;
    for (const [scope, key] of places)
      await processOnce(ledger, { scope, key }, () => `${scope} ${key}`, options);
    const keys = new Set<string>();
    for (const [scope, key] of places) {
      const { result } = await processOnce(ledger, { scope, key }, () => "other", options);
      expect(result).toBe(`${scope} ${key}`);
      const call = { ...options, effect: "repeatable" } as const;
      await processOnce(
        ledger,
        { scope: `elsewhere ${scope}`, key },
        (context) => void keys.add(context.key),
        call,
      );
    }
    expect(keys.size).toBe(places.length);
  });

  test("lets all callers of one process have the outcome of one", async () => {
    const { ledger, effects, write, options } = stage();
    const { opened, open } = gate();
    const calls = Array.from({ length: 64 }, (_, index) =>
      processOnce(
        ledger,
        K,
        async ({ tx }) => {
          await opened;
          write(tx, `paid by ${index}`);
          return { index };
        },
        options,
      ),
    );
    await flush();
    open();
    const results = await Promise.all(calls);
    expect(effects).toEqual(["paid by 0"]);
    expect(new Set(results.map(({ result }) => result.index))).toEqual(new Set([0]));
    expect(results.filter(({ isDuplicate }) => !isDuplicate)).toHaveLength(1);
    // Each caller has a result of its own: no caller can change another one's.
    expect(new Set(results.map(({ result }) => result)).size).toBe(64);
  });

  test("lets those who have joined decide anew when the work has failed", async () => {
    const { ledger, options } = stage();
    let runs = 0;
    const call = (): Promise<unknown> =>
      processOnce(
        ledger,
        K,
        async () => {
          runs += 1;
          const run = runs;
          await flush();
          if (run < 3) throw new Error(`failure ${run}`);
          return run;
        },
        options,
      );
    const outcomes = await Promise.allSettled([call(), call(), call(), call()]);
    const told = outcomes.map((one) =>
      one.status === "fulfilled" ? one.value : (one.reason as Error).message,
    );
    expect(told.filter((one) => typeof one === "string")).toEqual(["failure 1", "failure 2"]);
    expect(told.filter((one) => typeof one === "object")).toMatchObject([
      { result: 3 },
      { result: 3 },
    ]);
    expect(runs).toBe(3);
  });

  test("OC4 refuses other content at once, while the first is running and afterwards", async () => {
    const { ledger, elsewhere, options, count } = stage();
    const { opened, open } = gate();
    const call = (from: Ledger<MemoryTransaction>, fingerprint: string) =>
      processOnce(from, K, () => opened.then(() => fingerprint), {
        ...options,
        effect: "repeatable",
        fingerprint,
      });
    const first = call(ledger, "a");
    const early = call(ledger, "b");
    await expect(early).rejects.toMatchObject({ code: "key_reused" });
    await expect(call(ledger, "b")).rejects.toMatchObject({ code: "key_reused" });
    await expect(call(elsewhere(), "b")).rejects.toMatchObject({ code: "key_reused" });
    open();
    expect((await first).result).toBe("a");
    await expect(call(ledger, "b")).rejects.toMatchObject({ code: "key_reused" });
    expect((await call(ledger, "a")).isDuplicate).toBe(true);
    expect(count("mismatches_total")).toBe(4);
  });

  test("gives the key's own content its result, also beside one with other content", async () => {
    const { ledger, options } = stage();
    const call = (fingerprint: string) =>
      processOnce(ledger, K, () => fingerprint, { ...options, fingerprint });
    await call("a");
    const [wrong, right] = await Promise.allSettled([call("b"), call("a")]);
    expect(wrong).toMatchObject({ status: "rejected", reason: { code: "key_reused" } });
    expect(right).toMatchObject({ status: "fulfilled", value: { result: "a" } });
  });

  test("stops waiting for the call that it has joined when its own signal aborts", async () => {
    const { ledger, options } = stage();
    const { opened, open } = gate();
    const first = processOnce(ledger, K, () => opened.then(() => 1), options);
    const stop = new AbortController();
    const joined = processOnce(ledger, K, () => 2, { ...options, signal: stop.signal });
    await flush();
    stop.abort(new Error("enough"));
    await expect(joined).rejects.toThrow("enough");
    open();
    expect((await first).result).toBe(1);
  });

  test("says at once that another process is at it, and when it could be taken over", async () => {
    const { ledger, elsewhere, options, clock, count } = stage();
    const { opened, open } = gate();
    const call = { ...options, effect: "repeatable" } as const;
    const first = processOnce(ledger, K, () => opened, call);
    await flush();
    clock.advance(300);
    const error: unknown = await processOnce(elsewhere(), K, () => 2, call).catch((one) => one);
    expect(error).toBeInstanceOf(InProgress);
    expect(error).toMatchObject({
      code: "in_progress",
      status: 409,
      retry: "later",
      retryAfterMs: 700,
    });
    expect(count("in_progress_total")).toBe(1);
    open();
    await first;
  });

  test("waits for the result of another process for as long as it was told", async () => {
    const { ledger, elsewhere, options, clock } = stage();
    const { opened, open } = gate();
    const call = { ...options, effect: "repeatable" } as const;
    const first = processOnce(ledger, K, () => opened.then(() => 1), call);
    await flush();
    const patient = processOnce(elsewhere(), K, () => 2, { ...call, waitMs: 5_000 });
    const hasty = processOnce(elsewhere(), K, () => 3, { ...call, waitMs: 500 });
    hasty.catch(() => undefined);
    const tick = async (times: number): Promise<void> => {
      for (let time = 0; time < times; time += 1) {
        clock.advance(50);
        await flush();
      }
    };
    await tick(40);
    await expect(hasty).rejects.toMatchObject({ code: "in_progress" });
    open();
    await flush();
    await tick(40);
    expect([await first, await patient]).toMatchObject([
      { result: 1 },
      { result: 1, isDuplicate: true },
    ]);
  });

  test("takes the work over while it waits, when the lease of the other is over", async () => {
    const { ledger, elsewhere, options, clock, place, count } = stage();
    await ledger.entries.put(
      place,
      { kind: "absent" },
      {
        state: "running",
        token: "next",
        attempts: 1,
        leaseMs: 700,
        keepMs: 60_000,
        fingerprint: { value: undefined },
        data: { value: undefined },
      },
    );
    const heir = processOnce(elsewhere(), K, ({ attempt, token }) => [attempt, token], {
      ...options,
      waitMs: 5_000,
    });
    for (let time = 0; time < 15; time += 1) {
      clock.advance(50);
      await flush();
    }
    // The token is the time of the takeover, in microseconds.
    expect((await heir).result).toEqual([2, 700_000]);
    expect(count("takeovers_total")).toBe(1);
  });

  test("stops waiting when its signal aborts", async () => {
    const { ledger, elsewhere, options } = stage();
    const { opened, open } = gate();
    const call = { ...options, effect: "repeatable" } as const;
    const first = processOnce(ledger, K, () => opened, call);
    await flush();
    const stop = new AbortController();
    const patient = { ...call, waitMs: 60_000, signal: stop.signal };
    const waiting = processOnce(elsewhere(), K, () => 2, patient);
    await flush();
    stop.abort(new Error("enough"));
    await expect(waiting).rejects.toThrow("enough");
    open();
    await first;
  });

  test("CK4 is not told that its claim is lost while its transaction excludes everybody", async () => {
    const { ledger, options, clock } = stage();
    const { opened, open } = gate();
    const call = processOnce(
      ledger,
      K,
      async ({ signal }) => {
        await opened;
        return signal.aborted;
      },
      options,
    );
    for (let time = 0; time < 100; time += 1) {
      clock.advance(50);
      await flush();
    }
    open();
    expect((await call).result).toBe(false);
    expect(clock.pending).toBe(0);
  });

  test("answers the first caller what it answers the others", async () => {
    const { ledger, options } = stage();
    const call = () =>
      processOnce(ledger, K, () => ({ at: new Date(0), none: undefined }), options);
    const first = await call();
    expect(first.result).toEqual({ at: "1970-01-01T00:00:00.000Z" });
    expect((await call()).result).toEqual(first.result);
  });

  test("keeps undefined, null and every value of a codec", async () => {
    const { ledger, options } = stage();
    for (const [key, result] of [
      ["u", undefined],
      ["n", null],
      ["f", false],
      ["s", ""],
    ] as const) {
      const call = () =>
        processOnce<MemoryTransaction, unknown>(
          ledger,
          { scope: GLOBAL, key },
          () => result,
          options,
        );
      expect([(await call()).result, (await call()).result]).toEqual([result, result]);
    }
    const codec = {
      encode: (value: bigint) => new TextEncoder().encode(value.toString()),
      decode: (bytes: Uint8Array) => BigInt(new TextDecoder().decode(bytes)),
    };
    const big = () =>
      processOnce(ledger, { scope: GLOBAL, key: "b" }, () => 2n ** 70n, { ...options, codec });
    expect([(await big()).result, (await big()).result]).toEqual([2n ** 70n, 2n ** 70n]);
  });

  test("undoes work whose result cannot be kept as it is", async () => {
    const { ledger, effects, write, options } = stage();
    const cycle: { self?: unknown } = {};
    cycle.self = cycle;
    for (const result of [
      1n,
      cycle,
      () => 1,
      { deep: [() => 1] },
      NaN,
      Symbol("s"),
      new Map([["a", 1]]),
      { deep: new Set([1]) },
      new Uint8Array(2),
      [1, undefined],
      { toJSON: () => undefined },
      "x".repeat(99),
    ]) {
      const call = processOnce<MemoryTransaction, unknown>(
        ledger,
        K,
        ({ tx }) => {
          write(tx, "paid");
          return result;
        },
        { ...options, resultBytesMax: 100 },
      );
      await expect(call).rejects.toMatchObject({ code: "invalid_request" });
      expect(effects).toEqual([]);
    }
  });
});
