/** The options of a pipeline, and their check. */

import { clientClock, type Clock } from "../../base/clock.ts";
import type { RetryOptions } from "../../base/retry-options.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import type { Sink } from "./sink.ts";
import { HapaxError } from "../../base/errors.ts";
import { OptionsCheck } from "../../base/options-check.ts";
import type { ConsumerEvent } from "./events.ts";
import type { GroupOptions } from "./group.ts";
import type { Partitioned } from "./partitioned.ts";
import type { StreamTarget } from "./paths.ts";
import type { PipelineState, StateOptions } from "./state.ts";

/** The target of outputs: a stream, the partition of a key, or a function that returns a stream for each output. */
export type PipelineTarget = StreamTarget | Partitioned | ((output: unknown) => StreamTarget);

/** Options of `context.emit`. */
export interface EmitOptions {
  /** The stream of the output. Default: `to` of the pipeline. */
  readonly to?: StreamTarget;
  /** The key that chooses the partition. Default: the result of the pipeline's `key` for the output. */
  readonly key?: string;
}

/** The context of a pipeline's function, for one attempt. */
export interface PipelineContext<Tx = unknown> {
  /** The stream of the records. */
  readonly stream: string;
  /**
   * Names the record, or the first one of a batch: `<group>/<stream>/<life>/<offset>`, with the offset of the record. It is the
   * same in every attempt, in every process, and after a reset.
   */
  readonly id: string;
  /** 1 is the first. */
  readonly attempt: number;
  /** Aborts when the lease of the stream is over: work after that has no effect. */
  readonly signal: AbortSignal;
  /** The transaction of the sink. Its writes are kept if and only if the record counts as processed. */
  readonly tx: Tx;
  /** The state of this stream. Throws `invalid_options` without the option `state`. */
  readonly state: PipelineState;
  /** Adds an output. The return value of the function is an output too, unless it is `undefined`. */
  readonly emit: (data: unknown, options?: EmitOptions) => void;
}

/** An output with an id that is the same in every delivery. */
export interface IdentifiedOutput {
  /** `<group>/<stream>/<life>/<offset>.<output>`, percent-encoded: ASCII. The offset is that of the record. */
  readonly id: string;
  readonly data: unknown;
  /** The `to` of the call of `emit`. */
  readonly to?: StreamTarget;
  readonly key?: string;
}

/** A sink that recognises by its id an output that it has already stored. */
export interface DeduplicatingSink {
  readonly deduplicates: true;
  /** The stream to which it writes, if any: a pipeline refuses a sink that is its own input. */
  readonly target?: { readonly url: string };
  /** Called before the first write, and again if it has failed. */
  prepare?(): Promise<void>;
  /**
   * Called with each output at once. Throw for data that the sink can never store: the record has then failed, and becomes a
   * dead letter. Without `check` such data ends the pipeline at the write. `write` gets the returned value as `data`; if it
   * returns undefined, `write` gets a structured clone of the output.
   */
  check?(data: unknown): unknown;
  /**
   * Stores outputs in their order. Resolves when all are stored. An output whose id is stored already must change nothing. A sink
   * that is slow can look at `isEnding` between two outputs: if it returns true, the pipeline must end, or give the stream to
   * another member. Then resolve with `{ stored }`, the number of outputs that are stored, counted from the first: at least one.
   */
  write(
    outputs: readonly IdentifiedOutput[],
    options: { readonly signal: AbortSignal; readonly isEnding: () => boolean },
  ): Promise<{ readonly stored: number } | void>;
}

/** The counts of a pipeline since it was created. */
export interface PipelineCounters {
  /** Records whose effects are stored. */
  readonly records: number;
  readonly outputs: number;
  readonly deadLetters: number;
  /** Stored commits. */
  readonly commits: number;
  /** Failed attempts of records. */
  readonly failures: number;
  /**
   * How often the pipeline joined its group again, because an outcome was unknown or the server could not be
   * reached.
   */
  readonly restarts: number;
}

/** The argument of `onProgress`, which is called after each commit. */
export interface PipelineProgress extends PipelineCounters {
  readonly stream: string;
  /** All records of the stream before this offset are processed. */
  readonly offset: string;
}

