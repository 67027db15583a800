/** The options of a relay. They are checked once; one error names all problems. */

import { type Clock, waitingClock } from "../../base/clock.ts";
import type { RetryPolicy } from "../rules/outbox.ts";
import { tellSafely } from "../../base/error-words.ts";
import { Check } from "../once/check.ts";
import { type Meter, noMeter } from "../meters/meter.ts";
import type { RetryOptions } from "../../base/retry-options.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import { DEFAULT_RELAY, isRelayName } from "./relay-state.ts";

/** How a relay deletes events that every relay has published. */
export interface RelayCleanup {
  /** How long published events are kept, in milliseconds. Default 0: they are deleted with the next cleaning. */
  readonly keepMs?: number;
  /** The time between two cleanings, in milliseconds. Default 60,000. */
  readonly everyMs?: number;
  /** The most events that one cleaning deletes in one transaction. Default 1,000. */
  readonly batchMax?: number;
}

/** Options of `createRelay`. All are optional. */
export interface RelayOptions {
  /** The name of the relay. Relays with the same name share the work; each name gets all events. Default `relay`. */
  readonly name?: string;
  /** Where a relay starts when it runs for the first time. Default `beginning`. */
  readonly from?: "beginning" | "end";
  /** The most events of one batch. Default 100. */
  readonly batchMax?: number;
  /** How long others wait before they take over from a relay that died, in milliseconds. Default 30,000. */
  readonly leaseMs?: number;
  /** How many keys a publisher serves at once if it sends events one by one. Default 8. */
  readonly concurrency?: number;
  /**
   * How an event that could not be published is tried again. After the last attempt it becomes a dead letter. Defaults:
   * `attemptsMax` 10, `pauseMs` 500, `pauseMsMax` 60,000.
   */
  readonly retry?: Pick<RetryOptions, "attemptsMax" | "pauseMs" | "pauseMsMax">;
  /**
   * What happens to the later events of a key when one of them becomes a dead letter. `block` (default): they wait
   * until an operator replays or discards it. `continue`: they are published.
   */
  readonly afterDead?: "block" | "continue";
  /** How often the relay looks for events if the database gives no hint, in milliseconds. Default 1,000. */
  readonly pollMs?: number;
  /** How published events are deleted. `false`: this relay deletes nothing. */
  readonly cleanup?: RelayCleanup | false;
  /** Called with every error after which the relay tries again. Default: `console.error`. */
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

/** Wraps a meter: an error of the meter must not make the relay publish a batch again. */
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
