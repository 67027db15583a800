// processOnce: work that throws, work elsewhere, work in the caller's transaction, and options.
import { describe, expect, test } from "vitest";
import { ERRORS } from "../../src/base/errors.ts";
import type { MemoryTransaction } from "../../src/toolkit/ledgers/memory.ts";
import type { OnceTransactionContext, Reconciled } from "../../src/toolkit/once/options.ts";
import {
  acquireLease,
  createInbox,
  fenced,
  GLOBAL,
  processOnce,
  type ScopedKey,
  setVersion,
} from "../../src/toolkit/ledger.ts";
import { K, stage } from "./stage.ts";

describe("work that throws", () => {
  const fail = (): never => {
    throw new RangeError("too much");
  };

  test("is undone, told as it is, and done again by the next call", async () => {
    const { ledger, effects, write, options, place, count } = stage();
    const error = new RangeError("too much");
    const call = processOnce(
      ledger,
      K,
      ({ tx }) => {
        write(tx, "paid");
        throw error;
      },
      options,
    );
    expect(await call.catch((one) => one)).toBe(error);
    expect(effects).toEqual([]);
    expect(await ledger.entries.find(place)).toMatchObject({ state: "released", attempts: 1 });
    const next = await processOnce(ledger, K, ({ attempt }) => attempt, options);
    expect(next).toMatchObject({ result: 2, isDuplicate: false });
    expect(count("failures_total")).toBe(1);
  });

  test("needs a claim that comes first to be counted for certain", async () => {
    const { ledger, options: base } = stage();
    const contradiction = { ...base, attemptsMax: 3, claimsFirst: false };
    await expect(processOnce(ledger, K, fail, contradiction)).rejects.toMatchObject({
      code: "invalid_options",
    });
  });

  test("is remembered with its name and message, if that is wished", async () => {
    const { ledger, elsewhere, options: base } = stage();
    const options = { ...base, onFailure: "remember" } as const;
    await expect(processOnce(ledger, K, fail, options)).rejects.toBeInstanceOf(RangeError);
    const later = await processOnce(elsewhere(), K, () => 1, options).catch((one) => one);
    expect(later).toMatchObject({
      code: "failure_kept",
      message: "RangeError: too much; scope=* key=k",
      cause: { name: "RangeError", message: "too much" },
    });
  });

  test("is not remembered if it was told to stop", async () => {
    const { ledger, options, place } = stage();
    const stop = new AbortController();
    const call = processOnce(
      ledger,
      K,
      async ({ signal }) => {
        stop.abort(new Error("enough"));
        signal.throwIfAborted();
      },
      { ...options, onFailure: "remember", signal: stop.signal },
    );
    await expect(call).rejects.toThrow("enough");
    expect(await ledger.entries.find(place)).toMatchObject({ state: "released" });
  });

  test("is forgotten, and counts for nothing, if that is wished", async () => {
    const { ledger, options: base, place } = stage();
    const options = { ...base, onFailure: "forget", attemptsMax: 1 } as const;
    await expect(processOnce(ledger, K, fail, options)).rejects.toBeInstanceOf(RangeError);
    expect(await ledger.entries.find(place)).toBeUndefined();
    expect((await processOnce(ledger, K, ({ attempt }) => attempt, options)).result).toBe(1);
  });

  test("OC6 is tried as often as allowed, and no more", async () => {
    const { ledger, options: base } = stage();
    const options = { ...base, attemptsMax: 2 };
    for (let time = 0; time < 2; time += 1)
      await expect(processOnce(ledger, K, fail, options)).rejects.toBeInstanceOf(RangeError);
    const third = processOnce(ledger, K, fail, options);
    await expect(third).rejects.toMatchObject({ code: "attempts_exhausted" });
    expect((await processOnce(ledger, K, () => 1, base)).result).toBe(1);
  });
});

