/** How long to wait before the next try. Pure: the random number, in [0, 1), comes from the caller. */

import type { RetryOptions } from "./retry-options.ts";

/** The first and the longest pause. */
export type PauseBounds = Required<Pick<RetryOptions, "pauseMs" | "pauseMsMax">>;

/**
 * Returns the pause after the n-th failure in a row. It begins at `pauseMs` and doubles up to `pauseMsMax`. Half of it
 * is certain and half is random, so that many callers do not return together.
 */
export function backoffMs(
  failures: number,
  { pauseMs, pauseMsMax }: PauseBounds,
  unit: number,
): number {
  // More doublings than any pause needs: without the limit the number would become infinite.
  return Math.min(pauseMsMax, pauseMs * 2 ** Math.min(failures - 1, 30)) * (0.5 + unit / 2);
}

/** Returns the same pause without the random part: for callers that are alone, or that spread themselves in another way. */
export function doubledMs(failures: number, bounds: PauseBounds): number {
  return backoffMs(failures, bounds, 1);
}

/** Returns half of the time and a random part of the other half. */
export function jitteredMs(wholeMs: number, unit: number): number {
  return backoffMs(1, { pauseMs: wholeMs, pauseMsMax: wholeMs }, unit);
}

/** Returns the time, up to `share` of it shorter or longer: for work that repeats at a steady rate. */
export function spreadMs(wholeMs: number, share: number, unit: number): number {
  return wholeMs * (1 + share * (unit * 2 - 1));
}
