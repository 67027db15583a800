/**
 * Numbers that clients outside of the server keep: the tokens of leases, and the generations of wakes. Each number is
 * greater than all before it.
 *
 * A counter alone does not promise that. A restored backup has an earlier counter, and so has a directory whose end
 * was cut by a repair: two holders could get the same number. So a number is also never below the clock. If the clock
 * is right, a number after a restore is greater than all numbers before it.
 */

import type { TimeMs } from "./types.ts";

/** How many numbers a millisecond can give before the counter runs ahead of the clock. */
const NUMBERS_PER_MS = 1000;
/** Half of the safe integers. The clock reaches it in 2112; the counter has the other half. */
const FLOOR_MAX = 2 ** 52;

/** Returns the next number of a counter that stands at `next`. */
export function decideNumber(next: number, atMs: TimeMs): number {
  return Math.max(next, Math.min(atMs * NUMBERS_PER_MS, FLOOR_MAX));
}
