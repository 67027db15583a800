/**
 * Numbers that name something outside of the server: the tokens of leases, and the generations of wakes. Each is
 * greater than every one before it.
 *
 * A counter alone does not promise that. A directory that is put back to an earlier copy, or whose end is cut by a
 * repair, has an earlier counter, and the same number would be given to two holders. So a number is also never below
 * the clock: what comes after a restore is greater than what was given before it, if the clock is right.
 */

import type { TimeMs } from "./types.ts";

/** How many can be given in a millisecond before the counter runs ahead of the clock. */
const NUMBERS_PER_MS = 1000;
/** Half of the safe integers, which the clock reaches in 2112: the counter has the other half. */
const FLOOR_MAX = 2 ** 52;

/** The next number of a counter that has come to `next`. */
export function decideNumber(next: number, atMs: TimeMs): number {
  return Math.max(next, Math.min(atMs * NUMBERS_PER_MS, FLOOR_MAX));
}
