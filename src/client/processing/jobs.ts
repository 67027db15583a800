/**
 * A worker of jobs: takes single records of streams, does each by a function, and ends it together with its outputs.
 * PROTOCOL.md §20.5.
 *
 *   - outputs, dead letters and the end of their job are one transaction, which the server refuses to all but the worker that
 *     has the job: so each job has its effects once, also if workers die, sleep or lose their connections at any moment;
 *   - a job is taken only when there is room to do it: nothing waits in this process that another worker could do;
 *   - a failed job waits at the server until it is tried again, by any worker; its attempts are counted there;
 *   - if it cannot know whether a job was stored it puts the job back: an end that is still on its way is refused then;
 *   - it ends when it is closed, after the running jobs, or with the first error that no retry can cure. Either way it puts
 *     back what is not done, and waits for no function longer than `closeMs`.
 */

import { backoffMs } from "../../base/backoff.ts";
import { type ErrorCode, HapaxError, isHapaxError } from "../../base/errors.ts";
import { rest } from "../../base/pause.ts";
import type { Caller } from "../attempt.ts";
import { encode, JsonText } from "../records.ts";
import { knownCodec } from "./codecs.ts";
import type { Connection } from "./connection.ts";
import { envelopeOf } from "./dead-letter.ts";
import { TransactionFailure } from "./failure.ts";
import { type GivenJob, JobMembership, type Settlement } from "./job-membership.ts";
import {
  type JobContext,
  type JobCounters,
  type JobOptions,
  type ResolvedJobOptions,
  resolveJobs,
} from "./job-options.ts";
import { leaseLost } from "./lease.ts";
import type { Addresses, StreamTarget } from "./paths.ts";
import { RecordFailure, recordId } from "./pipeline-attempts.ts";
import { Borders } from "./pipeline-borders.ts";
import { createUnlessThere } from "./pipeline-parts.ts";

/** How long the server may hold a call that waits for jobs. */
const WAIT_MS = 20_000;
/** Pauses between calls that fail, in milliseconds. */
const OUTAGE = { pauseMs: 50, pauseMsMax: 10_000 };

/** The last calls of a worker that ends get at least this time. */
const END_MS_MIN = 1_000;

interface JobOutput {
  readonly stream: StreamTarget;
  readonly data: JsonText | string | Uint8Array;
}

type JobOutcome =
  | { readonly kind: "done"; readonly outputs: readonly JobOutput[] }
  | { readonly kind: "later"; readonly delayMs: number; readonly isCounted: boolean }
  | { readonly kind: "failed"; readonly error: unknown };

/** The codes of a transaction whose job is another worker's. */
const LOST = [
  "lease_lost",
  "member_lost",
  "group_not_found",
] as const satisfies readonly ErrorCode[];
/** The codes of one that can never be stored as it is. */
const MISFIT = ["invalid_request", "body_too_large"] as const satisfies readonly ErrorCode[];
const PUT_BACK = { kind: "later", delayMs: 0, isCounted: false } as const;

/** Runs the jobs of a group. `connection.jobs` creates it. */
export class JobWorker<T = unknown> {
  readonly #hapax: Connection;
  readonly #options: ResolvedJobOptions<T>;
  readonly #borders: Borders;
  readonly #membership: JobMembership;
  readonly #caller: Caller;
  readonly #stop = new AbortController();
  /** The running jobs, and what ends their work. */
  readonly #running = new Map<Promise<void>, AbortController>();
  readonly #counters = { done: 0, outputs: 0, deadLetters: 0, later: 0, failures: 0, lost: 0 };
  #failure: { readonly error: unknown } | undefined;
  #ended: Promise<void> | undefined;

  constructor(hapax: Connection, caller: Caller, addresses: Addresses, given: JobOptions<T>) {
    const options = resolveJobs(given);
    this.#hapax = hapax;
    this.#caller = caller;
    this.#options = options;
    this.#borders = new Borders(hapax, options);
    const forgotten = (): void => {
      this.#abandon(leaseLost("the server has forgotten the worker"));
    };
    const { group, closeMs } = options;
    const limitMs = (): number | undefined =>
      this.#stop.signal.aborted ? Math.max(closeMs, END_MS_MIN) : undefined;
    this.#membership = new JobMembership({ caller, addresses, group, forgotten, limitMs });
  }

