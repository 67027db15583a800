/**
 * The strategy of a pipeline whose outputs are streams of the same server: outputs, state, dead letters and the offset
 * are one transaction. PROTOCOL.md §19, §20.3.
 *
 *   - the records of a transaction count together: their outputs, their state, their dead letters and their offset;
 *   - a record is processed again only under another lease, or if it is certain that nothing was stored: its offset is
 *     then known, and nothing of the lease before can be stored any more;
 *   - a record whose outputs no transaction can hold is put aside, and does not fail other records.
 */

import { splitLife } from "../../base/incarnation.ts";
import { HapaxError } from "../../base/errors.ts";
import { encode, JsonText } from "../records.ts";
import { knownCodec } from "./codecs.ts";
import { envelopeOf } from "./dead-letter.ts";
import type { Transaction } from "./draft.ts";
import { TransactionFailure } from "./failure.ts";
import type { LeasedBatch } from "./held.ts";
import { Partitioned } from "./partitioned.ts";
import type { StreamTarget } from "./paths.ts";
import { offsetBehind, Places } from "./places.ts";
import {
  Attempts,
  orStopped,
  type SpanOutcome,
  type PipelinePage,
  type Span,
  Stopped,
  throwIfOver,
} from "./pipeline-attempts.ts";
import { beginPortion, isEnding, type PortionBounds } from "./pipeline-bounds.ts";
import { deadLetterOf, PerLease, type PipelineParts, type Strategy } from "./pipeline-parts.ts";
import type { Borders } from "./pipeline-borders.ts";
import type { EmitOptions, PipelineTarget } from "./pipeline-options.ts";
import { changelogOf, KeyedState } from "./state.ts";

interface Output {
  readonly stream: StreamTarget;
  readonly data: JsonText | string | Uint8Array;
}

/** The counts of one transaction. */
interface Counted {
  outputs: number;
  deadLetters: number;
  chars: number;
  readonly streams: Set<StreamTarget>;
}

/** The records that a transaction may take, and the facts about records that no transaction can hold. */
interface Plan {
  readonly from: number;
  end: number;
  /** The error of the first record, if it failed without a call of the function. */
  misfit: { readonly error: unknown } | undefined;
  /** Whether the last collection put a record aside. */
  hasLetter: boolean;
  /** Whether letters go without their records. */
  isBare: boolean;
  /** Whether the changelog's oldest values may go with it: they are never why a record cannot be stored. */
  mayRepeat: boolean;
}

/**
 * A transaction of this size is sent. A character is three bytes at most, so this is far below the limit of a request, and
 * one record more still fits.
 */
const CHARS_MAX = 2 * 1024 * 1024;
const STREAMS_MAX = 500;

export class ServerStrategy<T, Tx> implements Strategy<T> {
  readonly #parts: PipelineParts<T, Tx>;
  readonly #attempts: Attempts<T, Tx, Output>;
  readonly #states = new PerLease<KeyedState>();
  readonly #to: PipelineTarget | undefined;
  readonly #borders: Borders;

  constructor(parts: PipelineParts<T, Tx>) {
    this.#parts = parts;
    this.#borders = parts.borders;
    const { to } = parts.options;
    // Checked once, and not for every record.
    this.#to = typeof to === "object" && "url" in to ? this.#borders.path("to", to) : to;
    const resolve = (data: unknown, options: EmitOptions): Output => {
      const stream = this.#targetOf(data, options);
      // An output that its stream cannot hold fails the attempt, and not the transaction.
      const { form, content } = encode(data, knownCodec(parts.hapax, stream));
      return { stream, data: form === "json" ? new JsonText(content) : content };
    };
    this.#attempts = new Attempts(parts.options, resolve, parts.stop, parts.counters);
  }

  prepare(): Promise<void> {
    return Promise.resolve();
  }

