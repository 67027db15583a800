/**
 * Follows a stream: the stored records, then the new ones, over any number of connections. PROTOCOL.md §7
 *
 *   - the reader gets each record after the start once and in order, across cut connections, server restarts,
 *     recycling and changes of the way of reading: every request goes on at the last safe point;
 *   - a slow reader holds one page or one chunk of a connection; all further data stays at the
 *     server. If the server cuts it for being slow, it catches up by pages from its place;
 *   - the cursor of the last live answer goes with the next live request;
 *   - the iteration ends by itself exactly when the stream is closed and the reader has all of it;
 *   - only the first request uses `now`: from its answer on the reader has a place, and leaves nothing out;
 *   - where events do not get through, the same reader goes on by long-poll.
 *
 * The default for text is long-poll: events can carry neither CR and CRLF nor a character whose bytes lie in two appends;
 * pages are exact.
 */

import type { Caller } from "./attempt.ts";
import { type Batch, type LazyBatch, recordsOf, Seam, type StreamRecord } from "./batches.ts";
import { Line, type Reconnect, SILENCE_MS_MAX } from "./line.ts";
import { FIRST_CONTROL_MS_MAX, sseBatches, type SseFailure } from "./live-sse.ts";
import { nextPage, type ReaderPlace, type ReaderStart, placeAt } from "./pages.ts";
import type { PositionStore } from "./positions.ts";
import { kindOf } from "./records.ts";
import { wholePage } from "./reading.ts";
import type { Visibility } from "./visibility.ts";

/** After so many connections in a row that end too soon, the reader gives up events. */
const SHORT_MAX = 3;

/** An empty answer that comes sooner did not wait: another request at once would be a busy loop. */
const WAITED_MS_MIN = 100;

/** How often the pause between answers that are not failures grows. */
const PAUSES_MAX = 5;

/**
 * Options of `stream.follow`. All are optional.
 *
 * ```ts
 * import { connect } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const stream = connect(`${server.url}/v1/stream/orders`);
 * await stream.create();
 * await stream.append("the only one");
 *
 * const stop = new AbortController();
 * const follow = stream.follow<string>({
 *   live: "long-poll",
 *   onReconnect: ({ error, failures, offset }) => console.log(error.code, failures, offset),
 *   onUpToDate: () => stop.abort(new Error("seen all")),
 *   signal: stop.signal,
 * });
 * const seen: string[] = [];
 * try {
 *   for await (const { value } of follow) seen.push(value);
 * } catch (error) {
 *   console.assert(error === stop.signal.reason && seen.length === 1);
 * }
 * await server.stop();
 * ```
 */
