/** Options of a caller. They are checked once; one error lists all problems. */

import { IDEMPOTENCY_KEY } from "../../protocol/header-names.ts";
import { type Clock, waitingClock } from "../../base/clock.ts";
import { Check } from "../once/check.ts";
import type { RetryOptions } from "../../base/retry-options.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import type { KeyStore } from "./key-store.ts";

/** Options of `createIdempotentFetch`. */
export interface IdempotentFetchOptions {
  readonly store: KeyStore;
  /**
   * How long the server remembers keys, in milliseconds: see the documentation of the API. No default: a wrong guess could
   * make duplicates.
   */
  readonly windowMs: number;
  /**
   * How one call is repeated. Defaults: `attemptsMax` 10, `pauseMs` 100, `pauseMsMax` 10,000, `totalMs` 60,000. `totalMs` is at
   * most 0.8 of the window.
   */
  readonly retry?: RetryOptions;
  /** The time for one attempt, to the end of its answer, in milliseconds. Default 30,000; at most 0.2 of the window. */
  readonly timeoutMs?: number;
  /**
   * How long the server may wait with its answer while the work of the same key runs, in milliseconds. Sent as
   * `Prefer: wait`; 0 sends no header. A browser sends it only to the page's own origin, because other origins would have to
   * allow it. Default 10,000, and never more than half of `timeoutMs`.
   */
  readonly waitMs?: number;
  /** The name of the header with the key. Default `Idempotency-Key`. */
  readonly keyHeader?: string;
  /** `quoted` (default): `"key"`, as in the IETF draft. `bare`: for servers that take the quotes as part of the key. */
  readonly keySyntax?: "quoted" | "bare";
  /** The function that sends. Default: the platform's `fetch`. */
  readonly fetch?: typeof fetch;
  readonly clock?: Clock;
  readonly random?: Random;
}

export interface ResolvedFetchOptions {
  readonly store: KeyStore;
  readonly windowMs: number;
  readonly retry: Required<RetryOptions>;
  readonly timeoutMs: number;
  readonly waitMs: number;
  readonly keyHeader: string;
  readonly keySyntax: "quoted" | "bare";
  readonly fetch: typeof fetch;
  readonly clock: Clock;
  readonly random: Random;
}

/** A year, as in the server's own windows. */
const WINDOW_MS_MAX = 366 * 86_400_000;
/** The dates of HTTP have whole seconds. */
const WINDOW_MS_MIN = 1000;
const ATTEMPTS_MAX = 1_000_000;
/** The share of the window that a call may take, and the share that its last attempt may need to arrive. */
const PATIENCE_SHARE = 0.8;
const TIMEOUT_SHARE = 0.2;

/** Checks the options and adds the defaults. Throws `invalid_options`. */
export function resolveFetchOptions(options: IdempotentFetchOptions): ResolvedFetchOptions {
  const check = new Check();
  const { retry = {} } = options;
  const windowMs = check.whole("windowMs", options.windowMs, 0, WINDOW_MS_MIN, WINDOW_MS_MAX);
  const pauseMs = check.whole("retry.pauseMs", retry.pauseMs, 100, 1, WINDOW_MS_MAX);
  const patienceMs = Math.floor(windowMs * PATIENCE_SHARE);
  const longestMs = Math.floor(windowMs * TIMEOUT_SHARE);
  const { keyHeader = IDEMPOTENCY_KEY, keySyntax = "quoted" } = options;
  if (!/^[\w!#$%&'*+.^`|~-]{1,64}$/.test(keyHeader)) {
    check.problem(`keyHeader=${keyHeader} is not the name of a header`);
  }
  if (keySyntax !== "quoted" && keySyntax !== "bare") {
    check.problem(`keySyntax=${String(keySyntax)} is neither quoted nor bare`);
  }
  const totalMs = Math.min(60_000, patienceMs);
  const timeoutMs = check.whole(
    "timeoutMs",
    options.timeoutMs,
    Math.min(30_000, longestMs),
    1,
    longestMs,
  );
  const waitMsMax = Math.floor(timeoutMs / 2);
  const resolved: ResolvedFetchOptions = {
    store: options.store,
    windowMs,
    retry: {
      pauseMs,
      pauseMsMax: check.whole(
        "retry.pauseMsMax",
        retry.pauseMsMax,
        Math.max(10_000, pauseMs),
        pauseMs,
        WINDOW_MS_MAX,
      ),
      totalMs: check.whole("retry.totalMs", retry.totalMs, totalMs, 0, patienceMs),
      attemptsMax: check.whole("retry.attemptsMax", retry.attemptsMax, 10, 1, ATTEMPTS_MAX),
    },
    timeoutMs,
    waitMs: check.whole("waitMs", options.waitMs, Math.min(10_000, waitMsMax), 0, waitMsMax),
    keyHeader,
    keySyntax,
    fetch: options.fetch ?? platformFetch,
    clock: options.clock ?? waitingClock,
    random: options.random ?? systemRandom,
  };
  check.end();
  return Object.freeze(resolved);
}

// Looks `fetch` up at each call: some platforms refuse it under another `this`, and tests replace it.
const platformFetch: typeof fetch = (input, init) => globalThis.fetch(input, init);
