/**
 * One call until it has an answer.
 *
 *   AT1  every attempt of a call sends the same method, bytes and headers of the call. What the settings add
 *        (tokens) is asked for anew before each;
 *   AT2  an attempt without an answer, a timeout, 408, 425, 429 and 5xx are repeated after a pause that
 *        doubles with jitter and is never shorter than `Retry-After`; 501 and 505 are not;
 *   AT3  a call ends at most one attempt after `retry.totalMs`: no pause begins that would outlast it;
 *   AT4  whoever gets an answer hears whether an earlier attempt may have been done.
 */

import { type ErrorCode, ERRORS, HapaxError, isHapaxError } from "../errors.ts";
import { httpDateMs } from "./http-date.ts";
import type { Dynamic, ResolvedClientSettings, RetrySettings } from "./settings.ts";
import type { ClientAnswer } from "./transport.ts";

/** One call: what all its attempts have in common. */
export interface Call {
  readonly method: string;
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
  readonly signal?: AbortSignal;
  /** One attempt until its whole body, or until `chunks()` is called. Default: that of the settings. */
  readonly timeoutMs?: number;
}

/** Why an attempt is repeated: no answer, or one that says "again". */
export interface RetryReason {
  readonly attempt: number;
  /** `undefined` if no answer came. */
  readonly status: number | undefined;
  readonly error: HapaxError | undefined;
  /** The attempt may have been done. */
  readonly isUnknown: boolean;
}

export interface RepeatOptions {
  onRetry?(reason: RetryReason): void;
  /** Instead of those of the connection. */
  readonly retry?: Required<RetrySettings>;
}

export interface Answered {
  readonly answer: ClientAnswer;
  readonly attempts: number;
  /** An attempt may have been done: it got no answer, or one that leaves that open. */
  readonly wasUnknown: boolean;
}

type Heard =
  | { readonly answer: ClientAnswer; readonly error: undefined }
  | { readonly answer: undefined; readonly error: HapaxError };

/** Sends the calls of one connection. */
export class Caller {
  readonly settings: ResolvedClientSettings;
  /** One listener on the connection's signal for all attempts: many are taken for a leak. */
  readonly #onEnd = new Set<() => void>();

  constructor(settings: ResolvedClientSettings) {
    this.settings = settings;
  }

  /** Calls `run` when the signal, or that of the connection, aborts; the returned function cancels it. */
  onAbort(signal: AbortSignal | undefined, run: () => void): () => void {
    signal?.addEventListener("abort", run);
    if (this.#onEnd.size === 0) this.settings.signal?.addEventListener("abort", this.#end);
    this.#onEnd.add(run);
    return () => {
      signal?.removeEventListener("abort", run);
      this.#onEnd.delete(run);
      // A signal may outlive many connections, which it must not hold.
      if (this.#onEnd.size === 0) this.settings.signal?.removeEventListener("abort", this.#end);
    };
  }

  readonly #end = (): void => {
    for (const run of [...this.#onEnd]) run();
  };

  /** Why the call or the connection was given up, if it was. */
  abortedBy(signal: AbortSignal | undefined): Error | undefined {
    const aborted = [signal, this.settings.signal].find((one) => one?.aborted === true);
    return aborted === undefined ? undefined : reasonOf(aborted);
  }

  /** One try. Rejects with `unreachable` if no answer came, with the signal's reason if it was given up. */
  async once(call: Call): Promise<ClientAnswer> {
    const attempt = new Attempt(this, call);
    try {
      const [headers, url] = await attempt.orEnd(this.#dressed(call));
      const request = { method: call.method, url, headers, signal: attempt.signal };
      const { transport } = this.settings;
      const sent = transport(call.body === undefined ? request : { ...request, body: call.body });
      return attempt.guard(await attempt.orEnd(sent));
    } catch (error) {
      attempt.end();
      throw attempt.errorOf(error);
    }
  }

  /**
   * Repeats the same call until an answer that is not worth repeating, or until the time is over: then
   * the last answer is returned, or `unreachable` thrown if there was none.
   */
  async untilAnswered(call: Call, options: RepeatOptions = {}): Promise<Answered> {
    const { clock } = this.settings;
    const { totalMs } = options.retry ?? this.settings.retry;
    const deadlineMs = clock.steadyMs() + totalMs;
    let wasUnknown = false;
    for (let attempts = 1; ; attempts += 1) {
      const { answer, error } = await this.#attempt(call);
      if (answer !== undefined && !isRetryable(answer.status)) {
        return { answer, attempts, wasUnknown };
      }
      const pauseMs = this.pauseMs(attempts, answer, options.retry);
      const isUnknown = answer === undefined || leavesOpen(answer.status);
      wasUnknown ||= isUnknown;
      if (clock.steadyMs() + pauseMs > deadlineMs) {
        if (error !== undefined) throw error;
        return { answer, attempts, wasUnknown };
      }
      options.onRetry?.({ attempt: attempts, status: answer?.status, error, isUnknown });
      answer?.discard();
      await this.wait(pauseMs, call.signal);
    }
  }

  /** Waits the backoff for the n-th failure in a row, or Retry-After; rejects if the signal aborts. */
  async pause(
    failures: number,
    answer: ClientAnswer | undefined,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    await this.wait(this.pauseMs(failures, answer), signal);
  }

  /** How long to wait after the n-th failure in a row: half the ceiling, and a random half. */
  pauseMs(failures: number, answer: ClientAnswer | undefined, retry = this.settings.retry): number {
    const { clock, random } = this.settings;
    const ceilingMs = Math.min(retry.maxMs, retry.minMs * 2 ** Math.min(failures - 1, 30));
    const backoffMs = ceilingMs * (0.5 + random.unit() / 2);
    return Math.max(backoffMs, retryAfterMs(answer?.header("retry-after"), clock.nowMs()));
  }

  /** Lets the time pass; rejects with the reason if the call or the connection is given up. */
  wait(delayMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (): void => {
        cancel();
        unlisten();
        const reason = this.abortedBy(signal);
        if (reason === undefined) resolve();
        else reject(reason);
      };
      const cancel = this.settings.clock.after(delayMs, end);
      const unlisten = this.onAbort(signal, end);
      if (this.abortedBy(signal) !== undefined) end();
    });
  }

  async #attempt(call: Call): Promise<Heard> {
    try {
      return { answer: await this.once(call), error: undefined };
    } catch (error) {
      if (isHapaxError(error, "unreachable")) return { answer: undefined, error };
      throw error;
    }
  }

  /** The headers and the URL of one attempt, with what the settings add. */
  async #dressed(call: Call): Promise<readonly [Readonly<Record<string, string>>, string]> {
    const { headers, params } = this.settings;
    const added = await resolved(headers);
    const query = await resolved(params);
    if (query.length === 0) return [{ ...Object.fromEntries(added), ...call.headers }, call.url];
    const url = new URL(call.url);
    for (const [name, value] of query) url.searchParams.set(name, value);
    return [{ ...Object.fromEntries(added), ...call.headers }, url.href];
  }
}

