/** The handle of one server, for operations on more than one of its streams. `connectServer` creates it. */

import {
  STREAM_COMPACT_KEY,
  STREAM_EARLIEST_OFFSET,
  STREAM_INCARNATION,
  STREAM_RETENTION,
} from "../../protocol/header-names.ts";
import { type Call, Caller, withQuery } from "../attempt.ts";
import { type FollowAllOptions, type FollowedBatch, startFollowingAll } from "../follow-all.ts";
import { type ClientOptions, resolveClientOptions } from "../options.ts";
import { Stream } from "../stream.ts";
import { settleCall, type SettledCall } from "./calls.ts";
import { Codecs, lendCodecs } from "./codecs.ts";
import { Consumer, type ConsumerOptions } from "./consumer.ts";
import { DeadLetters } from "./dead-letter.ts";
import type { Transaction } from "./draft.ts";
import { Group } from "./group.ts";
import type { JobOptions } from "./job-options.ts";
import { JobWorker } from "./jobs.ts";
import { Partitioned } from "./partitioned.ts";
import { Addresses, type StreamTarget } from "./paths.ts";
import { Pipeline } from "./pipeline.ts";
import type { PipelineOptions } from "./pipeline-options.ts";
import { lendStored } from "./stored.ts";
import { type Committed, type TransactionOptions, ClientTransactions } from "./transactions.ts";

/** The handle of a server. */
export class Connection {
  readonly #caller: Caller;
  readonly #addresses: Addresses;
  readonly #transactions: ClientTransactions;

