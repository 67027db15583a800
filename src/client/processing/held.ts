/**
 * One lease that this consumer holds: its current batch, its commits, and its end.
 *
 *   - the next batch of a lease is given only after the one before was committed or marked as done;
 *   - a lease that is asked back gives no more batches. It is handed over as soon as no worker has a batch of it and
 *     all done batches are committed, and in any case before its time is over;
 *   - when a lease is over its signal aborts, and nothing more is committed under it.
 */

import { assert } from "../../base/assert.ts";
import type { HapaxError } from "../../base/errors.ts";
import type { Batch } from "../batches.ts";
import { type Lease, leaseLost, listenTo } from "./lease.ts";
import { Places } from "./places.ts";

/** Options of `batch.commit`. All are optional. */
export interface CommitOptions {
  /** Commits the records before this offset, which `offsetAt` returns. Default: all of the batch. */
  readonly offset?: string;
  readonly signal?: AbortSignal;
}

/**
 * Records of one leased stream. A batch begins and ends at a safe point: an offset at which a reader can go
 * on.
 */
export interface LeasedBatch<T> {
  readonly stream: string;
  /** The id of the stream's life: a stream that is deleted and created again at its path has another one. */
  readonly life: string;
  /** For `tx.commit` and `tx.expectLease`. */
  readonly lease: Lease;
  /** JSON: the values. Text: one string. Other types: one `Uint8Array`. */
  readonly records: readonly T[];
  /** The bytes as they came; one array for a JSON stream. */
  readonly bytes: Uint8Array;
  /** Where the batch begins. */
  readonly offset: string;
  /** Where the batch ends: the offset that its commit stores. */
  readonly nextOffset: string;
  /** The content type of the stream. */
  readonly contentType: string;
  /**
   * Returns the offset at which a record begins. Together with the stream it identifies the record, also if a later read
   * divides the stream into other batches. In a stream that is not JSON a batch is one piece, which begins where the
   * reading began.
   */
  offsetAt(index: number): string;
  /** Returns the bytes of a record as they were stored, with all digits of large numbers. */
  bytesAt(index: number): Uint8Array;
  /** The stream is closed, and this is its last batch. */
  readonly closed: boolean;
  /**
   * Aborts when the lease is lost, or when the server wants it back and its time is nearly over. Its reason is
   * `lease_lost`.
   */
  readonly signal: AbortSignal;
  /** Whether the batch was committed, by itself or by a transaction, or marked as done. */
  readonly isSettled: boolean;
  /**
   * Commits that these records are processed, or those before an offset. Resolves when the commit is stored. Rejects with
   * `lease_lost` or `member_lost` if another member has the stream now, or the consumer was closed. Waits during an outage;
   * if the signal aborts, it stops waiting, and the commit may still be stored.
   */
  commit(options?: CommitOptions): Promise<void>;
  /** Marks the batch as done without a commit, so that the next one can come. A later commit of this lease covers both. */
  done(): void;
  /** Whether the server wants the stream for another member: give it back soon. */
  readonly isAskedBack: boolean;
  /** Gives the stream back. The next holder gets the uncommitted records again. */
  giveBack(): void;
}

/** The functions of the consumer that a lease needs. */
export interface LeaseHost<T> {
  /** A batch is ready for a worker. */
  ready(held: ConsumerLease<T>): void;
  /** The batch is not ready any more. */
  withdraw(held: ConsumerLease<T>): void;
  commit(held: ConsumerLease<T>, offset: string, isLast: boolean): Promise<void>;
  /** Gives the lease back: no worker has a batch of it, or its time is over. */
  handOver(held: ConsumerLease<T>): void;
  /** The server does not know this lease. */
  refused(held: ConsumerLease<T>, error: HapaxError): void;
}

interface Hand<T> {
  readonly batch: Batch<T>;
  readonly settle: () => void;
  isGiven: boolean;
}

export class ConsumerLease<T> {
  readonly lease: Lease;
  /** The life of the leased stream. */
  readonly life: string;
  readonly #host: LeaseHost<T>;
  readonly #controller = new AbortController();
  #hand: Hand<T> | undefined;
  #committed: string;
  #done: string;
  #isAsked = false;
  #isLast = false;
  #cancelDeadline: () => void = () => undefined;
  #onCommitted: () => void = () => undefined;

