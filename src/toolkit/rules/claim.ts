/**
 * Who may do the work of a key, and what those are told who may not.
 *
 *   OC1  of all who claim a key, one works at a time: whoever comes meanwhile learns that it is being worked on;
 *   OC2  a claim whose lease is over can be taken by anybody, under a greater token; the one before can then do nothing;
 *   OC3  what is done stays done until its retention ends, and is answered to everybody who asks with the same content;
 *   OC4  the same key with other content is refused, whether it is done, failed or still being worked on;
 *   OC5  work that may have had its effect before it was lost is not repeated unless the caller says how;
 *   OC6  a failure is tried again, remembered or forgotten, as the caller wishes, and never more often than it allows.
 *
 * Time is what is left of a lease: the database computes it. Pure.
 */

import { isOtherContent } from "../../base/content-fingerprint.ts";

/**
 * `running`: somebody works on it, or did until its lease ended. `done`: with a result. `failed`: with the failure, to
 * be remembered. `released`: nobody works on it, and it may be claimed; its attempts count.
 */
export type EntryState = "running" | "done" | "failed" | "released";

/** The entry of a key as its ledger tells it. */
export interface ClaimEntry {
  readonly state: EntryState;
  readonly attempts: number;
  readonly leaseLeftMs: number | undefined;
  readonly keepLeftMs: number | undefined;
  readonly fingerprint: string | undefined;
}

/** What somebody wants to do. */
export interface ClaimRequest {
  /** Of the content; undefined: it is not compared. */
  readonly fingerprint: string | undefined;
  /** What may be done with work that was begun and lost: it left nothing behind, it may be repeated, or it must be asked for. */
  readonly effect: "transaction" | "repeatable" | "probed";
  /** How often it may be begun. */
  readonly attemptsMax: number;
}

/** What a claim comes to. `claim` says with which count, and whether a lost claim came before. */
export type ClaimDecision =
  | { readonly kind: "claim"; readonly attempts: number; readonly isTakeover: boolean }
  /** OC5: as `claim`, but ask first whether the lost one had its effect. Asking is free; exhausted: only ask. */
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

/** Decides a claim of a key whose entry is `entry`; undefined if it has none. */
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
      // What was lost in the last attempt allowed may still have had its effect.
      if (request.effect === "probed") {
        const isExhausted = next.kind === "exhausted";
        return { kind: "probe", attempts: next.attempts, isTakeover: true, isExhausted };
      }
      return next.kind === "claim" ? { ...next, isTakeover: true } : next;
    }
  }
}

/**
 * OC3: past its retention it counts no more. Somebody who still works under a lease keeps it, and work that must be asked
 * for is kept for ever while it is `running` (OC5).
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