export interface FollowOptions {
  /**
   * The offset or position to begin after; `now` reads new records only. A `Date`: begin with what was stored at that time of the
   * server or later. `{ last: n }`: begin with the last n records, at most 10,000 and a page of them. Default: the beginning of the
   * stream.
   */
  readonly from?: ReaderStart | undefined;
  /**
   * How to wait for data. Default `auto`: Server-Sent Events for JSON and bytes; long-poll for text, and if events do not
   * get through.
   */
  readonly live?: "auto" | "sse" | "long-poll";
  /** Keeps the position. If a position is stored, the reader begins there, and not at `from`. */
  readonly position?: PositionStore;
  /** Called when the reader has processed all records up to the tail: at first, and each time after it was behind. */
  readonly onUpToDate?: (offset: string) => void;
  /** Called with every failure that is tried again. */
  readonly onReconnect?: (reconnect: Reconnect) => void;
  /**
   * How long an outage may last, in milliseconds, before the iteration throws its error. Default: `retry.totalMs` of the
   * client; `Infinity` never gives up.
   */
  readonly patienceMs?: number;
  /** Closes the connection while the page is hidden. Default: never. See `documentVisibility`. */
  readonly visibility?: Visibility;
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
 * The result of `stream.follow()`: the records of a stream, until it is closed. Every iteration begins anew at `from`, or at
 * the kept position.
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
 * await stream.append(1);
 *
 * const seen: number[] = [];
 * for await (const { value } of stream.follow<number>()) {
 *   seen.push(value);
 *   if (value === 1) await stream.append(2);
 *   if (value === 2) await stream.close(3);
 * }
 * console.assert(seen.join() === "1,2,3"); // Closed: the loop has ended by itself.
 * await server.stop();
 * ```
 */
export interface Following<T> extends AsyncIterable<StreamRecord<T>> {
  /**
   * Returns the stream batch by batch. A batch without records means that the tail is reached, or that the stream is closed.
   *
   * ```ts
   * import { connect } from "hapax/client";
   * import { startNodeServer } from "hapax/node";
   *
   * const server = await startNodeServer({ store: "memory", port: 0 });
   * const stream = connect(`${server.url}/v1/stream/payments`);
   * await stream.create();
   * await stream.append(250);
   * await stream.close(100);
   *
   * // Sum and offset change together, as in one transaction of a database: each record counts once.
   * let account = { sum: 0, offset: "-1" };
   * for await (const batch of stream.follow<number>({ from: account.offset }).batches()) {
   *   const sum = batch.records.reduce((before, cents) => before + cents, account.sum);
   *   account = { sum, offset: batch.nextOffset };
   * }
   * console.assert(account.sum === 350);
   * await server.stop();
   * ```
   */
  batches(): AsyncIterableIterator<Batch<T>>;
}

/**
 * Follows a stream from `from` until it is closed. Errors: `stream_not_found`, `stream_gone`,
 * `stream_replaced`, `offset_beyond_tail`, `offset_trimmed`, and `unreachable` after an outage longer than the patience.
 */
export function startFollowing<T = unknown>(
  caller: Caller,
  url: string,
  options: FollowOptions = {},
): Following<T> {
  const open = (): AsyncGenerator<Batch<T>, void, undefined> =>
    keptBatches<T>(new Line(caller, url, options), options);
  return {
    async *[Symbol.asyncIterator]() {
      for await (const batch of open()) yield* recordsOf(batch);
    },
    batches: open,
  };
}

/** The code after `yield` runs when the reader asks for more. */
async function* keptBatches<T>(
  line: Line,
  options: FollowOptions,
): AsyncGenerator<Batch<T>, void, undefined> {
  const { position, onUpToDate } = options;
  const kept = await position?.load();
  const follower = new Follower<T>(line, placeAt(kept ?? options.from), options.live);
  let wasUpToDate = false;
  for await (const batch of follower.batches()) {
    yield batch;
    await position?.save(batch.position);
    if (batch.upToDate && !wasUpToDate) onUpToDate?.(batch.nextOffset);
    wasUpToDate = batch.upToDate;
  }
}

class Follower<T> {
  readonly #line: Line;
  readonly #place: ReaderPlace;
  #live: "auto" | "sse" | "long-poll";
  /** Connections in a row that ended too soon, and empty answers in a row that did not wait. */
  #shorts = 0;
  #hastes = 0;
  #wasUpToDate = false;
  readonly #seam = new Seam<T>();

  constructor(line: Line, place: ReaderPlace, live: FollowOptions["live"] = "auto") {
    this.#line = line;
    this.#place = place;
    this.#live = live;
  }

  async *batches(): AsyncGenerator<Batch<T>, void, undefined> {
    const [line, place] = [this.#line, this.#place];
    while (!place.closed) {
      line.throwIfAborted();
      if (!place.upToDate) {
        yield* this.#worthTelling(await wholePage<T>(line, place));
        continue;
      }
      await line.untilVisible();
      try {
        if (this.#isBySse()) yield* this.#connection();
        else yield* this.#poll();
      } catch (error) {
        // A reader that was cut may be far behind, and pages are faster then.
        if (this.#isBySse()) place.upToDate = false;
        if (line.skips(error, place)) continue;
        if (line.isHidden) continue; // Not a failure: the reader goes on when the page is visible.
        await line.recover(error, place.offset, Math.min(this.#shorts, PAUSES_MAX));
      }
    }
  }

  /** Passes on batches with records, the first one at the tail, and the last one. */
  *#worthTelling(next: LazyBatch<T>): Generator<Batch<T>, void, undefined> {
    const batch = this.#seam.join(next, false);
    if (batch === undefined) return;
    const isNews = batch.upToDate && !this.#wasUpToDate;
    this.#wasUpToDate = batch.upToDate;
    if (!batch.isEmpty || isNews || batch.closed) yield batch;
  }

  #isBySse(): boolean {
    if (this.#live !== "auto") return this.#live === "sse";
    return kindOf(this.#place.contentType) !== "text";
  }

  async *#connection(): AsyncGenerator<Batch<T>, void, undefined> {
    // A caller that chose events waits for them as long as for any answer.
    const firstControlMs = this.#live === "auto" ? FIRST_CONTROL_MS_MAX : SILENCE_MS_MAX;
    const connection = sseBatches<T>(this.#line, this.#place, firstControlMs);
    try {
      for (;;) {
        const next = await connection.next();
        if (next.done === true) {
          this.#decideNext(next.value);
          return;
        }
        yield* this.#worthTelling(next.value);
      }
    } finally {
      // If the reader leaves the loop early, the connection is closed.
      await connection.return(undefined);
    }
  }

  /** Decides how to go on. Throws the failure if the same way is to be tried again after a pause. */
  #decideNext(failure: SseFailure | undefined): void {
    const kind = failure?.kind ?? "cut";
    this.#shorts = kind === "cut" ? 0 : this.#shorts + 1;
    const isHopeless = kind === "unusable" || this.#shorts >= SHORT_MAX;
    if (this.#live === "auto" && isHopeless) this.#live = "long-poll";
    else if (failure !== undefined) throw failure.why;
  }

  async *#poll(): AsyncGenerator<Batch<T>, void, undefined> {
    const line = this.#line;
    const startedMs = line.clock.steadyMs();
    const batch = await nextPage<T>(line, this.#place, "long-poll");
    yield* this.#worthTelling(batch);
    const isHasty = batch.isEmpty && line.clock.steadyMs() - startedMs < WAITED_MS_MIN;
    this.#hastes = isHasty && !batch.closed ? Math.min(this.#hastes + 1, PAUSES_MAX) : 0;
    if (this.#hastes > 0) await line.rest(this.#hastes);
  }
}
