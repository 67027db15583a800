/** Options of a connection. They are checked once; one error lists all problems. They never change. */

import { HapaxError } from "../base/error-codes.ts";
import { OptionsCheck } from "../base/options-check.ts";
import { clientClock, type Clock } from "../base/clock.ts";
import type { RetryOptions } from "../base/retry-options.ts";
import { type Random, systemRandom } from "../base/random.ts";
import { withToken } from "./token.ts";
import { fetchTransport, type Transport } from "./transport.ts";

/** A value, or a function that returns it. */
export type Dynamic = string | (() => string | Promise<string>);

/** The members of `RetryOptions` that a client uses. */
export type ClientRetry = Pick<RetryOptions, "pauseMs" | "pauseMsMax" | "totalMs">;

/** Options of `connect`. All are optional. */
export interface ClientOptions {
  /**
   * Sent as `Authorization: Bearer …`, to the origin of the URL and to no other. A function is called before the first request,
   * and again when the server answers 401; the request is then sent once more. A function that throws ends the call with
   * `unauthenticated`, and its message is in that error.
   */
  readonly token?: Dynamic | undefined;
  /** Sent with every request. A function is called before every attempt. */
  readonly headers?: Readonly<Record<string, Dynamic>>;
  /** Added to the query of every request. A function is called before every attempt. */
  readonly params?: Readonly<Record<string, Dynamic>>;
  /** Sends the requests. Default: `fetchTransport` of `fetch`. On Node, `hapax/client/node` has a faster one. */
  readonly transport?: Transport;
  /** The `fetch` of the default transport. Default: the platform's. */
  readonly fetch?: typeof fetch;
  readonly clock?: Clock;
  readonly random?: Random;
  /**
   * How a call is repeated that got no answer, or one that means "try again". Defaults: `pauseMs` 100, `pauseMsMax` 10,000,
   * `totalMs` 60,000 for each call. `totalMs: Infinity` never gives up.
   */
  readonly retry?: ClientRetry;
  /** The time for one attempt, to the end of its answer, in milliseconds. Default 30,000. */
  readonly timeoutMs?: number;
  /** The stream's media type, if you know it. Default: the client asks with `HEAD` before the first append. */
  readonly contentType?: string;
  /** How long the server remembers idempotency keys, in seconds, if the stream has no option. Default 86,400. */
  readonly keyWindowSeconds?: number;
  /** Ends all calls and readers of this connection. */
  readonly signal?: AbortSignal | undefined;
}

/** Options with their defaults. */
export interface ResolvedClientOptions {
  readonly headers: Readonly<Record<string, Dynamic>>;
  readonly params: Readonly<Record<string, Dynamic>>;
  readonly transport: Transport;
  readonly clock: Clock;
  readonly random: Random;
  readonly retry: Required<ClientRetry>;
  readonly timeoutMs: number;
  readonly contentType: string | undefined;
  readonly keyWindowSeconds: number;
  readonly signal: AbortSignal | undefined;
}

/** Checks the options and fills in the defaults. A token is sent to the origin of `url`. Throws `invalid_options`. */
export function resolveClientOptions(options: ClientOptions, url: string): ResolvedClientOptions {
  const check = new OptionsCheck(HapaxError);
  const { retry = {}, token } = options;
  const transport = options.transport ?? fetchTransport(options.fetch ?? platformFetch);
  const pauseMs = check.number("retry.pauseMs", retry.pauseMs, 100, 1);
  const resolved = {
    headers: options.headers ?? {},
    params: options.params ?? {},
    transport: token === undefined ? transport : withToken(transport, token, url),
    clock: options.clock ?? clientClock,
    random: options.random ?? systemRandom,
    retry: {
      totalMs: check.number("retry.totalMs", retry.totalMs, 60_000, 0),
      pauseMs,
      pauseMsMax: check.number(
        "retry.pauseMsMax",
        retry.pauseMsMax,
        Math.max(10_000, pauseMs),
        pauseMs,
      ),
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
