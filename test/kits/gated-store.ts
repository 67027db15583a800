/** A store whose commits wait at a gate. A test can then look at the time before a write is durable. */

import type { Change } from "../../src/streams/core/change.ts";
import type { Store } from "../../src/streams/store.ts";

/** A store whose commits wait at a gate until a test lets them through. */
export interface GatedStore extends Store {
  /** The commits that wait, oldest first. */
  readonly waiting: readonly (readonly Change[])[];
  /** Resolves as soon as a commit waits. */
  arrival(): Promise<void>;
  /** Lets the oldest commit through. Resolves when the inner store has taken it. */
  release(): Promise<void>;
  /** Makes the oldest commit fail. It does not reach the inner store. */
  refuse(reason: Error): void;
  /** Lets all commits through from now on. */
  open(): void;
}

interface Waiting {
  readonly changes: readonly Change[];
  readonly pass: () => void;
  readonly fail: (reason: Error) => void;
  readonly passed: Promise<void>;
}

/** Puts a gate before the commits of a store: each waits until it is released. */
export function openGatedStore(inner: Store): GatedStore {
  const queue: Waiting[] = [];
  const arrivals: (() => void)[] = [];
  let isGateOpen = false;

  function enqueue(changes: readonly Change[]): Promise<void> {
    let pass: () => void = () => undefined;
    let fail: (reason: Error) => void = () => undefined;
    const gate = new Promise<void>((resolve, reject) => {
      pass = resolve;
      fail = reject;
    });
    const passed = gate.then(() => inner.commit(changes));
    queue.push({ changes, pass, fail, passed });
    for (const arrive of arrivals.splice(0)) arrive();
    return passed;
  }

  function open(): void {
    isGateOpen = true;
    for (const entry of queue.splice(0)) entry.pass();
  }

  return {
    supports: inner.supports,
    world: inner.world,
    room: inner.room,
    stats: () => inner.stats(),
    get waiting() {
      return queue.map((entry) => entry.changes);
    },
    commit: (changes) => (isGateOpen ? inner.commit(changes) : enqueue(changes)),
    read: (stream, from, to, bytesMax) => inner.read(stream, from, to, bytesMax),
    seek: (...range) => inner.seek(...range),
    arrival() {
      if (queue.length > 0) return Promise.resolve();
      return new Promise((resolve) => arrivals.push(resolve));
    },
    async release() {
      const first = queue.shift();
      if (first === undefined) throw new Error("no commit waits at the gate");
      first.pass();
      await first.passed;
    },
    refuse(reason) {
      const first = queue.shift();
      if (first === undefined) throw new Error("no commit waits at the gate");
      first.fail(reason);
    },
    open,
    async close() {
      open();
      await inner.close();
    },
  };
}
