/**
 * Long work goes in slices, with a turn of the event loop between them, so that no other work waits for all of it. A
 * budget says when the turn is over: by the time that has passed, and by the number of steps, so that a test can count.
 */

import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import { LIMITS } from "../../protocol/limits.ts";

export class TurnBudget {
  readonly #clock: Clock;
  readonly #untilMs: number;
  #left: number;

  constructor(clock: Clock, steps: number, turnMs: number = LIMITS.turnMs) {
    this.#clock = clock;
    this.#untilMs = clock.steadyMs() + turnMs;
    this.#left = steps;
  }

  /** Takes a step of this cost. False: the turn is over; the rest is for the next one. */
  take(cost = 1): boolean {
    assert(cost > 0, "a step without a cost: the turn would have no end");
    if (this.#left <= 0 || this.#clock.steadyMs() >= this.#untilMs) return false;
    this.#left -= cost;
    return true;
  }
}

/** For a loop over many: `if (!slices.take()) await slices.turn();` before each. What it goes through may change meanwhile. */
export class Slices {
  readonly #clock: Clock;
  #budget: TurnBudget;
  #isWhole = true;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#budget = new TurnBudget(clock, LIMITS.turnStepsMax);
  }

  /** Everything so far was done in one turn, and is of one moment. */
  get isWhole(): boolean {
    return this.#isWhole;
  }

  take(): boolean {
    return this.#budget.take();
  }

  /**
   * Resolves in the next turn. That turn is as long as this one has waited for it, if that is longer than usual, and at most `msMax`:
   * so the work gets about half of the time also where each turn of the event loop is long.
   */
  turn(msMax: number = LIMITS.turnMs): Promise<void> {
    this.#isWhole = false;
    const startedMs = this.#clock.steadyMs();
    return new Promise((resolve) => {
      this.#clock.after(0, () => {
        const waitedMs = this.#clock.steadyMs() - startedMs;
        const turnMs = Math.max(LIMITS.turnMs, Math.min(waitedMs, msMax));
        const steps = Math.round((LIMITS.turnStepsMax * turnMs) / LIMITS.turnMs);
        this.#budget = new TurnBudget(this.#clock, steps - 1, turnMs);
        resolve();
      });
    });
  }
}
