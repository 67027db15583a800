/**
 * The strategy of a pipeline whose outputs are streams of the same server: outputs, state, dead letters and the offset
 * are one transaction. PROTOCOL.md §19, §20.3.
 *
 *   PV1  a page counts whole or not at all: its outputs, its state, its dead letters and its offset;
 *   PV2  a page is processed again only under another lease: its offset is then known for certain, and nothing of the
 *        lease before can be stored any more.
 */

import { HapaxError, isHapaxError } from "../errors.ts";
import type { Transaction } from "./draft.ts";
import type { LeasedBatch } from "./held.ts";
import { Partitioned } from "./partitioned.ts";
import type { StreamTarget } from "./paths.ts";
import { Attempts, type Outcome, type Page, type Span, throwIfOver } from "./pipeline-attempts.ts";
import {
  deadLetterOf,
  pathOn,
  PerLease,
  type PipelineParts,
  type Strategy,
} from "./pipeline-parts.ts";
import type { EmitOptions, PipelineTarget } from "./pipeline-settings.ts";
import { changelogOf, KeyedState } from "./state.ts";

interface Output {
  readonly stream: StreamTarget;
  readonly data: unknown;
}

/** What one transaction has of them. */
interface Counted {
  outputs: number;
  deadLetters: number;
}

/** How a page is collected: so many records of one call, and the failures that are known. */
interface Plan {
  size: number;
  readonly misfits: Map<number, unknown>;
}

/** An output that its stream cannot hold, found out when its records had succeeded. */
interface Misfit extends Span {
  readonly error: unknown;
}

export class ServerStrategy<T, Tx> implements Strategy<T> {
  readonly #parts: PipelineParts<T, Tx>;
  readonly #attempts: Attempts<T, Tx, Output>;
  readonly #states = new PerLease<KeyedState>();
  readonly #to: PipelineTarget | undefined;

  constructor(parts: PipelineParts<T, Tx>) {
    this.#parts = parts;
    const { to } = parts.settings;
    // Once, and not for every record.
    this.#to = typeof to === "object" && "url" in to ? pathOn(parts.hapax, to) : to;
    const resolve = (data: unknown, options: EmitOptions): Output => ({
      stream: this.#targetOf(data, options),
      data,
    });
    this.#attempts = new Attempts(parts.settings, resolve, parts.stop, parts.counters);
  }

  prepare(): Promise<void> {
    return Promise.resolve();
  }

  async process(batch: LeasedBatch<T>): Promise<void> {
    const state = await this.#stateOf(batch);
    const { stream, offset, records, signal } = batch;
    const page = { stream, offset, records, signal, state };
    const { batch: together, batchMax } = this.#parts.settings;
    const plan: Plan = { size: together === undefined ? 1 : batchMax, misfits: new Map() };
    let isKnown = false;
    for (;;) {
      try {
        const found = await this.#commit(batch, page, plan);
        if (found === undefined) return;
        if (found.count > 1) plan.size = 1;
        else plan.misfits.set(found.from, found.error);
      } catch (error) {
        // What the streams hold was not known when the outputs were collected: it is now, and tells the misfit.
        if (isKnown || !isHapaxError(error, "invalid_request")) throw error;
        isKnown = true;
      }
    }
  }

  /** PV1. Nothing is sent if an output does not fit: the page is then collected anew, without its record. */
  async #commit(batch: LeasedBatch<T>, page: Page<T>, plan: Plan): Promise<Misfit | undefined> {
    const { hapax, settings, advance } = this.#parts;
    const { state, signal, stream } = page;
    let misfit: Misfit | undefined;
    const counted = { outputs: 0, deadLetters: 0 };
    state?.dropAll();
    const collect = async (tx: Transaction): Promise<void> => {
      misfit = await this.#collect(page, plan, tx, counted);
      if (misfit !== undefined) throw new Uncollected();
      if (settings.state !== undefined) state?.collect(tx, changelogOf(settings.state, stream));
      tx.commit(batch);
    };
    try {
      await hapax.transaction(collect, { signal });
    } catch (error) {
      if (error instanceof Uncollected) return misfit;
      throw error;
    }
    state?.commit();
    advance({ stream, offset: batch.nextOffset, records: page.records.length, ...counted });
    return undefined;
  }

  async #collect(
    page: Page<T>,
    { size, misfits }: Plan,
    tx: Transaction,
    counted: Counted,
  ): Promise<Misfit | undefined> {
    const { length } = page.records;
    throwIfOver(page.signal);
    for (let from = 0; from < length; from += size) {
      const span = { from, count: Math.min(size, length - from) };
      // Not awaited if it is there: most functions answer at once, and there are many records.
      const settling = misfits.has(from)
        ? failureOf(misfits.get(from))
        : this.#attempts.settle(page, span);
      const outcome = settling instanceof Promise ? await settling : settling;
      const misfit =
        outcome.kind === "failed" && span.count > 1
          ? await this.#alone(page, span, tx, counted)
          : this.#take(page, span, outcome, tx, counted);
      if (misfit !== undefined) return misfit;
    }
    return undefined;
  }

  /** Of records that failed together each is tried alone, once: those that fail alone are the ones. */
  async #alone(
    page: Page<T>,
    span: Span,
    tx: Transaction,
    counted: Counted,
  ): Promise<Misfit | undefined> {
    for (let from = span.from; from < span.from + span.count; from += 1) {
      const one = { from, count: 1 };
      const outcome = await this.#attempts.settle(page, one, 1);
      const misfit = this.#take(page, one, outcome, tx, counted);
      if (misfit !== undefined) return misfit;
    }
    return undefined;
  }

  #take(
    page: Page<T>,
    span: Span,
    outcome: Outcome<Output>,
    tx: Transaction,
    counted: Counted,
  ): Misfit | undefined {
    const { settings } = this.#parts;
    if (outcome.kind === "failed") {
      const { envelope } = deadLetterOf(settings, page, span.from, outcome);
      if (settings.deadLetter !== undefined) tx.append(settings.deadLetter, envelope);
      counted.deadLetters += 1;
      return undefined;
    }
    for (const { stream, data } of outcome.outputs) {
      try {
        tx.append(stream, data);
      } catch (error) {
        return { ...span, error };
      }
    }
    counted.outputs += outcome.outputs.length;
    return undefined;
  }

  #stateOf(batch: LeasedBatch<T>): Promise<KeyedState> | undefined {
    const { state: settings } = this.#parts.settings;
    if (settings === undefined) return undefined;
    return this.#states.get(batch, async () => {
      const state = new KeyedState(settings.charsMax);
      const changelog = this.#parts.hapax.stream(changelogOf(settings, batch.stream));
      await state.restore(changelog, batch.signal);
      return state;
    });
  }

  #targetOf(data: unknown, options: EmitOptions): StreamTarget {
    if (options.to !== undefined) return options.to;
    const to = this.#to;
    const { key: keyOf } = this.#parts.settings;
    if (to === undefined) {
      throw new HapaxError(
        "invalid_settings",
        "there is an output, but no `to` that it could go to",
      );
    }
    if (typeof to === "function") return to(data);
    if (!(to instanceof Partitioned)) return to;
    const key = options.key ?? keyOf?.(data);
    if (key === undefined) {
      throw new HapaxError("invalid_settings", "an output for partitions needs a key");
    }
    return to.streams[to.partitionOf(key)] ?? to.name;
  }
}

/** Thrown through the callback of a transaction, so that nothing of it is sent. */
class Uncollected extends Error {
  override readonly name = "Uncollected";
}

function failureOf(error: unknown): Outcome<Output> {
  return { kind: "failed", error, attempts: 1 };
}
