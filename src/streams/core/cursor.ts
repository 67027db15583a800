/**
 * Cursors of live reads. A cursor changes every 20 seconds, so that a CDN can merge the readers of one
 * interval and never serves a stale answer to the next. PROTOCOL.md §7.
 *
 *   - an answer's cursor is always greater than the cursor of its request;
 *   - without a cursor, or with an old one, the answer carries the current interval;
 *   - the cursors of one connection never go back.
 */

const EPOCH_MS = 1_728_432_000_000; // 2024-10-09T00:00:00Z
const INTERVAL_MS = 20_000;
const JITTER_INTERVALS_MAX = 180; // 3600 s

/**
 * Returns the cursor of an answer. `unit` is a random number in [0, 1); it spreads readers that are ahead of the
 * clock.
 */
export function decideCursor(received: string | undefined, nowMs: number, unit: number): string {
  const current = Math.max(0, Math.floor((nowMs - EPOCH_MS) / INTERVAL_MS));
  if (received === undefined || !/^(0|[1-9][0-9]{0,14})$/.test(received)) return String(current);
  const claimed = Number(received);
  if (claimed < current) return String(current);
  return String(claimed + 1 + Math.floor(unit * JITTER_INTERVALS_MAX));
}

/** Returns the cursor of a later answer on the same connection. */
export function decideNextCursor(cursor: string, nowMs: number): string {
  const current = decideCursor(undefined, nowMs, 0);
  return Number(current) > Number(cursor) ? current : cursor;
}
