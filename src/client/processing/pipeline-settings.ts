/** What a pipeline is told, checked once. */

import { type Clock, waitingClock } from "../../base/clock.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import type { Sink } from "./sink.ts";
import { SettingsCheck } from "../settings.ts";
import type { ConsumerEvent } from "./events.ts";
import type { GroupSettings } from "./group.ts";
import type { Partitioned } from "./partitioned.ts";
import type { StreamTarget } from "./paths.ts";
import type { PipelineState, StateSettings } from "./state.ts";

/** Where outputs go: a stream, the partition of a key, or what a function says of each output. */
export type PipelineTarget = StreamTarget | Partitioned | ((output: unknown) => StreamTarget);

/** Options of `context.emit`. */
export interface EmitOptions {
  /** Default: `to` of the pipeline. */
  readonly to?: StreamTarget;
  /** For partitions. Default: what `key` of the pipeline says of the output. */
  readonly key?: string;
}

/** What a function of a pipeline works with, for one attempt. */
export interface PipelineContext<Tx = unknown> {
  /** The stream that the records are from. */
  readonly stream: string;
  /**
   * Names the record, or the first one of a batch: `<group>/<stream>/<life>/<offset>`, with the offset of the record. It is the
   * same in every attempt, in every process, and after a reset.
   */
  readonly id: string;
  /** 1 is the first. */
  readonly attempt: number;
  /** Aborts when the lease of the stream is over: what is done from then on counts for nothing. */
  readonly signal: AbortSignal;
  /** The transaction of the sink; what is done with it is kept if and only if the record counts as processed. */
  readonly tx: Tx;
  /** The state of this stream. Throws `invalid_settings` without the setting `state`. */
  readonly state: PipelineState;
  /** An output more. What the function returns is an output too, unless it is `undefined`. */
  readonly emit: (data: unknown, options?: EmitOptions) => void;
}

/** An output with a name that is the same however often it is delivered. */
export interface IdentifiedOutput {
  /** `<group>/<stream>/<life>/<offset>.<output>`, percent-encoded: ASCII. The offset is that of the record. */
  readonly id: string;
  readonly data: unknown;
  /** As `emit` was told. */
  readonly to?: StreamTarget;
  readonly key?: string;
}

/** A sink that knows by its id what it has already. */
export interface DeduplicatingSink {
  readonly deduplicates: true;
  /** The stream that it writes to, if it is one: a pipeline refuses a sink that is its own input. */
  readonly target?: { readonly url: string };
  /** Called before anything is written; again, if it fails. */
  prepare?(): Promise<void>;
  /**
   * Called with each output when it is given. Throws for data that it can never store: the record has then failed, and
   * becomes a dead letter. Without it such data ends the pipeline when it is written. What it returns is what `write` gets
   * as `data`; if it returns nothing, that is a structured clone of the output.
   */
  check?(data: unknown): unknown;
  /** Resolves when all of them are stored. An output whose id is stored already must change nothing. */
  write(
    outputs: readonly IdentifiedOutput[],
    options: { readonly signal: AbortSignal },
  ): Promise<void>;
}

/** How often a record is tried that fails, and with what pauses. All are optional. */
export interface PipelineRetry {
  /** Default 5. */
  readonly attemptsMax?: number;
  /** The first pause, in milliseconds; it doubles with each failure. Default 100. */
  readonly minMs?: number;
  /** The longest pause, in milliseconds. Default 10,000. */
  readonly maxMs?: number;
}

/** What a pipeline has done since it was made. */
export interface PipelineCounters {
  /** Records whose effects are stored. */
  readonly records: number;
  readonly outputs: number;
  readonly deadLetters: number;
  /** Commits that are stored. */
  readonly commits: number;
  /** Attempts of records that failed. */
  readonly failures: number;
  /** How often it joined its group anew, because an outcome was unknown or the server away. */
  readonly restarts: number;
}

/** Told after each commit. */
export interface PipelineProgress extends PipelineCounters {
  readonly stream: string;
  /** Everything of the stream before this offset is processed. */
  readonly offset: string;
}

