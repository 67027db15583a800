/**
 * A consumer: gets the batches of the streams that a group leases to it.
 *
 *   - batches of one stream come one after the other, in order; those of different streams side by side;
 *   - uncommitted records come again, to the next holder of the stream; committed records never come again;
 *   - `run` ends when its signal aborts, after the current work, or with the first error of a handler. Either way it
 *     leaves the group, so that others go on at once;
 *   - the current work has `closeMs` to end. A handler that does not end hides neither the end nor the error of
 *     another: its lease is given up, and its later work has no effect.
 */

import { HapaxError } from "../../base/errors.ts";
import type { Caller } from "../attempt.ts";
import { deferred, nothing } from "../deferred.ts";
import type { Reconnect } from "../line.ts";
import { OptionsCheck } from "../../base/options-check.ts";
import type { ConsumerEvent } from "./events.ts";
import { Group, type GroupOptions } from "./group.ts";
import type { ConsumerLease, LeasedBatch } from "./held.ts";
import { Membership } from "./membership.ts";
import type { Addresses } from "./paths.ts";
import { Sources } from "./sources.ts";
import type { ClientTransactions } from "./transactions.ts";

/** Options of a consumer. Only `group` is required; with `pattern` or `streams` the group is created if it does not exist. */
export interface ConsumerOptions extends GroupOptions {
  readonly group: string;
  /** The name of the member; the server adds a number. Default `consumer`. */
  readonly name?: string;
  /** The most streams at once. Default: the member's share of the group. */
  readonly max?: number;
  /**
   * Time between two messages that keep the leases, in milliseconds. Default and maximum: a third of the lease time,
   * and never more than 3,000.
   */
  readonly heartbeatMs?: number;
  /** The most handlers of `run` at once. Default 8. */
  readonly concurrency?: number;
  /**
   * The most streams that have a connection of their own to wait for records. Default 64. The consumer polls all others in
   * turn, every `pollMs` to 5,000 ms. A browser has six connections to a server over HTTP/1.1: set 4 there.
   */
  readonly liveMax?: number;
  /** Shortest time between two polls of a stream without a connection, in milliseconds. Default 250. */
  readonly pollMs?: number;
  /**
   * How long an outage of the server may last, in milliseconds, before an error ends the work. Default: no
   * limit.
   */
  readonly patienceMs?: number;
  /** Called with every event. */
  readonly onEvent?: (event: ConsumerEvent) => void;
  /** Called with every failed read that is tried again. */
  readonly onReconnect?: (reconnect: Reconnect) => void;
  /**
   * Ends the consumer at once: `next` rejects with the reason, and another member gets the current batches. To finish
   * them first, use the `signal` of `run`.
   */
  readonly signal?: AbortSignal | undefined;
}

/** Options of `consumer.run`. */
export interface RunOptions {
  /** The most handlers at once. Default: that of the consumer. */
  readonly concurrency?: number;
  /**
   * How long the current work may still take after `signal` has aborted or a handler has failed, in milliseconds. Then the
   * consumer leaves the group, and `run` settles without the handlers that did not end. Default 5,000.
   */
  readonly closeMs?: number;
  /** Ends the run in order: takes no new batches, finishes and commits the current ones, then leaves the group. */
  readonly signal?: AbortSignal | undefined;
}

interface Waiter<T> {
  readonly isOver: () => boolean;
  readonly resolve: (result: IteratorResult<LeasedBatch<T>, undefined>) => void;
  readonly reject: (error: unknown) => void;
}

const HEARTBEAT_MS_MAX = 3_000;

/** With the time to leave it is less than the ten seconds that containers have to end. */
const CLOSE_MS = 5_000;

/**
 * Gets the batches of the streams that a group leases to this member. `connection.consumer()` creates it. It joins the group
 * at the first `next`.
 *
 * ```ts
 * import { startNodeServer } from "hapax/node";
 * import { connectServer } from "hapax/processing";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const hapax = connectServer(server.url);
 * const orders = hapax.stream("/v1/stream/orders");
 * await orders.create();
 * await orders.append({ id: 1 });
 *
 * await using consumer = hapax.consumer<{ id: number }>({ group: "billing", streams: [orders] });
 * for await (const batch of consumer) {
 *   console.assert(batch.records[0]?.id === 1);
 *   await batch.commit(); // The next batch of this stream comes only after it.
 *   break;
 * }
 * const { cursors } = await hapax.group("billing").describe();
 * console.assert(cursors[0]?.lag === 0);
 * await server.stop();
 * ```
 */
