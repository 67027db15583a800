/**
 * Runs the attempts of a pipeline's functions.
 *
 *   - nothing stays of a failed attempt: neither its outputs nor its changes of the state;
 *   - a record is tried `attemptsMax` times, with growing random pauses, and then given up;
 *   - a record has the same id in every attempt and in every page: its offset in its stream,
 *     and the life of the stream, so that no record of a stream created anew at its path has it;
 *   - work whose lease is over, or whose pipeline must end, is not tried again.
 */

import { backoffMs } from "../../base/backoff.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { rest } from "../../base/pause.ts";
import { wordsOf } from "./error-words.ts";
import { leaseLost } from "./lease.ts";
import type { Places } from "./places.ts";
import {
  type EmitOptions,
  isDeduplicating,
  type PipelineContext,
  type ResolvedPipelineOptions,
} from "./pipeline-options.ts";
import type { KeyedState, PipelineState } from "./state.ts";

/** Records of one stream from a safe point on, with their lease's signal and their state. */
export interface PipelinePage<T> {
  readonly stream: string;
  /** The life of the stream: one that is created anew at its path has another one. */
  readonly life: string;
  readonly offset: string;
  readonly records: readonly T[];
  readonly places: Pick<Places, "offsetAt" | "bytesAt" | "isJson">;
  readonly signal: AbortSignal;
  readonly state: KeyedState | undefined;
}

/** The records of a page for one call. */
export interface Span {
  readonly from: number;
  readonly count: number;
}

/** The outcome of an attempt. */
export type SpanOutcome<Output> =
  | { readonly kind: "done"; readonly outputs: readonly Output[] }
  | { readonly kind: "failed"; readonly error: unknown; readonly attempts: number };

/**
 * The error of a pipeline when a record failed in all its attempts and there is no stream for dead letters. Its
 * `cause` is the last error.
 */
export class RecordFailure extends Error {
  override readonly name = "RecordFailure";
  readonly id: string;
  readonly stream: string;
  readonly attempts: number;

  constructor(id: string, stream: string, attempts: number, cause: unknown) {
    const words = wordsOf(cause).message;
    const advice = "the pipeline has no deadLetter stream to put it aside";
    super(`record ${id} failed ${String(attempts)} times: ${words}; ${advice}`, { cause });
    this.id = id;
    this.stream = stream;
    this.attempts = attempts;
  }
}

/** Thrown through work when the pipeline must end. */
export class Stopped extends Error {
  override readonly name = "Stopped";
}

/** Returns the outcome, or `Stopped` if the pipeline must end. */
export async function orStopped<Value>(settling: Promise<Value>): Promise<Value | Stopped> {
  try {
    return await settling;
  } catch (error) {
    if (error instanceof Stopped) return error;
    throw error;
  }
}

/** Returns the id of a record. It is ASCII, so that it can be a key. */
export function recordId(
  group: string,
  { stream, life }: Pick<PipelinePage<unknown>, "stream" | "life">,
  offset: string,
): string {
  return `${encodeURIComponent(group)}${encodeURI(stream)}/${life}/${offset}`;
}

/**
 * Encodes one output at the call: its owner may use the same object again. Throws if the output can never be stored; then
 * the record has failed.
 */
export type Resolve<Output> = (data: unknown, options: EmitOptions) => Output;

const NO_OPTIONS: EmitOptions = {};

export interface AttemptCounters {
  failures: number;
}

export class Attempts<T, Tx, Output> {
  readonly #options: ResolvedPipelineOptions<T, Tx>;
  readonly #resolve: Resolve<Output>;
  readonly #stop: AbortSignal;
  readonly #counters: AttemptCounters;
  /** With a database as sink the return value of a function is a result of the database, not an output. */
  readonly #isEffectOnly: boolean;

  constructor(
    options: ResolvedPipelineOptions<T, Tx>,
    resolve: Resolve<Output>,
    stop: AbortSignal,
    counters: AttemptCounters,
  ) {
    this.#options = options;
    this.#resolve = resolve;
    this.#stop = stop;
    this.#counters = counters;
    const { sink } = options;
    this.#isEffectOnly = sink !== undefined && !isDeduplicating(sink);
  }

