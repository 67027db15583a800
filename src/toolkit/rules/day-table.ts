/**
 * Which table keeps an entry that has ended, so that what is past its retention goes by dropping whole tables.
 *
 *   - a table has the entries whose retention ends in its days, so all of them are past it when its last day is over;
 *   - a key is looked up in every table, so a longer retention has wider tables: of one width there are five at most;
 *   - so an entry is kept for twice its retention at most, and a day.
 *
 * Pure.
 */

const DAY_MS = 86_400_000;
const PREFIX = "hapax_done_";
/** A width serves retentions of so many of it. The next width is as many times as wide as one more of them. */
const SPANS = 3;

/** A table of entries that have ended. */
export interface DayTable {
  readonly name: string;
  /** When the retention of the last of its entries ends, in milliseconds since 1970. */
  readonly endMs: number;
}

/** Returns the table for an entry that ends now and is kept for so long. */
export function dayTableFor(nowMs: number, keepMs: number): DayTable {
  const days = widthFor(keepMs);
  return tableOf(firstDayOf(nowMs + keepMs, days), days);
}

/** Returns the day on which an entry that ends now, and is kept for so long, goes with others. It is past its retention by then. */
export function sweepDayFor(nowMs: number, keepMs: number): number {
  const days = widthFor(keepMs);
  return firstDayOf(nowMs + keepMs, days) + days;
}

function widthFor(keepMs: number): number {
  let days = 1;
  while (keepMs > days * SPANS * DAY_MS) days *= SPANS + 1;
  return days;
}

function firstDayOf(endMs: number, days: number): number {
  return Math.floor(endMs / DAY_MS / days) * days;
}

/** Returns the table of this name; undefined if it is another one. */
export function parseDayTable(name: string): DayTable | undefined {
  const found = /^hapax_done_(\d{1,9})(?:_(\d{1,9}))?$/.exec(name);
  return found === null ? undefined : tableOf(Number(found[1]), Number(found[2] ?? 1));
}

function tableOf(first: number, days: number): DayTable {
  const name = `${PREFIX}${first}${days === 1 ? "" : `_${days}`}`;
  return { name, endMs: (first + days) * DAY_MS };
}
