/**
 * Reads the stored records: pages from a place up to the tail, then ends.
 *
 *   - the reader gets each record between the place and the tail once and in order, also after failures;
 *   - one page is held at a time, and the next one is requested when the reader wants it;
 *   - the reading ends when a page reaches the tail, or the end of a closed stream.
 */

import type { Caller } from "./attempt.ts";
import {
  type Batch,
  joinArrays,
  type LazyBatch,
  recordsOf,
  Seam,
  type StreamRecord,
} from "./batches.ts";
import { utf8Of, joinBytes, decodeText } from "../base/bytes.ts";
import { Line, type Reconnect } from "./line.ts";
import { nextPage, type ReaderPlace, type ReaderStart, placeAt } from "./pages.ts";
import { kindOf } from "./records.ts";

/**
 * Options of `stream.read`. All are optional.
 *
 * ```ts
 * import { connect } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const stream = connect(`${server.url}/v1/stream/orders`);
 * await stream.create();
 * const { offset } = await stream.append("read before");
 * await stream.append("new");
 *
 * const values = await stream
 *   .read<string>({
 *     ...(offset === undefined ? {} : { from: offset }),
 *     patienceMs: 5000,
 *     signal: AbortSignal.timeout(10_000),
 *   })
 *   .values();
 * console.assert(values.join() === "new");
 * await server.stop();
 * ```
 */
export interface ReadOptions {
  /**
   * The offset or position to begin after; `now` is the tail. A `Date`: begin with what was stored at that time of the server or
   * later. `{ last: n }`: begin with the last n records, at most 10,000 and a page of them; `stream.last` returns any number.
   * Default: the beginning of the stream.
   */
  readonly from?: ReaderStart | undefined;
  /** How long an outage may last, in milliseconds. Default: `retry.totalMs` of the client. */
  readonly patienceMs?: number;
  /** Called with every failure that is tried again. */
  readonly onReconnect?: (reconnect: Reconnect) => void;
  /**
   * What a reader does if the data at its offset was trimmed: `fail` throws a `TrimmedFailure`; `skip` goes on where the stream
   * begins now, without the records in between. Default `fail`. A reader from the beginning gets the data that is left, with
   * either.
   */
  readonly onTrimmed?: "fail" | "skip";
  /** Ends the reading; the iteration then throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * The result of `stream.read()`: the records of a stream from a place up to its tail. Every iteration reads anew.
 *
 * `T` is the type of the records of a JSON stream; for text it is `string`, for all others `Uint8Array`.
 *
 * ```ts
 * import { connect } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const stream = connect(`${server.url}/v1/stream/orders`);
 * await stream.create();
 * await stream.append({ id: 1 });
 *
 * let from = "-1"; // The beginning.
 * for await (const page of stream.read<{ id: number }>().pages()) {
 *   console.assert(page.records[0]?.id === 1 && page.upToDate);
 *   from = page.nextOffset;
 * }
 * await stream.append({ id: 2 });
 * const rest = await stream.read<{ id: number }>({ from }).values();
 * console.assert(rest.length === 1 && rest[0]?.id === 2);
 * await server.stop();
 * ```
 */
export interface Reading<T> extends AsyncIterable<StreamRecord<T>> {
  /** Returns the stream page by page; the last page is `upToDate`. There is at least one, and it may be empty. */
  pages(): AsyncIterableIterator<Batch<T>>;
  /** Returns all values at once. */
  values(): Promise<T[]>;
  /** Returns all bytes at once, as they were stored; one array for a JSON stream. */
  bytes(): Promise<Uint8Array>;
}

/**
 * Reads the stored records from `from` to the tail. Errors: `stream_not_found`, `stream_gone`, `stream_replaced`,
 * `offset_beyond_tail`, `offset_trimmed`, `unreachable`.
 */
export function startReading<T = unknown>(
  caller: Caller,
  url: string,
  options: ReadOptions = {},
): Reading<T> {
  const open = (place: ReaderPlace): AsyncGenerator<Batch<T>, void, undefined> =>
    pagesFrom(new Line(caller, url, options), place);
  const start = (): ReaderPlace => placeAt(options.from);
  return {
    async *[Symbol.asyncIterator]() {
      for await (const batch of open(start())) yield* recordsOf(batch);
    },
    pages: () => open(start()),
    async values() {
      const values: T[] = [];
      for await (const { records } of open(start()))
        for (const value of records) values.push(value);
      return values;
    },
    async bytes() {
      const place = start();
      const pieces: Uint8Array[] = [];
      for await (const { bytes } of open(place)) pieces.push(bytes);
      if (pieces.length === 1 || kindOf(place.contentType) !== "json") return joinBytes(pieces);
      return utf8Of(joinArrays(pieces.map(decodeText)));
    },
  };
}

/** Yields pages until one reaches the tail. A page that fails is requested again. */
async function* pagesFrom<T>(
  line: Line,
  place: ReaderPlace,
): AsyncGenerator<Batch<T>, void, undefined> {
  const seam = new Seam<T>();
  do {
    const page = seam.join(await wholePage<T>(line, place), place.upToDate);
    if (page !== undefined) yield page;
  } while (!place.upToDate && !place.closed);
}

/** Reads one page, and tries until it has come whole. */
export async function wholePage<T>(line: Line, place: ReaderPlace): Promise<LazyBatch<T>> {
  for (;;) {
    line.throwIfAborted();
    try {
      return await nextPage<T>(line, place);
    } catch (error) {
      if (!line.skips(error, place)) await line.recover(error, place.offset);
    }
  }
}