  constructor(url: string | URL, options: ClientOptions) {
    this.#addresses = new Addresses(url);
    this.#caller = new Caller(resolveClientOptions(options, this.#addresses.base));
    const codecs = new Codecs(this.#caller, this.#addresses);
    this.#transactions = new ClientTransactions(this.#caller, this.#addresses, codecs);
    lendCodecs(this, this.#addresses, codecs);
    lendStored(this, { caller: this.#caller, addresses: this.#addresses });
  }

  /** The address of the server, without a slash at the end. */
  get url(): string {
    return this.#addresses.base;
  }

  /** Returns the handle of a stream, like `connect` of `hapax/client`. */
  stream<T = unknown>(path: StreamTarget): Stream<T> {
    return new Stream<T>(this.#caller, this.#addresses.stream(this.#addresses.pathOf(path)));
  }

  /**
   * Does all operations that the callback collects, or none. Nothing is sent until the callback has returned, and nothing at
   * all if it throws. After a lost answer the client sends the same request again, and it happens once. Up to 32 transactions
   * of a handle are on their way at once.
   *
   * Rejects with a `TransactionFailure`. Its `outcome` says whether it is certain that nothing was stored. Its code is that
   * of the operation that cannot be done: `stream_not_found`, `stream_closed`, `tail_moved`, `stream_present`, `lease_lost`,
   * `member_lost`, `offset_regressed`, `content_type_mismatch`, `stream_exists`.
   *
   * ```ts
   * import { isHapaxError } from "hapax/client";
   * import { startNodeServer } from "hapax/node";
   * import { connectServer } from "hapax/processing";
   *
   * const server = await startNodeServer({ store: "memory", port: 0 });
   * const hapax = connectServer(server.url);
   * const [alice, bob] = ["/v1/stream/alice", "/v1/stream/bob"];
   * const { offsets } = await hapax.transaction((tx) => {
   *   tx.create(alice);
   *   tx.create(bob);
   *   tx.append(alice, { cents: -100 });
   *   tx.append(bob, { cents: 100 });
   * });
   *
   * // Only if nothing was written to alice meanwhile.
   * const offset = offsets.get(alice) ?? "";
   * await hapax.stream(alice).append({ cents: -5 });
   * try {
   *   await hapax.transaction((tx) => {
   *     tx.expect(alice, { offset });
   *     tx.append(bob, { cents: 1 });
   *   });
   * } catch (error) {
   *   console.assert(isHapaxError(error, "tail_moved"));
   * }
   * console.assert((await hapax.stream(bob).read().values()).length === 1);
   * await server.stop();
   * ```
   */
  transaction<Value>(
    collect: (tx: Transaction) => Value | Promise<Value>,
    options: TransactionOptions = {},
  ): Promise<Committed<Value>> {
    return this.#transactions.run(collect, options);
  }

  /**
   * Returns the incarnation of the server: an id that changes when the server is restored from a backup. Undefined if
   * the server names none. Pass it to `transaction`, which a server of any other incarnation then refuses.
   */
  async incarnation(
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<string | undefined> {
    const call = { method: "GET", url: `${this.#addresses.base}/_hapax/health`, ...options };
    return (await settleCall(this.#caller, call)).header(STREAM_INCARNATION);
  }

  /**
   * Removes the data before an offset of a stream; this cannot be undone. Returns where the stream begins now: at the append that
   * contains the offset. Rejects with `data_needed` if a group, a subscription or a fork still needs the data, unless `needed` is
   * `drop`.
   *
   * ```ts
   * import { startNodeServer } from "hapax/node";
   * import { connectServer } from "hapax/processing";
   *
   * const server = await startNodeServer({ store: "memory", port: 0, onAudit: () => undefined });
   * const hapax = connectServer(server.url);
   * const stream = hapax.stream<number>("/v1/stream/orders");
   * await stream.create();
   * const { offset = "" } = await stream.append(1);
   * await stream.append(2);
   * console.assert((await hapax.trim(stream, offset)) === offset);
   * console.assert((await stream.read().values()).join() === "2");
   * await hapax.setRetention(stream, "seconds=604800");
   * await server.stop();
   * ```
   */
  async trim(
    stream: StreamTarget,
    before: string,
    options: { readonly needed?: "drop"; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<string> {
    const { needed, signal } = options;
    const query = { stream: this.#addresses.pathOf(stream), before, needed };
    const answer = await this.#change("POST", "trim", query, { signal });
    return answer.header(STREAM_EARLIEST_OFFSET) ?? before;
  }

  /**
   * Sets how long, or how much, old data a stream keeps, such as `seconds=604800, bytes=1000000000`. `none` keeps everything
   * from now on.
   */
  async setRetention(
    stream: StreamTarget,
    retention: string,
    { signal }: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<void> {
    const headers = { [STREAM_RETENTION]: retention };
    const query = { stream: this.#addresses.pathOf(stream) };
    await this.#change("PUT", "retention", query, { headers, signal });
  }

  /**
   * Makes a stream of JSON a changelog, which keeps the newest record of each key: `id`, or `user.id, tombstone=value, lag=3600`.
   * `none` keeps every record from now on.
   */
  async setCompaction(
    stream: StreamTarget,
    compactKey: string,
    { signal }: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<void> {
    const headers = { [STREAM_COMPACT_KEY]: compactKey };
    const query = { stream: this.#addresses.pathOf(stream) };
    await this.#change("PUT", "compaction", query, { headers, signal });
  }

  /** Done twice, such a change does what it does once. */
  async #change(
    method: string,
    act: string,
    query: Readonly<Record<string, string | undefined>>,
    more: Pick<Call, "headers" | "signal">,
  ): Promise<SettledCall> {
    const url = withQuery(`${this.#addresses.base}/_hapax/${act}`, Object.entries(query));
    const answer = await settleCall(this.#caller, { method, url, ...more });
    if (answer.refusal !== undefined) throw answer.refusal.error;
    return answer;
  }

  /**
   * Follows several streams over one connection, until all of them are closed. What ends one of them, such as a deletion, comes as
   * its `failure`, and the others go on. Throws `unsupported` if the server cannot do it, and `not_allowed` if one of the streams
   * may not be read. `followAll` of `hapax/client` is the same without the rest of this handle.
   *
   * ```ts
   * import { startNodeServer } from "hapax/node";
   * import { connectServer } from "hapax/processing";
   *
   * const server = await startNodeServer({ store: "memory", port: 0 });
   * const hapax = connectServer(server.url);
   * const [orders, chat] = [hapax.stream("/v1/stream/orders"), hapax.stream("/v1/stream/chat")];
   * await Promise.all([orders.create(), chat.create()]);
   * await orders.close(1);
   * await chat.close(2);
   *
   * let sum = 0;
   * for await (const { batch, failure } of hapax.followAll<number>([{ stream: orders }, { stream: chat }])) {
   *   if (failure !== undefined) throw failure;
   *   for (const value of batch.records) sum += value;
   * }
   * console.assert(sum === 3);
   * await server.stop();
   * ```
   */
  followAll<T = unknown>(
    sources: readonly { readonly stream: StreamTarget; readonly from?: string | undefined }[],
    options: FollowAllOptions = {},
  ): AsyncIterableIterator<FollowedBatch<T>> {
    const named = sources.map(({ stream, from }) => ({
      stream: this.#addresses.pathOf(stream),
      from,
    }));
    return startFollowingAll<T>(this.#caller, this.#addresses.base, named, options);
  }

  /**
   * Returns the handle to administer a group.
   *
   * ```ts
   * import { startNodeServer } from "hapax/node";
   * import { connectServer } from "hapax/processing";
   *
   * const server = await startNodeServer({ store: "memory", port: 0, onAudit: () => undefined });
   * const hapax = connectServer(server.url);
   * await hapax.stream("/v1/stream/orders/1").create();
   * const group = hapax.group("billing");
   * await group.create({ pattern: "/v1/stream/orders/*", leaseMs: 10_000 });
   * console.assert((await group.describe()).cursors.length === 1);
   * console.assert((await group.reset({ to: "tail" })) === 1);
   * await group.delete();
   * await server.stop();
   * ```
   */
  group(name: string): Group {
    return new Group(this.#caller, this.#addresses, name);
  }

  /** Creates a member of a group, which gets batches of its leased streams. Nothing is sent until the first `next`. */
  consumer<T = unknown>(options: ConsumerOptions): Consumer<T> {
    return new Consumer<T>(this.#caller, this.#addresses, this.#transactions, options);
  }

  /**
   * Creates a pipeline, which processes the records of streams, each exactly once. Nothing is sent until `run`. Throws
   * `invalid_options`.
   *
   * ```ts
   * import { startNodeServer } from "hapax/node";
   * import { connectServer } from "hapax/processing";
   *
   * const server = await startNodeServer({ store: "memory", port: 0 });
   * const hapax = connectServer(server.url);
   * const [orders, bills] = [hapax.stream("/v1/stream/orders"), hapax.stream("/v1/stream/bills")];
   * await Promise.all([orders.create(), bills.create()]);
   * await orders.append({ cents: 250 });
   *
   * const pipeline = hapax.pipeline<{ cents: number }>({
   *   from: { streams: [orders] },
   *   group: "billing",
   *   to: bills,
   *   each: ({ cents }) => ({ due: cents }),
   *   onProgress: () => void pipeline.close(),
   * });
   * await pipeline.run();
   * console.assert((await bills.read().values()).length === 1);
   * await server.stop();
   * ```
   */
  pipeline<T = unknown, Tx = unknown>(options: PipelineOptions<T, Tx>): Pipeline<T, Tx> {
    return new Pipeline<T, Tx>(this, options);
  }

  /**
   * Creates a worker, which handles the records of streams as jobs: several at once, and each job is done, tried again later
   * or put aside without the others. Any number of workers share the jobs of a group, also those of one stream. Nothing is
   * sent until `run`. Throws `invalid_options`.
   *
   * ```ts
   * import { startNodeServer } from "hapax/node";
   * import { connectServer } from "hapax/processing";
   *
   * const server = await startNodeServer({ store: "memory", port: 0 });
   * const hapax = connectServer(server.url);
   * const [photos, thumbnails] = [hapax.stream("/v1/stream/photos"), hapax.stream("/v1/stream/thumbs")];
   * await Promise.all([photos.create(), thumbnails.create()]);
   * await photos.append({ name: "cat" });
   *
   * const worker = hapax.jobs<{ name: string }>({
   *   from: { streams: [photos] },
   *   group: "thumbnails",
   *   to: thumbnails,
   *   each: ({ name }) => ({ name, width: 100 }),
   *   onProgress: () => void worker.close(),
   * });
   * await worker.run();
   * console.assert((await thumbnails.read().values()).length === 1);
   * await server.stop();
   * ```
   */
  jobs<T = unknown>(options: JobOptions<T>): JobWorker<T> {
    return new JobWorker<T>(this, this.#caller, this.#addresses, options);
  }

  /**
   * Returns a handle for the dead letters in a stream: the one that a pipeline has as `deadLetter`. Sends
   * nothing yet.
   */
  deadLetters(stream: StreamTarget): DeadLetters {
    return new DeadLetters(this, stream, this.#caller.options.clock);
  }

  /** Returns the handle of the streams `<name>/0` to `<name>/<count - 1>`, which are written by key. */
  partitioned(name: string, count: number): Partitioned {
    return new Partitioned(this.#addresses.pathOf(name), count, (path) => this.stream(path));
  }
}
