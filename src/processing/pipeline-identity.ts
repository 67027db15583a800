/**
 * The strategy of a pipeline whose sink knows by an id what it has already: outputs are delivered at least once, always
 * under the same id, and the offset is committed after them.
 *
 *   PD1  an output has the same id in every delivery: that of its record, and its number among the record's outputs;
 *   PD2  the next page is looked at when the offset before it is committed, so that no record ever has two ids;
 *   PD3  nothing is committed before the sink has confirmed all outputs, and the letters of what was given up are stored.
 *
 * Only streams of JSON have records whose place does not depend on who reads them when: others are refused.
 */

import { HapaxError } from "../errors.ts";
import { codecOf } from "../client/records.ts";
import type { LeasedBatch } from "./held.ts";
import { Attempts, type Outcome, type Page, throwIfOver } from "./pipeline-attempts.ts";
import {
  deadLetterOf,
  type PipelineParts,
  PerLease,
  putAside,
  type Strategy,
} from "./pipeline-parts.ts";
import type { DeduplicatingSink, EmitOptions, IdentifiedOutput } from "./pipeline-settings.ts";

type Output = Omit<IdentifiedOutput, "id">;

export class IdentityStrategy<T, Tx> implements Strategy<T> {
  readonly #parts: PipelineParts<T, Tx>;
  readonly #sink: DeduplicatingSink;
  readonly #attempts: Attempts<T, Tx, Output>;
  readonly #checked = new PerLease<void>();

  constructor(parts: PipelineParts<T, Tx>, sink: DeduplicatingSink) {
    this.#parts = parts;
    this.#sink = sink;
    const resolve = (data: unknown, { to, key }: EmitOptions): Output => ({
      // As it is now: the sink gets it when the page is through.
      data: typeof data === "object" ? structuredClone(data) : data,
      ...(to === undefined ? {} : { to }),
      ...(key === undefined ? {} : { key }),
    });
    this.#attempts = new Attempts(parts.settings, resolve, parts.stop, parts.counters);
  }

  async prepare(): Promise<void> {
    await this.#sink.prepare?.();
  }

  async process(batch: LeasedBatch<T>): Promise<void> {
    await this.#checked.get(batch, () => this.#requireJson(batch));
    const { stream, offset, records, signal, nextOffset } = batch;
    const page = { stream, offset, records, signal, state: undefined };
    const outputs: IdentifiedOutput[] = [];
    const letters: ReturnType<typeof deadLetterOf>[] = [];
    throwIfOver(signal);
    for (let index = 0; index < records.length; index += 1) {
      const settling = this.#attempts.settle(page, { from: index, count: 1 });
      const outcome = settling instanceof Promise ? await settling : settling;
      if (outcome.kind === "failed") {
        letters.push(deadLetterOf(this.#parts.settings, page, index, outcome));
      } else {
        outputs.push(...this.#identified(page, index, outcome));
      }
    }
    // PD3
    await this.#write(outputs, signal);
    for (const letter of letters) await putAside(this.#parts, letter, signal);
    // PD2
    await batch.commit();
    const counts = { outputs: outputs.length, deadLetters: letters.length };
    this.#parts.advance({ stream, offset: nextOffset, records: records.length, ...counts });
  }

  /** PD1 */
  #identified(
    page: Page<T>,
    index: number,
    { outputs }: Extract<Outcome<Output>, { kind: "done" }>,
  ): readonly IdentifiedOutput[] {
    const id = this.#attempts.idOf(page, index);
    return outputs.map((output, number) => ({ ...output, id: `${id}.${String(number)}` }));
  }

  /** Waits for a sink that is away, within the patience. */
  async #write(outputs: readonly IdentifiedOutput[], signal: AbortSignal): Promise<void> {
    const { batchMax, clock, patienceMs, onRetry } = this.#parts.settings;
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

  async #requireJson({ stream, signal }: LeasedBatch<T>): Promise<void> {
    const { contentType } = await this.#parts.hapax.stream(stream).head({ signal });
    if (codecOf(contentType).isJson) return;
    const words = `${stream} is ${contentType}: only records of JSON have an id`;
    throw new HapaxError("invalid_settings", words);
  }
}
