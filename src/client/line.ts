/**
 * The line of one reader to its server: requests, their failures, and the patience with them.
 *
 *   LI1  what another try may cure (no answer, a body that was cut, 408, 425, 429, 5xx but 501 and 505) is tried
 *        again, each time after a longer pause; what it cannot cure is thrown at once, with its code;
 *   LI2  an outage that lasts longer than the patience is thrown, and no pause begins that would outlast it. An
 *        outage begins with a failure and ends with a live answer or a page with data. The time between two
 *        failures counts at most a quarter: a machine that slept tries again before it gives up;
 *   LI3  a request that says nothing for too long is given up: half-open connections hold nobody.
 *
 * The transport must reject a body that ends early; `fetch` does.
 */

import type { Clock } from "../clock.ts";
import { HapaxError, isHapaxError } from "../errors.ts";
import { type Caller, isRetryable, refusalOf } from "./attempt.ts";
import type { ClientAnswer } from "./transport.ts";
import type { Visibility } from "./visibility.ts";

/** Servers answer a long-poll and recycle SSE within about 60 s: more silence is a dead connection. */
export const SILENCE_MS_MAX = 90_000;

/** How much of the patience the time between two failures can take: five failures at least. */
const LAP_SHARE = 1 / 4;

/** A failure that a reader was told of and that is being tried again. */
export interface Reconnect {
  /** What went wrong, with its code. */
  readonly error: HapaxError;
  /** Failures in a row, from 1. */
  readonly failures: number;
  /** Where the reader goes on: nothing before it comes again. */
  readonly offset: string;
}

/** Something that another try may cure. Never leaves this folder. */
export class Interruption extends Error {
  override readonly name = "Interruption";
  readonly error: HapaxError;
  readonly answer: ClientAnswer | undefined;

  constructor(error: HapaxError, answer?: ClientAnswer) {
    super(error.message, { cause: error });
    this.error = error;
    this.answer = answer;
  }
}

/** Ends one request: by its owner, the user's signal, silence, or a hidden page. */
export interface Guard {
  readonly signal: AbortSignal;
  /** Gives the request so much time from now, instead of what it had. */
  arm(delayMs: number): void;
  /** It may take any time: the other side is not what is waited for. */
  disarm(): void;
  /** Whether its time was over. */
  readonly isSilent: boolean;
  /** Whether it was ended because nobody sees the page. */
  readonly isHidden: boolean;
  /** Ends the request if it is still under way. */
  end(): void;
}

/** What a line is for. */
export interface LineSettings {
  readonly signal?: AbortSignal | undefined;
  /** How long an outage may last. Default: as long as any call of this client. */
  readonly patienceMs?: number | undefined;
  readonly visibility?: Visibility | undefined;
  readonly onReconnect?: ((reconnect: Reconnect) => void) | undefined;
}

/** Sends the requests of one reader and counts what goes wrong. */
export class Line {
  readonly clock: Clock;
  readonly visibility: Visibility | undefined;
  readonly #caller: Caller;
  readonly #url: string;
  readonly #signal: AbortSignal | undefined;
  readonly #patienceMs: number;
  readonly #onReconnect: ((reconnect: Reconnect) => void) | undefined;
  #failures = 0;
  #outageMs = 0;
  #lastFailureMs = 0;

  constructor(caller: Caller, url: string, settings: LineSettings) {
    this.#caller = caller;
    this.#url = url;
    this.clock = caller.settings.clock;
    this.#signal = settings.signal;
    this.#patienceMs = settings.patienceMs ?? caller.settings.retry.totalMs;
    this.visibility = settings.visibility;
    this.#onReconnect = settings.onReconnect;
  }

