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

import { type ErrorCode, HapaxError, isErrorCode, isHapaxError } from "../base/errors.ts";
import { textOf } from "./bytes.ts";
import { says } from "./head.ts";
import { httpDateMs } from "./http-date.ts";
import type { Dynamic, ResolvedClientSettings } from "./settings.ts";
import type { ClientAnswer } from "./transport.ts";
import { Attempt } from "./request.ts";
import type { Visibility } from "./visibility.ts";

/** One call: what all its attempts have in common. */
export interface Call {
  readonly method: string;
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | undefined;
  readonly signal?: AbortSignal | undefined;
  /** One attempt until its whole body. Default: that of the settings. */
  readonly timeoutMs?: number;
  /** Ends it when the page is hidden. */
  readonly visibility?: Visibility | undefined;
}

export interface Answered {
  readonly answer: ClientAnswer;
  /** An attempt may have been done: it got no answer, or one that leaves that open. */
  readonly wasUnknown: boolean;
}

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

  /** Why the call or the connection was given up: the signal's own reason, or undefined. */
  abortedBy(signal: AbortSignal | undefined): Error | undefined {
    // Mostly an error. A caller who gave something else compares with just that.
    return [signal, this.settings.signal].find((one) => one?.aborted)?.reason as Error | undefined;
  }

  /** One try. Rejects with `unreachable` if no answer came, with the signal's reason if it was given up. */
  once(call: Call): Promise<ClientAnswer> {
    return new Attempt(this, call).send();
  }

  /**
   * Repeats the same call until an answer that is not worth repeating, or until the time is over: then
   * the last answer is returned, or `unreachable` thrown if there was none.
   */
  async untilAnswered(call: Call): Promise<Answered> {
    const { clock, retry } = this.settings;
    const deadlineMs = clock.steadyMs() + retry.totalMs;
    let wasUnknown = false;
    for (let attempts = 1; ; attempts += 1) {
      const heard = await this.once(call).catch(ifUnreachable);
      const answer = "code" in heard ? undefined : heard;
      if (answer !== undefined && !isRetryable(answer.status)) return { answer, wasUnknown };
      const pauseMs = this.pauseMs(attempts, answer);
      wasUnknown ||= answer === undefined || leavesOpen(answer.status);
      if (clock.steadyMs() + pauseMs > deadlineMs) {
        if ("code" in heard) throw heard;
        return { answer: heard, wasUnknown };
      }
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
  pauseMs(failures: number, answer: ClientAnswer | undefined): number {
    const { clock, random, retry } = this.settings;
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

  /** The headers and the URL of one attempt, with what the settings add. */
  async dressed(call: Call): Promise<readonly [Readonly<Record<string, string>>, string]> {
    const { headers, params } = this.settings;
    const added = Object.fromEntries(await resolved(headers));
    const url = withQuery(call.url, await resolved(params));
    return [{ ...added, ...call.headers }, url];
  }
}

/** The error, if it says that no answer came; else it is thrown. */
export function ifUnreachable(error: unknown): HapaxError {
  if (isHapaxError(error, "unreachable")) return error;
  throw error;
}

/** The URL with more parameters, sorted, so that caches see one URL for one place. */
export function withQuery(
  url: string,
  query: readonly (readonly [string, string | undefined])[],
): string {
  if (query.length === 0) return url;
  const whole = new URL(url);
  for (const [name, value] of query) if (value !== undefined) whole.searchParams.set(name, value);
  whole.searchParams.sort();
  return whole.href;
}

async function resolved(values: Readonly<Record<string, Dynamic>>): Promise<[string, string][]> {
  const pairs = Object.entries(values).map(async ([name, value]): Promise<[string, string]> => [
    name,
    typeof value === "string" ? value : await value(),
  ]);
  return Promise.all(pairs);
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
  408: "request_timeout",
  410: "stream_gone",
  412: "tail_moved",
  413: "body_too_large",
  425: "too_many",
  429: "too_many",
};

const REFUSAL_BYTES_MAX = 64 * 1024;
const DETAIL_CHARS_MAX = 500;

/** Why the answer is a refusal; nothing if it is a good one, whose body is then dropped. */
export async function refusalIn(answer: ClientAnswer): Promise<HapaxError | undefined> {
  if (![200, 201, 204].includes(answer.status)) return refusalOf(answer);
  answer.discard();
  return undefined;
}

/** A refusal as a `HapaxError`: with the server's code if it is one of ours, else by status and headers. */
export async function refusalOf(answer: ClientAnswer): Promise<HapaxError> {
  return (await problemOf(answer)).error;
}

/** A refusal, and whether it is one of this project's own servers that speaks. PROTOCOL.md §10. */
export async function problemOf(
  answer: ClientAnswer,
): Promise<{ readonly error: HapaxError; readonly isOurs: boolean; readonly isCut: boolean }> {
  const { status } = answer;
  // A refusal whose words were cut is still this refusal.
  const bytes = await answer.bytes().catch(ifUnreachable);
  const isCut = "code" in bytes;
  const text = isCut ? "" : textOf(bytes.subarray(0, REFUSAL_BYTES_MAX));
  const { type, detail } = membersOf(text);
  const [, named = ""] = /^urn:hapax:error:(.+)/.exec(String(type)) ?? [];
  const isOurs = named !== "";
  const code = isErrorCode(named) ? named : codeOf(answer);
  const words = (typeof detail === "string" ? detail : text).slice(0, DETAIL_CHARS_MAX).trim();
  const error = new HapaxError(code, `${words || code} status=${status}`, { status });
  return { error, isOurs, isCut };
}

/** The members of a JSON object; none of anything else. */
export function membersOf(text: string): Readonly<Partial<Record<string, unknown>>> {
  try {
    // Cast: every value but null has members, if only unknown ones.
    return (JSON.parse(text) ?? {}) as Partial<Record<string, unknown>>;
  } catch {
    return {};
  }
}

function codeOf(answer: ClientAnswer): ErrorCode {
  const { status } = answer;
  if (status === 409) {
    if (says(answer, "stream-closed")) return "stream_closed";
    if (answer.header("producer-expected-seq") !== undefined) return "producer_gap";
    return "refused";
  }
  if (status === 403) {
    // A proxy may forbid as well; only a fence names the epoch that is in force.
    return answer.header("producer-epoch") === undefined ? "refused" : "producer_fenced";
  }
  return CODE_BY_STATUS[status] ?? (status >= 500 ? "internal" : "refused");
}
