/**
 * Claims a key by the lock of its place, in the transaction of its work (CK7 in claiming.ts): the work and its end are one
 * commit. A lost connection frees the key at once. The entry that the work leaves behind decides, so a lock that does not hold
 * does no harm: of two that work at once, the second cannot write its end.
 */

import type { Stoppable, Stopper } from "../../base/aborts.ts";
import { pause } from "../../base/pause.ts";
import { decideClaim } from "../rules/claim.ts";
import type { Entry, Ledger, Locked, LockedEnd, Place } from "../ledgers/ledger.ts";
import { Claim, type ClaimTerms } from "./claiming.ts";
import type { ResolvedTools } from "./tools.ts";
import { LOCK_MS_MAX } from "./limits.ts";
import { growingPauses } from "./pauses.ts";
import { UNSEEN } from "./unseen.ts";

/** The result of `acquiredBy()`. `claims first`: the key needs a claim that is committed before its work begins. */
export type AcquiredLock<Tx> =
  | { readonly kind: "locked"; readonly claim: Claim<Tx> }
  | { readonly kind: "done" | "failed" | "mismatch" | "running"; readonly entry: Entry }
  | { readonly kind: "claims first" };

/** Returns whether a claim with these terms may be a lock. */
export function mayLock<Tx>({ entries, isJoined }: Ledger<Tx>, terms: ClaimTerms): boolean {
  return terms.locks === true && !isJoined && entries.lock !== undefined;
}

/** Runs a transaction that locks the place first. `onLock` is called just before that. `late`: nothing was committed. */
export function inLockedTransaction<Tx, T>(
  ledger: Ledger<Tx>,
  place: Place,
  work: (tx: Tx, locked: Locked) => LockedEnd<T> | Promise<LockedEnd<T>>,
  onLock: () => void,
  over: Stopper,
): Promise<LockedEnd<T> | "late"> {
  return ledger.lockedTransaction === undefined
    ? inSingleSteps(ledger, place, work, onLock, over)
    : ledger.lockedTransaction(place, work, onLock, over);
}

async function inSingleSteps<Tx, T>(
  ledger: Ledger<Tx>,
  place: Place,
  work: (tx: Tx, locked: Locked) => LockedEnd<T> | Promise<LockedEnd<T>>,
  onLock: () => void,
  over: Stopper,
): Promise<LockedEnd<T> | "late"> {
  let isLate = false;
  try {
    return await ledger.transaction(async (tx) => {
      const { entries } = ledger.in(tx);
      onLock();
      const end = await work(tx, (await entries.lock?.(place)) ?? { kind: "stale" });
      if (end.entry === undefined) return end;
      if ((await entries.put(place, { kind: "absent" }, end.entry)) !== undefined) return end;
      isLate = true;
      throw new Error("another one has made the entry");
    }, over.signal);
  } catch (error) {
    if (isLate) return "late";
    throw error;
  }
}

/**
 * Says what a lock means for the claim, which the caller has to start. `startedMs` is when it was asked for. `over` aborts when the
 * claim is lost: its signal must end the transaction, and so the work (CK5).
 */
export function acquiredBy<Tx>(
  locked: Locked,
  ledger: Ledger<Tx>,
  place: Place,
  terms: ClaimTerms,
  tools: ResolvedTools,
  over: Stoppable,
  startedMs: number,
): AcquiredLock<Tx> {
  switch (locked.kind) {
    case "absent": {
      const facts = { place, token: locked.token, attempts: 1, isTakeover: false, data: undefined };
      tools.meter.add("claims_total", 1, { primitive: place.kind });
      return { kind: "locked", claim: new Claim(ledger, facts, terms, tools, startedMs, over) };
    }
    case "found":
      return endedOf(locked.entry, terms) ?? { kind: "claims first" };
    case "held": {
      const leaseLeftMs = LOCK_MS_MAX - (locked.heldMs ?? 0);
      if (leaseLeftMs > 0) return { kind: "running", entry: { ...UNSEEN, leaseLeftMs } };
      tools.meter.add("takeovers_total", 1, { primitive: place.kind });
      return { kind: "claims first" };
    }
    case "stale":
      return { kind: "claims first" };
  }
}

/** Returns the end that an entry has for this caller. Undefined: work is still to be done, or is being done. */
export function endedOf(
  entry: Entry,
  terms: ClaimTerms,
): { readonly kind: "done" | "failed" | "mismatch"; readonly entry: Entry } | undefined {
  const { kind } = decideClaim(entry, terms);
  return kind === "done" || kind === "failed" || kind === "mismatch" ? { kind, entry } : undefined;
}

/**
 * Looks up how work has ended whose COMMIT got no answer. Call it inside a transaction. `open`: the transaction in doubt has
 * not ended yet.
 */
export async function findEnded<Tx>(
  inside: Ledger<Tx>,
  place: Place,
): Promise<Entry | "open" | undefined> {
  const locked = await inside.entries.lock?.(place);
  if (locked?.kind === "held") return "open";
  // Read again: the other one may have ended between the begin of that statement and the lock.
  return await inside.entries.find(place);
}

/** As `findEnded`, in transactions of its own, until the transaction in doubt has ended. Throws if it does not end in time. */
export async function untilEnded<Tx>(
  ledger: Ledger<Tx>,
  place: Place,
  waitMs: number,
  { clock, random }: ResolvedTools,
): Promise<Entry | undefined> {
  const endMs = clock.steadyMs() + waitMs;
  for (const nextMs = growingPauses(random); ;) {
    const entry = await ledger.transaction((tx) => findEnded(ledger.in(tx), place));
    if (entry !== "open") return entry;
    if (clock.steadyMs() >= endMs) throw new Error("a transaction does not end");
    await pause(clock, nextMs());
  }
}
