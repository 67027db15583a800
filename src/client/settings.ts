/** Settings of a connection: checked once, all problems named together, then never changed. */

import { type Clock, waitingClock } from "../base/clock.ts";
import { HapaxError } from "../base/errors.ts";
import { type Random, systemRandom } from "../base/random.ts";
import { fetchTransport, type Transport } from "./transport.ts";

/** A value, or a function that is asked for it before every attempt: a token that is refreshed. */
export type Dynamic = string | (() => string | Promise<string>);

/** How long and how often a call is repeated that got no answer, or one that says "again". */
export interface RetrySettings {
  /** All attempts and pauses of one call, in milliseconds. Default 60,000; `Infinity` never gives up. */
  readonly totalMs?: number;
  /** The first pause, in milliseconds; it doubles with each failure. Default 100. */
  readonly minMs?: number;
  /** The longest pause, in milliseconds. Default 10,000. `Retry-After` may ask for more. */
  readonly maxMs?: number;
}

/** Settings of `connect`. All are optional. */
export interface ClientSettings {
  /** Sent with every request. */
  readonly headers?: Readonly<Record<string, Dynamic>>;
  /** Added to the query of every request. */
  readonly params?: Readonly<Record<string, Dynamic>>;
  /** How requests travel. Default: `fetchTransport` of `fetch`. On Node `hapax/client/node` has a faster one. */
  readonly transport?: Transport;
  /** Used by the default transport. Default: the platform's. */
  readonly fetch?: typeof fetch;
  readonly clock?: Clock;
  readonly random?: Random;
  readonly retry?: RetrySettings;
  /** One attempt, in milliseconds, until its whole answer is there. Default 30,000. */
  readonly timeoutMs?: number;
  /** The stream's media type, if it is known. Default: asked for with `HEAD` before the first append. */
  readonly contentType?: string;
  /** How long the server remembers idempotency keys, in seconds, unless the stream says so. Default 86,400. */
  readonly keyWindowSeconds?: number;
  /** Ends everything that this connection does. */
  readonly signal?: AbortSignal | undefined;
}

/** Settings with their defaults. */
export interface ResolvedClientSettings {
  readonly headers: Readonly<Record<string, Dynamic>>;
  readonly params: Readonly<Record<string, Dynamic>>;
  readonly transport: Transport;
  readonly clock: Clock;
  readonly random: Random;
  readonly retry: Required<RetrySettings>;
  readonly timeoutMs: number;
  readonly contentType: string | undefined;
  readonly keyWindowSeconds: number;
  readonly signal: AbortSignal | undefined;
}

/** Collects what is wrong with settings, so that all of it is said at once. */
export class SettingsCheck {
  readonly #problems: string[] = [];

  /** The value or its default; a problem if it is not a number from `min` to `max`. */
  number(name: string, value: number | undefined, fallback: number, min: number, max = Infinity) {
    const chosen = value ?? fallback;
    if (!(chosen >= min && chosen <= max)) {
      this.problem(`${name}=${chosen} is not from ${min} to ${max}`);
    }
    return chosen;
  }

  problem(text: string): void {
    this.#problems.push(text);
  }

  /** Throws `invalid_settings` if there was a problem. */
  end(): void {
    if (this.#problems.length > 0) {
      throw new HapaxError("invalid_settings", this.#problems.join("; "));
    }
  }
}

/** Checks the settings and fills in the defaults. Throws `invalid_settings`. */
export function resolveClientSettings(settings: ClientSettings = {}): ResolvedClientSettings {
  const check = new SettingsCheck();
  const { retry = {} } = settings;
  const minMs = check.number("retry.minMs", retry.minMs, 100, 1);
  const resolved = {
    headers: settings.headers ?? {},
    params: settings.params ?? {},
    transport: settings.transport ?? fetchTransport(settings.fetch ?? platformFetch),
    clock: settings.clock ?? waitingClock,
    random: settings.random ?? systemRandom,
    retry: {
      totalMs: check.number("retry.totalMs", retry.totalMs, 60_000, 0),
      minMs,
      maxMs: check.number("retry.maxMs", retry.maxMs, Math.max(10_000, minMs), minMs),
    },
    timeoutMs: check.number("timeoutMs", settings.timeoutMs, 30_000, 1),
    contentType: settings.contentType,
    keyWindowSeconds: check.number("keyWindowSeconds", settings.keyWindowSeconds, 86_400, 1),
    signal: settings.signal,
  };
  check.end();
  return Object.freeze(resolved);
}

// Looked up at each call: some platforms refuse `fetch` under another `this`, and tests replace it.
const platformFetch: typeof fetch = (input, init) => globalThis.fetch(input, init);
