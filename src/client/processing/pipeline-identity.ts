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
    const { stream, records, signal, places } = page;
    const outputs: IdentifiedOutput[] = [];
    const letters: GivenUp[] = [];
    const isFull = beginPortion(this.#parts, batch);
    throwIfOver(signal);
    let end = from;
    while (end < records.length && (end === from || !isFull(end - from))) {
      const settling = this.#attempts.settle(page, { from: end, count: 1 });
      const outcome = settling instanceof Promise ? await orStopped(settling) : settling;
      if (outcome instanceof Stopped) {
        // The pipeline must end before another attempt: the records before it are processed.
        if (end === from) throw outcome;
        break;
      }
      if (outcome.kind === "failed") {
        letters.push(deadLetterOf(this.#parts.options, page, end, outcome));
      } else {
        for (const output of this.#identified(page, end, outcome)) outputs.push(output);
      }
      end += 1;
    }
    await this.#write(outputs, signal);
    for (const letter of letters) await putAside(this.#parts, letter, signal);
    const offset = offsetBehind(batch, places, end);
    await batch.commit({ offset });
    const counts = { outputs: outputs.length, deadLetters: letters.length };
    this.#parts.advance({ stream, offset, records: end - from, ...counts });
    return end;
  }

  #identified(
    page: PipelinePage<T>,
    index: number,
    { outputs }: Extract<SpanOutcome<Output>, { kind: "done" }>,
  ): readonly IdentifiedOutput[] {
    const id = this.#attempts.idOf(page, index);
    return outputs.map((output, number) => ({ ...output, id: `${id}.${String(number)}` }));
  }

  /** Writes to the sink. Waits for a sink that is away, within the patience. */
  async #write(outputs: readonly IdentifiedOutput[], signal: AbortSignal): Promise<void> {
    const { batchMax, clock, patienceMs, onRetry } = this.#parts.options;
    for (let at = 0; at < outputs.length; at += batchMax) {
      const some = outputs.slice(at, at + batchMax);
      const sinceMs = clock.steadyMs();
      for (let failures = 1; ; failures += 1) {
        try {
          await this.#sink.write(some, { signal });
          break;
        } catch (error) {
          const isOver = clock.steadyMs() - sinceMs >= patienceMs;
          if (isOver || (error instanceof HapaxError && error.retry === "never")) throw error;
          onRetry?.(error);
          await this.#attempts.pause(failures, signal);
        }
      }
    }
  }
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
