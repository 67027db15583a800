/**
 * Journal time at run time: it starts at the wall clock and then runs with the steady one. So setting the wall
 * clock can neither empty a window nor keep it from ending.
 *
 *   - it never goes back, and never before the latest stored change;
 *   - a jump of the wall clock changes its speed by at most a thousandth;
 *   - times that clients name (of keys, of expiries) are judged by the smaller of journal time and what it would be
 *     without anything stored.
 */

import type { Clock } from "../../base/clock.ts";
import { assert } from "../../base/assert.ts";
import type { TimeMs } from "../core/types.ts";
import type { World } from "../core/world.ts";

/** How fast it follows the wall clock: enough for the drift of any quartz, too slow for any harm. */
const SLEW = 1 / 1000;

export class JournalClock {
  readonly #clock: Clock;
  readonly #world: Pick<World, "timeMs">;
  #ms: number;
  /** What it would be without anything stored. */
  #unboundMs: number;
  #steadyMs: number;

  /** `world` knows the time of the latest change. `beginMs`: where to begin instead of at the wall clock. */
  constructor(clock: Clock, world: Pick<World, "timeMs">, beginMs: number = clock.nowMs()) {
    this.#clock = clock;
    this.#world = world;
    this.#unboundMs = beginMs;
    this.#ms = Math.max(world.timeMs, this.#unboundMs);
    this.#steadyMs = clock.steadyMs();
  }

  nowMs(): TimeMs {
    const steadyMs = this.#clock.steadyMs();
    const passedMs = Math.max(0, steadyMs - this.#steadyMs);
    this.#steadyMs = steadyMs;
    const wallMs = this.#clock.nowMs();
    const ms = follow(this.#ms, passedMs, wallMs);
    assert(ms >= this.#ms, "journal time goes back");
    this.#ms = ms;
    this.#unboundMs = follow(this.#unboundMs, passedMs, wallMs);
    return Math.max(this.#world.timeMs, Math.floor(ms)) as TimeMs;
  }

  /**
   * The time that times of clients are judged by. The same clock, but one that nothing stored holds up: a start with
   * a wall clock that was days ahead must not make every fresh key look old, or a stream end early, at all later starts.
   */
  unboundMs(): number {
    return Math.min(this.nowMs(), Math.floor(this.#unboundMs));
  }
}

function follow(ms: number, passedMs: number, wallMs: number): number {
  const straight = ms + passedMs;
  const slewMs = passedMs * SLEW;
  return straight + Math.max(-slewMs, Math.min(slewMs, wallMs - straight));
}
