/**
 * The strategy of a pipeline whose sink recognises outputs by their ids: outputs are delivered at least once, always
 * under the same id, and the offset is committed after them.
 *
 *   - an output has the same id in every delivery: that of its record, and its number among the record's outputs;
 *   - the next records are processed when the offset before them is committed: at most one portion comes again;
 *   - nothing is committed before the sink has confirmed all outputs, and the dead letters are stored.
 *
 * Only in a JSON stream is the place of a record the same for every reader at any time: other streams are refused.
 */

import { HapaxError } from "../../base/errors.ts";
import { codecOf } from "../records.ts";
import type { LeasedBatch } from "./held.ts";
import {
  Attempts,
  orStopped,
  type SpanOutcome,
  type PipelinePage,
  Stopped,
  throwIfOver,
} from "./pipeline-attempts.ts";
import type { GivenUp } from "./dead-letter.ts";
import { offsetBehind, Places } from "./places.ts";
import { beginPortion, isEnding, prepareSink } from "./pipeline-bounds.ts";
import { deadLetterOf, type PipelineParts, putAside, type Strategy } from "./pipeline-parts.ts";
import type { DeduplicatingSink, EmitOptions, IdentifiedOutput } from "./pipeline-options.ts";

type Output = Omit<IdentifiedOutput, "id">;

/**
 * How long outputs of processed records are still written when the pipeline must end. Most are written then; the records of the
 * others are processed again.
 */
const GRACE_MS = 1_000;

/** What records have given, in their order. */
interface Collected {
  readonly outputs: IdentifiedOutput[];
  readonly letters: { readonly index: number; readonly letter: GivenUp }[];
  /** The number of outputs of each record. */
  readonly counts: number[];
}

export class IdentityStrategy<T, Tx> implements Strategy<T> {
  readonly #parts: PipelineParts<T, Tx>;
  readonly #sink: DeduplicatingSink;
  readonly #attempts: Attempts<T, Tx, Output>;

  constructor(parts: PipelineParts<T, Tx>, sink: DeduplicatingSink) {
    this.#parts = parts;
    this.#sink = sink;
    const resolve = (data: unknown, { to, key }: EmitOptions): Output => {
      return {
        data: asGiven(sink, data),
        ...(to === undefined ? {} : { to }),
        ...(key === undefined ? {} : { key }),
      };
    };
    this.#attempts = new Attempts(parts.options, resolve, parts.stop, parts.counters);
  }

