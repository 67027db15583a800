// processOnce: a process that gets its claim, or the permission to repeat, too late does not begin the work.
import { getEventListeners } from "node:events";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import type { Clock } from "../../src/base/clock.ts";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import type { MemoryTransaction } from "../../src/toolkit/ledgers/memory.ts";
import type { OnceProbed, Reconciled } from "../../src/toolkit/once/options.ts";
import { GLOBAL, processOnce } from "../../src/toolkit/ledger.ts";
import { onAbort } from "../../src/base/aborts.ts";
import { K, flush, gate, stage } from "./stage.ts";

/** As a process has it that was stopped and goes on: time has passed, and no timer has come by yet. */
function stopped(clock: Clock): Clock {
  return { ...clock, steadyMs: () => clock.steadyMs(), after: () => () => undefined };
}

function probed(base: ReturnType<typeof stage>["options"]) {
  const charges: string[] = [];
  const charge = (who: string) => () => {
    charges.push(who);
    return who;
  };
  const reconcile = async (): Promise<Reconciled<string>> => {
    const [result] = charges;
    return result === undefined ? { kind: "not_done" } : { kind: "done", result };
  };
  const options: OnceProbed<string> = { ...base, effect: "probed", reconcile };
  return { charges, charge, options };
}

test("CK2 work whose claim was answered after its lease is not begun", async () => {
  const { clock, ledger, elsewhere, options: base } = stage();
  const { charges, charge, options } = probed(base);
  const [written, answer] = [gate(), gate()];
  const slow: Ledger<MemoryTransaction> = {
    ...ledger,
    entries: {
      ...ledger.entries,
      async put(...args) {
        const put = await ledger.entries.put(...args);
        written.open();
        await answer.opened;
        return put;
      },
    },
  };
  const first = processOnce(slow, K, charge("first"), options).catch((error) => error);
  await written.opened;
  clock.advance(1_001);
  await processOnce(elsewhere(), K, charge("second"), options);
  answer.open();
  expect(await first).toMatchObject({ code: "lease_lost" });
  expect(charges).toEqual(["second"]);
});

test("CK2 work is not begun on an answer of reconcile that came after the lease", async () => {
  const { clock, ledger, elsewhere, options: base } = stage();
  const { charges, charge, options } = probed(base);
  const lost = processOnce(
    ledger,
    K,
    () => {
      throw new Error("no answer");
    },
    options,
  );
  await expect(lost).rejects.toThrow("no answer");
  const [asked, answer] = [gate(), gate()];
  const first = processOnce(ledger, K, charge("first"), {
    ...options,
    clock: stopped(clock),
    async reconcile(): Promise<Reconciled<string>> {
      asked.open();
      await answer.opened;
      return { kind: "not_done" };
    },
  }).catch((error) => error);
  await asked.opened;
  clock.advance(1_001);
  await processOnce(elsewhere(), K, charge("second"), options);
  answer.open();
  expect(await first).toMatchObject({ code: "lease_lost" });
  expect(charges).toEqual(["second"]);
});

test("the signal that work has heard goes with it, however long the caller's lives", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const { ledger, options } = stage();
  const stop = new AbortController();
  const heard: WeakRef<AbortSignal>[] = [];
  for (let time = 0; time < 10; time += 1)
    await processOnce(
      ledger,
      { scope: GLOBAL, key: `k${time}` },
      ({ signal }) => {
        signal.addEventListener("abort", () => undefined);
        heard.push(new WeakRef(signal));
      },
      { ...options, signal: stop.signal },
    );
  // What a turn has seen stays until its end.
  await flush();
  collect();
  expect(heard.filter((one) => one.deref() !== undefined).length).toBeLessThan(3);
  expect(getEventListeners(stop.signal, "abort")).toEqual([]);
});

test("the signal of the work aborts with the caller's, and with the reason of it", async () => {
  const { ledger, options } = stage();
  const stop = new AbortController();
  const reason = new Error("enough");
  for (const isBefore of [false, true]) {
    const call = processOnce(
      ledger,
      K,
      async ({ signal }) => {
        if (!isBefore) stop.abort(reason);
        signal.throwIfAborted();
      },
      { ...options, signal: stop.signal },
    );
    await expect(call).rejects.toBe(reason);
  }
});

test("many calls at once share one listener of the caller's signal, and an abort ends them all", async () => {
  const { ledger, options } = stage();
  const stop = new AbortController();
  const call = (key: string) =>
    processOnce(
      ledger,
      { scope: GLOBAL, key },
      ({ signal }) => new Promise((_, reject) => onAbort(signal, () => reject(signal.reason))),
      { ...options, effect: "repeatable", signal: stop.signal },
    );
  // Half of them work, and half have joined.
  const calls = Array.from({ length: 40 }, (_, index) => call(`k${index % 20}`));
  await flush();
  expect(getEventListeners(stop.signal, "abort")).toHaveLength(1);
  const reason = new Error("enough");
  stop.abort(reason);
  for (const one of await Promise.allSettled(calls)) expect(one).toMatchObject({ reason });
  expect(getEventListeners(stop.signal, "abort")).toEqual([]);
});
