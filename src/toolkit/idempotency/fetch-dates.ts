/**
 * Reads the times in an answer's headers, by the clock of this side. If the answer has a `Date`, that shows how much the
 * server's clock differs.
 */

/** Returns when the server forgets the key; undefined if the answer has no such date. */
export function expiryOf(headers: Headers, sentAtMs: number): number | undefined {
  const expiresMs = httpDateMs(headers.get("idempotency-expires"));
  if (expiresMs === undefined) return undefined;
  const serverMs = httpDateMs(headers.get("date"));
  return serverMs === undefined ? expiresMs : sentAtMs + expiresMs - serverMs;
}

/** Returns how long to wait before the next attempt. Reads seconds or a date. 0 if the answer has neither. */
export function retryAfterMs(headers: Headers, nowMs: number): number {
  const text = headers.get("retry-after");
  if (text !== null && /^\d+$/.test(text)) return Number(text) * 1000;
  const serverMs = httpDateMs(headers.get("date")) ?? nowMs;
  return Math.max(0, (httpDateMs(text) ?? serverMs) - serverMs);
}

/** Parses a date of HTTP: `Sun, 06 Nov 1994 08:49:37 GMT`. RFC 9110, 5.6.7. */
function httpDateMs(text: string | null): number | undefined {
  if (text === null || !/^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$/.test(text)) return undefined;
  // oxlint-disable-next-line no-restricted-globals -- It reads a text and no clock.
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? undefined : ms;
}
