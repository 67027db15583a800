/**
 * Whether the kept key of an operation may be sent (again), and whether an answer ends it. Used by toolkit/idempotency/fetch.ts,
 * whose header has the rules. Pure.
 */

/** The key of an operation, as it is kept over restarts. */
export interface KeyRecord {
  readonly key: string;
  /** Of method, address and body: the name of an operation belongs to one content. */
  readonly digest: string;
  /** When the key was made: before the first attempt, by the caller's clock. */
  readonly madeAtMs: number;
  /** When the server forgets it, as it has said itself, by the caller's clock. */
  readonly expiresAtMs?: number;
}

/** An attempt that is to be made now. */
export interface Attempt {
  readonly digest: string;
  readonly nowMs: number;
  readonly windowMs: number;
  /** How long it may be on its way. */
  readonly timeoutMs: number;
}

/** `expired`: it might arrive when the server has forgotten the key. `reused`: the name was used for other content. */
export type UseDecision = "send" | "expired" | "reused";

/** A clock that was set back by more than this share of the window says nothing about the age of a key. */
const CLOCK_SHARE_MAX = 0.1;

export function decideUse(record: KeyRecord, attempt: Attempt): UseDecision {
  if (record.digest !== attempt.digest) return "reused";
  const { nowMs, windowMs, timeoutMs } = attempt;
  if (record.madeAtMs - nowMs > windowMs * CLOCK_SHARE_MAX) return "expired";
  return nowMs + timeoutMs > lastMs(record, windowMs) ? "expired" : "send";
}

/** Whatever comes first: the published window, or what the server has said of this key. */
function lastMs({ madeAtMs, expiresAtMs }: KeyRecord, windowMs: number): number {
  return Math.min(madeAtMs + windowMs, expiresAtMs ?? Infinity);
}

/** The record with what the server has said, if that is earlier than what the window says; else the same record. */
export function applyExpiry(
  record: KeyRecord,
  expiresAtMs: number | undefined,
  windowMs: number,
): KeyRecord {
  return expiresAtMs !== undefined && expiresAtMs < lastMs(record, windowMs)
    ? { ...record, expiresAtMs }
    : record;
}

/** What there is to know of an answer. */
export interface AnswerFacts {
  readonly status: number;
  /** It was kept, and will be the same whenever it is asked for. */
  readonly isReplayed: boolean;
  /** It says that the work of the key is under way. */
  readonly isInProgress: boolean;
}

/** Whether the same call may have another answer later. */
export function isWorthRepeating({ status, isReplayed, isInProgress }: AnswerFacts): boolean {
  if (isReplayed) return false;
  if (status === 409) return isInProgress;
  if (status === 408 || status === 425 || status === 429) return true;
  // 501 and 505 are statements about the server, not about this moment.
  return status >= 500 && status !== 501 && status !== 505;
}
