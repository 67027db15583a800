/**
 * Journal time at run time: it starts at the wall clock and then runs with the steady one, so that nobody who
 * sets the wall clock can empty a window or keep it for ever.
 *
 *   JC1  it never goes back, and never before the latest stored change;
 *   JC2  a jump of the wall clock changes its speed by at most a thousandth.
 */

import type { Clock } from "../clock.ts";

/** How fast it follows the wall clock: enough for the drift of any quartz, too slow for any harm. */
const SLEW = 1 / 1000;

export class JournalClock {
  readonly #clock: Clock;
  #ms: number;
  #steadyMs: number;

  /** `startMs` is the latest stored time. */
  constructor(clock: Clock, startMs: number) {
    this.#clock = clock;
    this.#ms = Math.max(startMs, clock.nowMs());
    this.#steadyMs = clock.steadyMs();
  }

  nowMs(): number {
    const steadyMs = this.#clock.steadyMs();
    const passedMs = Math.max(0, steadyMs - this.#steadyMs);
    this.#steadyMs = steadyMs;
    const straight = this.#ms + passedMs;
    const offMs = this.#clock.nowMs() - straight;
    const slewMs = passedMs * SLEW;
    this.#ms = straight + Math.max(-slewMs, Math.min(slewMs, offMs));
    return Math.floor(this.#ms);
  }
}
