/**
 * LG3: a token is the next number of its counter, but never below the microseconds since 1970 of the database's clock. A
 * restore, or a standby that had not everything, takes the counter back with the rest; the clock does not depend on it. The
 * counter still decides: a clock that is set back gives no token twice.
 *
 * Microseconds, so that a counter that gives less than a million tokens a second stays behind the clock, and what was given
 * before a restore is below the clock after it. docs/decisions/0025-numbers-begin-at-the-clock.md.
 */

/** The clock counts up to here, which is the year 2112. Then the counter goes on alone, and tokens stay safe integers. */
export const TOKEN_CLOCK_MAX = 2 ** 52;

/** Returns the token after the last one, at a moment of the clock. */
export function nextTokenAt(last: number, nowMs: number): number {
  return Math.max(last + 1, Math.min(Math.floor(nowMs * 1000), TOKEN_CLOCK_MAX));
}
