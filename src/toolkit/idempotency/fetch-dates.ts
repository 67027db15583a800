/**
 * Reads the times in an answer's headers, by the clock of this side. If the answer has a `Date`, that shows how much the
 * server's clock differs.
 */

import { IDEMPOTENCY_EXPIRES } from "../../protocol/header-names.ts";
import { httpDateMs, retryAfterMs as askedMs } from "../../base/repeatable.ts";

/** When the server forgets the key; undefined if it does not say so. */
export function expiryOf(headers: Headers, sentAtMs: number): number | undefined {
  const expiresMs = httpDateMs(headers.get(IDEMPOTENCY_EXPIRES) ?? "");
  if (expiresMs === undefined) return undefined;
  const serverMs = httpDateMs(headers.get("date") ?? "");
  return serverMs === undefined ? expiresMs : sentAtMs + expiresMs - serverMs;
}

/** Returns how long to wait before the next attempt. Reads seconds or a date. 0 if the answer has neither. */
export function retryAfterMsOf(headers: Headers, nowMs: number): number {
  const serverMs = httpDateMs(headers.get("date") ?? "") ?? nowMs;
  return askedMs(headers.get("retry-after") ?? undefined, serverMs);
}