  async prepare(): Promise<void> {
    await prepareSink(() => this.#sink.prepare?.(), this.#parts.stop);
  }

  async process(batch: LeasedBatch<T>): Promise<void> {
    requireJson(batch);
    const { stream, life, offset, records, signal } = batch;
    const places = new Places(batch);
    const page = { stream, life, offset, records, places, signal, state: undefined };
    for (let from = 0; from < records.length;) {
      if (isEnding(this.#parts, batch)) {
        batch.giveBack();
        return;
      }
      from = await this.#advance(batch, page, from);
    }
  }

  /** Delivers some records and then commits them. Returns where the next ones begin. */
  async #advance(batch: LeasedBatch<T>, page: PipelinePage<T>, from: number): Promise<number> {
    const { stream, signal, places } = page;
    const { outputs, letters, counts } = await this.#collect(batch, page, from);
    const written = await this.#write(batch, outputs, counts[0] ?? 0, signal);
    let through = recordsIn(counts, written);
    let deadLetters = 0;
    for (const { index, letter } of letters) {
      if (index >= from + through) break;
      if (deadLetters > 0 && isEnding(this.#parts, batch)) {
        through = index - from;
        break;
      }
      await putAside(this.#parts, letter, signal);
      deadLetters += 1;
    }
    const end = from + through;
    const offset = offsetBehind(batch, places, end);
    await batch.commit({ offset });
    const stored = counts.slice(0, through).reduce((sum, count) => sum + count, 0);
    this.#parts.advance({ stream, offset, records: through, outputs: stored, deadLetters });
    return end;
  }

  /** Processes records until the portion is full. */
  async #collect(batch: LeasedBatch<T>, page: PipelinePage<T>, from: number): Promise<Collected> {
    const { records, signal } = page;
    const collected: Collected = { outputs: [], letters: [], counts: [] };
    const { outputs, letters, counts } = collected;
    const bounds = beginPortion(this.#parts, batch);
    throwIfOver(signal);
    for (let index = from; index < records.length; index += 1) {
      if (index > from && bounds.isFull(index - from)) break;
      const settling = this.#attempts.settle(page, { from: index, count: 1 });
      const outcome = settling instanceof Promise ? await orStopped(settling) : settling;
      if (outcome instanceof Stopped) {
        // The pipeline must end before another attempt: the records before it are processed.
        if (index === from) throw outcome;
        break;
      }
      const before = outputs.length;
      if (outcome.kind === "failed") {
        letters.push({ index, letter: deadLetterOf(this.#parts.options, page, index, outcome) });
      } else {
        for (const output of this.#identified(page, index, outcome)) outputs.push(output);
      }
      counts.push(outputs.length - before);
      const turn = bounds.turn();
      if (turn !== undefined) {
        await turn;
        throwIfOver(signal);
      }
    }
    return collected;
  }

  #identified(
    page: PipelinePage<T>,
    index: number,
    { outputs }: Extract<SpanOutcome<Output>, { kind: "done" }>,
  ): readonly IdentifiedOutput[] {
    const id = this.#attempts.idOf(page, index);
    return outputs.map((output, number) => ({ ...output, id: `${id}.${String(number)}` }));
  }

  /**
   * Writes to the sink. Waits for a sink that is away, within the patience. Returns how many outputs are stored: if the pipeline
   * must end, not all, but at least those of the first record.
   */
  async #write(
    batch: LeasedBatch<T>,
    outputs: readonly IdentifiedOutput[],
    ofFirst: number,
    signal: AbortSignal,
  ): Promise<number> {
    const { batchMax, clock, patienceMs, onRetry } = this.#parts.options;
    let endingSinceMs: number | undefined;
    const isOver = (): boolean => {
      if (!isEnding(this.#parts, batch)) return false;
      endingSinceMs ??= clock.steadyMs();
      return clock.steadyMs() - endingSinceMs >= GRACE_MS;
    };
    for (let at = 0; at < outputs.length;) {
      const some = outputs.slice(at, at + batchMax);
      const sinceMs = clock.steadyMs();
      for (let failures = 1; ; failures += 1) {
        try {
          const answer = await this.#sink.write(some, { signal, isEnding: isOver });
          const stored = storedOf(answer, some.length);
          at += stored;
          if (stored < some.length && at >= ofFirst) return at;
          break;
        } catch (error) {
          const isPatient = clock.steadyMs() - sinceMs < patienceMs;
          if (!isPatient || (error instanceof HapaxError && error.retry === "never")) throw error;
          onRetry?.(error);
          await this.#attempts.pause(failures, signal);
        }
      }
    }
    return outputs.length;
  }
}

/** Returns how many outputs a sink has stored. */
function storedOf(answer: { readonly stored?: number } | void, count: number): number {
  const stored = answer?.stored;
  if (stored === undefined) return count;
  if (Number.isInteger(stored) && stored >= 1 && stored <= count) return stored;
  const words = `the sink got ${String(count)} outputs and says that it has stored ${String(stored)}`;
  throw new HapaxError("invalid_options", words);
}

/** Returns how many records have all their outputs among so many stored ones. */
function recordsIn(counts: readonly number[], stored: number): number {
  let sum = 0;
  const incomplete = counts.findIndex((count) => {
    sum += count;
    return sum > stored;
  });
  return incomplete === -1 ? counts.length : incomplete;
}

/** Copies the output now, because the sink gets it later. Throws if the sink can never store it: the record has failed. */
function asGiven(sink: DeduplicatingSink, data: unknown): unknown {
  const kept = sink.check?.(data);
  if (kept !== undefined) return kept;
  return typeof data === "object" ? structuredClone(data) : data;
}

function requireJson<T>({ stream, contentType }: LeasedBatch<T>): void {
  if (codecOf(contentType).isJson) return;
  const words = `${stream} is ${contentType}: only records of JSON have an id`;
  throw new HapaxError("invalid_options", words);
}