  /** One request, one answer with a good status. Throws `Interruption` or what cannot be cured. */
  async get(
    query: Readonly<Record<string, string>>,
    guard: Guard,
    alsoGood?: ReadonlySet<number>,
  ): Promise<ClientAnswer> {
    const url = withQuery(this.#url, query);
    // The guard knows better than a fixed time how long a live read may take.
    const call = { method: "GET", url, signal: guard.signal, timeoutMs: Infinity };
    const answer = await this.taken(this.#caller.once(call), guard);
    const { status } = answer;
    if (status === 200 || status === 204 || alsoGood?.has(status) === true) return answer;
    const error = await this.taken(refusalOf(answer), guard);
    if (isRetryable(status) && error.retry !== "never") {
      throw new Interruption(error, answer);
    }
    throw error;
  }

  /** What comes over the network; its failures are interruptions. */
  async taken<R>(promise: Promise<R>, guard: Guard): Promise<R> {
    try {
      return await promise;
    } catch (error) {
      throw this.#lost(error, guard);
    }
  }

  #lost(error: unknown, guard: Guard): unknown {
    this.throwIfAborted();
    if (isHapaxError(error)) return error.code === "unreachable" ? new Interruption(error) : error;
    const why = guard.isSilent ? "nothing was heard for too long" : "the connection was lost";
    return new Interruption(new HapaxError("unreachable", why, { cause: error }));
  }

  /** LI3. With `isLive` it also ends when the page is hidden. */
  guard(isLive: boolean): Guard {
    const controller = new AbortController();
    const parent = this.#signal;
    let cancel = (): void => undefined;
    let isSilent = false;
    let isHidden = false;
    const abort = (): void => {
      controller.abort(parent?.aborted === true ? parent.reason : undefined);
    };
    const visibility = isLive ? this.visibility : undefined;
    const forget = visibility?.onChange(() => {
      if (!visibility.isHidden()) return;
      isHidden = true;
      abort();
    });
    parent?.addEventListener("abort", abort, { once: true });
    if (parent?.aborted === true) abort();
    return {
      signal: controller.signal,
      get isSilent() {
        return isSilent;
      },
      get isHidden() {
        return isHidden;
      },
      arm: (delayMs) => {
        cancel();
        cancel = this.clock.after(delayMs, () => {
          isSilent = true;
          abort();
        });
      },
      disarm: () => {
        cancel();
      },
      end() {
        cancel();
        forget?.();
        parent?.removeEventListener("abort", abort);
        controller.abort();
      },
    };
  }

  /** A live answer or data has come: the outage is over. */
  restored(): void {
    this.#failures = 0;
    this.#outageMs = 0;
  }

  /**
   * LI1 LI2: counts a failure, tells of it, and waits, as after at least `count` failures. Throws what the
   * outage is about when it is too long.
   */
  async recover({ error, answer }: Interruption, offset: string, count = 0): Promise<void> {
    const patienceMs = this.#patienceMs;
    const nowMs = this.clock.steadyMs();
    const lapMs = this.#failures === 0 ? 0 : nowMs - this.#lastFailureMs;
    this.#outageMs += Math.min(lapMs, patienceMs * LAP_SHARE);
    this.#lastFailureMs = nowMs;
    this.#failures += 1;
    const pauseMs = this.#caller.pauseMs(Math.max(this.#failures, count), answer);
    if (this.#outageMs + pauseMs > patienceMs) throw error;
    this.#onReconnect?.({ error, failures: this.#failures, offset });
    await this.#caller.wait(pauseMs, this.#signal);
  }

  /** A pause that grows with the count. */
  async rest(count: number): Promise<void> {
    await this.#caller.pause(count, undefined, this.#signal);
  }

  throwIfAborted(): void {
    this.#signal?.throwIfAborted();
    this.#caller.settings.signal?.throwIfAborted();
  }

  /** Resolves when the page can be seen. */
  async untilVisible(): Promise<void> {
    const { visibility } = this;
    if (visibility === undefined || !visibility.isHidden()) return;
    const signal = this.#signal;
    let forget = (): void => undefined;
    let stop = (): void => undefined;
    await new Promise<void>((resolve) => {
      stop = resolve;
      forget = visibility.onChange(() => {
        if (!visibility.isHidden()) resolve();
      });
      signal?.addEventListener("abort", stop, { once: true });
      if (signal?.aborted === true) resolve();
    });
    forget();
    signal?.removeEventListener("abort", stop);
    signal?.throwIfAborted();
  }
}

/** Sorted, so that caches see one URL for one place. */
function withQuery(url: string, query: Readonly<Record<string, string>>): string {
  const whole = new URL(url);
  for (const [name, value] of Object.entries(query)) whole.searchParams.set(name, value);
  whole.searchParams.sort();
  return whole.href;
}

/** Whether a header says `true`, in any case. */
export function says(answer: ClientAnswer, name: string): boolean {
  return answer.header(name)?.toLowerCase() === "true";
}