/** What a pipeline does. `from`, `group` and one of `each` and `batch` are required. */
export interface PipelineOptions<T = unknown, Tx = unknown> {
  /** The streams to process; also their group's settings, if it is not there yet. */
  readonly from: GroupSettings;
  /** Names the pipeline: its members share the streams, and its offsets are kept under it. */
  readonly group: string;
  /** Where outputs go. */
  readonly to?: PipelineTarget;
  /** The key of an output, if `to` is partitioned. */
  readonly key?: (output: unknown) => string;
  /**
   * Processes one record. What it returns is an output. The types of the record and of `tx` are inferred from its parameters and
   * the sink; who gives the type of the record alone, `pipeline<Order>(…)`, names that of `tx` by `PipelineContext`.
   */
  each?(this: void, record: T, context: PipelineContext<Tx>): unknown;
  /** Processes several at once. It returns a list of outputs, or nothing. */
  batch?(
    this: void,
    records: readonly T[],
    context: PipelineContext<Tx>,
  ): readonly unknown[] | void | Promise<readonly unknown[] | void>;
  /** Keeps keyed state beside the outputs. */
  readonly state?: StateSettings;
  /** Where effects go, if not to streams of this server. */
  readonly sink?: Sink<Tx> | DeduplicatingSink;
  /** The JSON stream for records that keep failing; created if it is not there. Without it they stop the pipeline. */
  readonly deadLetter?: StreamTarget;
  readonly retry?: PipelineRetry;
  /** Streams that are processed at once. Default 8. */
  readonly concurrency?: number;
  /**
   * Most records of one transaction, and of one call of `batch`. Default 1,000; 10,000 for `each` without a sink. The end of
   * a pipeline does not wait for it.
   */
  readonly batchMax?: number;
  /**
   * How long one transaction may collect records, in milliseconds; then it is committed with those that are through.
   * Default 1,000. One record, or one call of `batch`, may take longer.
   */
  readonly batchMs?: number;
  /**
   * How long the work at hand may take when the pipeline ends, in milliseconds: when it is closed, or a record has failed
   * for good. Then its streams are given up, and what is still done for them counts for nothing. Default 5,000.
   */
  readonly closeMs?: number;
  /** How long an outage of the server or the sink may last, in milliseconds. Default: it is waited for without end. */
  readonly patienceMs?: number;
  /** Ends it in order: the record at hand is finished and committed, but not tried again. */
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: (progress: PipelineProgress) => void;
  /** Hears of everything that fails and is tried again: records, sinks, calls. */
  readonly onRetry?: (error: unknown) => void;
  readonly onEvent?: (event: ConsumerEvent) => void;
  readonly clock?: Clock;
  readonly random?: Random;
}

/** Options with their defaults. */
export interface PipelineSettings<T, Tx> extends PipelineOptions<T, Tx> {
  readonly retry: Required<PipelineRetry>;
  readonly concurrency: number;
  readonly batchMax: number;
  readonly batchMs: number;
  readonly closeMs: number;
  readonly patienceMs: number;
  readonly clock: Clock;
  readonly random: Random;
}

/** Throws `invalid_settings` with everything that is wrong. */
export function resolvePipeline<T, Tx>(options: PipelineOptions<T, Tx>): PipelineSettings<T, Tx> {
  const { retry = {}, sink } = options;
  const check = new SettingsCheck();
  // A transaction of the server alone is one request, and holds no lock while it is collected.
  const isLight = sink === undefined && options.batch === undefined;
  const minMs = check.number("retry.minMs", retry.minMs, 100, 0);
  const resolved = {
    ...options,
    retry: {
      attemptsMax: check.number("retry.attemptsMax", retry.attemptsMax, 5, 1),
      minMs,
      maxMs: check.number("retry.maxMs", retry.maxMs, Math.max(10_000, minMs), minMs),
    },
    concurrency: check.number("concurrency", options.concurrency, 8, 1),
    batchMax: check.number("batchMax", options.batchMax, isLight ? 10_000 : 1_000, 1),
    batchMs: check.number("batchMs", options.batchMs, 1_000, 0),
    closeMs: check.number("closeMs", options.closeMs, 5_000, 0),
    patienceMs: check.number("patienceMs", options.patienceMs, Infinity, 0),
    clock: options.clock ?? waitingClock,
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

/** Which of the two kinds of sinks it is. */
export function isDeduplicating<Tx>(sink: Sink<Tx> | DeduplicatingSink): sink is DeduplicatingSink {
  return "deduplicates" in sink;
}
