/** Pauses of those who wait for another's claim. */

import { jitteredMs } from "../../base/backoff.ts";
import type { Random } from "../../base/random.ts";
import { PAUSE_MS_MAX, PAUSE_MS_MIN } from "./limits.ts";

/**
 * Pauses that grow to a second. They do not double: nothing failed, and the claim may end at any moment, so that the
 * wait past its end stays short.
 */
export function growingPauses(random: Random): () => number {
  let wholeMs = PAUSE_MS_MIN;
  return () => {
    const nextMs = jitteredMs(wholeMs, random.unit());
    wholeMs = Math.min(wholeMs * 1.6, PAUSE_MS_MAX);
    return Math.ceil(nextMs);
  };
}