describe("work elsewhere", () => {
  test("has the same key in every attempt, in ASCII, and short", async () => {
    const { ledger, options } = stage();
    const long = "é".repeat(200);
    for (const key of ["order 17", long]) {
      const keys: string[] = [];
      const call = () =>
        processOnce(
          ledger,
          { scope: GLOBAL, key },
          (context) => {
            keys.push(context.key);
            if (keys.length === 1) throw new Error("timeout");
            return context.attempt;
          },
          { ...options, effect: "repeatable" },
        );
      await expect(call()).rejects.toThrow("timeout");
      expect((await call()).result).toBe(2);
      expect(keys[0]).toBe(keys[1]);
      expect(keys[0]).toMatch(/^[\x21-\x7e]{5,255}$/);
    }
  });

  /** A call whose effect happens, and whose answer is lost. */
  const probed = (answers: readonly Reconciled<string>[]) => {
    const { ledger, options, place, count } = stage();
    const log: string[] = [];
    const left = [...answers];
    const call = (extra: { attemptsMax?: number } = {}) =>
      processOnce(
        ledger,
        K,
        ({ attempt }) => {
          log.push(`run ${attempt}`);
          if (attempt === 1) throw new Error("timeout");
          return "receipt";
        },
        {
          ...options,
          ...extra,
          effect: "probed",
          reconcile: async ({ key, attempt }) => {
            log.push(`ask ${key} ${attempt}`);
            const answer = left.shift();
            if (answer === undefined) throw new Error("no answer");
            return answer;
          },
        },
      );
    return { ledger, call, log, place, count };
  };

  test("is asked for before it is repeated, and its result is kept", async () => {
    const { call, log } = probed([{ kind: "done", result: "first receipt" }]);
    await expect(call()).rejects.toThrow("timeout");
    expect(await call()).toMatchObject({ result: "first receipt", isDuplicate: true });
    expect(await call()).toMatchObject({ result: "first receipt", isDuplicate: true });
    expect(log).toEqual(["run 1", "ask */k 1"]);
  });

  test("is repeated only after it was found not to have happened", async () => {
    const { call, log } = probed([{ kind: "not_done" }]);
    await expect(call()).rejects.toThrow("timeout");
    expect(await call()).toMatchObject({ result: "receipt", isDuplicate: false });
    expect(log).toEqual(["run 1", "ask */k 1", "run 2"]);
  });

  test("is not repeated while its outcome is unknown, however often it is called", async () => {
    const { call, log, count, ledger, place } = probed([{ kind: "unknown" }, { kind: "unknown" }]);
    await expect(call()).rejects.toThrow("timeout");
    await expect(call()).rejects.toMatchObject({ code: "outcome_unknown" });
    await expect(call()).rejects.toMatchObject({ code: "outcome_unknown" });
    await expect(call()).rejects.toThrow("no answer");
    expect(log).toEqual(["run 1", "ask */k 1", "ask */k 2", "ask */k 3"]);
    expect(count("unknown_total")).toBe(2);
    expect(await ledger.entries.find(place)).toMatchObject({ state: "running" });
  });

  test("OC5 is still asked for when it may not be repeated any more", async () => {
    const { call, log } = probed([{ kind: "not_done" }, { kind: "done", result: "late" }]);
    await expect(call({ attemptsMax: 1 })).rejects.toThrow("timeout");
    await expect(call({ attemptsMax: 1 })).rejects.toMatchObject({ code: "attempts_exhausted" });
    expect(await call({ attemptsMax: 1 })).toMatchObject({ result: "late" });
    expect(log).toEqual(["run 1", "ask */k 1", "ask */k 1"]);
  });
});

describe("in the caller's transaction", () => {
  const work =
    (write: (tx: MemoryTransaction, text: string) => void) =>
    ({ tx }: OnceTransactionContext<MemoryTransaction>): string => {
      write(tx, "paid");
      return "receipt";
    };

  test("everything stays with it, or goes with it", async () => {
    const { ledger, effects, write, options, place } = stage();
    const call = (tx: MemoryTransaction) => processOnce(ledger.in(tx), K, work(write), options);
    const undone = ledger.transaction(async (tx) => {
      await call(tx);
      expect(effects).toEqual(["paid"]);
      throw new Error("no");
    });
    await expect(undone).rejects.toThrow("no");
    expect([effects, await ledger.entries.find(place)]).toEqual([[], undefined]);
    expect(await ledger.transaction(call)).toMatchObject({ result: "receipt", isDuplicate: false });
    expect(await ledger.transaction(call)).toMatchObject({ result: "receipt", isDuplicate: true });
    expect(await processOnce(ledger, K, () => "other", options)).toMatchObject({
      result: "receipt",
    });
    expect(effects).toEqual(["paid"]);
  });

  test("many at once have one effect", async () => {
    const { ledger, effects, write, options } = stage();
    const calls = Array.from({ length: 10 }, () =>
      ledger.transaction((tx) => processOnce(ledger.in(tx), K, work(write), options)),
    );
    const results = await Promise.all(calls);
    expect(results.filter(({ isDuplicate }) => !isDuplicate)).toHaveLength(1);
    expect(effects).toEqual(["paid"]);
  });

  test("what could not be kept there is refused", async () => {
    const { ledger, options } = stage();
    await ledger.transaction(async (tx) => {
      const inside = ledger.in(tx);
      const unsupported = { code: "unsupported" };
      const elsewhere = { ...options, effect: "repeatable" } as const;
      await expect(processOnce(inside, K, () => 1, elsewhere)).rejects.toMatchObject(unsupported);
      const remembering = { ...options, onFailure: "remember", waitMs: 5 } as const;
      await expect(processOnce(inside, K, () => 1, remembering)).rejects.toMatchObject(unsupported);
    });
  });
});

