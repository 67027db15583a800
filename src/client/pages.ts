/**
 * Reads one page of a stream with one request: catch-up and long-poll. PROTOCOL.md §7.1, §7.2
 *
 *   - a place moves only when the page up to it has come whole. A page that was cut is requested again at
 *     the place where it began, and nothing of it was delivered;
 *   - the next request goes to the `Stream-Next-Offset` of the last page and carries the last cursor;
 *   - a page that is shorter than its offsets say was cut on its way, also if its length header was adapted, and is
 *     requested again. Offsets of servers that name no lives are opaque, so theirs are not compared;
 *   - the life of the stream that the first answer names goes with every request after it: a stream that was
 *     created anew at the path refuses it with `stream_replaced`;
 *   - a reader never moves back: an answer that ends before the requested place belongs to
 *     another stream at the same path.
 */

import { HapaxError } from "../base/error-codes.ts";
import type { RequestAttempt } from "./request.ts";
import { LazyBatch } from "./batches.ts";
import { joinBytes } from "../base/bytes.ts";
import { kindOf } from "./records.ts";
import { says } from "./head.ts";
import { Interruption, type Line, SILENCE_MS_MAX } from "./line.ts";

/** Where a reader begins: after an offset or a position, at what was stored at a time or later, or with the last records. */
export type ReaderStart = string | Date | { readonly last: number };

/** The place of a reader. Only `advance` moves it. */
export interface ReaderPlace {
  offset: string;
  /** What the first request asks for instead of an offset. */
  begin: Readonly<Record<string, string | undefined>> | undefined;
  /** The life of the stream, if the server names it. */
  life: string | undefined;
  cursor: string | undefined;
  contentType: string;
  /** Whether the last answer reached the tail. */
  upToDate: boolean;
  closed: boolean;
}

/** Returns the place where a reader begins. A position is `<offset>/<life>`. */
export function placeAt(start: ReaderStart = "-1"): ReaderPlace {
  const isPlace = typeof start === "string";
  const [offset = "", life] = (isPlace ? start : "-1").split("/");
  return {
    offset,
    begin: isPlace
      ? undefined
      : "last" in start
        ? { last: `${start.last}` }
        : { at: start.toJSON() },
    life,
    cursor: undefined,
    // Bytes, until a server names the type.
    contentType: "",
    upToDate: false,
    closed: false,
  };
}

/** Requests the page at the place, and moves the place to its end. */
export async function nextPage<T>(
  line: Line,
  place: ReaderPlace,
  live?: "long-poll",
): Promise<LazyBatch<T>> {
  const { begin, life, cursor } = place;
  let { offset } = place;
  const answer = line.begin({ cursor: live && cursor, life, live, ...(begin ?? { offset }) });
  try {
    await line.get(answer);
    const body = await wholeBody(answer);
    const nextOffset = answer.header("stream-next-offset") ?? "";
    if (nextOffset === "") {
      // A portal or a proxy has answered; the server may be back soon.
      throw new Interruption(new HapaxError("internal", "answer without Stream-Next-Offset"));
    }
    if (begin !== undefined) {
      const start = answer.header("stream-start-offset");
      // Another server has sent the stream from its beginning.
      if (start === undefined) throw new HapaxError("unsupported", `no ${Object.keys(begin)[0]}`);
      place.offset = offset = start;
      place.begin = undefined;
    }
    place.contentType = answer.header("content-type") ?? place.contentType;
    place.life = answer.header("stream-life") ?? life;
    // Offsets of a server that names lives count stored bytes, and a page of JSON has one byte more. Only a life in the
    // answer counts, not one that the reader sent.
    const isCounted = answer.header("stream-life") !== undefined && offset !== "now";
    // The beginning of a trimmed stream is not zero.
    const from = (offset === "-1" ? answer.header("stream-earliest-offset") : undefined) ?? offset;
    const stored = isCounted ? countOf(nextOffset) - countOf(from) : 0;
    if (stored > 0 && body.length - Number(kindOf(place.contentType) === "json") < stored) {
      throw new HapaxError("unreachable", "page cut");
    }
    const batch = new LazyBatch<T>({
      ...place,
      body,
      nextOffset,
      upToDate: says(answer, "stream-up-to-date"),
      closed: says(answer, "stream-closed"),
    });
    movePlace(place, batch, answer.header("stream-cursor"));
    // An empty page between two failures of live reading does not show that live reading works.
    if (live !== undefined || !batch.isEmpty) line.restored();
    return batch;
  } finally {
    answer.cut();
  }
}

/** Returns the number of stored bytes before an offset; 0 for `-1`. PROTOCOL.md §7.4. */
function countOf(offset: string): number {
  return Number(offset.slice(17));
}

/** Moves a place. No other function does. */
export function movePlace<T>(
  place: ReaderPlace,
  batch: LazyBatch<T>,
  cursor: string | undefined,
): void {
  const { offset, nextOffset } = batch;
  const isPlace = offset !== "-1" && offset !== "now";
  if (isPlace && nextOffset < offset) {
    throw new HapaxError("offset_beyond_tail", `offset=${nextOffset} is before ${offset}`);
  }
  if (isPlace && nextOffset === offset && batch.records.length > 0) {
    throw new HapaxError("internal", `no new offset=${offset}`);
  }
  place.offset = nextOffset;
  place.cursor = cursor ?? place.cursor;
  // A page without data that does not move the place is the tail, also if the server does not say so.
  place.upToDate = batch.upToDate || (isPlace && nextOffset === offset);
  place.closed = batch.closed;
}

/** Reads the whole body. Each piece that arrives restarts the timer. */
async function wholeBody(answer: RequestAttempt): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  for await (const piece of answer.chunks()) {
    pieces.push(piece);
    answer.arm(SILENCE_MS_MAX);
  }
  return joinBytes(pieces);
}
