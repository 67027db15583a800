/**
 * Reads the last records of a stream, page by page from its end. PROTOCOL.md §7.10
 *
 *   - the pages follow each other without a gap and without a record twice, also while the stream grows: each ends where the one
 *     after it begins.
 */

import { LAST_MAX } from "../protocol/limits.ts";
import type { Caller } from "./attempt.ts";
import { Line } from "./line.ts";
import { placeAt } from "./pages.ts";
import { wholePage, type ReadOptions } from "./reading.ts";
import { kindOf } from "./records.ts";

/** Options of `stream.last`. All are optional. */
export type LastOptions = Omit<ReadOptions, "from" | "onTrimmed">;

/** Returns the last records, oldest first: all if there are fewer. */
export async function lastRecords<T>(
  caller: Caller,
  url: string,
  count: number,
  options: LastOptions,
): Promise<T[]> {
  const line = new Line(caller, url, options);
  const place = placeAt();
  const pages: (readonly T[])[] = [];
  let before: string | undefined;
  for (let left = count; left > 0;) {
    place.begin = { last: `${Math.min(left, LAST_MAX)}`, before };
    const { records, offset } = await wholePage<T>(line, place);
    if (records.length === 0) break;
    pages.unshift(records);
    left -= records.length;
    before = offset;
    // Other streams have no records that could be counted.
    if (kindOf(place.contentType) !== "json") break;
  }
  return pages.flat();
}
