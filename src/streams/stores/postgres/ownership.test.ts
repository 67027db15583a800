// When a shard is taken from an owner: patience is of the steady clock alone.

import { expect, test } from "vitest";
import { createVirtualClock } from "../../../testing/virtual-clock.ts";
import { takeOver } from "./ownership.ts";
import type { ShardTables } from "./tables.ts";

const LEASE_MS = 1000;
const HOURS_MS = 2 * 3_600_000;

test("G80 a wall clock that is set takes a shard from its owner neither sooner nor later", async () => {
  for (const jumpMs of [HOURS_MS, -HOURS_MS]) {
    const clock = createVirtualClock(10 * HOURS_MS);
    let takes = 0;
    const tables = {
      state: () => Promise.resolve({ epoch: 4, owner: { node: "a", life: "a" }, beat: 7 }),
      take: () => {
        takes += 1;
        return Promise.resolve({ isDone: true, isSure: true, timeMs: 0 });
      },
    } as unknown as ShardTables; // It is asked for nothing else.
    const options = { takeover: "wait", leaseMs: LEASE_MS } as const;
    const taking = takeOver(tables, { node: "b", life: "b" }, clock, options);
    const wait = async (ms: number): Promise<void> => {
      await new Promise((resolve) => setImmediate(resolve));
      clock.advance(ms);
      await new Promise((resolve) => setImmediate(resolve));
    };
    await wait(200);
    clock.jump(jumpMs);
    for (let passedMs = 200; passedMs < LEASE_MS - 200; passedMs += 200) await wait(200);
    expect([jumpMs, takes]).toEqual([jumpMs, 0]);
    await wait(200);
    expect([jumpMs, takes]).toEqual([jumpMs, 1]);
    expect(await taking).toEqual({ epoch: 5, timeMs: 0 });
  }
});
