/** PORT. All time comes from a `Clock`, so that a test can move it. */

import { SteadyTime } from "./steady-time.ts";

/** A source of time. Everything that waits or reads the time takes one as an argument. */
export interface Clock {
  /** Wall-clock milliseconds since 1970. May jump. */
  nowMs(): number;
  /** Milliseconds of a monotonic clock: it never jumps. Its zero means nothing. */
  steadyMs(): number;
  /** Calls `run` once after `delayMs`. The returned function cancels it. */
  after(delayMs: number, run: () => void): () => void;
}

/** setTimeout fires at once for longer delays. A timer that fires early is harmless: callers look at the time. */
const DELAY_MS_MAX = 2_147_483_647;
/** `performance.now()` counts from the start of the process. Above this it counts from 1970: it is the wall clock, as on Workers. */
const WALL_MS_MIN = 1e12;
/** One for all objects of a program: time passes for all of them alike. */
const steadyTime = /* @__PURE__ */ new SteadyTime();

function steadyMs(): number {
  const readMs = performance.now();
  return readMs < WALL_MS_MIN ? readMs : steadyTime.read(readMs);
}

type Timer = ReturnType<typeof setTimeout>;

function startTimer(delayMs: number, run: () => void): { timer: Timer; cancel: () => void } {
  const cappedMs = Math.min(delayMs, DELAY_MS_MAX);
  const readMs = performance.now();
  if (readMs < WALL_MS_MIN) {
    const timer = setTimeout(run, cappedMs);
    return { timer, cancel: () => clearTimeout(timer) };
  }
  const pending = steadyTime.begin(cappedMs, readMs);
  const timer = setTimeout(() => {
    steadyTime.fire(pending, performance.now());
    run();
  }, cappedMs);
  return {
    timer,
    cancel() {
      steadyTime.cancel(pending);
      clearTimeout(timer);
    },
  };
}

/** The system's clock. Its timers do not keep a process alive. */
export const systemClock: Clock = {
  nowMs: () => Date.now(),
  steadyMs,
  after(delayMs, run) {
    const { timer, cancel } = startTimer(delayMs, run);
    if (typeof timer === "object" && "unref" in timer) timer.unref();
    return cancel;
  },
};

/** The system's clock for callers that wait for an answer. Its timers keep the process alive until they fire. */
export const waitingClock: Clock = {
  nowMs: () => Date.now(),
  steadyMs,
  after: (delayMs, run) => startTimer(delayMs, run).cancel,
};

/**
 * The clock of the client, which is as small as web pages want it. On Workers, where `performance.now()` is the wall clock, setting
 * that clock ends the client's waits early or late; `waitingClock` is larger and does not have this weakness.
 */
export const clientClock: Clock = {
  nowMs: () => Date.now(),
  steadyMs: () => performance.now(),
  after(delayMs, run) {
    const timer = setTimeout(run, Math.min(delayMs, DELAY_MS_MAX));
    return () => {
      clearTimeout(timer);
    };
  },
};
