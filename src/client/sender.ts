/**
 * The line of batches of one writer: numbered, several on their way at once, stored in order, each once.
 *
 *   - a batch that was sent keeps its bytes and its identity (id, session or epoch, sequence) for all its
 *     attempts. A number that was sent is never given to other bytes, because a copy of the request may
 *     arrive late and take it. The one exception: the server answered the batch with a refusal that every copy of
 *     it gets as well (too large, not JSON, a condition that can hold no more), and nothing was sent behind;
 *   - batches are stored in the order of the calls. Several are on their way only if the server waits
 *     for overtaken ones (PROTOCOL.md §17); else one at a time;
 *   - a record ends as stored if and only if the server confirmed its batch, or a later one of the
 *     same identity, which it accepts only after it;
 *   - a record that cannot be stored ends the writer, after everything on its way has ended. Each record is handed
 *     back: `not_stored` only if that is certain, else `unknown`, also behind one that is unknown. Certain means: if nothing on the way
 *     repeats requests by itself, or if no other writer takes over or deletes the stream meanwhile;
 *   - a batch that is too large, or has a record that the server refuses, is cut smaller, until the record is
 *     alone. If others were sent behind it, a writer with a random id goes on under a new one, when all before
 *     is stored; under the old one nothing behind can be stored any more. A writer with a chosen id ends;
 *   - a condition that does not hold (If-Match, Stream-Seq) ends its own record alone;
 *   - nothing is sent behind a batch that is larger than all accepted ones, until it is accepted: so
 *     a refused batch seldom ends a writer. Beside others, a batch of less than twice that size is cut down to it
 *     instead, so that the line seldom waits.
 */

import { HapaxError } from "../base/error-codes.ts";
import { deferred, nothing } from "./deferred.ts";
import { Backlog, type NotConfirmed, type Receipt, RECORD_OVERHEAD_BYTES } from "./batching.ts";
import {
  askServer,
  asHapaxError,
  type SentBatch,
  conditionsOf,
  dressBatch,
  isDivisible,
  isFinal,
  isOverForGood,
  lastStored,
  takeBatch,
  SEQ_REUSED,
} from "./flight.ts";
import { type WaitingRecord, type Listener, sizeOf, tellAll } from "./entries.ts";
import type { SenderIdentity } from "./identity.ts";
import type { Peer } from "./peer.ts";
import type { SenderEvents, SenderOptions } from "./sender-events.ts";

/** The first batch that cannot be stored. */
interface Stop {
  readonly sequence: number;
  readonly error: HapaxError;
  /** The server will never accept its number: nothing behind it can be stored, also if it is still on its way. */
  readonly isCertain: boolean;
}

export class Sender {
  readonly #peer: Peer;
  readonly #events: SenderEvents;
  readonly #makeIdentity: (signal: AbortSignal) => Promise<SenderIdentity>;
  readonly #backlog = new Backlog();
  /** In the order of their numbers; ended ones stay until all before them have ended. */
  readonly #flight: SentBatch[] = [];
  #flightBytes = 0;
  #limits: SenderOptions;
  #identity: SenderIdentity | undefined;
  #nextSequence = 0;
  #epoch: number | undefined;
  #storedMax = -1;
  #stop: Stop | undefined;
  #hasEnded = false;
  /** The size of the largest accepted batch. */
  #acceptedBytes = 0;
  /** The first batch that has to be cut smaller with others behind it. */
  #broken: SentBatch | undefined;
  #isDue = false;
  #isScheduled = false;
  #isStarting = false;
  #cancelLinger: () => void = nothing;
  readonly #opening = new AbortController();

  constructor(
    peer: Peer,
    options: SenderOptions,
    makeIdentity: (signal: AbortSignal) => Promise<SenderIdentity>,
    events: SenderEvents,
  ) {
    this.#peer = peer;
    this.#limits = options;
    this.#makeIdentity = makeIdentity;
    this.#events = events;
  }

  get epoch(): number | undefined {
    return this.#epoch;
  }

  /** The memory of all records that have not ended, in bytes. */
  get heldBytes(): number {
    return this.#backlog.heldBytes + this.#flightBytes;
  }

  /** The number of batches that were sent and have not ended. */
  get inFlight(): number {
    return this.#flight.length;
  }

