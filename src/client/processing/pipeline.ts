/**
 * A pipeline: reads the streams of a group, processes each record, and stores its effects together with the offset.
 * PROTOCOL.md §19, §20.
 *
 *   - the effects of a record count exactly once, also if processes die, sleep or lose their connections at any moment.
 *     The strategy stores them and the offset together: pipeline-server.ts, pipeline-sink.ts, pipeline-identity.ts;
 *   - when it cannot know whether a record was stored it leaves the group and joins anew: under the next lease the
 *     offset is certain, and requests that are still on their way are refused;
 *   - it ends when it is closed, after the current records, or with the first error that no retry can cure. Either
 *     way it commits the processed records, leaves the group, and waits for no function longer than `closeMs`;
 *   - it never reads the streams that it writes.
 *
 * It holds in memory: the current and the next page of each stream that it processes, the outputs of the page, and the
 * state of the leased streams.
 */

import { backoffMs } from "../../base/backoff.ts";
import { isHapaxError } from "../../base/errors.ts";
import { rest } from "../../base/pause.ts";
import type { Connection } from "./connection.ts";
import type { LeasedBatch } from "./held.ts";
import { Stopped } from "./pipeline-attempts.ts";
import { Away } from "./pipeline-bounds.ts";
import { Borders } from "./pipeline-borders.ts";
import { IdentityStrategy } from "./pipeline-identity.ts";
import {
  type PipelineAdvance,
  createUnlessThere,
  Overtaken,
  type PipelineParts,
  type Strategy,
} from "./pipeline-parts.ts";
import { ServerStrategy } from "./pipeline-server.ts";
import {
  isDeduplicating,
  type PipelineCounters,
  type PipelineOptions,
  type ResolvedPipelineOptions,
  resolvePipeline,
} from "./pipeline-options.ts";
import { SinkStrategy } from "./pipeline-sink.ts";

/** Pauses between two lives in the group, in milliseconds. */
const RESTARTS = { pauseMs: 50, pauseMsMax: 10_000 };

/** Processes the records of streams, each exactly once. `connection.pipeline` creates it. */
export class Pipeline<T = unknown, Tx = unknown> {
  readonly #hapax: Connection;
  readonly #options: ResolvedPipelineOptions<T, Tx>;
  readonly #strategy: Strategy<T>;
  readonly #stop = new AbortController();
  readonly #counters = {
    records: 0,
    outputs: 0,
    deadLetters: 0,
    commits: 0,
    failures: 0,
    restarts: 0,
  };
  #running: Promise<void> | undefined;
  #failingSinceMs: number | undefined;
  #restartsInRow = 0;

  constructor(hapax: Connection, given: PipelineOptions<T, Tx>) {
    const options = resolvePipeline(given);
    const borders = new Borders(hapax, options);
    this.#hapax = hapax;
    this.#options = options;
    this.#strategy = strategyOf<T, Tx>({
      hapax,
      options,
      borders,
      stop: this.#stop.signal,
      counters: this.#counters,
      advance: (advance) => {
        this.#advance(advance);
      },
    });
  }

  /** The counts so far. */
  get counters(): PipelineCounters {
    return { ...this.#counters };
  }

  /**
   * Runs until the pipeline is closed or its signal aborts; then resolves. Rejects with a `RecordFailure` if a record keeps
   * failing and there is no stream for dead letters, and with errors that a retry cannot solve, such as `stream_not_found` of
   * an output. The next member of the group processes uncommitted records. Every call returns the same promise.
   */
  run(): Promise<void> {
    this.#running ??= this.#run();
    return this.#running;
  }

  /**
   * Ends the pipeline in order: finishes the current records, commits the processed ones, and tries nothing again. Takes
   * at most `closeMs` and the time to leave the group, three seconds. `run` rejects with failures.
   */
  async close(): Promise<void> {
    this.#stop.abort();
    await this.#running?.catch(() => undefined);
  }

  /** `await using` closes the pipeline. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #run(): Promise<void> {
    const { signal } = this.#options;
    const end = (): void => {
      this.#stop.abort();
    };
    signal?.addEventListener("abort", end, { once: true });
    if (signal?.aborted === true) end();
    try {
      let isPrepared = false;
      while (!this.#stop.signal.aborted) {
        try {
          if (!isPrepared) await this.#prepare();
          isPrepared = true;
          await this.#consume();
          return;
        } catch (error) {
          if (error instanceof Stopped || (!isPrepared && this.#stop.signal.aborted)) return;
          if (!this.#isPassing(error)) throw error;
          await this.#rest(error instanceof Away ? error.cause : error);
        }
      }
    } finally {
      signal?.removeEventListener("abort", end);
    }
  }

  async #prepare(): Promise<void> {
    const { deadLetter } = this.#options;
    if (deadLetter !== undefined)
      await createUnlessThere(this.#hapax, deadLetter, this.#stop.signal);
    await this.#strategy.prepare();
  }

  /** Joins the group, and processes records until the membership ends. */
  async #consume(): Promise<void> {
    const { from, group, concurrency, closeMs, patienceMs, onEvent } = this.#options;
    const consumer = this.#hapax.consumer<T>({
      ...from,
      group,
      name: "pipeline",
      concurrency,
      patienceMs,
      ...(onEvent === undefined ? {} : { onEvent }),
    });
    const handle = async (batch: LeasedBatch<T>): Promise<void> => {
      await this.#strategy.process(batch);
    };
    await consumer.run(handle, { signal: this.#stop.signal, closeMs });
  }

  #isPassing(error: unknown): boolean {
    if (error instanceof Overtaken || error instanceof Away) return true;
    if (!isHapaxError(error)) return false;
    const isUnknown = "outcome" in error && error.outcome === "unknown";
    const isLost = error.code === "lease_lost" || error.code === "member_lost";
    return isUnknown || isLost || error.retry !== "never";
  }

  async #rest(error: unknown): Promise<void> {
    const { clock, random, patienceMs, onRetry } = this.#options;
    const nowMs = clock.steadyMs();
    this.#failingSinceMs ??= nowMs;
    if (nowMs - this.#failingSinceMs >= patienceMs) throw error;
    this.#counters.restarts += 1;
    onRetry?.(error);
    this.#restartsInRow += 1;
    const delayMs = backoffMs(this.#restartsInRow, RESTARTS, random.unit());
    await rest(clock, delayMs, this.#stop.signal);
  }

  #advance({ stream, offset, records, outputs, deadLetters }: PipelineAdvance): void {
    const counters = this.#counters;
    counters.records += records;
    counters.outputs += outputs;
    counters.deadLetters += deadLetters;
    counters.commits += 1;
    this.#failingSinceMs = undefined;
    this.#restartsInRow = 0;
    this.#options.onProgress?.({ ...counters, stream, offset });
  }
}

function strategyOf<T, Tx>(parts: PipelineParts<T, Tx>): Strategy<T> {
  const { sink } = parts.options;
  if (sink === undefined) return new ServerStrategy(parts);
  return isDeduplicating(sink) ? new IdentityStrategy(parts, sink) : new SinkStrategy(parts, sink);
}
