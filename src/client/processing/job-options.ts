/** The options of a worker of jobs, and their check. */

import { clientClock, type Clock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { OptionsCheck } from "../../base/options-check.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import type { RetryOptions } from "../../base/retry-options.ts";
import type { GroupStart } from "./group.ts";
import type { JobLease } from "./lease.ts";
import type { StreamTarget } from "./paths.ts";

/** The context of a worker's function, for one attempt of one job. */
export interface JobContext {
  /** The stream of the record. */
  readonly stream: string;
  /**
   * Names the job: `<group>/<stream>/<life>/<offset>`. It is the same in every attempt, on every worker: use it as the key of
   * `processOnce`, or as the idempotency key of another system.
   */
  readonly id: string;
  /** 1 is the first. A worker that died in the middle of the job is counted too. */
  readonly attempt: number;
  /** Aborts when the worker has lost the job or has to end: the outcome of later work is refused. */
  readonly signal: AbortSignal;
  /** For `tx.done`, if the function ends its job in a transaction of its own. */
  readonly lease: JobLease;
  /** Adds an output. The return value of the function is an output too, unless it is `undefined`. */
  readonly emit: (data: unknown, options?: { readonly to?: StreamTarget }) => void;
  /**
   * Puts the job back when the function has returned, and drops its outputs. The job runs again after this time. The
   * attempt counts: after the last one the job becomes a dead letter.
   */
  readonly retryLater: (delayMs: number) => void;
  /** Does the same, but the attempt does not count. */
  readonly postpone: (delayMs: number) => void;
}

/** The counts of a worker since it was created. */
export interface JobCounters {
  /** Jobs that are done. */
  readonly done: number;
  readonly outputs: number;
  readonly deadLetters: number;
  /** Jobs that were put back, because they failed, were not due, or the worker ended. */
  readonly later: number;
  /** Failed attempts. */
  readonly failures: number;
  /** Jobs that another worker had taken over before this one was done. */
  readonly lost: number;
}

/** Options of a worker. `from`, `group` and `each` are required. */
export interface JobOptions<T = unknown> {
  /** The streams whose records are the jobs, and the options of the group if it does not exist yet. */
  readonly from: {
    /** At most 100. */
    readonly streams: readonly StreamTarget[];
    /** The start on existing streams. Default `beginning`. */
    readonly start?: GroupStart;
    /**
     * How long the jobs of a worker that is not heard of stay its own, in milliseconds. It does not limit how long a job takes.
     * Default: the server's, 30,000.
     */
    readonly leaseMs?: number;
  };
  /** Names the work: workers of one group share its jobs. */
  readonly group: string;
  /** Does one job. Its return value is an output. */
  each(this: void, record: T, context: JobContext): unknown;
  /** The stream of outputs. An output is stored if and only if its job is done, in the same transaction. */
  readonly to?: StreamTarget;
  /**
   * Returns when a job is due: a `Date`, or milliseconds since 1970. Undefined: now. A job does not begin before that,
   * by the worker's clock. At most 10,000 jobs of a group wait or run at a time; later records wait until some of them
   * are done.
   */
  dueAt?(this: void, record: T): Date | number | undefined;
  /** The most jobs at once. Default 8. */
  readonly concurrency?: number;
  /** The JSON stream for jobs that keep failing; created if it does not exist. Without it they end the worker. */
  readonly deadLetter?: StreamTarget;
  /** How a failing job is tried again, by any worker. Defaults: `attemptsMax` 5, `pauseMs` 1,000, `pauseMsMax` 600,000. */
  readonly retry?: Pick<RetryOptions, "attemptsMax" | "pauseMs" | "pauseMsMax">;
  /**
   * How long running jobs may still take after the worker is closed, in milliseconds. After that they are put back, and the
   * attempt does not count. Default 5,000.
   */
  readonly closeMs?: number;
  /**
   * How long an outage of the server may last, in milliseconds, before an error ends the work. Default: no
   * limit.
   */
  readonly patienceMs?: number;
  /** Ends the worker in order: abort it when your process gets SIGTERM. */
  readonly signal?: AbortSignal | undefined;
  /** Called after each job that was done, put back, put aside or lost. */
  readonly onProgress?: (counters: JobCounters) => void;
  /** Called with every failure that is tried again: of jobs and of calls. */
  readonly onRetry?: (error: unknown) => void;
  readonly clock?: Clock;
  readonly random?: Random;
}

/** Options with their defaults. */
export interface ResolvedJobOptions<T> extends JobOptions<T> {
  readonly retry: Required<Pick<RetryOptions, "attemptsMax" | "pauseMs" | "pauseMsMax">>;
  readonly concurrency: number;
  readonly closeMs: number;
  readonly patienceMs: number;
  readonly clock: Clock;
  readonly random: Random;
}

/** Checks the options and adds the defaults. Throws `invalid_options` with all problems. */
export function resolveJobs<T>(options: JobOptions<T>): ResolvedJobOptions<T> {
  const { retry = {} } = options;
  const check = new OptionsCheck(HapaxError);
  const pauseMs = check.number("retry.pauseMs", retry.pauseMs, 1_000, 0);
  const longestMs = Math.max(600_000, pauseMs);
  const resolved = {
    ...options,
    retry: {
      attemptsMax: check.number("retry.attemptsMax", retry.attemptsMax, 5, 1),
      pauseMs,
      pauseMsMax: check.number("retry.pauseMsMax", retry.pauseMsMax, longestMs, pauseMs),
    },
    concurrency: check.number("concurrency", options.concurrency, 8, 1),
    closeMs: check.number("closeMs", options.closeMs, 5_000, 0),
    patienceMs: check.number("patienceMs", options.patienceMs, Infinity, 0),
    clock: options.clock ?? clientClock,
    random: options.random ?? systemRandom,
  };
  if (options.group === "") check.problem("group is empty");
  if (options.from.streams.length === 0) check.problem("from.streams is empty");
  check.end();
  return resolved;
}
