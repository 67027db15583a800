/** Which answers of HTTP may be repeated, and when. Pure. */

/** Whether the same call may get another answer later, judged by the status of this one. */
export function isRepeatable(status: number): boolean {
  if (status === 408 || status === 425 || status === 429) return true;
  // 501 and 505 are statements about the server, not about this moment.
  return status >= 500 && status !== 501 && status !== 505;
}

/** An HTTP date, such as `Sun, 06 Nov 1994 08:49:37 GMT`, as milliseconds since 1970. RFC 9110, 5.6.7. */
export function httpDateMs(text: string): number | undefined {
  // oxlint-disable-next-line no-restricted-globals -- It reads a text and no clock.
  const ms = Date.parse(text);
  // Platforms take many texts for dates; those of HTTP end like this.
  return text.endsWith(" GMT") && ms >= 0 ? ms : undefined;
}

/** What `Retry-After` asks for: seconds, or a date. 0 if it is absent or neither. `nowMs` is the server's time. */
export function retryAfterMs(text: string | undefined, nowMs: number): number {
  if (text === undefined) return 0;
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  return Math.max(0, (httpDateMs(text) ?? nowMs) - nowMs);
}