/** Options of a pipeline. `from`, `group` and one of `each` and `batch` are required. */
export interface PipelineOptions<T = unknown, Tx = unknown> {
  /** The streams to process, and the options of their group if it does not exist yet. */
  readonly from: GroupOptions;
  /** Names the pipeline: its members share the streams, and its offsets are kept under this name. */
  readonly group: string;
  /** The target of outputs. */
  readonly to?: PipelineTarget;
  /** Returns the key of an output, if `to` is partitioned. */
  readonly key?: (output: unknown) => string;
  /**
   * Processes one record. Its return value is an output. The types of the record and of `tx` are inferred from its parameters
   * and the sink. If you give the type of the record alone, `pipeline<Order>(…)`, name that of `tx` with `PipelineContext`.
   */
  each?(this: void, record: T, context: PipelineContext<Tx>): unknown;
  /** Processes several records in one call. Returns a list of outputs, or nothing. */
  batch?(
    this: void,
    records: readonly T[],
    context: PipelineContext<Tx>,
  ): readonly unknown[] | void | Promise<readonly unknown[] | void>;
  /** Stores state by key, in the same transaction as the outputs. Default: no state. */
  readonly state?: StateOptions;
  /** The target of effects, if that is not a stream of this server. */
  readonly sink?: Sink<Tx> | DeduplicatingSink;
  /** The JSON stream for records that keep failing; created if it does not exist. Without it they end the pipeline. */
  readonly deadLetter?: StreamTarget;
  /** How a failing record is tried again. Defaults: `attemptsMax` 5, `pauseMs` 100, `pauseMsMax` 10,000. */
  readonly retry?: Pick<RetryOptions, "attemptsMax" | "pauseMs" | "pauseMsMax">;
  /** The most streams that are processed at once. Default 8. */
  readonly concurrency?: number;
  /**
   * The most records of one transaction, and of one call of `batch`. Default 1,000; 10,000 for `each` without a sink. The end
   * of a pipeline does not wait for a full transaction.
   */
  readonly batchMax?: number;
  /**
   * How long one transaction may collect records, in milliseconds. After that it is committed with the records processed
   * so far. Default 1,000. One record, or one call of `batch`, may take longer.
   */
  readonly batchMs?: number;
  /**
   * How long the current work may still take when the pipeline is closed, or a record has failed for good, in milliseconds.
   * After that the pipeline gives up its streams, and later work for them has no effect. Default 5,000.
   */
  readonly closeMs?: number;
  /**
   * How long an outage of the server or the sink may last, in milliseconds, before an error ends the
   * pipeline. Default: no limit.
   */
  readonly patienceMs?: number;
  /**
   * The incarnation of a restored server that you accept, as `server_restored` names it: the pipeline then goes on at the
   * positions of its sink. It accepts one restore, and not the next one. Default: the pipeline ends with `server_restored`.
   */
  readonly acceptRestored?: string | undefined;
  /** Ends the pipeline in order: the current record is finished and committed, but not tried again. */
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: (progress: PipelineProgress) => void;
  /** Called with every failure that is tried again: of records, sinks and calls. */
  readonly onRetry?: (error: unknown) => void;
  readonly onEvent?: (event: ConsumerEvent) => void;
  readonly clock?: Clock;
  readonly random?: Random;
}

/** Options with their defaults. */
export interface ResolvedPipelineOptions<T, Tx> extends PipelineOptions<T, Tx> {
  readonly retry: Required<Pick<RetryOptions, "attemptsMax" | "pauseMs" | "pauseMsMax">>;
  readonly concurrency: number;
  readonly batchMax: number;
  readonly batchMs: number;
  readonly closeMs: number;
  readonly patienceMs: number;
  readonly clock: Clock;
  readonly random: Random;
}

/** Checks the options and adds the defaults. Throws `invalid_options` with all problems. */
export function resolvePipeline<T, Tx>(
  options: PipelineOptions<T, Tx>,
): ResolvedPipelineOptions<T, Tx> {
  const { retry = {}, sink } = options;
  const check = new OptionsCheck(HapaxError);
  // A transaction of the server alone is one request, and holds no lock while it is collected.
  const isLight = sink === undefined && options.batch === undefined;
  const pauseMs = check.number("retry.pauseMs", retry.pauseMs, 100, 0);
  const resolved = {
    ...options,
    retry: {
      attemptsMax: check.number("retry.attemptsMax", retry.attemptsMax, 5, 1),
      pauseMs,
      pauseMsMax: check.number(
        "retry.pauseMsMax",
        retry.pauseMsMax,
        Math.max(10_000, pauseMs),
        pauseMs,
      ),
    },
    concurrency: check.number("concurrency", options.concurrency, 8, 1),
    batchMax: check.number("batchMax", options.batchMax, isLight ? 10_000 : 1_000, 1),
    batchMs: check.number("batchMs", options.batchMs, 1_000, 0),
    closeMs: check.number("closeMs", options.closeMs, 5_000, 0),
    patienceMs: check.number("patienceMs", options.patienceMs, Infinity, 0),
    clock: options.clock ?? clientClock,
    random: options.random ?? systemRandom,
  };
  if (options.group === "") check.problem("group is empty");
  if ((options.each === undefined) === (options.batch === undefined)) {
    check.problem("one of each and batch is required");
  }
  if (sink !== undefined && options.to !== undefined) {
    check.problem("to and sink exclude each other: effects have one place");
  }
  if (sink !== undefined && options.state !== undefined) {
    check.problem("state and sink exclude each other: state is kept with what the server stores");
  }
  if (sink !== undefined && isDeduplicating(sink) && options.batch !== undefined) {
    check.problem("a sink that deduplicates needs each: an output must belong to one record");
  }
  check.end();
  return resolved;
}

/** Returns whether the sink deduplicates: there are two kinds. */
export function isDeduplicating<Tx>(sink: Sink<Tx> | DeduplicatingSink): sink is DeduplicatingSink {
  return "deduplicates" in sink;
}
