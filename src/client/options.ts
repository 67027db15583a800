/** Options of a connection. They are checked once; one error lists all problems. They never change. */

import { OptionsCheck } from "../base/options-check.ts";
import { type Clock, waitingClock } from "../base/clock.ts";
import { type Random, systemRandom } from "../base/random.ts";
import { fetchTransport, type Transport } from "./transport.ts";

/** A value, or a function that returns it before every attempt, such as a token that is refreshed. */
export type Dynamic = string | (() => string | Promise<string>);

/** Says how long and how often a call is repeated that got no answer, or one that means "try again". */
export interface RetryOptions {
  /** The time for all attempts and pauses of one call, in milliseconds. Default 60,000; `Infinity` never gives up. */
  readonly totalMs?: number;
  /** The first pause, in milliseconds. It doubles with each failure. Default 100. */
  readonly minMs?: number;
  /** The longest pause, in milliseconds. Default 10,000. `Retry-After` may ask for more. */
  readonly maxMs?: number;
}

/** Options of `connect`. All are optional. */
export interface ClientOptions {
  /** Sent with every request. */
  readonly headers?: Readonly<Record<string, Dynamic>>;
  /** Added to the query of every request. */
  readonly params?: Readonly<Record<string, Dynamic>>;
  /** Sends the requests. Default: `fetchTransport` of `fetch`. On Node, `hapax/client/node` has a faster one. */
  readonly transport?: Transport;
  /** The `fetch` of the default transport. Default: the platform's. */
  readonly fetch?: typeof fetch;
  readonly clock?: Clock;
  readonly random?: Random;
  readonly retry?: RetryOptions;
  /** The time for one attempt, to the end of its answer, in milliseconds. Default 30,000. */
  readonly timeoutMs?: number;
  /** The stream's media type, if you know it. Default: the client asks with `HEAD` before the first append. */
  readonly contentType?: string;
  /** How long the server remembers idempotency keys, in seconds, if the stream has no option. Default 86,400. */
  readonly keyWindowSeconds?: number;
  /** Ends everything that this connection does. */
  readonly signal?: AbortSignal | undefined;
}

/** Options with their defaults. */
export interface ResolvedClientOptions {
  readonly headers: Readonly<Record<string, Dynamic>>;
  readonly params: Readonly<Record<string, Dynamic>>;
  readonly transport: Transport;
  readonly clock: Clock;
  readonly random: Random;
  readonly retry: Required<RetryOptions>;
  readonly timeoutMs: number;
  readonly contentType: string | undefined;
  readonly keyWindowSeconds: number;
  readonly signal: AbortSignal | undefined;
}

/** Checks the options and fills in the defaults. Throws `invalid_options`. */
export function resolveClientOptions(options: ClientOptions = {}): ResolvedClientOptions {
  const check = new OptionsCheck();
  const { retry = {} } = options;
  const minMs = check.number("retry.minMs", retry.minMs, 100, 1);
  const resolved = {
    headers: options.headers ?? {},
    params: options.params ?? {},
    transport: options.transport ?? fetchTransport(options.fetch ?? platformFetch),
    clock: options.clock ?? waitingClock,
    random: options.random ?? systemRandom,
    retry: {
      totalMs: check.number("retry.totalMs", retry.totalMs, 60_000, 0),
      minMs,
      maxMs: check.number("retry.maxMs", retry.maxMs, Math.max(10_000, minMs), minMs),
    },
    timeoutMs: check.number("timeoutMs", options.timeoutMs, 30_000, 1),
    contentType: options.contentType,
    keyWindowSeconds: check.number("keyWindowSeconds", options.keyWindowSeconds, 86_400, 1),
    signal: options.signal,
  };
  check.end();
  return Object.freeze(resolved);
}

// Looks `fetch` up at each call: some platforms refuse it under another `this`, and tests replace it.
const platformFetch: typeof fetch = (input, init) => globalThis.fetch(input, init);
