/**
 * The producer: takes data, sends numbered batches, and reports the true outcome of each.
 *
 *   - `flush()` resolves if and only if all data that was given before it is stored. Otherwise it rejects,
 *     and hands back the unconfirmed data, in the order of the calls;
 *   - a producer that could not store a record is over: it stores nothing behind the gap;
 *   - it holds at most `pendingBytesMax`: beyond that `append` throws `producer_full` and takes nothing. Text
 *     counts a byte for each character.
 */

import { HapaxError } from "../base/error-codes.ts";
import { type Deferred, deferred } from "./deferred.ts";
import { BODY_BYTES_MAX, HELD_PER_PRODUCER_MAX } from "../protocol/limits.ts";
import type { Receipt } from "./batching.ts";
import { type AppendFailure, failureOf, unconfirmed, type Unconfirmed } from "./failure.ts";
import { checkProducerId, type EpochSource, identityFor } from "./identity.ts";
import type { Peer } from "./peer.ts";
import { encode } from "./records.ts";
import { dataOf, type Listener } from "./entries.ts";
import { Sender } from "./sender.ts";
import type { BatchAck } from "./sender-events.ts";
import { OptionsCheck } from "../base/options-check.ts";

/** A batch of at least this share of a full one is sent beside others; a smaller one waits until one of them ends. */
const PIPELINED_SHARE = 0.25;

/** Options of `stream.producer`. All are optional. */
export interface ProducerOptions {
  /** Names the producer across restarts: a new one with the same id fences the old one. Default: random. */
  readonly id?: string;
  /**
   * The epoch of the producer. Needed for an `id` on servers without sessions, such as the reference server of the
   * protocol. Must be higher after each restart. A function is called once.
   */
  readonly epoch?: EpochSource;
  /**
   * The most batches without an answer at once, 1 to 256. Default 5; 1 if the server cannot order them. A small batch
   * (less than a quarter of `batchBytesMax`, and less than `batchRecordsMax`) waits until all earlier batches have an
   * answer. If a batch is larger than all that were accepted, it may be too large: the producer sends nothing more until
   * it is accepted.
   */
  readonly inFlightMax?: number;
  /** The most bytes of one batch. Default 1 MiB. */
  readonly batchBytesMax?: number;
  /** The most records of one batch. Default: no limit. */
  readonly batchRecordsMax?: number;
  /**
   * How long a batch waits for more records, in milliseconds. Default 0: it collects records only while earlier
   * batches wait for their answers. A higher value makes fewer and larger batches.
   */
  readonly lingerMs?: number;
  /**
   * High-water mark in bytes. `ready` waits while this many or more are held. Each append counts 128 bytes more than its
   * data. Default 16 MiB.
   */
  readonly highWaterBytes?: number;
  /** The most bytes held: beyond it `append` throws `producer_full`. Default: four times `highWaterBytes`. */
  readonly pendingBytesMax?: number;
  /** Called with every stored batch, in order. */
  readonly onBatchAck?: (ack: BatchAck) => void;
  /** Called once, when the producer ends because data was not confirmed. */
  readonly onError?: (failure: AppendFailure) => void;
}

interface Waiter {
  /** How many records must end first. */
  readonly count: number;
  readonly resolve: () => void;
  readonly reject: (failure: AppendFailure) => void;
}

/**
 * Writes many records fast, in order, each exactly once. `stream.producer()` creates it.
 *
 * After lost answers, timeouts, 408, 425, 429 and 5xx it repeats the same batch under the same number. It splits a batch
 * that the server refuses as too large. If it had already sent later batches, the numbers after that batch are used. Then a
 * producer without `id` sends all of these batches again under a new random id, and a producer with an `id` ends.
 *
 * A record that cannot be stored ends the producer, because later records stand behind it. The producer then hands back all
 * unconfirmed data. The code says why: `producer_fenced` (another producer with this id has taken over), `stream_closed`,
 * `producer_gap` (the server has forgotten what it had acknowledged), `body_too_large` (of one record), `unreachable` (the
 * retries are used up), or the code of another refusal.
 *
 * ```ts
 * import { connect } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const stream = connect(`${server.url}/v1/stream/orders`);
 * await stream.create({ contentType: "application/json" });
 *
 * const producer = stream.producer({ id: "orders-1" });
 * for (let id = 0; id < 1000; id += 1) {
 *   await producer.ready;
 *   producer.append({ id });
 * }
 * await producer.flush(); // Rejects if anything was not stored.
 * await producer.close();
 * console.assert((await stream.resume("orders-1"))?.epoch === 0);
 * await server.stop();
 * ```
 */
export class Producer<T = unknown> {
  readonly #peer: Peer;
  readonly #sender: Sender;
  readonly #highWaterBytes: number;
  readonly #pendingBytesMax: number;
  readonly #waiters: Waiter[] = [];
  #unconfirmed: Unconfirmed[] = [];
  #failure: AppendFailure | undefined;
  #isClosed = false;
  #given = 0;
  #ended = 0;
  #ready: Deferred<void> | undefined;

