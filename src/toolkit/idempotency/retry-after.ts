/** Guesses when a request that has the key now will have ended. A client that may not wait gets the guess. */

import type { Entry } from "../ledgers/ledger.ts";
import { RENEWED_SHARE, RETRY_AFTER_MS_MAX, RETRY_AFTER_MS_MIN } from "./limits.ts";

/** The rest of work of this process: after half of the time that it has taken already. */
export function flightLeftMs(takenMs: number): number {
  return boundedRetryMs(takenMs / 2);
}

/** The rest of work elsewhere: soon if its lease is renewed in time, else with its lease. */
export function entryLeftMs({ leaseLeftMs = 0 }: Entry, leaseMs: number): number {
  const isRenewed = leaseLeftMs >= leaseMs * RENEWED_SHARE;
  return isRenewed ? RETRY_AFTER_MS_MIN : boundedRetryMs(leaseLeftMs);
}

function boundedRetryMs(ms: number): number {
  return Math.min(RETRY_AFTER_MS_MAX, Math.max(RETRY_AFTER_MS_MIN, ms));
}
