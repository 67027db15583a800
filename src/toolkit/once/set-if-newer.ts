/**
 * The last write wins, by stamps of hybrid clocks (toolkit/rules/hybrid-clock.ts), and not by wall clocks.
 *
 *   - of all writes of a thing the one with the greatest stamp stays, in every order;
 *   - a stamp of a broken clock, far ahead of this process's, is refused: no later write could replace it;
 *   - with the caller's transaction, the stamp changes together with the caller's row, or not at all;
 *   - without one, the value is kept in the entry: one write, on every ledger.
 */

import { type Clock, systemClock } from "../../base/clock.ts";
import type { Entry, Expected, Ledger, Place } from "../ledgers/ledger.ts";
import {
  decideNewer,
  type NewerDecision,
  parseStamp,
  problemOfAhead,
} from "../rules/hybrid-clock.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import { Check } from "./check.ts";
import { AHEAD_MS_DEFAULT, AHEAD_MS_MAX, RESULT_BYTES_MAX } from "./limits.ts";

/** A write that is applied if its stamp is the newest. */
export interface StampedWrite {
  /** A stamp of `createHybridClock`. Use the same one when you repeat the write. */
  readonly stamp: string;
  /** What the ledger keeps with the stamp. Needed unless the ledger is inside your transaction, where your row has it. */
  readonly value?: Uint8Array;
}

/** Options of `setIfNewer()`. All have defaults. */
export interface NewerOptions {
  /**
   * How far a stamp may be ahead of this process's wall clock, in milliseconds. Stamps further ahead are refused, because they
   * would hide all later writes until that time. Default 24 h.
   */
  readonly aheadMsMax?: number;
  /** Replaces the time, for tests. */
  readonly clock?: Clock;
}

/** The result of `setIfNewer()`. */
export interface NewerResult {
  /**
   * `applied`: it is the newest write. `duplicate`: it was applied before, and is still the newest. `older`: a newer write
   * is there.
   */
  readonly kind: NewerDecision;
  /** The stamp that is there now. After `older`, pass it to `see` of your clock to write after it. */
  readonly stamp: string;
}

/**
 * Records a write, unless a newer one under the same identity is there. Inside your transaction (`ledger.in(tx)`) write your own
 * row if and only if the result is `applied`. Without a transaction pass the `value`, which `getNewest` returns. Throws
 * `invalid_request`, also for a stamp that is too far ahead.
 *
 * ```ts
 * import { createHybridClock, getNewest, setIfNewer } from "hapax/ledger";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const ledger = memoryLedger();
 * const clock = createHybridClock({ node: "web-1" });
 * const profile = { scope: "profiles", key: "user 1" };
 * const [early, late] = [clock.now(), clock.now()];
 * const text = (value: string) => new TextEncoder().encode(value);
 * await setIfNewer(ledger, profile, { stamp: late, value: text("new") });
 * const answer = await setIfNewer(ledger, profile, { stamp: early, value: text("old") });
 * const newest = await getNewest(ledger, profile);
 * console.assert(answer.kind === "older" && new TextDecoder().decode(newest?.value) === "new");
 * ```
 */
export async function setIfNewer<Tx>(
  ledger: Ledger<Tx>,
  identity: ScopedKey,
  { stamp, value }: StampedWrite,
  options: NewerOptions = {},
): Promise<NewerResult> {
  const place = placeOf(identity);
  checkWrite(ledger, stamp, value, options);
  for (;;) {
    const entry = await ledger.entries.find(place);
    const present = entry?.fingerprint;
    const kind = decideNewer(present, stamp);
    if (kind !== "applied") return { kind, stamp: present ?? stamp };
    const written = await ledger.entries.put(place, expectedOf(entry), {
      state: "done",
      token: entry === undefined ? "next" : "same",
      attempts: 1,
      leaseMs: undefined,
      keepMs: undefined,
      fingerprint: { value: stamp },
      data: { value },
    });
    // Another write came in between. The next round finds it.
    if (written !== undefined) return { kind, stamp };
  }
}

/**
 * Returns the newest write under an identity; undefined if there is none. Pass its stamp to `see` of your
 * clock.
 *
 * ```ts
 * import { GLOBAL, getNewest } from "hapax/ledger";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const newest = await getNewest(memoryLedger(), { scope: GLOBAL, key: "not written yet" });
 * console.assert(newest === undefined);
 * ```
 */
export async function getNewest<Tx>(
  ledger: Ledger<Tx>,
  identity: ScopedKey,
): Promise<{ readonly stamp: string; readonly value: Uint8Array | undefined } | undefined> {
  const entry = await ledger.entries.find(placeOf(identity));
  if (entry?.fingerprint === undefined) return undefined;
  return { stamp: entry.fingerprint, value: entry.data };
}

function placeOf(identity: ScopedKey): Place {
  const check = new Check();
  const place = { kind: "newest", ...check.identity(identity) };
  check.end("invalid_request");
  return place;
}

function checkWrite<Tx>(
  ledger: Ledger<Tx>,
  stamp: string,
  value: Uint8Array | undefined,
  { aheadMsMax: given, clock = systemClock }: NewerOptions,
): void {
  const check = new Check();
  const aheadMsMax = check.whole("aheadMsMax", given, AHEAD_MS_DEFAULT, 0, AHEAD_MS_MAX);
  const time = parseStamp(stamp);
  if (time === undefined) check.problem(`stamp=${stamp} is not a stamp of createHybridClock`);
  const problem = time && problemOfAhead(time, clock.nowMs(), aheadMsMax);
  if (problem !== undefined) check.problem(problem);
  // The stamp would change without its thing.
  if (value === undefined && !ledger.isJoined) check.problem("pass a value, or ledger.in(tx)");
  if ((value?.length ?? 0) > RESULT_BYTES_MAX)
    check.problem(`value has more than ${RESULT_BYTES_MAX} bytes`);
  check.end("invalid_request");
}

function expectedOf(entry: Entry | undefined): Expected {
  if (entry === undefined) return { kind: "absent" };
  return { kind: "unchanged", token: entry.token, revision: entry.revision };
}
