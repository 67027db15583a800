/**
 * A steady clock made of one that may jump. Workers have no other: `performance.now()` is the wall clock there.
 *
 * It adds up what passes between two readings, and believes timers more than readings, because the clock of timers is never set:
 *
 *   - it never goes back: a step back counts nothing;
 *   - a timer that fires proves that its delay has passed, also against the clock;
 *   - a step of more than a second ends at the first timer that has not fired yet: it would have fired. Without a timer a
 *     step counts whole, since the program may have been idle for that long.
 *
 * A timer may vanish with the request or the object that set it. Such a timer can hold up one step, and is then forgotten. So
 * objects of one program can share this clock, and no object can stop it for the others.
 */

/** Smaller steps are always believed: a lease or a wait that matters is longer. */
const STEP_MS = 1_000;
/** Timers from which it looks for those that have vanished. */
const SWEEP_MIN = 64;

/** A timer that has not fired. */
export interface PendingTimer {
  readonly dueMs: number;
}

export class SteadyTime {
  readonly #pending = new Set<PendingTimer>();
  #sweepAt = SWEEP_MIN;
  #readMs: number | undefined;
  #passedMs = 0;

  /** The time that has passed, given what the clock that may jump says now. */
  read(clockMs: number): number {
    let stepMs = clockMs - (this.#readMs ?? clockMs);
    this.#readMs = clockMs;
    if (stepMs > STEP_MS) {
      stepMs = Math.max(STEP_MS, Math.min(stepMs, this.#firstDueMs() - this.#passedMs));
    }
    if (stepMs > 0) this.#passedMs += stepMs;
    return this.#passedMs;
  }

  /** A timer begins. */
  begin(delayMs: number, clockMs: number): PendingTimer {
    const timer = { dueMs: this.read(clockMs) + Math.max(0, delayMs) };
    this.#pending.add(timer);
    if (this.#pending.size > this.#sweepAt) {
      this.#firstDueMs();
      this.#sweepAt = Math.max(SWEEP_MIN, this.#pending.size * 2);
    }
    return timer;
  }

  /** A timer fires. */
  fire(timer: PendingTimer, clockMs: number): void {
    // It is still pending here: what the clock jumped while it ran does not count beyond its end.
    this.read(clockMs);
    this.#pending.delete(timer);
    this.#passedMs = Math.max(this.#passedMs, timer.dueMs);
  }

  cancel(timer: PendingTimer): void {
    this.#pending.delete(timer);
  }

  /** When the next timer fires. Forgets those that should have fired long ago: they have vanished. */
  #firstDueMs(): number {
    let firstMs = Infinity;
    for (const timer of this.#pending) {
      if (timer.dueMs < this.#passedMs - STEP_MS) this.#pending.delete(timer);
      else firstMs = Math.min(firstMs, timer.dueMs);
    }
    return firstMs;
  }
}
