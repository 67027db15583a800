/** The handle of one stream, with all operations on it. `connect` creates it. */

import { HapaxError, isHapaxError } from "../base/error-codes.ts";
import { type Appended, AppendCalls } from "./appends.ts";
import { type Caller, refusalIn } from "./attempt.ts";
import { type Created, type CreateOptions, type ForkOptions, given, sendCreate } from "./create.ts";
import { type Following, type FollowOptions, startFollowing } from "./follow.ts";
import { type ProducerHead, producerStateOf, type StreamHead } from "./head.ts";
import { appendKeyed } from "./keyed.ts";
import { type LastOptions, lastRecords } from "./last.ts";
import { Peer } from "./peer.ts";
import { Producer, type ProducerOptions } from "./producer.ts";
import { type Reading, type ReadOptions, startReading } from "./reading.ts";

/** Options of `stream.append`. All are optional. */
export interface AppendOptions {
  /** An idempotency key: the identity of this one append, across processes. */
  readonly key?: string;
  /** Stores the data only if the tail is this offset; else throws `tail_moved`. */
  readonly ifMatch?: string;
  /** `Stream-Seq`: must sort after the last one of the stream; else `append` throws `sequence_regression`. */
  readonly seq?: string;
  /**
   * Stops waiting at once. Data that was sent may still be stored. If no other append waits, nothing more is sent, so that
   * the process can end.
   */
  readonly signal?: AbortSignal | undefined;
}

/** Options of `stream.update`. */
export interface UpdateOptions {
  readonly signal?: AbortSignal | undefined;
}

/**
 * One stream at one URL. `T` is the type of its records. Nothing checks that records have this type; use `typed` for
 * that.
 *
 * ```ts
 * import { connect } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const stream = connect(`${server.url}/v1/stream/payments`);
 * await stream.create();
 * await stream.append({ id: 1, cents: 250 }); // Exactly once, also if the answer is lost.
 * await stream.append({ id: 2, cents: 100 }, { key: "payment-2" });
 *
 * const records: unknown[] = [];
 * for await (const { value } of stream.read()) records.push(value);
 * console.assert(records.length === 2);
 * await server.stop();
 * ```
 */
export class Stream<T = unknown> {
  declare readonly url: string;
  readonly #peer: Peer;
  readonly #appends: AppendCalls;

  constructor(caller: Caller, url: string) {
    this.url = url;
    this.#peer = new Peer(caller, url);
    this.#appends = new AppendCalls(this.#peer);
  }

