/**
 * What an attempt leaves behind when a step fails: a commit without an answer is looked up, and the key of work that threw is
 * released, kept as failed, or forgotten.
 */

import { HapaxError } from "../../base/errors.ts";
import { pause } from "../../base/pause.ts";
import type { Entry, Ledger } from "../ledgers/ledger.ts";
import type { Ended } from "./attempt.ts";
import type { Claim } from "./claiming.ts";
import { findEnded } from "./locking.ts";
import type { OnceJob } from "./options.ts";
import { growingPauses } from "./pauses.ts";
import { encodeFailure } from "./result.ts";

/** The commit got no answer. The entry stays locked until that transaction is committed or rolled back. */
export async function settle<Tx>(
  ledger: Ledger<Tx>,
  claim: Claim<Tx>,
  job: OnceJob<Tx>,
  ended: Ended,
  error: unknown,
): Promise<Ended> {
  const entry = await lookUp(ledger, job, error);
  if (entry?.token === claim.token && entry.state === "done") return ended;
  // CK7: without an entry, a claim that was only a lock has ended without a commit.
  const isUndone = entry === undefined && claim.isLock;
  if (isUndone || (entry?.token === claim.token && entry.state === "running")) {
    // A COMMIT that the database refuses is a failure of the work. A COMMIT that it could not do is not.
    if (isRefusal(error)) return await fail(ledger, claim, job, error);
    await leave(() => claim.release());
    throw error;
  }
  if (entry === undefined) throw unknownOutcome(job, error);
  const message = `another attempt has taken the work; ${job.where}`;
  throw new HapaxError("lease_lost", message, { cause: error });
}

/** Deferred constraints, and errors that a trigger raises: SQLSTATE classes 23, 44 and P0. SQLite only has a message. */
function isRefusal(error: unknown): boolean {
  const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
  return (
    (typeof code === "string" && /^(?:23|44|P0)[0-9A-Z]{3}$/.test(code)) ||
    (typeof message === "string" && /constraint failed/i.test(message))
  );
}

/** Reads the entry in a transaction. Tries for the length of a lease. */
async function lookUp<Tx>(
  ledger: Ledger<Tx>,
  job: OnceJob<Tx>,
  cause: unknown,
): Promise<Entry | undefined> {
  const over = new AbortController();
  const cancel = job.clock.after(job.terms.leaseMs, () => {
    over.abort(unknownOutcome(job, cause));
  });
  const nextMs = growingPauses(job.tools.random);
  const reading = async (): Promise<Entry | undefined> => {
    for (;;) {
      try {
        const entry = await ledger.transaction((tx) => findEnded(ledger.in(tx), job.place));
        if (entry !== "open") return entry;
      } catch {
        // The database is not back yet. If it does not come back in time, the caller gets `cause`.
      }
      await pause(job.clock, nextMs(), over.signal);
    }
  };
  const given = new Promise<never>((_, reject) => {
    over.signal.addEventListener("abort", () => {
      reject(over.signal.reason as Error);
    });
  });
  try {
    return await Promise.race([reading(), given]);
  } finally {
    cancel();
  }
}

/** Releases, keeps or forgets the key after work that threw. Always throws the error, and only to this caller. */
export async function fail<Tx>(
  ledger: Ledger<Tx>,
  claim: Claim<Tx>,
  job: OnceJob<Tx>,
  error: unknown,
): Promise<never> {
  job.tools.meter.add("failures_total", 1, { primitive: "once" });
  // Work that was stopped has not failed.
  const isStopped = job.signal?.aborted === true || claim.isLost;
  const policy = isStopped && job.onFailure === "remember" ? "retry" : job.onFailure;
  await leave(() => {
    if (policy === "remember") return claim.complete(ledger, "failed", encodeFailure(error));
    if (policy === "forget") return claim.forget();
    // Work that threw may still have had its effect.
    return job.work.effect === "probed" ? claim.abandon() : claim.release();
  });
  throw error;
}

/** Tries to tidy up. If that fails, the lease ends by itself, and the caller gets the error that led here. */
export async function leave(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch {
    // The claim is lost, or the database is gone: the lease ends by itself in both cases.
  }
}

export function unknownOutcome<Tx>(job: OnceJob<Tx>, cause: unknown): HapaxError {
  job.tools.meter.add("unknown_total", 1, { primitive: "once" });
  const message = `it is unknown whether the work had its effect; ${job.where}`;
  return new HapaxError("outcome_unknown", message, { cause });
}

export function exhausted<Tx>(job: OnceJob<Tx>, attempts: number): HapaxError {
  const message = `begun as often as allowed; attempts=${attempts} ${job.where}`;
  return new HapaxError("attempts_exhausted", message);
}
