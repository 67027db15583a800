/**
 * The `Prefer` header (RFC 7240), for the streams server and for HTTP APIs alike. PROTOCOL.md §17.
 *
 *   - `wait=n` counts wherever it stands in the list of preferences, and the first one does. As a parameter of another
 *     preference, or inside quotes, it does not. What is not understood is ignored.
 */

/** No client has so many preferences. What is longer is not understood. */
const PREFER_CHARS_MAX = 1000;

const WAIT =
  /^(?:[^",]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^",]*)*,)*?[ \t]*wait[ \t]*=[ \t]*("?)([0-9]{1,9})\1[ \t]*(?=[;,]|$)/i;

/** The milliseconds of `wait=n`; undefined if the header does not say so. */
export function parseWaitMs(prefer: string | undefined): number | undefined {
  if (prefer === undefined || prefer.length > PREFER_CHARS_MAX) return undefined;
  const seconds = WAIT.exec(prefer)?.[2];
  return seconds === undefined ? undefined : Number(seconds) * 1000;
}