  /**
   * Takes a record; throws `producer_full` if others are held and it would be too much with them. Must not be called after
   * the end of the writer.
   */
  push(entry: WaitingRecord, heldBytesMax: number): void {
    const { heldBytes } = this;
    if (heldBytes > 0 && heldBytes + sizeOf([entry]) + RECORD_OVERHEAD_BYTES > heldBytesMax) {
      throw new HapaxError("producer_full", `held=${heldBytes} max=${heldBytesMax}`);
    }
    this.#backlog.push(entry);
    if (this.#backlog.length === 1 && this.#limits.lingerMs > 0) {
      const { clock } = this.#peer.caller.options;
      this.#cancelLinger();
      this.#cancelLinger = clock.after(this.#limits.lingerMs, () => {
        this.hurry();
      });
    }
    // Most of the time a batch is filling and there is nothing to do: the end of every batch schedules again.
    if (this.#identity === undefined || this.#mayLaunch()) this.#schedule();
  }

  /** Takes back the record of a listener, if it was not sent yet. */
  withdraw(listener: Listener): boolean {
    return this.#backlog.remove(listener);
  }

  /**
   * Ends the writer at once, without calling its listeners: for a writer whose records were all given up. Returns its id if
   * the server knows its session: another session of that id fences the requests that are still on their way.
   */
  abandon(): string | undefined {
    this.#hasEnded = true;
    this.#opening.abort();
    for (const { abort } of this.#flight) abort.abort();
    return this.#epoch === undefined ? undefined : this.#identity?.id;
  }

  /** Sends the waiting records without lingering. */
  hurry(): void {
    this.#isDue = this.#backlog.length > 0;
    this.#schedule();
  }

  /** Runs at the end of the microtask, so that appends of one loop share a batch. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      if (this.#identity !== undefined) this.#pump(this.#identity);
      else if (!this.#isStarting) void this.#start();
    });
  }

  async #start(): Promise<void> {
    if (this.#hasEnded || this.#stop !== undefined) return;
    this.#isStarting = true;
    const { signal } = this.#opening;
    try {
      const [identity] = await Promise.all([this.#makeIdentity(signal), this.#peer.codec(signal)]);
      this.#identity = identity;
      this.#isStarting = false;
      if (!identity.isSession) this.#limits = { ...this.#limits, inFlightMax: 1 };
      this.#schedule();
    } catch (error) {
      // Nothing was sent, so no record can be stored.
      this.#stop ??= { sequence: 0, error: asHapaxError(error), isCertain: false };
      this.#endIfIdle();
    }
  }

  #pump(identity: SenderIdentity): void {
    while (this.#mayLaunch()) this.#launch(identity);
    this.#endIfIdle();
  }

  #mayLaunch(): boolean {
    const isHeld = this.#stop !== undefined || this.#broken !== undefined;
    if (isHeld || this.#backlog.length === 0) return false;
    if (this.#flight.length >= this.#limits.inFlightMax) return false;
    // Only the last batch can be larger.
    if ((this.#flight.at(-1)?.body?.length ?? 0) > this.#acceptedBytes) return false;
    // An append with conditions is alone on its way: if it is refused, its number is free again.
    const first = this.#flight[0];
    if (first !== undefined && (conditionsOf(first) ?? this.#backlog.conditions) !== undefined) {
      return false;
    }
    if (this.#backlog.isFull(this.#limits)) return true;
    // While others are on their way, a small batch waits to become larger: requests cost more than bytes.
    if (this.#flight.length > 0 && this.#backlog.contentBytes < this.#limits.pipelinedBytesMin) {
      return false;
    }
    return this.#isDue || this.#limits.lingerMs === 0;
  }

  #launch(identity: SenderIdentity): void {
    const accepted = this.#flight.length > 0 ? this.#acceptedBytes : 0;
    const codec = this.#peer.knownCodec;
    const { entries, body, error } = takeBatch(this.#backlog, this.#limits, codec, accepted);
    const heldBytes = sizeOf(entries) + entries.length * RECORD_OVERHEAD_BYTES;
    this.#flightBytes += heldBytes;
    if (this.#backlog.length === 0) {
      this.#isDue = false;
      this.#cancelLinger();
    }
    const sequence = this.#nextSequence;
    this.#nextSequence += 1;
    const batch: SentBatch = {
      sequence,
      entries,
      heldBytes,
      body,
      done: deferred(),
      abort: new AbortController(),
      wasLost: false,
      hasEnded: false,
    };
    this.#flight.push(batch);
    const isPipelined = this.#limits.inFlightMax > 1;
    const refusal = error ?? dressBatch(this.#peer, identity, batch, isPipelined);
    if (refusal === undefined) {
      void this.#drive(batch, identity);
    } else {
      this.#refused(batch, refusal);
      this.#ended(batch);
    }
  }

  async #drive(batch: SentBatch, identity: SenderIdentity): Promise<void> {
    try {
      while (!(await this.#round(batch, identity)));
    } catch (error) {
      batch.wasLost = true;
      if (!this.#isMoving(batch)) this.#stopAt(batch, asHapaxError(error), false);
    }
    this.#ended(batch);
  }

  /** Gets one answer and acts on it. Returns true when the batch has ended. */
  async #round(batch: SentBatch, identity: SenderIdentity): Promise<boolean> {
    // All batches before it are acknowledged, so a gap does not come from their order.
    const isFirst = batch === this.#flight[0];
    const { receipt, error, tail } = await askServer(this.#peer, identity, batch);
    if (this.#isMoving(batch)) return true;
    if (receipt !== undefined) {
      batch.receipt = receipt;
      this.#epoch = receipt.epoch;
      this.#storedMax = Math.max(this.#storedMax, batch.sequence);
      this.#acceptedBytes = Math.max(this.#acceptedBytes, batch.body?.length ?? 0);
      return true;
    }
    if (error !== undefined && (error.code !== "producer_gap" || isFirst)) {
      this.#refused(batch, error, tail);
      return true;
    }
    const before = this.#flight[this.#flight.indexOf(batch) - 1];
    if (before?.hasEnded === false) await before.done.promise;
    else await this.#peer.caller.pause(1, batch.abort.signal);
    return this.#isMoving(batch) || this.#stop !== undefined;
  }

  #refused(batch: SentBatch, error: HapaxError, tail?: string): void {
    const isCertain = !batch.wasLost || isFinal(this.#identity, error);
    if (isCertain && isOverForGood(error, conditionsOf(batch), tail)) {
      // It was alone on its way.
      this.#takeBack(batch);
      this.#endAll(batch.entries, error, "not_stored", true, true);
    } else if (!batch.wasLost && batch.entries.length > 1 && isDivisible(error)) {
      this.#cutSmaller(batch, error);
    } else {
      // A gap, or a number of another writer: batches behind it may still be stored.
      const mayGoOn = error.code === "producer_gap" || error.code === SEQ_REUSED;
      this.#stopAt(batch, error, isCertain && !mayGoOn);
    }
  }

  #cutSmaller(batch: SentBatch, error: HapaxError): void {
    const { bytesMax, recordsMax } = this.#limits;
    const bytes = batch.body?.length ?? bytesMax;
    const half = (one: number, other: number): number => Math.min(one, Math.ceil(other / 2));
    const smaller =
      error.code === "body_too_large"
        ? { bytesMax: half(bytesMax, bytes) }
        : { recordsMax: half(recordsMax, batch.entries.length) };
    this.#limits = { ...this.#limits, ...smaller };
    if (this.#flight.at(-1) === batch) {
      this.#takeBack(batch);
      this.#backlog.putBack(batch.entries);
      this.#isDue = true;
    } else if (this.#identity?.isRandom === true && this.#stop === undefined) {
      this.#broken = batch;
    } else {
      this.#stopAt(batch, error, true);
    }
  }

  /** Removes the last batch from the line, and frees its number. */
  #takeBack(batch: SentBatch): void {
    // A number that is free again behind others would be used for other data.
    if (this.#flight.pop() !== batch) throw new HapaxError("internal", "not last");
    this.#nextSequence = batch.sequence;
    this.#flightBytes -= batch.heldBytes;
  }

  /** Returns whether the batch goes, or went, back into the backlog, to be sent under another identity. */
  #isMoving(batch: SentBatch): boolean {
    const first = this.#broken?.sequence ?? Infinity;
    return batch.sequence > first || !this.#flight.includes(batch);
  }

  /** When all before the broken batch is stored, the rest goes on under a new identity. */
  #move(): void {
    if (this.#broken === undefined || this.#broken !== this.#flight[0]) return;
    this.#backlog.putBack(this.#flight.flatMap(({ entries }) => entries));
    for (const { abort } of this.#flight.splice(0)) abort.abort();
    this.#flightBytes = 0;
    this.#broken = undefined;
    this.#identity = undefined;
    this.#nextSequence = 0;
    this.#storedMax = -1;
    this.#epoch = undefined;
    this.#isDue = true;
  }

  #stopAt({ sequence }: SentBatch, error: HapaxError, isCertain: boolean): void {
    if (this.#stop !== undefined && this.#stop.sequence < sequence) return;
    this.#stop = { sequence, error, isCertain };
    this.#abortBehindStop();
  }

  /** Nothing behind a number that is never accepted can be stored: do not wait for it. */
  #abortBehindStop(): void {
    const stop = this.#stop;
    if (stop?.isCertain !== true || stop.sequence !== this.#flight[0]?.sequence) return;
    for (const { abort, sequence } of this.#flight) {
      if (sequence > stop.sequence) abort.abort(stop.error);
    }
  }

  /** Ends a batch: the sender neither sends it nor waits for it any more. */
  #ended(batch: SentBatch): void {
    batch.hasEnded = true;
    batch.done.resolve();
    for (let first = this.#flight[0]; first?.receipt !== undefined; first = this.#flight[0]) {
      this.#flight.shift();
      this.#acknowledge(first, first.receipt);
    }
    this.#abortBehindStop();
    this.#move();
    this.#schedule();
  }

  #acknowledge(batch: SentBatch, receipt: Receipt): void {
    this.#flightBytes -= batch.heldBytes;
    tellAll(batch.entries, { receipt });
    this.#events.onAck?.({ ...receipt, records: batch.entries.length });
  }

  #endIfIdle(): void {
    if (this.#stop === undefined || this.#hasEnded) return;
    if (!this.#flight.every(({ hasEnded }) => hasEnded)) return;
    this.#hasEnded = true;
    this.#cancelLinger();
    void this.#end(this.#stop);
  }

  /** All requests have ended: decides the outcome of each batch, and ends the writer. */
  async #end(stop: Stop): Promise<void> {
    const isOpen = this.#flight.some(({ wasLost, receipt }) => wasLost && receipt === undefined);
    if (stop.error.code === SEQ_REUSED) {
      // The server has numbers of another writer: a number alone proves nothing about the data of this one.
      this.#storedMax = -1;
    } else if (isOpen && !stop.isCertain) {
      const sequence = await lastStored(this.#peer, this.#identity, this.#epoch);
      this.#storedMax = Math.max(this.#storedMax, sequence);
    }
    for (const batch of this.#flight.splice(0)) {
      const { sequence, receipt } = batch;
      if (receipt === undefined && sequence > this.#storedMax) {
        this.#flight.push(batch);
        continue;
      }
      const known = { offset: undefined, epoch: this.#epoch ?? 0, sequence, isDuplicate: true };
      this.#acknowledge(batch, receipt ?? known);
    }
    if (this.#flight.length === 0 && stop.sequence <= this.#storedMax) {
      // It was stored in the end.
      this.#stop = undefined;
      this.#hasEnded = false;
      this.#schedule();
      return;
    }
    this.#events.onEnding?.();
    const causeAt = Math.max(stop.sequence, this.#storedMax + 1);
    const { error, isCertain } = stop;
    let outcome: NotConfirmed["outcome"] = "not_stored";
    for (const { entries, sequence, wasLost } of this.#flight) {
      // It holds for those behind it too: a copy that the network made of one is accepted if this one is stored late.
      if (wasLost && !isCertain) outcome = "unknown";
      this.#endAll(entries, error, outcome, sequence === causeAt, isCertain);
    }
    this.#flight.length = 0;
    this.#flightBytes = 0;
    // Without an identity nothing was sent: these records are the ones that could not be begun.
    const isCause = this.#identity === undefined;
    this.#endAll(this.#backlog.takeAll(), error, "not_stored", isCause, isCertain);
    this.#events.onEnd?.(error);
  }

  #endAll(
    entries: readonly WaitingRecord[],
    error: HapaxError,
    outcome: NotConfirmed["outcome"],
    isCause: boolean,
    isOpen: boolean,
  ): void {
    const ending = { error, outcome, isCause, isOpen };
    tellAll(entries, ending);
    this.#events.onUnconfirmed?.(entries, ending);
  }
}
