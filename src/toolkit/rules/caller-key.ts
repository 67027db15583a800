/**
 * Decides whether the kept key of an operation may be sent (again), and whether an answer ends the operation. The header of
 * toolkit/idempotency/fetch.ts has the rules. Pure.
 */

import { isRepeatable } from "../../base/repeatable.ts";

/** The key of an operation, as it is kept over restarts. */
export interface KeyRecord {
  readonly key: string;
  /** A digest of method, address and body. It refuses the name of an operation for another content. */
  readonly digest: string;
  /** When the key was made: before the first attempt, by the caller's clock. */
  readonly madeAtMs: number;
  /** When the server forgets the key, as the server has said, by the caller's clock. */
  readonly expiresAtMs?: number;
}

/** An attempt that is to be made now. */
export interface Attempt {
  readonly digest: string;
  readonly nowMs: number;
  readonly windowMs: number;
  /** How long the request may be on its way. */
  readonly timeoutMs: number;
}

/** `expired`: the request might arrive after the server has forgotten the key. `reused`: the name had other content. */
export type UseDecision = "send" | "expired" | "reused";

/** If the clock was set back by more than this share of the window, the age of a key is unknown. */
const CLOCK_SHARE_MAX = 0.1;

export function decideUse(record: KeyRecord, attempt: Attempt): UseDecision {
  if (record.digest !== attempt.digest) return "reused";
  const { nowMs, windowMs, timeoutMs } = attempt;
  if (record.madeAtMs - nowMs > windowMs * CLOCK_SHARE_MAX) return "expired";
  return nowMs + timeoutMs > lastMs(record, windowMs) ? "expired" : "send";
}

/** Returns the last moment of the key: the end of the published window, or the server's own date if that is earlier. */
function lastMs({ madeAtMs, expiresAtMs }: KeyRecord, windowMs: number): number {
  return Math.min(madeAtMs + windowMs, expiresAtMs ?? Infinity);
}

/** Returns the record with the server's date if that is before the end of the window; else the same record. */
export function applyExpiry(
  record: KeyRecord,
  expiresAtMs: number | undefined,
  windowMs: number,
): KeyRecord {
  return expiresAtMs !== undefined && expiresAtMs < lastMs(record, windowMs)
    ? { ...record, expiresAtMs }
    : record;
}

/** The facts about an answer that decide whether to repeat the call. */
export interface AnswerFacts {
  readonly status: number;
  /** The server kept the answer: every repetition gets the same one. */
  readonly isDuplicate: boolean;
  /** The answer says that the work of the key still runs. */
  readonly isInProgress: boolean;
}

/** Returns whether the same call may get another answer later. */
export function isWorthRepeating({ status, isDuplicate, isInProgress }: AnswerFacts): boolean {
  if (isDuplicate) return false;
  if (status === 409) return isInProgress;
  return isRepeatable(status);
}
