/** The options of a window, and their limits. */

import { type Clock, systemClock, waitingClock } from "../../base/clock.ts";
import type { Digest } from "../../base/digest.ts";
import { platformDigest } from "../../base/platform-digest.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import { type Meter, noMeter } from "../meters/meter.ts";
import { Check } from "../once/check.ts";
import type { WindowBounds } from "../rules/window.ts";
import type { WindowLog } from "./log.ts";
import type { WindowObjects } from "./objects.ts";

/** The lease of a writer. What `acquireLease` of `hapax/ledger` returns is one. */
export interface WriterLease {
  readonly token: number;
  readonly signal: AbortSignal;
}

/** Options of `openWindow`. `log` and `snapshots` are required; all others have defaults. */
export interface WindowOptions {
  /** The log that the window writes to. */
  readonly log: WindowLog;
  /** Where the window keeps its snapshots: any store of objects, also the one that has the log. */
  readonly snapshots: WindowObjects;
  /** A lease that you hold for this log. Without one the log alone decides: the program that opened it last can write. */
  readonly writer?: WriterLease;
  /** How long an id is remembered, in milliseconds of log time, which stands still while nothing is written. Default 10 min. */
  readonly durationMs?: number;
  /** How many ids are remembered. The oldest is forgotten first. An id needs about 60 bytes. Default 100,000. */
  readonly keysMax?: number;
  /** How many writes may be unconfirmed at a time. Default 1,000. */
  readonly pendingMax?: number;
  /** How many bytes unconfirmed writes may have together. Default 64 MiB. */
  readonly pendingBytesMax?: number;
  /** What a write does when too many are unconfirmed: it waits, or throws `too_many`. Default `wait`. */
  readonly onFull?: "wait" | "refuse";
  /**
   * What a write does whose id is unknown and so old that the window may have forgotten it: `refuse` throws `key_expired`,
   * `accept` stores it as a new one. Only ids with a time can be found too old: see `sentAtMs`. Default `refuse`.
   */
  readonly onExpired?: "refuse" | "accept";
  /** How far the clocks of senders may be ahead of this one, in milliseconds. Default 1 s. */
  readonly clockSkewMs?: number;
  /** How long a write waits for its outcome before it throws `unreachable`, in milliseconds. Default 30 s. */
  readonly timeoutMs?: number;
  /** How many entries a batch may have. Writes that come while a batch is being stored are the next batch. Default 1,000. */
  readonly batchEntriesMax?: number;
  /** How many bytes the entries of a batch may have together. One larger entry is a batch by itself. Default 4 MiB. */
  readonly batchBytesMax?: number;
  /** How long after the first new id a snapshot is written, in milliseconds. A lower value makes recovery faster. Default 60 s. */
  readonly snapshotMs?: number;
  /** After how many new ids a snapshot is written, if that is earlier. Default 10,000. */
  readonly snapshotKeys?: number;
  /** Counts writes, duplicates, refusals and failures. */
  readonly meter?: Meter;
  /** Replaces the time, for tests. */
  readonly clock?: Clock;
  /** Replaces the source of randomness, for tests. */
  readonly random?: Random;
  /** Cancels `openWindow`. Has no effect once the window is open. */
  readonly signal?: AbortSignal;
}

export interface ResolvedWindow extends WindowBounds {
  readonly pendingMax: number;
  readonly pendingBytesMax: number;
  readonly onFull: "wait" | "refuse";
  readonly onExpired: "refuse" | "accept";
  readonly clockSkewMs: number;
  readonly timeoutMs: number;
  readonly batchEntriesMax: number;
  readonly batchBytesMax: number;
  readonly snapshotMs: number;
  readonly snapshotKeys: number;
  readonly meter: Meter;
  readonly random: Random;
  readonly digest: Digest;
  /** For callers who wait. */
  readonly clock: Clock;
  /** For what happens later: does not keep the process alive. */
  readonly idleClock: Clock;
}

const YEAR_MS = 366 * 86_400_000;
const KEYS_MAX = 10_000_000;
const BYTES_MAX = 2 ** 40;

/** Throws `invalid_options`. */
export function resolveWindow(options: WindowOptions): ResolvedWindow {
  const check = new Check();
  const { onFull = "wait", onExpired = "refuse" } = options;
  check.word("onFull", onFull, ["wait", "refuse"]);
  check.word("onExpired", onExpired, ["refuse", "accept"]);
  const whole = (
    name: keyof WindowOptions & `${string}${"Ms" | "Max" | "Keys"}`,
    fallback: number,
    min: number,
    max: number,
  ): number => check.whole(name, options[name], fallback, min, max);
  const keysMax = whole("keysMax", 100_000, 1, KEYS_MAX);
  const resolved = {
    durationMs: whole("durationMs", 600_000, 1, YEAR_MS),
    keysMax,
    pendingMax: whole("pendingMax", 1_000, 1, KEYS_MAX),
    pendingBytesMax: whole("pendingBytesMax", 64 * 1_048_576, 1, BYTES_MAX),
    onFull,
    onExpired,
    clockSkewMs: whole("clockSkewMs", 1_000, 0, YEAR_MS),
    timeoutMs: whole("timeoutMs", 30_000, 1, YEAR_MS),
    // What a batch has stored must still be in the window when its outcome is looked for.
    batchEntriesMax: Math.min(keysMax, whole("batchEntriesMax", 1_000, 1, KEYS_MAX)),
    batchBytesMax: whole("batchBytesMax", 4 * 1_048_576, 1, BYTES_MAX),
    snapshotMs: whole("snapshotMs", 60_000, 1, YEAR_MS),
    snapshotKeys: whole("snapshotKeys", 10_000, 1, KEYS_MAX),
    meter: options.meter ?? noMeter,
    random: options.random ?? systemRandom,
    digest: platformDigest(),
    clock: options.clock ?? waitingClock,
    idleClock: options.clock ?? systemClock,
  };
  check.end();
  return resolved;
}
