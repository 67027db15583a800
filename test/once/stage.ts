/** A ledger in memory whose time is moved by hand, with business data that is undone with its transaction. */

import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { memoryLedger, type MemoryTransaction } from "../../src/toolkit/ledgers/memory.ts";
import type { Meter } from "../../src/toolkit/meters/meter.ts";
import { GLOBAL, type ScopedKey } from "../../src/toolkit/ledger.ts";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";

/** The key of tests that need only one. */
export const K: ScopedKey = { scope: GLOBAL, key: "k" };

/** What is due has been done when this resolves: nothing here waits for anything but promises. */
export const flush = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

export interface Gate {
  readonly opened: Promise<void>;
  readonly open: () => void;
}

export function gate(): Gate {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}

export function stage() {
  const clock = createVirtualClock();
  const ledger = memoryLedger({ clock });
  const counted: string[] = [];
  const levels = new Map<string, number>();
  const meter: Meter = {
    add: (name, value) => counted.push(...Array.from({ length: value }, () => name)),
    set: (name, value) => void levels.set(name, value),
  };
  const effects: string[] = [];
  const write = (tx: MemoryTransaction, text: string): void => {
    effects.push(text);
    tx.undo(() => void effects.splice(effects.lastIndexOf(text), 1));
  };
  const options = { clock, meter, leaseMs: 1_000 };
  /** A ledger as another process has it: it shares no running work with this one. */
  const elsewhere = (): Ledger<MemoryTransaction> => ({ ...ledger });
  const place = { kind: "once", ...K };
  const count = (name: string): number => counted.filter((one) => one === name).length;
  return { clock, ledger, elsewhere, effects, write, options, place, count, levels };
}
