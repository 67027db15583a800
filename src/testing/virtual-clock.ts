/** Time that stands still until a test moves it. */

import type { Clock } from "../base/clock.ts";

/** A clock that stands still until a test moves it. */
export interface VirtualClock extends Clock {
  /** Timers that have not fired and were not cancelled. */
  readonly pending: number;
  /** Lets time pass. Every timer that becomes due fires, earliest first, at its own time. */
  advance(byMs: number): void;
  /** Sets the wall clock forward or back, as an operator or NTP does. Timers do not change. */
  jump(byMs: number): void;
}

interface Timer {
  readonly dueMs: number;
  readonly run: () => void;
}

/**
 * Creates a clock that moves only when a test moves it. It starts at `startMs` (default 0).
 *
 * ```ts
 * import { createVirtualClock } from "hapax/testing";
 *
 * const clock = createVirtualClock(1_000);
 * const fired: number[] = [];
 * clock.after(20, () => fired.push(clock.nowMs()));
 * clock.after(10, () => fired.push(clock.nowMs()));
 * clock.advance(30);
 * console.assert(fired.join() === "1010,1020" && clock.nowMs() === 1_030);
 * ```
 */
export function createVirtualClock(startMs = 0): VirtualClock {
  const timers = new Set<Timer>();
  // Timers count passed time. The wall clock is passed time plus all jumps.
  let passedMs = 0;
  let wallMs = startMs;

  function earliest(untilMs: number): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of timers) {
      if (timer.dueMs <= untilMs && (first === undefined || timer.dueMs < first.dueMs))
        first = timer;
    }
    return first;
  }

  return {
    nowMs: () => wallMs,
    steadyMs: () => passedMs,
    after(delayMs, run) {
      const timer = { dueMs: passedMs + Math.max(0, delayMs), run };
      timers.add(timer);
      return () => {
        timers.delete(timer);
      };
    },
    get pending() {
      return timers.size;
    },
    advance(byMs) {
      const untilMs = passedMs + byMs;
      for (let timer = earliest(untilMs); timer !== undefined; timer = earliest(untilMs)) {
        timers.delete(timer);
        wallMs += timer.dueMs - passedMs;
        passedMs = timer.dueMs;
        timer.run();
      }
      wallMs += untilMs - passedMs;
      passedMs = untilMs;
    },
    jump(byMs) {
      wallMs += byMs;
    },
  };
}
