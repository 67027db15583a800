// WD3 WD5: writers whose clocks are wrong. Log time never goes back; what it makes a window forget is refused, not stored again.
import { expect, test } from "vitest";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";
import { objectLog, openWindow } from "../../src/toolkit/window.ts";
import { MemoryObjects } from "./memory-objects.ts";

const START_MS = 1_800_000_000_000;
const HOUR_MS = 3_600_000;
const bytes = new TextEncoder().encode("x");

/** A writer whose clock is wrong by so much. */
function open(objects: MemoryObjects, wrongByMs: number, keysMax = 100) {
  const clock = createVirtualClock(START_MS + wrongByMs);
  const options = { clock, keysMax, timeoutMs: HOUR_MS, clockSkewMs: 0 };
  return openWindow({ log: objectLog(objects), snapshots: objects, ...options });
}

async function timesOf(objects: MemoryObjects): Promise<number[]> {
  const log = objectLog(objects);
  const times: number[] = [];
  for (const { segment } of (await log.extent()).segments)
    for await (const { atMs } of log.read(segment, 0)) times.push(atMs - START_MS);
  return times;
}

test("WD3 a writer whose clock is behind forgets nothing early, and log time does not go back", async () => {
  const objects = new MemoryObjects();
  await (await open(objects, 0)).write("a", bytes);
  const behind = await open(objects, -HOUR_MS);
  await behind.write("b", bytes);
  for (const id of ["a", "b"]) expect((await behind.write(id, bytes)).isDuplicate).toBe(true);
  expect(await timesOf(objects)).toEqual([0, 0]);
});

test("WD3 WD5 a writer whose clock was ahead forgets early, and a retry that says its time is refused", async () => {
  const objects = new MemoryObjects();
  await (await open(objects, 0)).write("a", bytes, { sentAtMs: START_MS });
  const ahead = await open(objects, HOUR_MS);
  await ahead.write("b", bytes);
  // Its log time is an hour later: the window of ten minutes has forgotten the first.
  await expect(ahead.write("a", bytes, { sentAtMs: START_MS })).rejects.toMatchObject({
    code: "key_expired",
  });
  // The next writer's clock is right. Log time stands still until the clock is there again.
  const next = await open(objects, 1_000);
  const sentAtMs = START_MS + 1_000;
  await expect(next.write("a", bytes, { sentAtMs: START_MS })).rejects.toMatchObject({
    code: "key_expired",
  });
  expect((await next.write("c", bytes, { sentAtMs })).isDuplicate).toBe(false);
  for (const id of ["b", "c"]) expect((await next.write(id, bytes)).isDuplicate).toBe(true);
  expect(await timesOf(objects)).toEqual([0, HOUR_MS, HOUR_MS]);
});

test("WD5 after a clock that was ahead, a full window refuses what says an earlier time: it cannot know", async () => {
  const objects = new MemoryObjects();
  const ahead = await open(objects, HOUR_MS, 2);
  for (const id of ["a", "b", "c"]) await ahead.write(id, bytes);
  const next = await open(objects, 0, 2);
  await expect(next.write("d", bytes, { sentAtMs: START_MS })).rejects.toMatchObject({
    code: "key_expired",
  });
  // Without a time it is stored, and counted.
  expect((await next.write("d", bytes)).isDuplicate).toBe(false);
  expect(next.stats.unproven).toBe(1);
});
