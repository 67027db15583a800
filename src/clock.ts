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

/** The real one. Its timers do not keep a process alive. */
export const systemClock: Clock = {
  nowMs: () => Date.now(),
  steadyMs: () => performance.now(),
  after(delayMs, run) {
    // setTimeout fires at once for delays above 2^31-1 ms. Early is harmless: callers look at the time.
    const timer = setTimeout(run, Math.min(delayMs, 2_147_483_647));
    if (typeof timer === "object" && "unref" in timer) timer.unref();
    return () => {
      clearTimeout(timer);
    };
  },
};

/** The real one for whoever waits for an answer: its timers keep the process alive until they fire. */
export const waitingClock: Clock = {
  ...systemClock,
  after(delayMs, run) {
    const timer = setTimeout(run, Math.min(delayMs, 2_147_483_647));
    return () => {
      clearTimeout(timer);
    };
  },
};