async function resolved(values: Readonly<Record<string, Dynamic>>): Promise<[string, string][]> {
  const pairs = Object.entries(values).map(async ([name, value]): Promise<[string, string]> => [
    name,
    typeof value === "string" ? value : await value(),
  ]);
  return Promise.all(pairs);
}

/** The life of one attempt: its time limit and the signals that end it. */
class Attempt {
  readonly #controller = new AbortController();
  readonly #caller: Caller;
  readonly #call: Call;
  readonly #unlisten: () => void;
  #cancelTimer: () => void = () => undefined;
  #endedBy: (error: unknown) => void = () => undefined;
  readonly #ended: Promise<never>;

  constructor(caller: Caller, call: Call) {
    this.#caller = caller;
    this.#call = call;
    this.#ended = new Promise((_, reject) => {
      this.#endedBy = reject;
    });
    // Nobody may be waiting when the time is over.
    this.#ended.catch(() => undefined);
    const timeoutMs = call.timeoutMs ?? caller.settings.timeoutMs;
    if (timeoutMs !== Infinity) {
      this.#cancelTimer = caller.settings.clock.after(timeoutMs, () => {
        this.#cut(new HapaxError("unreachable", `no answer within ms=${String(timeoutMs)}`));
      });
    }
    const onAbort = (): void => {
      const reason = caller.abortedBy(call.signal);
      if (reason !== undefined) this.#cut(reason);
    };
    this.#unlisten = caller.onAbort(call.signal, onAbort);
    onAbort();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The promise, unless the attempt ends before it: a transport need not look at its signal. */
  orEnd<Value>(promise: Promise<Value>): Promise<Value> {
    // If the attempt ends first, nobody hears how the request ended.
    promise.catch(() => undefined);
    return Promise.race([promise, this.#ended]);
  }

  /** The answer, with the attempt's end at the end of its body. */
  guard(answer: ClientAnswer): ClientAnswer {
    return {
      status: answer.status,
      header: (name) => answer.header(name),
      bytes: async () => {
        try {
          return await this.orEnd(answer.bytes());
        } catch (error) {
          throw this.errorOf(error);
        } finally {
          this.end();
        }
      },
      chunks: () => this.#chunks(answer),
      discard: () => {
        this.end();
        answer.discard();
      },
    };
  }

  /** What a failure means to whoever called: given up by the signal's owner, or not reached. */
  errorOf(error: unknown): Error {
    const aborted = this.#caller.abortedBy(this.#call.signal);
    if (aborted !== undefined) return aborted;
    if (isHapaxError(error)) return error;
    const reason = error instanceof Error ? error.message : String(error);
    return new HapaxError("unreachable", `no answer (${reason}) from url=${this.#call.url}`, {
      cause: error,
    });
  }

  end(): void {
    this.#cancelTimer();
    this.#unlisten();
  }

  async *#chunks(answer: ClientAnswer): AsyncGenerator<Uint8Array> {
    this.#cancelTimer();
    try {
      yield* answer.chunks();
    } catch (error) {
      throw this.errorOf(error);
    } finally {
      this.end();
    }
  }

  #cut(reason: unknown): void {
    this.#controller.abort(reason);
    this.#endedBy(reason);
  }
}