  async process(batch: LeasedBatch<T>): Promise<void> {
    const state = await this.#stateOf(batch);
    const { stream, life, offset, records, signal } = batch;
    const page = { stream, life, offset, records, places: new Places(batch), signal, state };
    for (let from = 0; from < records.length;) {
      if (isEnding(this.#parts, batch)) {
        batch.giveBack();
        return;
      }
      from = await this.#advance(batch, page, from);
    }
  }

  /** Makes one transaction from a record on. Returns where the next one begins. */
  async #advance(batch: LeasedBatch<T>, page: PipelinePage<T>, from: number): Promise<number> {
    const { batchMax } = this.#parts.options;
    const end = Math.min(from + batchMax, page.records.length);
    const plan: Plan = {
      from,
      end,
      misfit: undefined,
      hasLetter: false,
      isBare: false,
      mayRepeat: true,
    };
    let isKnown = false;
    for (;;) {
      try {
        return await this.#commit(batch, page, plan);
      } catch (error) {
        // Only records that are certainly not stored are collected again, in another way.
        if (!isMisfit(error)) throw error;
        plan.mayRepeat = false;
        // The types of the streams were not known when the outputs were collected. Now they are.
        if (!isKnown && error.code === "invalid_request") isKnown = true;
        // All together or one record alone may be too large: halving finds out soon.
        else if (plan.end - from > 1) plan.end = from + Math.ceil((plan.end - from) / 2);
        else if (plan.hasLetter && !plan.isBare) plan.isBare = true;
        else if (!plan.hasLetter) plan.misfit = { error };
        else throw error;
      }
    }
  }