  /** The counts so far. */
  get counters(): JobCounters {
    return { ...this.#counters };
  }

  /**
   * Runs until the worker is closed or its signal aborts; then resolves. Rejects with a `RecordFailure` if a job keeps failing
   * and there is no stream for dead letters, and with errors that a retry cannot solve. Every call returns the same promise.
   */
  run(): Promise<void> {
    this.#ended ??= this.#run();
    return this.#ended;
  }

  /** Ends `run` after the running jobs. Resolves when it has ended, also if it rejects. */
  async close(): Promise<void> {
    this.#stop.abort();
    await this.#ended?.catch(() => undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #run(): Promise<void> {
    const { signal } = this.#options;
    const unlisten = this.#caller.onAbort(signal, () => {
      this.#stop.abort();
    });
    if (this.#caller.abortedBy(signal) !== undefined) this.#stop.abort();
    try {
      await this.#patiently(() => this.#prepare());
      await Promise.all([this.#takeAll(), this.#beatOn()]);
    } catch (error) {
      this.#fail(error);
    } finally {
      await this.#end();
      unlisten();
    }
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  async #prepare(): Promise<void> {
    const { from, group, deadLetter } = this.#options;
    const { signal } = this.#stop;
    await this.#hapax.group(group).create({ ...from, jobs: true, signal });
    if (deadLetter !== undefined) await createUnlessThere(this.#hapax, deadLetter, signal);
    await this.#membership.join(signal);
  }

  async #takeAll(): Promise<void> {
    const { signal } = this.#stop;
    const stopped = new Promise<void>((resolve) => {
      signal.addEventListener("abort", () => {
        resolve();
      });
    });
    while (!signal.aborted) {
      const room = this.#options.concurrency - this.#running.size;
      if (room <= 0) {
        await Promise.race([...this.#running.keys(), stopped]);
        continue;
      }
      const jobs = await this.#patiently(() => this.#membership.take(room, WAIT_MS, signal));
      for (const job of jobs ?? []) this.#start(job);
    }
  }

  /** Repeats a call that an outage has interrupted. Resolves to undefined when the worker has to end. */
  async #patiently<Value>(call: () => Promise<Value>): Promise<Value | undefined> {
    const { clock, random, patienceMs, onRetry } = this.#options;
    const { signal } = this.#stop;
    const sinceMs = clock.steadyMs();
    for (let failures = 1; ; failures += 1) {
      try {
        return await call();
      } catch (error) {
        if (signal.aborted) return undefined;
        const isPassing = isHapaxError(error) && error.retry !== "never";
        const isLost = isHapaxError(error, "member_lost");
        const isOver = clock.steadyMs() - sinceMs >= patienceMs;
        if (!isLost && (!isPassing || isOver)) throw error;
        onRetry?.(error);
        await rest(clock, backoffMs(failures, OUTAGE, random.unit()), signal);
      }
    }
  }

  async #beatOn(): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#stop;
    for (;;) {
      await rest(clock, this.#membership.leaseMs / 3, signal);
      if (signal.aborted) return;
      await this.#patiently(() => this.#membership.beat(signal));
    }
  }

  #start(job: GivenJob): void {
    const controller = new AbortController();
    const work = this.#work(job, controller)
      .catch((error: unknown) => {
        this.#fail(error);
      })
      .finally(() => {
        this.#running.delete(work);
      });
    this.#running.set(work, controller);
    if (this.#stop.signal.aborted) controller.abort(leaseLost("the worker has to end"));
  }

  async #work(job: GivenJob, controller: AbortController): Promise<void> {
    const { signal } = controller;
    const aborted = new Promise<JobOutcome>((resolve) => {
      const give = (): void => {
        resolve(PUT_BACK);
      };
      signal.addEventListener("abort", give, { once: true });
      if (signal.aborted) give();
    });
    // A function that does not end hides neither the end of the worker nor the loss of its job.
    const outcome = await Promise.race([
      signal.aborted ? aborted : this.#attempt(job, signal),
      aborted,
    ]);
    await this.#finish(job, outcome, signal);
    this.#options.onProgress?.(this.counters);
  }

  async #attempt(job: GivenJob, signal: AbortSignal): Promise<JobOutcome> {
    const { each, dueAt, retry, clock, to } = this.#options;
    if (job.attempt > retry.attemptsMax) {
      const count = String(job.attempt - 1);
      const words = `the job was begun ${count} times, and no worker finished it or put it back`;
      return { kind: "failed", error: new Error(words) };
    }
    const outputs: JobOutput[] = [];
    let later: JobOutcome | undefined;
    let isOver = false;
    const emit = (data: unknown, options: { readonly to?: StreamTarget } = {}): void => {
      if (isOver) throw new HapaxError("invalid_request", "the job has ended");
      outputs.push(this.#outputOf(data, options.to ?? to));
    };
    const { lease, attempt } = job;
    const context: JobContext = {
      stream: lease.stream,
      id: this.#idOf(job),
      attempt,
      signal,
      lease,
      emit,
      retryLater: (delayMs) => {
        later = { kind: "later", delayMs, isCounted: true };
      },
      postpone: (delayMs) => {
        later = { kind: "later", delayMs, isCounted: false };
      },
    };
    try {
      // Cast: the type of the records is the user's word.
      const record = job.record as T;
      const due = dueAt?.(record);
      const waitMs = due === undefined ? 0 : Number(due) - clock.nowMs();
      if (waitMs > 0) return { kind: "later", delayMs: waitMs, isCounted: false };
      const returned: unknown = await each(record, context);
      if (returned !== undefined) emit(returned);
      isOver = true;
      const isLast = later?.kind === "later" && later.isCounted && attempt >= retry.attemptsMax;
      if (!isLast) return later ?? { kind: "done", outputs };
      return { kind: "failed", error: new Error("the job was put back in its last attempt") };
    } catch (error) {
      isOver = true;
      return { kind: "failed", error };
    }
  }

  /** Encodes an output at once: its owner may use the same object again. */
  #outputOf(data: unknown, target: StreamTarget | undefined): JobOutput {
    if (target === undefined) {
      throw new HapaxError(
        "invalid_options",
        "there is an output, but no `to` that it could go to",
      );
    }
    const stream = this.#borders.path("to", target);
    const { form, content } = encode(data, knownCodec(this.#hapax, stream));
    return { stream, data: form === "json" ? new JsonText(content) : content };
  }

  /** Stores the outcome. A job that is another worker's by now is left to it. */
  async #finish(job: GivenJob, outcome: JobOutcome, signal: AbortSignal): Promise<void> {
    const counters = this.#counters;
    if (outcome.kind === "failed") {
      await this.#failed(job, outcome.error, signal);
    } else if (outcome.kind === "later") {
      if (await this.#settle(job, outcome)) counters.later += 1;
    } else if (outcome.outputs.length === 0) {
      if (await this.#settle(job, outcome)) counters.done += 1;
    } else {
      const { outputs } = outcome;
      const stored = await this.#commit(job, signal, (append) => {
        for (const { stream, data } of outputs) append(stream, data);
      });
      if (stored === true) {
        counters.done += 1;
        counters.outputs += outputs.length;
      } else if (stored !== false) {
        await this.#failed(job, stored, signal);
      }
    }
  }

  async #failed(job: GivenJob, error: unknown, signal: AbortSignal): Promise<void> {
    const { retry, random, deadLetter, clock, onRetry } = this.#options;
    const { attempt: attempts, lease } = job;
    this.#counters.failures += 1;
    if (attempts < retry.attemptsMax) {
      onRetry?.(error);
      const delayMs = backoffMs(attempts, retry, random.unit());
      const later = { kind: "later", delayMs, isCounted: true } as const;
      if (await this.#settle(job, later)) this.#counters.later += 1;
      return;
    }
    const id = this.#idOf(job);
    const { stream, offset } = lease;
    if (deadLetter === undefined) {
      // The next worker tries it once more, and ends too.
      await this.#settle(job, PUT_BACK);
      throw new RecordFailure(id, stream, attempts, error);
    }
    const letter = { id, stream, offset, record: job.stored(), error, attempts };
    for (const isBare of [false, true]) {
      const stored = await this.#commit(job, signal, (append) => {
        append(deadLetter, envelopeOf(letter, clock, isBare));
      });
      if (stored === true) this.#counters.deadLetters += 1;
      if (typeof stored === "boolean") return;
      if (isBare) throw stored;
    }
  }