function reasonOf(signal: AbortSignal): Error {
  const reason: unknown = signal.reason;
  return reason instanceof Error ? reason : new Error(`aborted: ${String(reason)}`);
}

/** Whether the same call may get another answer later. */
export function isRetryable(status: number): boolean {
  if (status === 408 || status === 425 || status === 429) return true;
  // 501 and 505 are statements about the server, not about this moment.
  return status >= 500 && status !== 501 && status !== 505;
}

/** Whether such an answer leaves open what became of the call. PROTOCOL.md §10. */
function leavesOpen(status: number): boolean {
  return status >= 500 || status === 408;
}

function retryAfterMs(text: string | undefined, nowMs: number): number {
  if (text === undefined) return 0;
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1000;
  return Math.max(0, (httpDateMs(text) ?? nowMs) - nowMs);
}

const CODE_BY_STATUS: Readonly<Record<number, ErrorCode>> = {
  400: "invalid_request",
  401: "token_invalid",
  404: "stream_not_found",
  405: "method_not_allowed",
  408: "request_timeout",
  410: "stream_gone",
  412: "tail_moved",
  413: "body_too_large",
  414: "uri_too_long",
  415: "unsupported_encoding",
  425: "too_many",
  429: "too_many",
  431: "headers_too_large",
  507: "store_full",
};

const REFUSAL_BYTES_MAX = 64 * 1024;
const DETAIL_CHARS_MAX = 500;

/** A refusal as a `HapaxError`: with the server's code if it is one of ours, else by status and headers. */
export async function refusalOf(answer: ClientAnswer): Promise<HapaxError> {
  return (await problemOf(answer)).error;
}

/** A refusal, and whether it is one of this project's own servers that speaks. PROTOCOL.md §10. */
export async function problemOf(
  answer: ClientAnswer,
): Promise<{ readonly error: HapaxError; readonly isOurs: boolean }> {
  const text = await textOf(answer);
  const { type, detail } = problemMembers(text);
  const named = type?.startsWith(TYPE_PREFIX) === true ? type.slice(TYPE_PREFIX.length) : "";
  const isOurs = named !== "";
  const code = Object.hasOwn(ERRORS, named) ? (named as ErrorCode) : codeOf(answer);
  const words = (detail ?? text).slice(0, DETAIL_CHARS_MAX).trim();
  const message = `${words === "" ? ERRORS[code].title : words} status=${String(answer.status)}`;
  return { error: new HapaxError(code, message), isOurs };
}

const TYPE_PREFIX = "urn:hapax:error:";

async function textOf(answer: ClientAnswer): Promise<string> {
  try {
    const bytes = await answer.bytes();
    return new TextDecoder().decode(bytes.subarray(0, REFUSAL_BYTES_MAX));
  } catch (error) {
    // A refusal whose words were cut is still this refusal.
    if (isHapaxError(error, "unreachable")) return "";
    throw error;
  }
}

function problemMembers(text: string): { readonly type?: string; readonly detail?: string } {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null) return {};
    const members = new Map<string, unknown>(Object.entries(value));
    const [type, detail] = [members.get("type"), members.get("detail")];
    return {
      ...(typeof type === "string" ? { type } : {}),
      ...(typeof detail === "string" ? { detail } : {}),
    };
  } catch {
    return {}; // Plain text, as other servers answer.
  }
}

function codeOf(answer: ClientAnswer): ErrorCode {
  const { status } = answer;
  if (status === 409) {
    if (answer.header("stream-closed")?.toLowerCase() === "true") return "stream_closed";
    if (answer.header("producer-expected-seq") !== undefined) return "producer_gap";
    return "refused";
  }
  if (status === 403) {
    // A proxy may forbid as well; only a fence names the epoch that is in force.
    return answer.header("producer-epoch") === undefined ? "refused" : "producer_fenced";
  }
  return CODE_BY_STATUS[status] ?? (status >= 500 ? "internal" : "refused");
}