  constructor(peer: Peer, options: ProducerOptions = {}) {
    const check = new OptionsCheck(HapaxError);
    this.#peer = peer;
    const highWater = check.number("highWaterBytes", options.highWaterBytes, 16 * 1024 * 1024, 1);
    this.#highWaterBytes = highWater;
    const hard = check.number("pendingBytesMax", options.pendingBytesMax, highWater * 4, highWater);
    this.#pendingBytesMax = hard;
    const { inFlightMax, batchBytesMax, batchRecordsMax } = options;
    const bytesMax = check.number("batchBytesMax", batchBytesMax, 1024 * 1024, 1, BODY_BYTES_MAX);
    const sending = {
      bytesMax,
      pipelinedBytesMin: bytesMax * PIPELINED_SHARE,
      inFlightMax: check.number("inFlightMax", inFlightMax, 5, 1, HELD_PER_PRODUCER_MAX),
      recordsMax: check.number("batchRecordsMax", batchRecordsMax, Infinity, 1),
      lingerMs: check.number("lingerMs", options.lingerMs, 0, 0),
    };
    check.end();
    if (options.id !== undefined) checkProducerId(options.id);
    this.#sender = new Sender(
      peer,
      sending,
      (signal) => identityFor(peer, options.id, options.epoch, signal),
      {
        onAck: (ack) => {
          this.#ended += ack.records;
          this.#wakeReady();
          this.#settleWaiters();
          tell(options.onBatchAck, ack);
        },
        onUnconfirmed: (entries, ending) => {
          for (const entry of entries) this.#unconfirmed.push(unconfirmed(dataOf(entry), ending));
          this.#ended += entries.length;
          this.#wakeReady();
        },
        onEnd: (error) => {
          this.#failure = failureOf(error, this.#unconfirmed);
          this.#unconfirmed = [];
          this.#ready?.resolve();
          this.#settleWaiters();
          tell(options.onError, this.#failure);
        },
      },
    );
  }

  /** The number of appends that have not ended. */
  get pendingCount(): number {
    return this.#given - this.#ended;
  }

  /** The number of batches that were sent and have no answer yet. */
  get inFlightCount(): number {
    return this.#sender.inFlight;
  }

  /** The epoch at the server; `undefined` before the first answer. */
  get epoch(): number | undefined {
    return this.#sender.epoch;
  }

  /** Resolves when less than `highWaterBytes` are held, or when the producer has ended. */
  get ready(): Promise<void> {
    if (this.#sender.heldBytes < this.#highWaterBytes || this.#failure !== undefined) {
      return Promise.resolve();
    }
    this.#ready ??= deferred();
    return this.#ready.promise;
  }

  /**
   * Takes data and does not wait. Throws the failure if the producer has ended, `producer_full` if it holds
   * too much, `producer_closed` after `close()`.
   */
  append(data: T): void {
    this.#push(data);
  }

  /** Takes data; resolves when it is stored, rejects with an `AppendFailure` if it is not confirmed. */
  send(data: T): Promise<Receipt> {
    return new Promise((resolve, reject) => {
      this.#push(data, (ending) => {
        if ("receipt" in ending) resolve(ending.receipt);
        else reject(failureOf(ending.error, [unconfirmed(data, ending)]));
      });
    });
  }

  /** Resolves when all earlier data is stored. Rejects if any was not confirmed, also before an earlier `flush()`. */
  flush(): Promise<void> {
    this.#sender.hurry();
    return new Promise((resolve, reject) => {
      this.#waiters.push({ count: this.#given, resolve, reject });
      this.#settleWaiters();
    });
  }

  /** Takes no more data and flushes. The stream stays open. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.flush();
  }

  /** `await using` closes the producer. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #push(data: unknown, listener?: Listener): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#isClosed) throw new HapaxError("producer_closed", "closed");
    const encoded = encode(data, this.#peer.knownCodec);
    this.#sender.push({ encoded, listener }, this.#pendingBytesMax);
    this.#given += 1;
  }

  #wakeReady(): void {
    if (this.#sender.heldBytes >= this.#highWaterBytes) return;
    this.#ready?.resolve();
    this.#ready = undefined;
  }

  #settleWaiters(): void {
    // They were added in the order of their counts.
    while (this.#waiters.length > 0) {
      const first = this.#waiters[0];
      if (first === undefined || (this.#failure === undefined && first.count > this.#ended)) return;
      // If some records ended unconfirmed, the producer is about to report its end.
      if (this.#failure === undefined && this.#unconfirmed.length > 0) return;
      this.#waiters.shift();
      if (this.#failure === undefined) first.resolve();
      else first.reject(this.#failure);
    }
  }
}

/** Calls a listener. If it throws, the error is reported as uncaught, and changes nothing here. */
function tell<Value>(listener: ((value: Value) => void) | undefined, value: Value): void {
  try {
    listener?.(value);
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