describe("options of processOnce", () => {
  test("are checked before anything is done, all together", async () => {
    const { ledger, options, place } = stage();
    const wrong = {
      ...options,
      leaseMs: 5,
      retainMs: 1,
      attemptsMax: 0,
      waitMs: -1,
      effect: "probed",
      onFailure: "forget",
      reconcile: async () => ({ kind: "unknown" }) as const,
    } as const;
    const error: unknown = await processOnce(ledger, K, () => 1, wrong).catch((one) => one);
    expect(error).toMatchObject({ code: "invalid_options", help: ERRORS.invalid_options.help });
    for (const name of ["leaseMs", "retainMs", "attemptsMax", "waitMs", "onFailure"])
      expect((error as Error).message).toContain(name);
    expect(await ledger.entries.find(place)).toBeUndefined();
  });

  test("refuse words that are none, and functions that are none", async () => {
    const { ledger, options, place } = stage();
    const calls = [
      processOnce(ledger, K, () => 1, { ...options, effect: "repeatble" } as never),
      processOnce(ledger, K, () => 1, { ...options, onFailure: "never" } as never),
      processOnce(ledger, K, () => 1, { ...options, effect: "probed", reconcile: 1 } as never),
      processOnce(ledger, K, undefined as never, options),
    ];
    for (const call of calls) await expect(call).rejects.toMatchObject({ code: "invalid_options" });
    expect(await ledger.entries.find(place)).toBeUndefined();
  });

  test("an identity without a scope or a key is refused, in every form", async () => {
    const { ledger, options } = stage();
    const rule = "every identity needs a scope: use GLOBAL when keys are not per tenant";
    for (const wrong of [{ key: "k" }, { scope: "", key: "k" }, "k", undefined, null, 1]) {
      // As a program without types may call it.
      const identity = wrong as ScopedKey;
      const refusal = { code: "invalid_request", message: expect.stringContaining(rule) as string };
      const calls = [
        processOnce(ledger, identity, () => 1, options),
        acquireLease(ledger, identity),
        createInbox(ledger, { consumer: "c", retainMs: 1 }).handle(identity, () => 1),
        ledger.transaction((tx) => setVersion(ledger.in(tx), identity, { expected: 0, id: "w" })),
        ledger.transaction((tx) => fenced(ledger.in(tx), identity, 1)),
      ];
      for (const call of calls) await expect(call).rejects.toMatchObject(refusal);
    }
    const keyless = { scope: GLOBAL } as ScopedKey;
    await expect(processOnce(ledger, keyless, () => 1)).rejects.toThrow("key is not a string");
  });

  test("refuse keys that a database cannot keep", async () => {
    const { ledger, options } = stage();
    for (const key of ["", "a\0b", "x".repeat(513), "é".repeat(257), "\ud800"]) {
      const call = processOnce(ledger, { scope: GLOBAL, key }, () => 1, options);
      await expect(call).rejects.toMatchObject({ code: "invalid_request" });
    }
    for (const key of ["x".repeat(512), "é".repeat(256), "👍", " "])
      expect((await processOnce(ledger, { scope: GLOBAL, key }, () => 1, options)).result).toBe(1);
  });
});

test("times that no transaction of the ledger may take are refused by name", async () => {
  const { ledger, options } = stage();
  const short = { ...ledger, supports: { ...ledger.supports, transactionMsMax: 30_000 } };
  for (const word of ["leaseMs", "workMsMax"]) {
    const call = processOnce(short, K, () => 1, { ...options, [word]: 30_001 });
    await expect(call).rejects.toMatchObject({
      code: "unsupported",
      message: expect.stringContaining(`${word}=30001 transactionMsMax=30000`),
    });
  }
  expect((await processOnce(short, K, () => 1, options)).result).toBe(1);
});
