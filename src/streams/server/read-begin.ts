/**
 * Where a read begins: at an offset, at the last records, or at a time. PROTOCOL.md §7.4, §7.10, §7.11.
 *
 *   - a reader is never moved back: an offset that the stream has not reached is refused;
 *   - the last records begin with a record. It may lie inside an append, and what is before it is left out.
 */

import { HapaxError } from "../../base/errors.ts";
import { HEADER } from "../../protocol/headers.ts";
import { LIMITS } from "../../protocol/limits.ts";
import type { LastStart, ReadRequest, ReadStart } from "../../protocol/read.ts";
import { formatOffset, type ParsedOffset } from "../../protocol/values.ts";
import type { Offset, TimeMs } from "../core/types.ts";
import type { Found, ReadPage } from "../engine/outcomes.ts";
import { takeShare } from "./answer-budget.ts";
import type { ServerParts } from "./parts.ts";

/** Returns the offset. Looks into the store for what is not an offset. */
export async function resolveBegin(
  parts: ServerParts,
  { from }: Pick<ReadRequest, "from">,
  found: Found,
  peer: string | undefined,
): Promise<Offset> {
  const { state } = found;
  if (from.kind === "time") return parts.engine.seek(state, from.atMs as TimeMs);
  if (from.kind !== "last") return resolveOffset(from, found);
  const share = await takeShare(parts, state, found.earliest, peer);
  try {
    const page = await parts.engine.readLast(state, from.count, undefined, LIMITS.pageBytesMax);
    page.release();
    return page.start;
  } finally {
    share.release();
  }
}

/** Reads the last records, as one page. */
export function readLastPage(
  { engine }: Pick<ServerParts, "engine">,
  { count, before }: LastStart,
  found: Found,
): Promise<ReadPage> {
  const end = before === undefined ? undefined : resolveOffset(before, found);
  return engine.readLast(found.state, count, end, LIMITS.pageBytesMax);
}

function resolveOffset(from: ParsedOffset, found: Found): Offset {
  if (from.kind === "start") return found.earliest;
  if (from.kind === "now") return found.tail;
  // One beyond the tail is what clients ask for that add one to the offset of the last append.
  if (from.kind === "at" && from.offset <= found.tail + 1) {
    return Math.min(from.offset, found.tail) as Offset;
  }
  throw new HapaxError("offset_beyond_tail", `the tail is ${formatOffset(found.tail)}`);
}

/** Where the answer begins, for who has not asked for an offset. */
export function startHeaders({ kind }: ReadStart, start: Offset): Record<string, string> {
  const isFound = kind === "last" || kind === "time";
  return isFound ? { [HEADER.startOffset]: formatOffset(start) } : {};
}

/** The page without what is before the beginning of a record. */
export function cutPage(page: ReadPage, from: Offset): ReadPage {
  const [first, ...rest] = page.appends;
  const skipped = from - page.start;
  if (first === undefined || skipped <= 0) return page;
  const appends = [first.subarray(skipped), ...rest];
  return { ...page, start: from, appends, bytes: page.bytes - skipped };
}
