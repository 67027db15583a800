/**
 * Decides which caller may do the work of a key, and what the other callers get.
 *
 *   OC1  of all callers that claim a key, one works at a time: the others get `running` meanwhile;
 *   OC2  any caller can take a claim whose lease is over, under a greater token; the old claim can then do nothing;
 *   OC3  what is done stays done until its retention ends, and every caller with the same content gets it;
 *   OC4  the same key with other content is refused, whether it is done, failed or still being worked on;
 *   OC5  work that may have had its effect before it was lost is not repeated unless the caller says how;
 *   OC6  a failure is tried again, remembered or forgotten, as the caller wishes, and never more often than it allows.
 *
 * Time appears only as the rest of a lease: the database computes it. Pure.
 */

import { isOtherContent } from "../../base/content-fingerprint.ts";

/**
 * The state of an entry. `running`: a caller works on it, or did until its lease ended. `done`: it has a result. `failed`: it
 * keeps the failure. `released`: no caller works on it, and it may be claimed; its attempts count.
 */
export type EntryState = "running" | "done" | "failed" | "released";

/** The entry of a key, as its ledger reads it. */
export interface ClaimEntry {
  readonly state: EntryState;
  readonly attempts: number;
  readonly leaseLeftMs: number | undefined;
  readonly keepLeftMs: number | undefined;
  readonly fingerprint: string | undefined;
}

/** A caller's request to do the work of a key. */
export interface ClaimRequest {
  /** A digest of the content. Undefined: the content is not compared. */
  readonly fingerprint: string | undefined;
  /** What to do with work that was begun and lost: it left nothing behind, it may be repeated, or its outcome is asked. */
  readonly effect: "transaction" | "repeatable" | "probed";
  /** How often the work may be begun. */
  readonly attemptsMax: number;
}

/** The result of `decideClaim()`. `claim` has the count of attempts, and whether a lost claim came before. */
export type ClaimDecision =
  | { readonly kind: "claim"; readonly attempts: number; readonly isTakeover: boolean }
  /** OC5: as `claim`, but ask first whether the lost one had its effect. `isExhausted`: only ask, that is always allowed. */
  | {
      readonly kind: "probe";
      readonly attempts: number;
      readonly isTakeover: true;
      readonly isExhausted: boolean;
    }
  | { readonly kind: "running"; readonly leaseLeftMs: number }
  | { readonly kind: "done" }
  | { readonly kind: "failed" }
  /** OC6: begun as often as allowed, without an end. */
  | { readonly kind: "exhausted"; readonly attempts: number }
  /** OC4 */
  | { readonly kind: "mismatch" };

/** Decides a claim of a key. `entry` is undefined if the key has none. */
export function decideClaim(entry: ClaimEntry | undefined, request: ClaimRequest): ClaimDecision {
  if (entry === undefined || isOver(entry))
    return { kind: "claim", attempts: 1, isTakeover: false };
  if (isOtherContent(entry.fingerprint, request.fingerprint)) return { kind: "mismatch" };
  switch (entry.state) {
    case "done":
      return { kind: "done" };
    case "failed":
      return { kind: "failed" };
    case "released":
      return again(entry, request);
    case "running": {
      const leaseLeftMs = entry.leaseLeftMs ?? 0;
      if (leaseLeftMs > 0) return { kind: "running", leaseLeftMs };
      const next = again(entry, request);
      // The last allowed attempt may have had its effect before it was lost.
      if (request.effect === "probed") {
        const isExhausted = next.kind === "exhausted";
        return { kind: "probe", attempts: next.attempts, isTakeover: true, isExhausted };
      }
      return next.kind === "claim" ? { ...next, isTakeover: true } : next;
    }
  }
}

/**
 * OC3: an entry past its retention does not count any more. A running lease keeps it. The entry of `probed` work has no
 * retention while it is `running` (OC5).
 */
function isOver({ state, keepLeftMs, leaseLeftMs }: ClaimEntry): boolean {
  if (keepLeftMs === undefined || keepLeftMs > 0) return false;
  return state !== "running" || (leaseLeftMs ?? 0) <= 0;
}

function again(
  { attempts }: ClaimEntry,
  { attemptsMax }: ClaimRequest,
): Extract<ClaimDecision, { readonly kind: "claim" | "exhausted" }> {
  return attempts < attemptsMax
    ? { kind: "claim", attempts: attempts + 1, isTakeover: false }
    : { kind: "exhausted", attempts };
}
