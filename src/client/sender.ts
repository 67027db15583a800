/**
 * The line of batches of one writer: numbered, several on their way at once, stored in order, each once.
 *
 *   SD1  a batch that was sent keeps its bytes and its identity (id, session or epoch, sequence) for all its
 *        attempts. Its number is given to other bytes only if it is certain that it was not stored and
 *        that no attempt of it is still on its way: every attempt had an answer;
 *   SD2  batches are stored in the order of the calls. Several are on their way only where the server waits
 *        for what was overtaken (PROTOCOL.md §17); else one at a time;
 *   SD3  an item ends as stored if and only if the server said so: of its batch, or of a later one of the
 *        same identity, which it accepts only after it;
 *   SD4  what cannot be stored ends the writer, after everything on its way has ended. Each item is handed
 *        back: `not_stored` only if that is certain, else `unknown`. Certain means: if nothing on the way
 *        repeats requests by itself, or if no other writer takes over or deletes the stream meanwhile;
 *   SD5  a batch that is too large, or has a record that is not taken, is cut smaller, until the record is
 *        alone. If SD1 forbids that, the writer ends;
 *   SD6  a condition that does not hold (If-Match, Stream-Seq) ends its own item alone.
 */

import { HapaxError } from "../errors.ts";
import { Backlog, type BatchLimits, type Ending, type Item, type Receipt } from "./batching.ts";
import {
  askServer,
  asHapaxError,
  type Batch,
  dressBatch,
  isConditional,
  isDivisible,
  isFinal,
} from "./flight.ts";
import { producerStateOf } from "./head.ts";
import type { Identity } from "./identity.ts";
import type { Peer } from "./peer.ts";

export interface SenderSettings extends BatchLimits {
  readonly inFlightMax: number;
  readonly lingerMs: number;
  /** From here on a batch is worth a request of its own beside those on their way. */
  readonly pipelinedBytesMin: number;
}

/** What `onBatchAck` hears of one stored batch. */
export interface BatchAck extends Receipt {
  /** How many records the batch had. */
  readonly records: number;
}

/** What a sender tells its owner. */
export interface SenderEvents {
  onAck(ack: BatchAck): void;
  /** The writer takes no more items: what comes now goes to another. No item has been told yet. */
  onEnding?(): void;
  /** The writer has ended, and all items have been told. */
  onEnd(error: HapaxError): void;
}

/** The first batch of those that cannot be stored. */
interface Stop {
  readonly sequence: number;
  readonly error: HapaxError;
  /** Its number will never be taken: nothing behind it can be stored, whatever is still on its way. */
  readonly isCertain: boolean;
}

export class Sender {
  readonly #peer: Peer;
  readonly #events: SenderEvents;
  readonly #makeIdentity: () => Promise<Identity>;
  readonly #backlog = new Backlog();
  /** In the order of their numbers; ended ones stay until all before them have ended. */
  readonly #flight: Batch[] = [];
  #limits: SenderSettings;
  #identity: Identity | undefined;
  #nextSequence = 0;
  #epoch: number | undefined;
  #storedMax = -1;
  #stop: Stop | undefined;
  #hasEnded = false;
  /** The batch that is being cut smaller; those behind it come back. */
  #cut: Batch | undefined;
  #isDue = false;
  #isScheduled = false;
  #isStarting = false;
  #cancelLinger: () => void = () => undefined;

  constructor(
    peer: Peer,
    settings: SenderSettings,
    makeIdentity: () => Promise<Identity>,
    events: SenderEvents,
  ) {
    this.#peer = peer;
    this.#limits = settings;
    this.#makeIdentity = makeIdentity;
    this.#events = events;
  }

  get epoch(): number | undefined {
    return this.#epoch;
  }

  /** Batches that were sent and have not ended. */
  get inFlight(): number {
    return this.#flight.length;
  }