  constructor(lease: Lease, life: string, offset: string, host: LeaseHost<T>) {
    this.lease = lease;
    this.life = life;
    this.#committed = offset;
    this.#done = offset;
    this.#host = host;
    listenTo(lease, {
      committed: (to) => {
        this.#settle(to, true);
      },
      refused: (error) => {
        host.refused(this, error);
      },
    });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get committed(): string {
    return this.#committed;
  }

  /** Whether the last batch of a closed stream was given: then the lease finishes, which is not a loss. */
  get isLast(): boolean {
    return this.#isLast;
  }

  get isAsked(): boolean {
    return this.#isAsked;
  }

  /** Offers a batch to the workers; resolves when the next one may come. */
  offer(batch: Batch<T>): Promise<void> {
    return new Promise((settle) => {
      if (this.signal.aborted) {
        settle();
        return;
      }
      this.#isLast = batch.closed;
      this.#hand = { batch, settle, isGiven: false };
      if (this.#isAsked) this.#tryHandOver();
      else this.#host.ready(this);
    });
  }

  /** Gives the current batch to a worker. */
  give(): LeasedBatch<T> | undefined {
    const hand = this.#hand;
    if (hand === undefined || hand.isGiven || this.signal.aborted) return undefined;
    hand.isGiven = true;
    return this.#leased(hand);
  }

  /** Commits the end of a closed stream that has no more records, when all before it is committed. */
  async finish(batch: Batch<T>): Promise<void> {
    if (this.#done > this.#committed) {
      await new Promise<void>((resolve) => {
        this.#onCommitted = resolve;
      });
    }
    if (this.signal.aborted) return;
    this.#isLast = true;
    await this.#commit(batch.nextOffset, batch.closed);
  }

  /** Asks the lease back. `afterMs` calls its argument when the time to hand over is nearly over. */
  ask(afterMs: (run: () => void) => () => void): void {
    if (this.#isAsked || this.signal.aborted) return;
    this.#isAsked = true;
    this.#cancelDeadline = afterMs(() => {
      this.#host.handOver(this);
    });
    this.#tryHandOver();
  }

  /** Keeps the lease: the server does not want it back any more. */
  keep(): void {
    if (!this.#isAsked) return;
    this.#isAsked = false;
    this.#cancelDeadline();
    if (this.#hand?.isGiven === false) this.#host.ready(this);
  }

  end(reason: HapaxError): void {
    this.#cancelDeadline();
    if (this.signal.aborted) return;
    this.#host.withdraw(this);
    this.#controller.abort(reason);
    // The reader waits for this promise, and then sees the signal.
    this.#hand?.settle();
    this.#hand = undefined;
    this.#onCommitted();
  }

  #tryHandOver(): void {
    if (!this.#isAsked || this.signal.aborted) return;
    const isIdle = this.#hand?.isGiven !== true;
    if (!isIdle || this.#done > this.#committed) return;
    this.#host.handOver(this);
  }

  #settle(offset: string, isCommitted: boolean): void {
    if (isCommitted && offset > this.#committed) this.#committed = offset;
    if (offset > this.#done) this.#done = offset;
    assert(this.#committed <= this.#done, "a lease has committed what is not done");
    const hand = this.#hand;
    if (hand?.isGiven === true && hand.batch.nextOffset <= offset) {
      this.#hand = undefined;
      hand.settle();
    }
    if (this.#done <= this.#committed) this.#onCommitted();
    this.#tryHandOver();
  }

  async #commit(offset: string, isLast: boolean): Promise<void> {
    await this.#host.commit(this, offset, isLast);
    this.#settle(offset, true);
  }

  #leased(hand: Hand<T>): LeasedBatch<T> {
    const { batch } = hand;
    const { lease, life, signal } = this;
    const isSettled = (): boolean => this.#done >= batch.nextOffset;
    const isAskedBack = (): boolean => this.#isAsked;
    const places = new Places(batch);
    return {
      stream: lease.stream,
      life,
      lease,
      get records() {
        return batch.records;
      },
      get bytes() {
        return batch.bytes;
      },
      offset: batch.offset,
      nextOffset: batch.nextOffset,
      contentType: batch.contentType,
      offsetAt: (index) => places.offsetAt(index),
      bytesAt: (index) => places.bytesAt(index),
      closed: batch.closed,
      signal,
      get isSettled() {
        return isSettled();
      },
      commit: async (options = {}) => {
        const { offset = batch.nextOffset } = options;
        if (this.#committed >= offset) return;
        if (signal.aborted) throw lostOf(signal);
        const isLast = batch.closed && offset === batch.nextOffset;
        const committing = orAborted(this.#commit(offset, isLast), options.signal);
        // A finished stream ends its lease: that is not a loss.
        await unlessLost(committing, signal, () => this.#committed >= offset);
      },
      done: () => {
        this.#settle(batch.nextOffset, false);
      },
      get isAskedBack() {
        return isAskedBack();
      },
      giveBack: () => {
        if (!signal.aborted) this.#host.handOver(this);
      },
    };
  }
}

/** Settles as the promise does, or rejects when the signal aborts first. */
function orAborted(promise: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const giveUp = (): void => {
      reject(signal.reason);
    };
    signal.addEventListener("abort", giveUp, { once: true });
    if (signal.aborted) giveUp();
    promise.then(resolve, reject).finally(() => {
      signal.removeEventListener("abort", giveUp);
    });
  });
}

/** Settles as the promise does, or when the lease ends first: then it resolves only if `isDone`. */
function unlessLost(
  promise: Promise<void>,
  signal: AbortSignal,
  isDone: () => boolean,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const giveUp = (): void => {
      if (isDone()) resolve();
      else reject(lostOf(signal));
    };
    signal.addEventListener("abort", giveUp, { once: true });
    if (signal.aborted) giveUp();
    promise.then(resolve, reject).finally(() => {
      signal.removeEventListener("abort", giveUp);
    });
  });
}

function lostOf(signal: AbortSignal): HapaxError {
  const reason: unknown = signal.reason;
  const words = reason instanceof Error ? reason.message : "the lease is over";
  return leaseLost(words, reason);
}