  async #commit(batch: LeasedBatch<T>, page: PipelinePage<T>, plan: Plan): Promise<number> {
    const { hapax, options, advance } = this.#parts;
    const { state, signal, stream, places } = page;
    const counted: Counted = { outputs: 0, deadLetters: 0, chars: 0, streams: new Set() };
    const changelog =
      options.state === undefined
        ? undefined
        : this.#borders.path("state.changelog", changelogOf(options.state, stream));
    let end = plan.from;
    plan.hasLetter = false;
    state?.dropAll();
    const collect = async (tx: Transaction): Promise<void> => {
      end = await this.#collect(page, plan, tx, counted, beginPortion(this.#parts, batch));
      if (changelog !== undefined) state?.collect(tx, changelog, plan.mayRepeat);
      tx.commit(batch.lease, offsetBehind(batch, places, end));
    };
    const { offsets } = await hapax.transaction(collect, { signal });
    if (state !== undefined && changelog !== undefined) {
      state.commit(offsets.get(changelog));
      // Nothing waits for it, and it may fail: then it is done later.
      void state.trim(async (before) => {
        try {
          await hapax.trim(changelog, before, { signal });
        } catch (error) {
          if (!signal.aborted) options.onRetry?.(error);
          throw error;
        }
      });
    }
    const { outputs, deadLetters } = counted;
    const records = end - plan.from;
    const offset = offsetBehind(batch, places, end);
    advance({ stream, offset, records, outputs, deadLetters });
    return end;
  }

  /** Collects records. Returns where it ended: with the plan, or when the transaction has enough. */
  async #collect(
    page: PipelinePage<T>,
    plan: Plan,
    tx: Transaction,
    counted: Counted,
    bounds: PortionBounds,
  ): Promise<number> {
    const { batch: together } = this.#parts.options;
    const size = together === undefined ? 1 : plan.end - plan.from;
    throwIfOver(page.signal);
    for (let at = plan.from; at < plan.end;) {
      const span = { from: at, count: Math.min(size, plan.end - at) };
      // Awaits only a promise: most functions are synchronous, and there are many records.
      const settling = this.#settle(page, plan, span);
      const outcome = settling instanceof Promise ? await orStopped(settling) : settling;
      // The pipeline must end before another attempt: the records before it are processed.
      if (outcome instanceof Stopped) {
        if (at === plan.from) throw outcome;
        return at;
      }
      if (outcome.kind === "failed" && span.count > 1) {
        at += await this.#alone(page, plan, span, tx, counted, bounds);
      } else {
        this.#take(page, plan, span, outcome, tx, counted);
        at += span.count;
      }
      const turn = bounds.turn();
      if (turn !== undefined) {
        await turn;
        throwIfOver(page.signal);
      }
      const isLarge = counted.chars > CHARS_MAX || counted.streams.size > STREAMS_MAX;
      if (isLarge || bounds.isFull(at - plan.from)) return at;
    }
    return plan.end;
  }

  #settle(
    page: PipelinePage<T>,
    { from, misfit }: Plan,
    span: Span,
  ): SpanOutcome<Output> | Promise<SpanOutcome<Output>> {
    if (misfit === undefined || span.from !== from) return this.#attempts.settle(page, span);
    return { kind: "failed", error: misfit.error, attempts: 1 };
  }

  /**
   * Tries each of the records that failed together alone, once. A record that fails alone is put aside. Returns how many were
   * tried: not all, if the transaction has enough.
   */
  async #alone(
    page: PipelinePage<T>,
    plan: Plan,
    span: Span,
    tx: Transaction,
    counted: Counted,
    bounds: PortionBounds,
  ): Promise<number> {
    for (let tried = 1; ; tried += 1) {
      const one = { from: span.from + tried - 1, count: 1 };
      const outcome = await this.#attempts.settle(page, one, 1);
      this.#take(page, plan, one, outcome, tx, counted);
      await bounds.turn();
      throwIfOver(page.signal);
      if (tried === span.count || bounds.isFull(tried)) return tried;
    }
  }

  #take(
    page: PipelinePage<T>,
    plan: Plan,
    span: Span,
    outcome: SpanOutcome<Output>,
    tx: Transaction,
    counted: Counted,
  ): void {
    const { options } = this.#parts;
    if (outcome.kind === "failed") {
      const letter = deadLetterOf(options, page, span.from, outcome);
      const envelope = envelopeOf(letter, options.clock, plan.isBare);
      plan.hasLetter = true;
      if (options.deadLetter !== undefined) tx.append(options.deadLetter, envelope);
      counted.deadLetters += 1;
      counted.chars += envelope.text.length;
      return;
    }
    for (const { stream, data } of outcome.outputs) {
      tx.append(stream, data);
      counted.chars += data instanceof JsonText ? data.text.length : data.length;
      counted.streams.add(stream);
    }
    counted.outputs += outcome.outputs.length;
  }

  #stateOf(batch: LeasedBatch<T>): Promise<KeyedState> | undefined {
    const { state: options } = this.#parts.options;
    if (options === undefined) return undefined;
    return this.#states.get(batch, async () => {
      const { hapax, options: pipeline } = this.#parts;
      const { stream, life, lease, signal } = batch;
      const path = this.#borders.path("state.changelog", changelogOf(options, stream));
      const state = new KeyedState(options.charsMax);
      // The changelog went back in time together with the stream: its state is that of the stream in every incarnation.
      const owner = { group: pipeline.group, stream, life: splitLife(life)[0] };
      await state.restore(hapax.stream(path), owner, signal, async (offset) => {
        const { offsets } = await hapax.transaction(
          (tx) => {
            // Neither an overtaken member nor another group may write its name into it.
            tx.expectLease(lease);
            tx.expect(path, { offset });
            tx.append(path, owner);
          },
          { signal },
        );
        return offsets.get(path);
      });
      return state;
    });
  }

  #targetOf(data: unknown, options: EmitOptions): StreamTarget {
    if (options.to !== undefined) return this.#borders.path("emit", options.to);
    const to = this.#to;
    const { key: keyOf } = this.#parts.options;
    if (to === undefined) {
      throw new HapaxError(
        "invalid_options",
        "there is an output, but no `to` that it could go to",
      );
    }
    if (typeof to === "function") return this.#borders.path("to", to(data));
    if (!(to instanceof Partitioned)) return to;
    const key = options.key ?? keyOf?.(data);
    if (key === undefined) {
      throw new HapaxError("invalid_options", "an output for partitions needs a key");
    }
    return to.streams[to.partitionOf(key)] ?? to.name;
  }
}

/** Returns whether the transaction can never be stored as it is, and certainly was not stored. */
function isMisfit(error: unknown): error is TransactionFailure {
  if (!(error instanceof TransactionFailure) || error.outcome !== "not_stored") return false;
  return error.code === "invalid_request" || error.code === "body_too_large";
}
