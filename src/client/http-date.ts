/** Parses the date of `Retry-After`: `Sun, 06 Nov 1994 08:49:37 GMT`. RFC 9110, 5.6.7. */

/** Returns milliseconds since 1970; undefined if the text is not such a date. */
export function httpDateMs(text: string): number | undefined {
  // oxlint-disable-next-line no-restricted-globals -- It reads a text and no clock.
  const ms = Date.parse(text);
  // Platforms accept many texts as dates; those of HTTP end like this.
  return text.endsWith(" GMT") && ms >= 0 ? ms : undefined;
}