  idOf(page: PipelinePage<T>, index: number): string {
    return recordId(this.#options.group, page, page.places.offsetAt(index));
  }

  /** Tries until the function succeeds or is given up. Returns without a promise if the function does. */
  settle(
    page: PipelinePage<T>,
    span: Span,
    attemptsMax = this.#options.retry.attemptsMax,
  ): SpanOutcome<Output> | Promise<SpanOutcome<Output>> {
    const first = this.once(page, span, 1, undefined as Tx);
    if (first instanceof Promise) {
      return first.then((outcome) => this.#goOn(page, span, outcome, attemptsMax));
    }
    return first.kind === "done" ? first : this.#goOn(page, span, first, attemptsMax);
  }

  async #goOn(
    page: PipelinePage<T>,
    span: Span,
    first: SpanOutcome<Output>,
    attemptsMax: number,
  ): Promise<SpanOutcome<Output>> {
    let outcome = first;
    for (let attempts = 1; outcome.kind === "failed"; attempts += 1) {
      if (attempts >= attemptsMax) return { ...outcome, attempts };
      await this.pause(attempts, page.signal);
      outcome = await this.once(page, span, attempts + 1, undefined as Tx);
    }
    return outcome;
  }

  /** Makes one attempt. Throws errors that are not the record's: a lease that is over, an option that cannot work. */
  once(
    page: PipelinePage<T>,
    span: Span,
    attempt: number,
    tx: Tx,
  ): SpanOutcome<Output> | Promise<SpanOutcome<Output>> {
    const { group } = this.#options;
    const context = new AttemptContext<T, Tx, Output>(
      { page, group, index: span.from, attempt, tx },
      this.#resolve,
    );
    try {
      const returned = this.#call(page, span, context);
      if (!isThenable(returned)) return this.#settled(page, context, returned);
      return Promise.resolve(returned)
        .then((value) => {
          // Only an asynchronous function needs this check: no lease can end during a synchronous one.
          throwIfOver(page.signal);
          return this.#settled(page, context, value);
        })
        .catch((error: unknown) => this.#failed(page, context, error, attempt));
    } catch (error) {
      return this.#failed(page, context, error, attempt);
    }
  }

  /** Pauses before the next attempt. */
  async pause(failures: number, signal: AbortSignal): Promise<void> {
    const { clock, random, retry } = this.#options;
    await rest(clock, backoffMs(failures, retry, random.unit()), this.#stop, signal);
    throwIfOver(signal);
    if (this.#stop.aborted) throw new Stopped("the pipeline was told to end");
  }

  #call(
    { records }: PipelinePage<T>,
    { from, count }: Span,
    context: PipelineContext<Tx>,
  ): unknown {
    const { each, batch } = this.#options;
    if (batch !== undefined) return batch(records.slice(from, from + count), context);
    // Cast: a span of `each` is one record, and it is there.
    return each?.(records[from] as T, context);
  }

  #settled(
    page: PipelinePage<T>,
    context: AttemptContext<T, Tx, Output>,
    returned: unknown,
  ): SpanOutcome<Output> {
    context.seal();
    const { outputs } = context;
    if (returned !== undefined && !this.#isEffectOnly) this.#take(returned, outputs);
    page.state?.keep();
    return { kind: "done", outputs };
  }

  /** Takes the returned outputs: `each` returns one, `batch` returns a list. */
  #take(returned: unknown, outputs: Output[]): void {
    if (this.#options.batch === undefined) {
      outputs.push(this.#resolve(returned, NO_OPTIONS));
    } else if (Array.isArray(returned)) {
      for (const data of returned as readonly unknown[]) {
        outputs.push(this.#resolve(data, NO_OPTIONS));
      }
    } else {
      throw new HapaxError("invalid_options", "batch must return a list of outputs, or nothing");
    }
  }

  #failed(
    page: PipelinePage<T>,
    context: AttemptContext<T, Tx, Output>,
    error: unknown,
    attempt: number,
  ): SpanOutcome<Output> {
    context.seal();
    page.state?.drop();
    throwIfOver(page.signal);
    if (isHapaxError(error, "invalid_options")) throw error;
    this.#counters.failures += 1;
    this.#options.onRetry?.(error);
    return { kind: "failed", error, attempts: attempt };
  }
}

/** Throws if another member has the stream. */
export function throwIfOver(signal: AbortSignal): void {
  if (!signal.aborted) return;
  throw isHapaxError(signal.reason) ? signal.reason : leaseLost("the lease is over", signal.reason);
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return (
    typeof value === "object" &&
    value !== null &&
    "then" in value &&
    typeof value.then === "function"
  );
}

/** The facts of an attempt. */
interface AttemptFacts<T, Tx> {
  readonly page: PipelinePage<T>;
  readonly group: string;
  readonly index: number;
  readonly attempt: number;
  readonly tx: Tx;
}

// There is one for every record, so it computes its members only when they are read.
class AttemptContext<T, Tx, Output> implements PipelineContext<Tx> {
  readonly outputs: Output[] = [];
  readonly #facts: AttemptFacts<T, Tx>;
  readonly #resolve: Resolve<Output>;
  #isSealed = false;

  constructor(facts: AttemptFacts<T, Tx>, resolve: Resolve<Output>) {
    this.#facts = facts;
    this.#resolve = resolve;
  }

  get stream(): string {
    return this.#facts.page.stream;
  }

  get id(): string {
    const { group, page, index } = this.#facts;
    return recordId(group, page, page.places.offsetAt(index));
  }

  get attempt(): number {
    return this.#facts.attempt;
  }

  get signal(): AbortSignal {
    return this.#facts.page.signal;
  }

  get tx(): Tx {
    return this.#facts.tx;
  }

  get state(): PipelineState {
    const { state } = this.#facts.page;
    if (state === undefined) throw new HapaxError("invalid_options", "the pipeline has no state");
    const open = (): KeyedState => {
      this.#checkOpen();
      return state;
    };
    return {
      get: (key) => open().get(key),
      has: (key) => open().has(key),
      set: (key, value) => {
        open().set(key, value);
      },
      delete: (key) => {
        open().delete(key);
      },
    };
  }

  // Bound, because users often destructure the context.
  readonly emit = (data: unknown, options: EmitOptions = {}): void => {
    this.#checkOpen();
    this.outputs.push(this.#resolve(data, options));
  };

  seal(): void {
    this.#isSealed = true;
  }

  // A late output belongs to no attempt: it would be lost, or counted with another one.
  #checkOpen(): void {
    if (!this.#isSealed) return;
    throw new HapaxError("invalid_request", "the attempt is over: await what it has begun");
  }
}