  /** Takes an item. After the end of the writer nothing may be given to it. */
  push(item: Item): void {
    this.#backlog.push(item);
    if (this.#backlog.length === 1 && this.#limits.lingerMs > 0) {
      const { clock } = this.#peer.caller.settings;
      this.#cancelLinger();
      this.#cancelLinger = clock.after(this.#limits.lingerMs, () => {
        this.hurry();
      });
    }
    this.#schedule();
  }

  /** Takes an item back that was not sent yet. */
  withdraw(item: Item): boolean {
    return this.#backlog.remove(item);
  }

  /** Sends what is there without lingering. */
  hurry(): void {
    this.#isDue = this.#backlog.length > 0;
    this.#schedule();
  }

  /** At the end of the microtask, so that appends of one loop share a batch. */
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
    try {
      const [identity] = await Promise.all([this.#makeIdentity(), this.#peer.codec()]);
      this.#identity = identity;
      if (identity.kind === "epoch") this.#limits = { ...this.#limits, inFlightMax: 1 };
      this.#schedule();
    } catch (error) {
      // Nothing was sent, so that this is certain of everything.
      this.#stop ??= { sequence: 0, error: asHapaxError(error), isCertain: false };
      this.#endIfIdle();
    }
  }

  #pump(identity: Identity): void {
    while (this.#mayLaunch()) this.#launch(identity);
    this.#endIfIdle();
  }

  #mayLaunch(): boolean {
    const { first } = this.#backlog;
    if (first === undefined || this.#stop !== undefined || this.#cut !== undefined) return false;
    if (this.#flight.length >= this.#limits.inFlightMax) return false;
    // An append with conditions is alone on its way: if it is refused, its number is free again.
    const isAlone = (item: Item | undefined): boolean => item?.conditions !== undefined;
    if (this.#flight.length > 0 && (isAlone(first) || isAlone(this.#flight[0]?.items[0]))) {
      return false;
    }
    if (this.#backlog.isFull(this.#limits)) return true;
    // While others are on their way a small batch waits to become larger: requests cost more than bytes.
    if (this.#flight.length > 0 && this.#backlog.contentBytes < this.#limits.pipelinedBytesMin) {
      return false;
    }
    return this.#isDue || this.#limits.lingerMs === 0;
  }

  #launch(identity: Identity): void {
    const items = this.#backlog.take(this.#limits);
    if (this.#backlog.length === 0) {
      this.#isDue = false;
      this.#cancelLinger();
    }
    let finish = (): void => undefined;
    const done = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const sequence = this.#nextSequence;
    this.#nextSequence += 1;
    const abort = new AbortController();
    const state = { wasLost: false, receipt: undefined, hasEnded: false };
    const plain = { sequence, items, done, finish, abort, ...state };
    const isPipelined = this.#limits.inFlightMax > 1;
    try {
      const dress = dressBatch(this.#peer, identity, items, sequence, isPipelined);
      const batch: Batch = { ...plain, ...dress };
      this.#flight.push(batch);
      void this.#drive(batch, identity);
    } catch (error) {
      const batch: Batch = { ...plain, body: undefined, headers: {} };
      this.#flight.push(batch);
      this.#refused(batch, asHapaxError(error));
      this.#ended(batch);
    }
  }

  async #drive(batch: Batch, identity: Identity): Promise<void> {
    try {
      while (!(await this.#round(batch, identity)));
    } catch (error) {
      batch.wasLost = true;
      this.#stopAt(batch, asHapaxError(error), false);
    }
    this.#ended(batch);
  }

  /** One answer, and what it means. True when the batch has ended. */
  async #round(batch: Batch, identity: Identity): Promise<boolean> {
    // Sent with all before it acknowledged: a gap is then no matter of order.
    const isFirst = batch === this.#flight[0];
    const verdict = await askServer(this.#peer, identity, batch, () => {
      this.#resumeAfterCut();
    });
    if (verdict.kind === "stored") {
      batch.receipt = verdict.receipt;
      this.#epoch = verdict.receipt.epoch;
      this.#storedMax = Math.max(this.#storedMax, batch.sequence);
      return true;
    }
    if (verdict.kind === "refused" || isFirst) {
      this.#refused(batch, verdict.error);
      return true;
    }
    const before = this.#flight[this.#flight.indexOf(batch) - 1];
    if (before?.hasEnded === false) await before.done;
    else await this.#peer.caller.pause(1, undefined, batch.abort.signal);
    return this.#comesBack(batch) || this.#stop !== undefined;
  }

  #refused(batch: Batch, error: HapaxError): void {
    const isCertain = !batch.wasLost || isFinal(this.#identity, error);
    if (isCertain && batch.items[0]?.conditions !== undefined && isConditional(error)) {
      // SD6. It was alone on its way.
      this.#nextSequence = batch.sequence;
      this.#flight.pop();
      endItems(batch.items, { error, outcome: "not_stored", isCause: true, isOpen: true });
    } else if (!batch.wasLost && batch.items.length > 1 && isDivisible(error)) {
      this.#cutSmaller(batch, error);
    } else if (!this.#comesBack(batch)) {
      this.#stopAt(batch, error, isCertain && error.code !== "producer_gap");
    }
  }

  /** SD5. */
  #cutSmaller(batch: Batch, error: HapaxError): void {
    const { bytesMax, recordsMax } = this.#limits;
    const bytes = batch.body?.length ?? bytesMax;
    this.#limits =
      error.code === "body_too_large"
        ? { ...this.#limits, bytesMax: Math.min(bytesMax, Math.ceil(bytes / 2)) }
        : { ...this.#limits, recordsMax: Math.min(recordsMax, Math.ceil(batch.items.length / 2)) };
    if (this.#cut === undefined || batch.sequence < this.#cut.sequence) this.#cut = batch;
  }

  /** Whether the batch goes back into the line because one before it is being cut smaller. */
  #comesBack(batch: Batch): boolean {
    return this.#cut !== undefined && batch.sequence > this.#cut.sequence;
  }

  #stopAt({ sequence }: Batch, error: HapaxError, isCertain: boolean): void {
    if (this.#stop !== undefined && this.#stop.sequence < sequence) return;
    this.#stop = { sequence, error, isCertain };
    this.#abortBehindStop();
  }

  /** SD4. Behind a number that is never taken nothing can be stored: it need not be waited for. */
  #abortBehindStop(): void {
    const stop = this.#stop;
    if (stop?.isCertain !== true || stop.sequence !== this.#flight[0]?.sequence) return;
    for (const { abort, sequence } of this.#flight) {
      if (sequence > stop.sequence) abort.abort(stop.error);
    }
  }

  /** A batch is neither sent nor waited for any more. */
  #ended(batch: Batch): void {
    batch.hasEnded = true;
    batch.finish();
    for (let first = this.#flight[0]; first?.receipt !== undefined; first = this.#flight[0]) {
      this.#flight.shift();
      this.#acknowledge(first, first.receipt);
    }
    this.#abortBehindStop();
    this.#resumeAfterCut();
    this.#schedule();
  }

  #acknowledge(batch: Batch, receipt: Receipt): void {
    for (const item of batch.items) item.end({ kind: "stored", receipt });
    this.#events.onAck({ ...receipt, records: batch.items.length });
  }

  /** SD5. When all batches behind the one that was too large have come back, they are numbered anew. */
  #resumeAfterCut(): void {
    const cut = this.#cut;
    if (cut === undefined || this.#stop !== undefined) return;
    const behind = this.#flight.filter(({ sequence }) => sequence >= cut.sequence);
    if (behind.some(({ wasLost }) => wasLost)) {
      // SD1. A copy of it may still be on its way, under a number that would now be another batch's.
      const message = "a batch has to be cut smaller while one behind it got no answer";
      this.#cut = undefined;
      this.#stopAt(cut, new HapaxError("body_too_large", message), true);
      return;
    }
    if (!behind.every(({ hasEnded }) => hasEnded)) return;
    this.#cut = undefined;
    this.#flight.splice(this.#flight.indexOf(cut));
    this.#backlog.putBack(behind.flatMap(({ items }) => items));
    this.#nextSequence = cut.sequence;
    this.#isDue = true;
  }

  #endIfIdle(): void {
    if (this.#stop === undefined || this.#hasEnded) return;
    if (!this.#flight.every(({ hasEnded }) => hasEnded)) return;
    this.#hasEnded = true;
    this.#cancelLinger();
    void this.#end(this.#stop);
  }

  /** SD3, SD4. Everything that was sent has ended: what is known of each? */
  async #end(stop: Stop): Promise<void> {
    const isOpen = this.#flight.some(({ wasLost, receipt }) => wasLost && receipt === undefined);
    if (isOpen && !stop.isCertain) await this.#askWhatIsStored();
    while (this.#flight.length > 0 && (this.#flight[0]?.sequence ?? 0) <= this.#storedMax) {
      const batch = this.#flight.shift();
      if (batch === undefined) break;
      const { sequence } = batch;
      const known = { offset: undefined, epoch: this.#epoch ?? 0, sequence, isDuplicate: true };
      this.#acknowledge(batch, batch.receipt ?? known);
    }
    if (this.#flight.length === 0 && stop.sequence <= this.#storedMax) {
      // It was stored after all.
      this.#stop = undefined;
      this.#hasEnded = false;
      this.#schedule();
      return;
    }
    this.#events.onEnding?.();
    const causeAt = Math.max(stop.sequence, this.#storedMax + 1);
    for (const { items, sequence, wasLost } of this.#flight) {
      const outcome = wasLost && !stop.isCertain ? "unknown" : "not_stored";
      const isCause = sequence === causeAt;
      endItems(items, { error: stop.error, outcome, isCause, isOpen: stop.isCertain });
    }
    this.#flight.length = 0;
    endItems(this.#backlog.takeAll(), {
      error: stop.error,
      outcome: "not_stored",
      isCause: false,
      isOpen: stop.isCertain,
    });
    this.#events.onEnd(stop.error);
  }

  /** One last question to the server; its answer can only turn `unknown` into stored. */
  async #askWhatIsStored(): Promise<void> {
    const { caller, url } = this.#peer;
    const id = this.#identity?.id;
    if (id === undefined || this.#epoch === undefined || this.#identity?.kind !== "session") return;
    try {
      const answer = await caller.once({ method: "HEAD", url, headers: { "Producer-Id": id } });
      answer.discard();
      const state = producerStateOf(answer);
      if (state?.epoch === this.#epoch) this.#storedMax = Math.max(this.#storedMax, state.sequence);
    } catch {
      return; // Not reachable, as before: it stays unknown.
    }
  }
}

function endItems(
  items: readonly Item[],
  end: Omit<Ending & { kind: "unconfirmed" }, "kind">,
): void {
  for (const item of items) item.end({ kind: "unconfirmed", ...end });
}