export class Consumer<T = unknown> implements AsyncIterable<LeasedBatch<T>> {
  readonly #options: ConsumerOptions;
  readonly #caller: Caller;
  readonly #addresses: Addresses;
  readonly #membership: Membership<T>;
  readonly #concurrency: number;
  readonly #ready: ConsumerLease<T>[] = [];
  readonly #waiters: Waiter<T>[] = [];
  #opening: Promise<void> | undefined;
  #failure: { readonly error: unknown } | undefined;
  #isClosed = false;
  readonly #closing = new AbortController();
  readonly #unlisten: () => void;

  constructor(
    caller: Caller,
    addresses: Addresses,
    transactions: ClientTransactions,
    options: ConsumerOptions,
  ) {
    const check = new OptionsCheck(HapaxError);
    const whole = (name: "max" | "concurrency" | "liveMax", fallback: number): number =>
      check.number(name, options[name], fallback, 1);
    this.#concurrency = whole("concurrency", 8);
    whole("max", 1);
    const liveMax = whole("liveMax", 64);
    const pollMs = check.number("pollMs", options.pollMs, 250, 1);
    const patienceMs = check.number("patienceMs", options.patienceMs, Infinity, 0);
    const heartbeatMs = check.number("heartbeatMs", options.heartbeatMs, HEARTBEAT_MS_MAX, 1);
    if (options.group === "") check.problem("group is empty");
    check.end();
    this.#options = options;
    this.#caller = caller;
    this.#addresses = addresses;
    const { group, name = "consumer", max, onEvent, onReconnect } = options;
    this.#membership = new Membership<T>({
      caller,
      addresses,
      transactions,
      sources: new Sources(caller, addresses, { liveMax, pollMs, patienceMs, onReconnect }),
      options: { group, name, max, heartbeatMs, patienceMs, onEvent },
      ready: (held) => {
        this.#ready.push(held);
        this.#serve();
      },
      withdraw: (held) => {
        const at = this.#ready.indexOf(held);
        if (at >= 0) this.#ready.splice(at, 1);
      },
      failed: (error) => {
        this.#fail(error);
      },
    });
    this.#unlisten = caller.onAbort(options.signal, () => {
      this.#fail(caller.abortedBy(options.signal));
    });
    const aborted = caller.abortedBy(options.signal);
    if (aborted !== undefined) this.#fail(aborted);
  }

  /** The id of this member at the server; `undefined` before it has joined. */
  get member(): string | undefined {
    return this.#membership.member;
  }

  /** The number of streams that are leased to it now. */
  get leaseCount(): number {
    return this.#membership.leaseCount;
  }

  /**
   * Returns the next batch of any leased stream. Several workers may wait at once. Done after `close`. Rejects with the
   * reason of the signal, and with errors that a retry cannot solve: `group_not_found`, `group_exists`, `unsupported`,
   * `token_invalid`.
   */
  next(
    options: { readonly signal?: AbortSignal } = {},
  ): Promise<IteratorResult<LeasedBatch<T>, undefined>> {
    return this.#next(options.signal);
  }

  /** `isOver` returns true when the caller wants no more batches: then the promise resolves as done. */
  #next(
    signal?: AbortSignal,
    isOver?: () => boolean,
  ): Promise<IteratorResult<LeasedBatch<T>, undefined>> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const forget = (): void => {
        signal?.removeEventListener("abort", giveUp);
      };
      const waiter: Waiter<T> = {
        isOver: () => isOver?.() === true,
        resolve: (result) => {
          forget();
          resolve(result);
        },
        reject: (error) => {
          forget();
          reject(error);
        },
      };
      const giveUp = (): void => {
        const at = this.#waiters.indexOf(waiter);
        if (at >= 0) this.#waiters.splice(at, 1);
        waiter.reject(signal?.reason);
      };
      signal?.addEventListener("abort", giveUp, { once: true });
      this.#waiters.push(waiter);
      this.#serve();
      this.#open().catch((error: unknown) => {
        this.#fail(error);
      });
    });
  }

  /** Iterates over the batches, for one worker: `for await`. Leaving the loop closes the consumer. */
  [Symbol.asyncIterator](): AsyncIterator<LeasedBatch<T>, undefined, undefined> {
    return {
      next: () => this.next(),
      return: async () => {
        await this.close();
        return { done: true, value: undefined };
      },
    };
  }

  /**
   * Calls the handler for each batch, several at once. When a handler ends that has neither committed its batch nor
   * called `done`, the batch is committed. An error of a handler ends the run, unless the lease has ended: then another
   * member gets the records.
   *
   * ```ts
   * import { startNodeServer } from "hapax/node";
   * import { connectServer } from "hapax/processing";
   *
   * const server = await startNodeServer({ store: "memory", port: 0 });
   * const hapax = connectServer(server.url);
   * const [orders, bills] = [hapax.stream("/v1/stream/orders"), hapax.stream("/v1/stream/bills")];
   * await Promise.all([orders.create(), bills.create()]);
   * for (const cents of [250, 100]) await orders.append({ cents });
   *
   * // Each order has its bill, exactly once: the bills and the offset are one transaction.
   * const stop = new AbortController();
   * const consumer = hapax.consumer<{ cents: number }>({ group: "billing", streams: [orders] });
   * await consumer.run(
   *   async (batch) => {
   *     await hapax.transaction((tx) => {
   *       for (const { cents } of batch.records) tx.append(bills, { due: cents });
   *       tx.commit(batch);
   *     });
   *     stop.abort();
   *   },
   *   { signal: stop.signal },
   * );
   * const due = await bills.read<{ due: number }>().values();
   * console.assert(due.map((bill) => bill.due).join() === "250,100");
   * await server.stop();
   * ```
   */
  async run(
    handler: (batch: LeasedBatch<T>) => void | Promise<void>,
    options: RunOptions = {},
  ): Promise<void> {
    const { signal, closeMs = CLOSE_MS, concurrency = this.#concurrency } = options;
    const { clock } = this.#caller.options;
    const overdue = deferred<void>();
    let isOver = false;
    let failure: { readonly error: unknown } | undefined;
    let cancel = nothing;
    const end = (): void => {
      if (isOver) return;
      isOver = true;
      cancel = clock.after(closeMs, () => {
        overdue.resolve();
      });
      this.#serve();
    };
    signal?.addEventListener("abort", end, { once: true });
    if (signal?.aborted === true) end();
    const workers = Array.from({ length: concurrency }, async () => {
      try {
        await this.#work(handler, () => isOver);
      } catch (error) {
        failure ??= { error };
      }
      // The first worker that ends also ends the others, after their current batch.
      end();
    });
    await Promise.race([Promise.all(workers), overdue.promise]);
    cancel();
    signal?.removeEventListener("abort", end);
    await this.close();
    // Cast: throws the worker's error unchanged.
    if (failure !== undefined) throw failure.error as Error;
  }

  /** Leaves the group at once. Another member gets the batches that are neither committed nor done. */
  async close(): Promise<void> {
    if (!this.#isClosed) {
      this.#isClosed = true;
      this.#unlisten();
      this.#serve();
    }
    this.#closing.abort(new HapaxError("lease_lost", "the consumer was closed"));
    await this.#membership.leave();
    await this.#opening?.catch(() => undefined); // `next` rejects with it.
  }

  /** `await using` closes the consumer. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #work(
    handler: (batch: LeasedBatch<T>) => void | Promise<void>,
    isOver: () => boolean,
  ): Promise<void> {
    for (;;) {
      const next = await this.#next(undefined, isOver);
      if (next.done === true) return;
      const batch = next.value;
      try {
        await handler(batch);
        // A batch that was given back belongs to the next holder.
        if (!batch.isSettled && !batch.signal.aborted) await batch.commit();
      } catch (error) {
        // Another member has the stream now: the work of this one has no effect.
        if (!batch.signal.aborted) throw error;
      }
    }
  }

  #open(): Promise<void> {
    this.#opening ??= this.#join();
    return this.#opening;
  }

  async #join(): Promise<void> {
    if (this.#isClosed || this.#failure !== undefined) return;
    const { group, pattern, streams, start, leaseMs } = this.#options;
    if (pattern !== undefined || streams !== undefined) {
      await new Group(this.#caller, this.#addresses, group).create({
        ...(pattern === undefined ? {} : { pattern }),
        ...(streams === undefined ? {} : { streams }),
        ...(start === undefined ? {} : { start }),
        ...(leaseMs === undefined ? {} : { leaseMs }),
        signal: this.#closing.signal,
      });
    }
    if (!this.#isClosed) await this.#membership.open();
  }

  /** Gives ready batches to waiting callers. */
  #serve(): void {
    const over = this.#waiters.filter((waiter) => waiter.isOver());
    for (const waiter of over) {
      this.#waiters.splice(this.#waiters.indexOf(waiter), 1);
      waiter.resolve({ done: true, value: undefined });
    }
    while (this.#waiters.length > 0) {
      if (this.#failure !== undefined) {
        this.#waiters.shift()?.reject(this.#failure.error);
        continue;
      }
      if (this.#isClosed) {
        this.#waiters.shift()?.resolve({ done: true, value: undefined });
        continue;
      }
      const held = this.#ready.shift();
      if (held === undefined) return;
      const value = held.give();
      if (value !== undefined) this.#waiters.shift()?.resolve({ done: false, value });
    }
  }

  #fail(error: unknown): void {
    if (this.#isClosed || this.#failure !== undefined) return;
    this.#failure = { error: error ?? new HapaxError("internal", "the consumer has failed") };
    this.#unlisten();
    this.#serve();
    this.#closing.abort(error);
    this.#membership.leave().catch(() => undefined); // Callers get the failure instead.
  }
}
