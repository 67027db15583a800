/**
 * The work of a relay on an outbox of rows, which many relays take in batches.
 *
 *   - a batch has the identity of its rows, so a relay that takes it over repeats the same rows under the same
 *     identity;
 *   - one transaction ends the batch under its token and stores its held events. Rows that were not tried are free
 *     again.
 */

import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import type { HeldWrite, OutboxBatch, OutboxRows } from "./log.ts";
import {
  backOff,
  cancelUntilKnown,
  fittingCount,
  publishUntilKnown,
  type RelayParts,
} from "./publishing.ts";
import { heldAfterFailure } from "./relay-work.ts";

/** The share of a lease that is left when its signal aborts. */
const MARGIN = 0.1;

export class RowsWork<Tx> {
  readonly #parts: RelayParts<Tx>;
  readonly #rows: OutboxRows;
  #batchMax: number;
  #stuck = 0;

  constructor(parts: RelayParts<Tx>, rows: OutboxRows) {
    this.#parts = parts;
    this.#rows = rows;
    this.#batchMax = parts.options.batchMax;
  }

  /** Takes and publishes one batch. Returns whether there was one. */
  async step(): Promise<boolean> {
    const { options, stopping } = this.#parts;
    const { name, leaseMs, retry } = options;
    const batch = await this.#rows.claim(name, this.#batchMax, leaseMs, retry.afterDead);
    if (batch === undefined) return false;
    if (batch.isTakeover) options.meter.add("takeovers_total", 1, { primitive: "relay" });
    await failpoint("outbox.planned");
    const lease = new BatchLease(this.#parts, this.#rows, batch);
    try {
      const hasProgressed = await this.#send(batch, lease);
      this.#stuck = hasProgressed ? 0 : this.#stuck + 1;
      // Refused as a whole, and the publisher does not say for which event: halves find it.
      this.#batchMax = hasProgressed
        ? options.batchMax
        : Math.max(1, Math.ceil(batch.events.length / 2));
    } finally {
      lease.stop();
    }
    if (this.#stuck > 0 && batch.events.length === 1) {
      await backOff(options, this.#stuck, stopping);
    }
    return true;
  }

  /** Publishes the batch. Returns whether any event was published or failed. */
  async #send(batch: OutboxBatch, signals: BatchSignals): Promise<boolean> {
    const { options, source, publisher } = this.#parts;
    const all = batch.events.map((event) => ({ event, attempts: 0 }));
    const tried = all.slice(0, fittingCount(publisher, all));
    const sending = {
      identity: { key: `outbox:${source}:${options.name}:${String(batch.id)}` },
      tried,
      isRetry: batch.isTakeover,
      // A relay that takes it over gets the refusal again.
      isCancelling: false,
      onCancel: () => Promise.resolve(),
      publishing: signals.publishing,
      pausing: signals.pausing,
    };
    // What is left of a batch is no repeat of it, and goes under another identity.
    if (batch.missing > 0 && publisher.cancel !== undefined) {
      const isPublished = (await cancelUntilKnown(this.#parts, sending)) === "published";
      if (isPublished) this.#parts.tally.published += tried.length;
      await this.#settle(batch, isPublished ? tried.map(({ event }) => event.id) : [], []);
      return true;
    }
    const outcomes = await publishUntilKnown(this.#parts, sending);
    await failpoint("outbox.published");
    const done: string[] = [];
    const puts: HeldWrite[] = [];
    for (const [at, outcome] of outcomes.entries()) {
      const one = tried[at];
      if (one === undefined || outcome.kind === "skipped") continue;
      done.push(one.event.id);
      if (outcome.kind === "failed") {
        puts.push(heldAfterFailure(options, one, outcome.failure, outcome.isFinal));
      }
    }
    try {
      await this.#settle(batch, done, puts);
    } catch (error) {
      // What was published is known, and must not go again because another of its batch cannot be held.
      const failed = new Set(puts.map(({ event }) => event.id));
      const published = done.filter((id) => !failed.has(id));
      if (failed.size > 0 && !isHapaxError(error, "lease_lost")) {
        await this.#settle(batch, published, []).catch(options.onError);
      }
      throw error;
    }
    await failpoint("outbox.settled");
    return done.length > 0;
  }

  async #settle(
    batch: OutboxBatch,
    done: readonly string[],
    puts: readonly HeldWrite[],
  ): Promise<void> {
    const { ledger, options, tally } = this.#parts;
    await ledger.transaction(async (tx) => {
      const { outbox } = ledger.in(tx);
      if (outbox.way !== "rows") throw new Error("the outbox has changed its way");
      if (!(await outbox.rows.settle(batch, done))) {
        options.meter.add("fenced_total", 1, { primitive: "relay" });
        throw lost(batch);
      }
      if (puts.length > 0) await outbox.held.change(options.name, puts, []);
    });
    const dead = puts.filter(({ state }) => state === "dead").length;
    tally.dead += dead;
    if (dead > 0) options.meter.add("dead_letters_total", dead);
  }
}

interface BatchSignals {
  readonly publishing: AbortSignal;
  readonly pausing: AbortSignal;
}

/** Renews the lease of a batch at a third of its time. If that fails, it aborts before the lease ends. */
class BatchLease<Tx> implements BatchSignals {
  readonly #parts: RelayParts<Tx>;
  readonly #rows: OutboxRows;
  readonly #batch: OutboxBatch;
  readonly #publishing = new AbortController();
  readonly #pausing = new AbortController();
  #cancelRenewal: () => void = () => undefined;
  #cancelDeadline: () => void = () => undefined;
  #isOver = false;

  constructor(parts: RelayParts<Tx>, rows: OutboxRows, batch: OutboxBatch) {
    this.#parts = parts;
    this.#rows = rows;
    this.#batch = batch;
    const { stopping, cut } = parts;
    stopping.addEventListener("abort", this.#onStop);
    cut.addEventListener("abort", this.#onCut);
    if (stopping.aborted) this.#onStop();
    if (cut.aborted) this.#onCut();
    this.#watch();
    this.#renewLater();
  }

  get publishing(): AbortSignal {
    return this.#publishing.signal;
  }

  get pausing(): AbortSignal {
    return this.#pausing.signal;
  }

  readonly #onStop = (): void => {
    this.#pausing.abort(this.#parts.stopping.reason);
  };

  readonly #onCut = (): void => {
    this.#publishing.abort(this.#parts.cut.reason);
  };

  /** Removes the listeners: the signals of a relay outlive its batches, and must not keep them in memory. */
  stop(): void {
    this.#isOver = true;
    this.#parts.stopping.removeEventListener("abort", this.#onStop);
    this.#parts.cut.removeEventListener("abort", this.#onCut);
    this.#cancelRenewal();
    this.#cancelDeadline();
  }

  #watch(): void {
    const { clock, leaseMs } = this.#parts.options;
    this.#cancelDeadline();
    this.#cancelDeadline = clock.after(leaseMs * (1 - MARGIN), () => {
      this.#lose();
    });
  }

  #renewLater(): void {
    const { clock, leaseMs } = this.#parts.options;
    this.#cancelRenewal = clock.after(leaseMs / 3, () => {
      void this.#renew();
    });
  }

  async #renew(): Promise<void> {
    const { options } = this.#parts;
    try {
      const isHeld = await this.#rows.renew(this.#batch, options.leaseMs);
      if (this.#isOver) return;
      if (!isHeld) {
        this.#lose();
        return;
      }
      this.#watch();
    } catch (error) {
      if (this.#isOver) return;
      // The database may be back before the lease is over: the deadline decides.
      options.onError(error);
    }
    this.#renewLater();
  }

  #lose(): void {
    this.stop();
    const reason = lost(this.#batch);
    this.#publishing.abort(reason);
    this.#pausing.abort(reason);
  }
}

function lost({ id }: OutboxBatch): HapaxError {
  return new HapaxError("lease_lost", `the batch is, or may soon be, another relay's; batch=${id}`);
}