  /** Ends the job in a transaction. False: it is not ended, or by another worker. An error: no transaction can hold this. */
  async #commit(
    job: GivenJob,
    signal: AbortSignal,
    collect: (append: (stream: StreamTarget, data: unknown) => void) => void,
  ): Promise<boolean | HapaxError> {
    try {
      const { lease } = job;
      await this.#hapax.transaction(
        (tx) => {
          collect((stream, data) => {
            tx.append(stream, data);
          });
          tx.done(lease);
        },
        { signal },
      );
      return true;
    } catch (error) {
      const isCertain = error instanceof TransactionFailure && error.outcome === "not_stored";
      if (isCertain && LOST.some((code) => isHapaxError(error, code))) {
        this.#counters.lost += 1;
        return false;
      }
      if (isCertain && MISFIT.some((code) => isHapaxError(error, code))) return error;
      // What is still on its way is refused as soon as the job is put back.
      if (await this.#settle(job, PUT_BACK)) this.#counters.later += 1;
      if (!signal.aborted && (!isHapaxError(error) || error.retry === "never")) throw error;
      this.#options.onRetry?.(error);
      return false;
    }
  }

  /** Resolves to false if the job is another worker's. Outages are waited for, also at the end: for `closeMs`. */
  async #settle({ lease }: GivenJob, settlement: Settlement): Promise<boolean> {
    const { clock, random, patienceMs, closeMs, onRetry } = this.#options;
    const sinceMs = clock.steadyMs();
    for (let failures = 1; ; failures += 1) {
      try {
        const isKept = await this.#membership.settle(lease, settlement);
        if (!isKept) this.#counters.lost += 1;
        return isKept;
      } catch (error) {
        const limitMs = this.#stop.signal.aborted ? closeMs : patienceMs;
        const isPassing = isHapaxError(error) && error.retry !== "never";
        const isOver = clock.steadyMs() - sinceMs >= limitMs;
        // At the end it is enough that the worker leaves: the job comes again.
        if (isOver && this.#stop.signal.aborted) return false;
        if (!isPassing || isOver) throw error;
        onRetry?.(error);
        const signals = this.#stop.signal.aborted ? [] : [this.#stop.signal];
        await rest(clock, backoffMs(failures, OUTAGE, random.unit()), ...signals);
      }
    }
  }

  #idOf({ lease: { stream, offset }, life }: GivenJob): string {
    return recordId(this.#options.group, { stream, life }, offset);
  }

  /** Ends the work on all running jobs: what they do has no effect any more. */
  #abandon(reason: HapaxError): void {
    for (const controller of this.#running.values()) controller.abort(reason);
  }

  #fail(error: unknown): void {
    this.#failure ??= { error };
    this.#stop.abort();
  }

  async #end(): Promise<void> {
    const { clock, closeMs } = this.#options;
    this.#stop.abort();
    const over = new AbortController();
    const late = rest(clock, closeMs, over.signal).then(() => {
      this.#abandon(leaseLost("the worker has to end"));
    });
    const isBeating = this.#beatUntil(over.signal);
    await Promise.all([...this.#running.keys()]);
    over.abort();
    await Promise.all([late, isBeating]);
    await this.#giveBackUnseen();
    await this.#membership.leave();
  }

  /** Running jobs stay this worker's while they end. */
  async #beatUntil(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    for (;;) {
      await rest(clock, this.#membership.leaseMs / 3, signal);
      if (signal.aborted) return;
      await this.#membership.beat(signal).catch(() => undefined);
    }
  }

  /** The call that was given up may have been answered: no worker has begun these jobs. */
  async #giveBackUnseen(): Promise<void> {
    if (!this.#membership.isWaiting) return;
    try {
      const signal = AbortSignal.timeout(1000);
      const jobs = await this.#membership.take(1, 0, signal);
      await Promise.all(jobs.map(({ lease }) => this.#membership.settle(lease, PUT_BACK)));
    } catch {
      // Without it these jobs come again as soon as the worker has left, and count an attempt more.
    }
  }
}
