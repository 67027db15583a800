/** PORT. All time comes from a `Clock`, so that a test can move it. */

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

/** The system's clock. Its timers do not keep a process alive. */
export const systemClock: Clock = {
  nowMs: () => Date.now(),
  steadyMs: () => performance.now(),
  after(delayMs, run) {
    const timer = setTimeout(run, Math.min(delayMs, DELAY_MS_MAX));
    if (typeof timer === "object" && "unref" in timer) timer.unref();
    return () => {
      clearTimeout(timer);
    };
  },
};

/** The system's clock for callers that wait for an answer. Its timers keep the process alive until they fire. */
export const waitingClock: Clock = {
  nowMs: () => Date.now(),
  steadyMs: () => performance.now(),
  after(delayMs, run) {
    const timer = setTimeout(run, Math.min(delayMs, DELAY_MS_MAX));
    return () => {
      clearTimeout(timer);
    };
  },
};