  /** Creates the stream. Creating it again with the same configuration changes nothing. */
  create(options: CreateOptions = {}): Promise<Created> {
    return sendCreate(this.#peer, options);
  }

  /** Returns the description of the stream. Rejects with `stream_not_found` if there is none. */
  head(options: { readonly signal?: AbortSignal | undefined } = {}): Promise<StreamHead> {
    return this.#peer.head(options.signal);
  }

  /**
   * Appends one record, exactly once: repetitions after lost answers carry the same identity. Records are stored in
   * the order of the calls, even if you do not await each call; appends with a `key` have no order.
   */
  async append(data: T, options: AppendOptions = {}): Promise<Appended> {
    const { key, ifMatch, seq, signal } = options;
    const tail = ifMatch === undefined ? undefined : `"${ifMatch}"`;
    const hasConditions = (tail ?? seq) !== undefined;
    const conditions = hasConditions ? given({ "If-Match": tail, "Stream-Seq": seq }) : undefined;
    if (key !== undefined) return appendKeyed(this.#peer, key, data, conditions, signal);
    // A close is the only append without data.
    if (data === undefined) throw new HapaxError("invalid_request", "no data");
    return this.#appends.append(data, conditions, signal);
  }

  /**
   * Appends the record that `decide` returns, if no other record was appended since; else calls `decide` again.
   * `decide` may read the stream; if it returns `undefined`, nothing is appended.
   *
   * ```ts
   * import { connect } from "hapax/client";
   * import { startNodeServer } from "hapax/node";
   *
   * const server = await startNodeServer({ store: "memory", port: 0 });
   * const stream = connect(`${server.url}/v1/stream/counter`);
   * await stream.create();
   * const increment = () =>
   *   stream.update(async () => {
   *     let last = 0;
   *     for await (const { value } of stream.read<number>()) last = value;
   *     return last + 1;
   *   });
   * await Promise.all([increment(), increment(), increment()]);
   * const counts: number[] = [];
   * for await (const { value } of stream.read<number>()) counts.push(value);
   * console.assert(counts.join() === "1,2,3");
   * await server.stop();
   * ```
   */
  async update(
    decide: (head: StreamHead) => T | undefined | Promise<T | undefined>,
    options: UpdateOptions = {},
  ): Promise<Appended | undefined> {
    for (let conflicts = 1; ; conflicts += 1) {
      // First the tail, then the data: if a record comes between the two, `decide` sees it, and the append is refused.
      const head = await this.head(options);
      const data = await decide(head);
      if (data === undefined) return undefined;
      try {
        return await this.append(data, { ...options, ifMatch: head.offset });
      } catch (error) {
        if (!isHapaxError(error, "tail_moved")) throw error;
      }
      await this.#peer.caller.pause(conflicts, options.signal);
    }
  }

  /** Closes the stream after all earlier appends, with a last record if `data` is given. */
  close(data?: T, options: { readonly signal?: AbortSignal | undefined } = {}): Promise<Appended> {
    return this.#appends.append(data, { "Stream-Closed": "true" }, options.signal);
  }

  /** Deletes the stream. */
  async delete(options: { readonly signal?: AbortSignal | undefined } = {}): Promise<void> {
    const { answer, wasUnknown } = await this.#peer.caller.untilAnswered({
      method: "DELETE",
      url: this.url,
      // A repetition must not delete a stream that was created anew meanwhile.
      headers: { "Idempotency-Key": this.#peer.caller.options.random.id() },
      ...options,
    });
    const error = await refusalIn(answer);
    const isGone = error?.code === "stream_not_found" || error?.code === "stream_gone";
    // An attempt that got no answer may have deleted it.
    if (error !== undefined && !(wasUnknown && isGone)) throw error;
  }

  /** Creates a stream at another URL of the same server that begins with the data of this one. */
  async fork(url: string, options: ForkOptions = {}): Promise<Stream<T>> {
    const fork = new Stream<T>(this.#peer.caller, new URL(url, this.url).href);
    await sendCreate(fork.#peer, options, this.#peer);
    return fork;
  }

  /** Creates a producer, for many records. */
  producer(options: ProducerOptions = {}): Producer<T> {
    return new Producer<T>(this.#peer, options);
  }

  /**
   * Returns the last append of a producer that the stream stored, so that a source that can be replayed goes on exactly
   * after it. Returns `undefined` if the stream does not know the producer. Throws `unsupported` if the server cannot tell.
   *
   * The answer is final only when the old writer is dead and its requests have arrived or are gone: the first append of
   * the new session fences it.
   */
  async resume(
    id: string,
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<ProducerHead | undefined> {
    await this.#peer.require("resume", options.signal);
    return producerStateOf(await this.#peer.ask({ "Producer-Id": id }, options.signal));
  }

  /** Reads the stored records, up to the tail. */
  read<Value = T>(options: ReadOptions = {}): Reading<Value> {
    return startReading<Value>(this.#peer.caller, this.url, options);
  }

  /**
   * Returns the last `count` records of a JSON stream, oldest first, at a cost that does not grow with the stream. Of another stream
   * it returns what the last `count` appends hold, at most a page. Throws `unsupported` if the server cannot read backwards.
   *
   * ```ts
   * import { connect } from "hapax/client";
   * import { startNodeServer } from "hapax/node";
   *
   * const server = await startNodeServer({ store: "memory", port: 0 });
   * const stream = connect<number>(`${server.url}/v1/stream/prices`);
   * await stream.create();
   * for (const price of [7, 8, 9]) await stream.append(price);
   * console.assert((await stream.last(2)).join() === "8,9");
   * const lastMinute = await stream.read({ from: new Date(Date.now() - 60_000) }).values();
   * console.assert(lastMinute.length === 3);
   * await server.stop();
   * ```
   */
  last<Value = T>(count: number, options: LastOptions = {}): Promise<Value[]> {
    return lastRecords<Value>(this.#peer.caller, this.url, count, options);
  }

  /** Reads the stored records and then the new ones, until the stream is closed. */
  follow<Value = T>(options: FollowOptions = {}): Following<Value> {
    return startFollowing<Value>(this.#peer.caller, this.url, options);
  }
}
