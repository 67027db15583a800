/** Options of a relay: checked once, all problems named together. */

import { type Clock, waitingClock } from "../../base/clock.ts";
import type { RetryPolicy } from "../rules/outbox.ts";
import { tellSafely } from "../../base/error-words.ts";
import { Check } from "../once/check.ts";
import { type Meter, noMeter } from "../meters/meter.ts";
import type { RetryOptions } from "../../base/retry-options.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import { DEFAULT_RELAY, isRelayName } from "./relay-state.ts";

/** What is deleted of events that every relay has published. */
export interface RelayCleanup {
  /** For how long they are kept, in milliseconds. Default 0. */
  readonly keepMs?: number;
  /** Default 60,000. */
  readonly everyMs?: number;
  /** At once. Default 1,000. */
  readonly batchMax?: number;
}

/** Options of `createRelay`. All are optional. */
export interface RelayOptions {
  /** Relays of one name share the work; every name gets all events. Default `relay`. */
  readonly name?: string;
  /** Where a relay begins that has never run. Default `beginning`. */
  readonly from?: "beginning" | "end";
  /** Events at once. Default 100. */
  readonly batchMax?: number;
  /** How long a relay that died keeps others waiting, in milliseconds. Default 30,000. */
  readonly leaseMs?: number;
  /** Keys at once, for publishers that send events one by one. Default 8. */
  readonly concurrency?: number;
  /**
   * How an event is tried again that could not be published; after the last attempt it is a dead letter. Defaults:
   * `attemptsMax` 10, `pauseMs` 500, `pauseMsMax` 60,000.
   */
  readonly retry?: Pick<RetryOptions, "attemptsMax" | "pauseMs" | "pauseMsMax">;
  /** Whether later events of a key wait for an operator when one is dead. Default `block`. */
  readonly afterDead?: "block" | "continue";
  /** How often it looks for events without a hint, in milliseconds. Default 1,000. */
  readonly pollMs?: number;
  /** `false`: nothing is deleted. */
  readonly cleanup?: RelayCleanup | false;
  /** Called with each error after which the relay tries again. Default: `console.error`. */
  readonly onError?: (error: unknown) => void;
  readonly meter?: Meter;
  readonly clock?: Clock;
  readonly random?: Random;
}

export interface ResolvedRelayOptions {
  readonly name: string;
  readonly from: "beginning" | "end";
  readonly batchMax: number;
  readonly leaseMs: number;
  readonly concurrency: number;
  readonly retry: RetryPolicy;
  readonly pollMs: number;
  readonly cleanup: Required<RelayCleanup> | undefined;
  readonly onError: (error: unknown) => void;
  readonly meter: Meter;
  readonly clock: Clock;
  readonly random: Random;
}

/** Throws `invalid_options`. */
export function resolveRelayOptions(options: RelayOptions): ResolvedRelayOptions {
  const check = new Check();
  const count = (
    name: string,
    value: number | undefined,
    fallback: number,
    max: number,
    min = 1,
  ): number => check.whole(name, value, fallback, min, max);
  const { retry = {}, cleanup = {}, name = DEFAULT_RELAY } = options;
  if (!isRelayName(name)) check.problem(`name=${name} is not 1 to 128 characters from ! to ~`);
  const pauseMs = count("retry.pauseMs", retry.pauseMs, 500, DAY_MS);
  const resolved: ResolvedRelayOptions = {
    name,
    from: options.from ?? "beginning",
    batchMax: count("batchMax", options.batchMax, 100, 10_000),
    leaseMs: count("leaseMs", options.leaseMs, 30_000, DAY_MS, 10),
    concurrency: count("concurrency", options.concurrency, 8, 1_000),
    retry: {
      pauseMs,
      pauseMsMax: count(
        "retry.pauseMsMax",
        retry.pauseMsMax,
        Math.max(60_000, pauseMs),
        DAY_MS,
        pauseMs,
      ),
      attemptsMax: count("retry.attemptsMax", retry.attemptsMax, 10, 1_000_000),
      afterDead: options.afterDead ?? "block",
    },
    pollMs: count("pollMs", options.pollMs, 1_000, DAY_MS),
    cleanup:
      cleanup === false
        ? undefined
        : {
            keepMs: count("cleanup.keepMs", cleanup.keepMs, 0, 3_660 * DAY_MS, 0),
            everyMs: count("cleanup.everyMs", cleanup.everyMs, 60_000, DAY_MS),
            batchMax: count("cleanup.batchMax", cleanup.batchMax, 1_000, 100_000),
          },
    onError: (error) => {
      tellSafely(options.onError ?? tell, error);
    },
    meter: guarded(options.meter ?? noMeter),
    // Its timers keep the process alive: a relay that waits is at work.
    clock: options.clock ?? waitingClock,
    random: options.random ?? systemRandom,
  };
  check.end();
  return Object.freeze(resolved);
}

const DAY_MS = 86_400_000;

function tell(error: unknown): void {
  console.error("the relay of an outbox goes on after an error:", error);
}

/** A meter that throws must not make a relay publish again. */
function guarded(meter: Meter): Meter {
  if (meter === noMeter) return meter;
  return {
    add: (...counted) => {
      tellSafely(() => meter.add(...counted), undefined);
    },
    set: (...gauged) => {
      tellSafely(() => meter.set(...gauged), undefined);
    },
  };
}
