/** The hybrid logical clock of a process: the rule is toolkit/rules/hybrid-clock.ts. */

import { type Clock, systemClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { systemRandom } from "../../base/random.ts";
import {
  encodeStamp,
  isNodeName,
  NO_HYBRID_TIME,
  parseStamp,
  problemOfAhead,
  seeHybrid,
  tickHybrid,
} from "../rules/hybrid-clock.ts";
import { Check } from "./check.ts";
import { AHEAD_MS_DEFAULT, AHEAD_MS_MAX } from "./limits.ts";

/** Options of a hybrid clock. All have defaults. */
export interface HybridClockOptions {
  /**
   * The name of this node: 1 to 64 letters, digits, `_`, `.` and `-`. No two nodes may have the same. Default: 32 random digits,
   * new for every clock.
   */
  readonly node?: string;
  /**
   * How far the stamps of others may be ahead of this node's wall clock, in milliseconds. `see` refuses stamps that are
   * further ahead, because they would move this clock too. Raise it only if clocks may differ by more. Default 24 h.
   */
  readonly aheadMsMax?: number;
  readonly clock?: Clock;
}

/** Makes stamps that are greater than all stamps that it has seen, also if wall clocks are wrong. */
export interface HybridClock {
  /** Returns a new stamp. Stamps compare with `<`, also in other languages and in databases. */
  now(): string;
  /**
   * Call it with the stamp of each value that you have read or received. Later stamps of this clock are
   * greater.
   */
  see(stamp: string): void;
}

/**
 * Creates a hybrid logical clock: it makes time stamps that order writes correctly, also if wall clocks are wrong. Create one
 * in each process. Use its stamps with `setIfNewer`. Throws `invalid_options`; `see` throws `invalid_request`.
 *
 * ```ts
 * import { createHybridClock } from "hapax/ledger";
 *
 * const [one, other] = [createHybridClock({ node: "a" }), createHybridClock({ node: "b" })];
 * const first = one.now();
 * other.see(first); // It came with a message, or with what was read.
 * console.assert(other.now() > first);
 * ```
 */
export function createHybridClock(options: HybridClockOptions = {}): HybridClock {
  const { node = systemRandom.id(), clock = systemClock } = options;
  const check = new Check();
  if (!isNodeName(node)) check.problem(`node=${node} is not 1 to 64 letters, digits, _ . and -`);
  const { aheadMsMax: given } = options;
  const aheadMsMax = check.whole("aheadMsMax", given, AHEAD_MS_DEFAULT, 0, AHEAD_MS_MAX);
  check.end();
  let last = NO_HYBRID_TIME;
  return {
    now() {
      last = tickHybrid(last, clock.nowMs());
      return encodeStamp(last, node);
    },
    see(stamp) {
      const seen = parseStamp(stamp);
      if (seen === undefined)
        throw new HapaxError("invalid_request", `stamp=${stamp} is not a stamp`);
      const problem = problemOfAhead(seen, clock.nowMs(), aheadMsMax);
      if (problem !== undefined) throw new HapaxError("invalid_request", problem);
      last = seeHybrid(last, seen);
    },
  };
}
