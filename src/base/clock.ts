/** PORT. Time comes in through this door only, so that a test can move it. */

/** A source of time. Everything that waits or looks at the clock gets one as an argument. */
export interface Clock {
  /** Wall-clock milliseconds since 1970. May jump. */
  nowMs(): number;
  /** Milliseconds of a clock that nobody sets: it only runs. Its zero means nothing. */
  steadyMs(): number;
  /** Calls `run` once after `delayMs`; the returned function cancels it. */
  after(delayMs: number, run: () => void): () => void;
}

/** setTimeout fires at once for longer delays. Early is harmless: callers look at the time. */
const DELAY_MS_MAX = 2_147_483_647;

/** The real one. Its timers do not keep a process alive. */
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

/** The real one for whoever waits for an answer: its timers keep the process alive until they fire. */
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
