/** The date of `Retry-After`, as HTTP writes it: `Sun, 06 Nov 1994 08:49:37 GMT`. RFC 9110, 5.6.7. */

/** Milliseconds since 1970, or nothing if it is not such a date. */
export function httpDateMs(text: string): number | undefined {
  if (!/^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$/.test(text)) return undefined;
  // oxlint-disable-next-line no-restricted-globals -- It reads a text and no clock.
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? undefined : ms;
}
