/** A shop in memory with a ledger, a provider that knows keys, and a carrier that can be asked. */

import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { memoryLedger, type MemoryTransaction } from "../../src/toolkit/ledgers/memory.ts";
import type { Meter } from "../../src/toolkit/meters/meter.ts";
import { defineSaga } from "../../src/toolkit/saga.ts";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";

export interface Order {
  readonly cents: number;
}

export const ID = { scope: "shop", key: "order 1" };
export const REF = { saga: "checkout", ...ID };

/** What is due has been done when this resolves: nothing here waits for anything but promises and the clock. */
export async function flush(): Promise<void> {
  for (let round = 0; round < 20; round += 1) await new Promise((resolve) => setImmediate(resolve));
}

export function stage(given?: Ledger<MemoryTransaction>) {
  const clock = createVirtualClock();
  const ledger = given ?? memoryLedger({ clock });
  const log: string[] = [];
  const keys: string[] = [];
  const faults = new Map<string, (() => unknown)[]>();
  const counted: string[] = [];
  const levels = new Map<string, number>();
  const meter: Meter = {
    add: (name, value, labels = {}) =>
      counted.push(
        ...Array.from({ length: value }, () => `${name} ${Object.values(labels).join(" ")}`),
      ),
    set: (name, value, labels = {}) =>
      void levels.set(`${name} ${Object.values(labels).join(" ")}`, value),
  };
  /** Throws, hangs or returns what the test has planned for the next attempt of this name. */
  const next = async (name: string): Promise<unknown> => await faults.get(name)?.shift()?.();
  const fail = (name: string, ...with_: (() => unknown)[]): void => {
    faults.set(name, [...(faults.get(name) ?? []), ...with_]);
  };
  const write = (tx: MemoryTransaction, text: string): void => {
    log.push(text);
    tx.undo(() => void log.splice(log.lastIndexOf(text), 1));
  };
  const seen = new Map<string, unknown>();
  /** As a provider that takes idempotency keys. */
  const once = (key: string, text: string): void => {
    keys.push(key);
    if (!seen.has(key)) log.push(text);
    seen.set(key, text);
  };
  const retry = { attemptsMax: 3, pauseMs: 100, pauseMsMax: 100 };
  const checkout = defineSaga<Order, MemoryTransaction>("checkout", { deadlineMs: 10_000 })
    .tx("reserve", {
      run: async ({ tx, input }) => {
        write(tx, "reserve");
        await next("reserve");
        return { shelf: input.cents };
      },
      undo: async ({ tx, result }) => {
        write(tx, `release ${result.shelf}`);
        await next("release");
      },
      retry,
    })
    .call("charge", {
      run: async ({ key, results }) => {
        await next("charge before");
        once(key, "charge");
        await next("charge");
        return { receipt: `r${results.reserve.shelf}` };
      },
      undo: async ({ key, outcome }) => {
        once(key, `refund ${outcome.kind === "done" ? outcome.result.receipt : "unknown"}`);
        await next("refund");
      },
      retry,
      timeoutMs: 5_000,
      isFinal: (error) => error instanceof RangeError,
    })
    .probe("label", {
      run: async ({ results }) => {
        await next("label before");
        log.push("label");
        await next("label");
        return { id: `l-${results.charge.receipt}` };
      },
      probe: async () => {
        log.push("asked");
        const answer = await next("probe");
        if (answer === "unknown") return { kind: "unknown" };
        const count = log.filter((one) => one === "label").length;
        const gone = log.filter((one) => one.startsWith("cancel")).length;
        return count > gone ? { kind: "done", result: { id: "l-found" } } : { kind: "not_done" };
      },
      undo: async ({ result }) => {
        await next("cancel before");
        log.push(`cancel ${result.id}`);
        await next("cancel");
      },
      retry,
    })
    .call("send", {
      run: async () => {
        await next("send");
        log.push("send");
      },
      retry: { ...retry, attemptsMax: 1 },
      isFinal: () => true,
    });
  const options = { clock, meter, leaseMs: 1_000 };
  /** Lets time pass, in small steps. */
  const advance = async (ms: number): Promise<void> => {
    await flush();
    for (let passed = 0; passed < ms; passed += 50) {
      clock.advance(50);
      await flush();
    }
  };
  const count = (name: string): number => counted.filter((one) => one.startsWith(name)).length;
  return { clock, ledger, log, keys, fail, checkout, options, advance, count, levels, write, next };
}

export const boom = (): never => {
  throw new Error("boom");
};
