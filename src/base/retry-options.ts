/** The one set of retry options. Everything that tries again takes the members that it needs, and states its own defaults. */

/**
 * Says how often and how long a failed attempt is repeated. Each option that has this type takes some of the members, and
 * states their defaults.
 */
export interface RetryOptions {
  /** The most attempts; the first one counts. */
  readonly attemptsMax?: number;
  /** The first pause, in milliseconds. It doubles with each failure. Up to half of each pause is taken away at random. */
  readonly pauseMs?: number;
  /** The longest pause, in milliseconds. A server's `Retry-After` may ask for more. */
  readonly pauseMsMax?: number;
  /** The time for all attempts and pauses, in milliseconds. */
  readonly totalMs?: number;
}
