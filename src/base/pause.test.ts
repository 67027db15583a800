import { getEventListeners } from "node:events";
import { expect, test } from "vitest";
import { createVirtualClock } from "../testing/virtual-clock.ts";
import { onAnyAbort, unlessAborted } from "./aborts.ts";
import { pause, rest } from "./pause.ts";

test("a pause lets its time pass, and leaves no timer and no listener", async () => {
  const clock = createVirtualClock();
  const [one, other] = [new AbortController(), new AbortController()];
  for (const wait of [pause, rest]) {
    const ended = wait(clock, 100, one.signal, undefined, other.signal).then(() =>
      clock.steadyMs(),
    );
    const startMs = clock.steadyMs();
    clock.advance(99);
    expect(clock.pending).toBe(1);
    clock.advance(1);
    expect(await ended).toBe(startMs + 100);
    expect(clock.pending).toBe(0);
    for (const { signal } of [one, other]) expect(getEventListeners(signal, "abort")).toEqual([]);
  }
});

for (const reason of [new Error("enough"), "enough", null]) {
  test(`a signal ends a pause at once with its reason as it was given: ${String(reason)}`, async () => {
    const clock = createVirtualClock();
    for (const isBefore of [true, false]) {
      const stop = new AbortController();
      const never = new AbortController().signal;
      if (isBefore) stop.abort(reason);
      const paused = pause(clock, 100, never, stop.signal);
      const rested = rest(clock, 100, stop.signal, never);
      const worked = unlessAborted(new Promise(() => undefined), stop.signal);
      if (!isBefore) stop.abort(reason);
      await expect(paused).rejects.toBe(reason);
      await expect(worked).rejects.toBe(reason);
      await rested;
      expect(clock.pending).toBe(0);
      expect(getEventListeners(never, "abort")).toEqual([]);
    }
  });
}

test("the same signal and function may be given twice", () => {
  const stop = new AbortController();
  let runs = 0;
  const run = (): void => {
    runs += 1;
  };
  const unlisten = onAnyAbort([stop.signal, stop.signal], run);
  onAnyAbort([stop.signal], run);
  unlisten();
  expect(getEventListeners(stop.signal, "abort")).toHaveLength(1);
  stop.abort();
  expect(runs).toBe(1);
});
