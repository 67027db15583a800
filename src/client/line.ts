/**
 * The line of one reader to its server: it sends requests, counts failures, and decides when to give up.
 *
 *   - a failure that another try may cure (no answer, a body that was cut, 408, 425, 429, 5xx but 501 and 505) is
 *     tried again, each time after a longer pause; any other failure is thrown at once, with its code;
 *   - an outage that lasts longer than the patience is thrown, and no pause begins that would outlast it. An
 *     outage begins with a failure and ends with a live answer or a page with data. The time between two
 *     failures counts at most a quarter: a machine that slept tries again before it gives up;
 *   - a request that is silent for too long is given up: half-open connections block no reader.
 *
 * The transport must reject a body that ends early; `fetch` does.
 */

import type { Clock } from "../base/clock.ts";
import { type HapaxError, isHapaxError } from "../base/errors.ts";
import { isRepeatable } from "../base/repeatable.ts";
import { type Caller, refusalOf, withQuery } from "./attempt.ts";
import { deferred } from "./deferred.ts";
import { RequestAttempt } from "./request.ts";
import type { ClientAnswer } from "./transport.ts";
import { TrimmedFailure } from "./trimmed.ts";
import type { Visibility } from "./visibility.ts";

/** Servers answer a long-poll and recycle SSE within about 60 s: longer silence means a dead connection. */
export const SILENCE_MS_MAX = 90_000;

/** The share of the patience that the time between two failures can take: so there are five failures at least. */
const LAP_SHARE = 1 / 4;

/**
 * A failure that the reader tries again. `onReconnect` gets it.
 *
 * ```ts
 * import { connect } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * let failures = 1;
 * const stream = connect(`${server.url}/v1/stream/orders`, {
 *   // The first read gets no answer.
 *   fetch: (url, init) =>
 *     init?.method === "GET" && (failures -= 1) >= 0
 *       ? Promise.reject(new Error("cut"))
 *       : fetch(url, init),
 * });
 * await stream.create();
 * await stream.append(1);
 *
 * const reasons: string[] = [];
 * const reading = stream.read({ onReconnect: ({ error }) => reasons.push(error.code) });
 * console.assert((await reading.values()).length === 1 && reasons.join() === "unreachable");
 * await server.stop();
 * ```
 */
export interface Reconnect {
  /** The failure, with its code. */
  readonly error: HapaxError;
  /** Failures in a row, from 1. */
  readonly failures: number;
  /** The offset at which the reader goes on. It does not get earlier records again. */
  readonly offset: string;
}

/** A failure that another try may cure, like every `unreachable`. Never leaves this folder. */
export class Interruption extends Error {
  declare readonly error: HapaxError;
  declare readonly answer: ClientAnswer | undefined;

  constructor(error: HapaxError, answer?: ClientAnswer) {
    super(error.message);
    this.error = error;
    this.answer = answer;
  }
}

/** Options of a line. */
export interface LineOptions {
  readonly signal?: AbortSignal | undefined;
  /** How long an outage may last, in milliseconds. Default: as long as any call of this client. */
  readonly patienceMs?: number | undefined;
  readonly visibility?: Visibility | undefined;
  readonly onReconnect?: ((reconnect: Reconnect) => void) | undefined;
  readonly onTrimmed?: "fail" | "skip" | undefined;
}

/** Sends the requests of one reader and counts their failures. */
export class Line {
  declare readonly clock: Clock;
  readonly #caller: Caller;
  readonly #url: string;
  readonly #options: LineOptions;
  #failures = 0;
  #outageMs = 0;
  #lastFailureMs = 0;

  constructor(caller: Caller, url: string, options: LineOptions) {
    this.#caller = caller;
    this.#url = url;
    this.#options = options;
    this.clock = caller.options.clock;
  }

  /** Whether the page is hidden. */
  get isHidden(): boolean {
    return this.#options.visibility?.isHidden() === true;
  }

  /** Begins one request, which its owner ends. A live one also ends when the page is hidden. */
  begin(query: Readonly<Record<string, string | undefined>>): RequestAttempt {
    const { signal, visibility } = this.#options;
    return new RequestAttempt(this.#caller, {
      method: "GET",
      url: withQuery(this.#url, Object.entries(query)),
      signal,
      timeoutMs: SILENCE_MS_MAX,
      visibility: query["live"] === undefined ? undefined : visibility,
    });
  }

  /** Sends it. Resolves for a good status. Throws an `Interruption` if another try may cure it, else the refusal. */
  async get(attempt: RequestAttempt, alsoGood: readonly number[] = []): Promise<void> {
    const { status } = await attempt.send();
    if ([200, 204, ...alsoGood].includes(status)) return;
    const error = await refusalOf(attempt);
    const isOver = !isRepeatable(status) || error.retry === "never";
    throw isOver ? error : new Interruption(error, attempt);
  }

  /** Moves a place that was trimmed to where the stream begins, if the reader asked for that. */
  skips(error: unknown, place: { offset: string; upToDate: boolean }): boolean {
    if (this.#options.onTrimmed !== "skip" || !(error instanceof TrimmedFailure)) return false;
    place.offset = error.earliestOffset;
    place.upToDate = false;
    return true;
  }

  /** Ends the outage: a live answer or data has come. */
  restored(): void {
    this.#failures = 0;
    this.#outageMs = 0;
  }

  /**
   * Counts a failure, reports it, and waits, as after at least `count` failures. Throws the failure if no other
   * try can cure it, or if the outage is too long.
   */
  async recover(reason: unknown, offset: string, count = 0): Promise<void> {
    this.throwIfAborted();
    if (!isCurable(reason)) throw reason;
    const { error, answer } = reason instanceof Interruption ? reason : { error: reason };
    const { patienceMs = this.#caller.options.retry.totalMs, onReconnect } = this.#options;
    const nowMs = this.clock.steadyMs();
    const lapMs = this.#failures === 0 ? 0 : nowMs - this.#lastFailureMs;
    this.#outageMs += Math.min(lapMs, patienceMs * LAP_SHARE);
    this.#lastFailureMs = nowMs;
    this.#failures += 1;
    const pauseMs = this.#caller.pauseMs(Math.max(this.#failures, count), answer);
    if (this.#outageMs + pauseMs > patienceMs) throw error;
    onReconnect?.({ error, failures: this.#failures, offset });
    await this.#caller.wait(pauseMs, this.#options.signal);
  }

  /** Pauses; the time grows with the count. */
  async rest(count: number): Promise<void> {
    await this.#caller.pause(count, this.#options.signal);
  }

  throwIfAborted(): void {
    // Throws the reason unchanged, also if it is not an error: the caller compares it.
    for (const one of [this.#options.signal, this.#caller.options.signal]) one?.throwIfAborted();
  }

  /** Resolves when the page is visible. */
  async untilVisible(): Promise<void> {
    const { signal, visibility } = this.#options;
    while (this.isHidden) {
      this.throwIfAborted();
      const { promise, resolve } = deferred<void>();
      const forget = visibility?.onChange(resolve);
      const unlisten = this.#caller.onAbort(signal, resolve);
      await promise;
      forget?.();
      unlisten();
    }
    this.throwIfAborted();
  }
}

export function isCurable(reason: unknown): reason is Interruption | HapaxError {
  return reason instanceof Interruption || isHapaxError(reason, "unreachable");
}
