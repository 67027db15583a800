/**
 * Sends one call until it has an answer.
 *
 *   - every attempt of a call sends the same method, bytes and headers of the call. Values of the options
 *     (tokens) are resolved anew before each;
 *   - an attempt without an answer, a timeout, 408, 425, 429 and 5xx are repeated after a pause that
 *     doubles with jitter and is never shorter than `Retry-After`; 501 and 505 are not;
 *   - a call ends at most one attempt after `retry.totalMs`: no pause begins that would outlast it;
 *   - an answer comes with the fact whether an earlier attempt may have been done.
 */

import { abortedBy, onAnyAbort } from "../base/aborts.ts";
import { backoffMs } from "../base/backoff.ts";
import { HapaxError, isErrorCode, isHapaxError } from "../base/error-codes.ts";
import type { ErrorCode } from "../base/errors.ts";
import { pause } from "../base/pause.ts";
import { repeat } from "../base/repeat.ts";
import { isRepeatable, retryAfterMs } from "../base/repeatable.ts";
import { decodeText } from "../base/bytes.ts";
import { says } from "./head.ts";
import type { Dynamic, ResolvedClientOptions } from "./options.ts";
import type { ClientAnswer } from "./transport.ts";
import { RequestAttempt } from "./request.ts";
import type { Visibility } from "./visibility.ts";
import { TrimmedFailure } from "./trimmed.ts";

/** One call: the data that all its attempts share. */
export interface Call {
  readonly method: string;
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | undefined;
  readonly signal?: AbortSignal | undefined;
  /** The time for one attempt, to the end of its body, in milliseconds. Default: that of the options. */
  readonly timeoutMs?: number;
  /** Ends the attempt when the page is hidden. */
  readonly visibility?: Visibility | undefined;
}

export interface Answered {
  readonly answer: ClientAnswer;
  /** An earlier attempt may have been done: it got no answer, or one that leaves that open. */
  readonly wasUnknown: boolean;
}

/** Sends the calls of one connection. */
export class Caller {
  declare readonly options: ResolvedClientOptions;

  constructor(options: ResolvedClientOptions) {
    this.options = options;
  }

  /** Calls `run` when the signal, or that of the connection, aborts; the returned function cancels it. */
  onAbort(signal: AbortSignal | undefined, run: () => void): () => void {
    return onAnyAbort([signal, this.options.signal], run);
  }

  /** Why the call or the connection was given up: the signal's own reason, or undefined. */
  abortedBy(signal: AbortSignal | undefined): Error | undefined {
    return abortedBy([signal, this.options.signal]);
  }

  /** Tries once. Rejects with `unreachable` if no answer came, and with the signal's reason if that aborts. */
  once(call: Call): Promise<ClientAnswer> {
    return new RequestAttempt(this, call).send();
  }

  /**
   * Repeats the same call until it gets a final answer, or until the time is over. Then it returns the last answer, or
   * throws `unreachable` if there was none.
   */
  async untilAnswered(call: Call): Promise<Answered> {
    const { clock, retry } = this.options;
    let wasUnknown = false;
    let error: unknown;
    const answer = await repeat(
      clock,
      retry.totalMs,
      () =>
        this.once(call).catch((thrown: unknown) => {
          error = ifUnreachable(thrown);
          return undefined;
        }),
      (heard, attempts) => {
        if (heard && !isRepeatable(heard.status)) return undefined;
        // No other answer leaves open what became of the call. PROTOCOL.md §10.
        wasUnknown ||= !heard || heard.status >= 500 || heard.status === 408;
        return this.pauseMs(attempts, heard);
      },
      (delayMs, heard) => {
        heard?.discard();
        return this.wait(delayMs, call.signal);
      },
    );
    if (!answer) throw error;
    return { answer, wasUnknown };
  }

  /** Waits the backoff for the n-th failure in a row; rejects if the signal aborts. */
  pause(failures: number, signal: AbortSignal | undefined): Promise<void> {
    return this.wait(this.pauseMs(failures), signal);
  }

  /** How long to wait after the n-th failure in a row: half the ceiling, and a random half. */
  pauseMs(failures: number, answer?: ClientAnswer): number {
    const { clock, random, retry } = this.options;
    const askedMs = retryAfterMs(answer?.header("retry-after"), clock.nowMs());
    return Math.max(backoffMs(failures, retry, random.unit()), askedMs);
  }

  /** Waits; rejects with the reason if the call or the connection is given up. */
  wait(delayMs: number, signal?: AbortSignal): Promise<void> {
    return pause(this.options.clock, delayMs, signal, this.options.signal);
  }

  /** Returns the headers and the URL of one attempt, with those of the options. */
  async dressed(call: Call): Promise<readonly [Readonly<Record<string, string>>, string]> {
    const { headers, params } = this.options;
    const added = Object.fromEntries(await resolved(headers));
    const url = withQuery(call.url, await resolved(params));
    return [{ ...added, ...call.headers }, url];
  }
}

/** Returns the error if it is `unreachable`; throws every other one. */
export function ifUnreachable(error: unknown): HapaxError {
  if (isHapaxError(error, "unreachable")) return error;
  throw error;
}

/** Returns the URL with more parameters, sorted, so that caches see one URL for one place. */
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

const CODE_BY_STATUS: Readonly<Record<number, ErrorCode>> = {
  400: "invalid_request",
  401: "unauthenticated",
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

/** Returns the error of a refusal. Returns undefined for a good answer, and drops its body. */
export async function refusalIn(answer: ClientAnswer): Promise<HapaxError | undefined> {
  if (![200, 201, 204].includes(answer.status)) return refusalOf(answer);
  answer.discard();
  return undefined;
}

/** Returns a refusal as a `HapaxError`: with the server's code if it is one of ours, else by status and headers. */
export async function refusalOf(answer: ClientAnswer): Promise<HapaxError> {
  return (await answeredRefusal(answer)).error;
}

/** Returns a refusal, and whether a Hapax server sent it. PROTOCOL.md §10. */
export async function answeredRefusal(
  answer: ClientAnswer,
): Promise<{ readonly error: HapaxError; readonly isOurs: boolean; readonly isCut: boolean }> {
  const { status } = answer;
  // A refusal whose body was cut is still a refusal.
  const bytes = await answer.bytes().catch(ifUnreachable);
  const isCut = "code" in bytes;
  const text = isCut ? "" : decodeText(bytes.subarray(0, REFUSAL_BYTES_MAX));
  const { type, detail } = membersOf(text);
  const [, named = ""] = /^urn:hapax:error:(.+)/.exec(String(type)) ?? [];
  const isOurs = named !== "";
  const code = isErrorCode(named) ? named : codeOf(answer);
  const words = (typeof detail === "string" ? detail : text).slice(0, DETAIL_CHARS_MAX).trim();
  const message = `${words || code} status=${status}`;
  const earliest = answer.header("stream-earliest-offset");
  const error =
    code === "offset_trimmed" && earliest !== undefined
      ? new TrimmedFailure(message, earliest)
      : new HapaxError(code, message, { status });
  return { error, isOurs, isCut };
}

/** Returns the members of a JSON object; an empty object for any other text. */
export function membersOf(text: string): Readonly<Partial<Record<string, unknown>>> {
  try {
    // Cast: every value but null can be asked for members; each of them is unknown.
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
    // Only a fence has the header with the present epoch.
    return answer.header("producer-epoch") === undefined ? "not_allowed" : "producer_fenced";
  }
  return CODE_BY_STATUS[status] ?? (status >= 500 ? "internal" : "refused");
}
