/**
 * One attempt to do the work of a key: claim it, work, and record the end. This file also decides what an attempt leaves
 * behind when a step fails.
 *
 *   - work in a transaction is committed with its record, under the token of the claim, or not at all;
 *   - a commit without an answer is looked up under a lock: what was committed counts, what was not is undone, and the
 *     outcome is unknown only if the lookup finds no answer;
 *   - an error of the work reaches its caller unchanged, after its key was released, kept as failed, or forgotten;
 *   - work elsewhere that must be asked for is not repeated before it was: not after a crash, and not after it threw.
 */

import { LightStop, onAbort, unlessAborted } from "../../base/aborts.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { failpoint, hasFailpoint } from "../../base/failpoint.ts";
import { pause } from "../../base/pause.ts";
import type { Entry, EntryWrite, Ledger, Locked, LockedEnd } from "../ledgers/ledger.ts";
import { exhausted, fail, leave, settle, unknownOutcome } from "./attempt-end.ts";
import { acquire, type Claim } from "./claiming.ts";
import { TAKEN_MAX } from "./limits.ts";
import { acquiredBy, type AcquiredLock, endedOf, inLockedTransaction, mayLock } from "./locking.ts";
import { growingPauses } from "./pauses.ts";
import { UNSEEN } from "./unseen.ts";
import type { Bytes, Encodable, JobWork, OnceJob, OnceTransactionContext } from "./options.ts";

/** The end of the work, by this attempt or by another one. */
export interface Ended {
  readonly kind: "ended";
  readonly data: Bytes;
  readonly token: number;
  readonly isDuplicate: boolean;
  /** How long the result is still kept. Undefined if it was kept just now. */
  readonly keepLeftMs: number | undefined;
}

/** The outcome of an attempt, for its caller and for the calls that joined it. */
export type AttemptOutcome =
  | Ended
  | { readonly kind: "running" | "failed" | "exhausted" | "mismatch"; readonly entry: Entry }
  | { readonly kind: "threw"; readonly error: unknown };

type Worked<Tx, Effect> = Extract<JobWork<Tx>, { readonly effect: Effect }>;

/** Claims the key and does its work. Calls `onClaimed` when it is certain that this attempt does the work. */
export function attemptOnce<Tx>(
  ledger: Ledger<Tx>,
  job: OnceJob<Tx>,
  isKnown: boolean,
  onClaimed: () => void,
): Promise<AttemptOutcome> {
  const { work } = job;
  const locked = work.effect === "transaction" && mayLock(ledger, job.terms) ? work : undefined;
  if (locked === undefined) return attempted(ledger, job, undefined, isKnown, onClaimed, undefined);
  // Most attempts end so.
  return attemptLocked(ledger, job, locked, isKnown, onClaimed).then(
    (outcome) =>
      outcome === "claims first" || outcome === "taken"
        ? attempted(ledger, job, locked, isKnown, onClaimed, outcome)
        : outcome,
    (error: unknown) => ({ kind: "threw", error }),
  );
}

/** `first`: the result of the first attempt with a lock. */
async function attempted<Tx>(
  ledger: Ledger<Tx>,
  job: OnceJob<Tx>,
  locked: Worked<Tx, "transaction"> | undefined,
  isKnown: boolean,
  onClaimed: () => void,
  first: "claims first" | "taken" | undefined,
): Promise<AttemptOutcome> {
  try {
    for (let taken = 0; taken < TAKEN_MAX; taken += 1) {
      const isSought = isKnown || taken > 0;
      let outcome: AttemptOutcome | "claims first" | "taken" = "claims first";
      if (taken === 0 && first !== undefined) outcome = first;
      else if (locked !== undefined)
        outcome = await attemptLocked(ledger, job, locked, isSought, onClaimed);
      if (outcome === "claims first")
        outcome = await attemptClaimed(ledger, job, isSought || locked !== undefined, onClaimed);
      // CK4: another attempt began while this one waited for its transaction. The entry says what to do.
      if (outcome !== "taken") return outcome;
    }
  } catch (error) {
    return { kind: "threw", error };
  }
  return { kind: "running", entry: UNSEEN };
}

/** CK1: the claim is committed before its work begins. `isSought`: an entry probably exists. */
async function attemptClaimed<Tx>(
  ledger: Ledger<Tx>,
  job: OnceJob<Tx>,
  isSought: boolean,
  onClaimed: () => void,
): Promise<AttemptOutcome | "taken"> {
  const { work } = job;
  let claim: Claim<Tx> | undefined;
  try {
    const key = work.effect === "transaction" ? "" : await work.key();
    const acquired = await acquire(ledger, job.place, job.terms, job.tools, isSought);
    if (acquired.kind === "done") return endedBefore(acquired.entry);
    if (acquired.kind !== "claimed") return { kind: acquired.kind, entry: acquired.entry };
    ({ claim } = acquired);
    onClaimed();
    if (work.effect === "transaction") {
      return ledger.isJoined
        ? await workJoined(ledger, claim, job, work)
        : await workInTransaction(ledger, claim, job, work);
    }
    if (acquired.needsProbe && work.effect === "probed") {
      const ended = await probe(ledger, claim, job, work, key, acquired.isExhausted);
      if (ended !== undefined) return ended;
    }
    return await workElsewhere(ledger, claim, job, work, key);
  } finally {
    // The work under this claim has ended, with a result or with an error.
    claim?.stop();
  }
}

function endedBefore({ data, token, keepLeftMs }: Entry): Ended {
  return { kind: "ended", data, token, isDuplicate: true, keepLeftMs };
}

function endedBy<Tx>({ token }: Claim<Tx>, data: Bytes): Ended {
  return { kind: "ended", data, token, isDuplicate: false, keepLeftMs: undefined };
}

/**
 * Runs the work with a signal that aborts when the claim is lost or when the caller's signal aborts. It adds and removes
 * the listeners by hand: a signal of `AbortSignal.any` with listeners stays in memory as long as the caller's signal does.
 */
async function heeding<Tx, T>(
  claim: Claim<Tx>,
  { signal }: OnceJob<Tx>,
  run: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  // CK5: also if the work does not heed its signal. The transaction of a lock ends with it.
  const limited = (heard: AbortSignal): Promise<T> =>
    claim.isLock ? run(heard) : unlessAborted(run(heard), claim.overtime);
  if (signal === undefined) return await limited(claim.signal);
  const either = new AbortController();
  const stops = [claim.signal, signal].map((source) => {
    if (source.aborted) either.abort(source.reason);
    return onAbort(source, () => {
      either.abort(source.reason);
    });
  });
  try {
    return await limited(either.signal);
  } finally {
    for (const stop of stops) stop();
  }
}

async function workInTransaction<Tx>(
  ledger: Ledger<Tx>,
  claim: Claim<Tx>,
  job: OnceJob<Tx>,
  work: Worked<Tx, "transaction">,
): Promise<Ended | "taken"> {
  const { isExclusive } = ledger.supports;
  let thrown: { readonly error: unknown } | undefined;
  let ended: Ended | undefined;
  let isTaken = false;
  try {
    await ledger.transaction(async (tx) => {
      claim.signal.throwIfAborted();
      if (isExclusive && !(await claim.isOwned(ledger.in(tx)))) {
        isTaken = true;
        return;
      }
      const data = await workInside(tx, claim, job, work, (error) => {
        thrown = { error };
      });
      await claim.complete(ledger.in(tx), "done", data);
      await failpoint("once.completed");
      ended = endedBy(claim, data);
    }, claim.signal);
  } catch (error) {
    if (thrown !== undefined) return await fail(ledger, claim, job, thrown.error);
    if (ended !== undefined) return await settle(ledger, claim, job, ended, error);
    // The work did not begin, or could not be recorded. Either way the transaction is rolled back, with any database error.
    await leave(() => claim.release());
    throw error;
  }
  if (isTaken) return "taken";
  await failpoint("once.committed");
  return endedBy(claim, (ended as Ended | undefined)?.data);
}

/** CK7: claims, works and records in one transaction. */
async function attemptLocked<Tx>(
  ledger: Ledger<Tx>,
  job: OnceJob<Tx>,
  work: Worked<Tx, "transaction">,
  isKnown: boolean,
  onClaimed: () => void,
): Promise<AttemptOutcome | "claims first" | "taken"> {
  const known = isKnown ? await ledger.entries.find(job.place) : undefined;
  // Without a transaction: a call that waits looks often.
  if (known !== undefined) return outcomeOf(endedOf(known, job.terms) ?? { kind: "claims first" });
  const over = new LightStop();
  let claim: Claim<Tx> | undefined;
  const marks: Marks = { thrown: undefined, ended: undefined };
  let startedMs = 0;
  const inside = (tx: Tx, locked: Locked): LockedEnds | Promise<LockedEnds> => {
    const { place, terms, tools } = job;
    const acquired = acquiredBy(locked, ledger, place, terms, tools, over, startedMs);
    if (acquired.kind !== "locked") return { value: outcomeOf(acquired), entry: undefined };
    const held = acquired.claim;
    claim = held;
    const begin = (): LockedEnds | Promise<LockedEnds> => {
      // Those who wait for it would go on inside this transaction.
      if (ledger.supports.absorbsResumed !== true) onClaimed();
      return workLocked(ledger, tx, held, job, work, marks);
    };
    return hasFailpoint() ? Promise.resolve(failpoint("once.claimed")).then(begin) : begin();
  };
  const onLock = (): void => {
    startedMs = job.tools.clock.steadyMs();
  };
  try {
    const end = await inLockedTransaction(ledger, job.place, inside, onLock, over);
    // Another one had ended between the look at the entry and the lock. The entry says what to do.
    if (end === "late") {
      job.tools.meter.add("fenced_total", 1, { primitive: "once" });
      // An entry that was rolled back with the work was the work's own: it would be there each time.
      if ((await ledger.entries.find(job.place)) === undefined)
        throw new HapaxError(
          "invalid_request",
          `the work used its own key in its transaction; ${job.where}`,
        );
      return "taken";
    }
    if (marks.ended !== undefined) await failpoint("once.committed");
    return end.value;
  } catch (error) {
    if (claim === undefined) throw error;
    if (marks.thrown !== undefined) return await fail(ledger, claim, job, marks.thrown.error);
    if (marks.ended !== undefined) return await settle(ledger, claim, job, marks.ended, error);
    if (claim.isLate) return "taken";
    const held = claim;
    await leave(() => held.release());
    throw error;
  } finally {
    claim?.stop();
  }
}

/** How far the work of a lock came: what it has thrown, and its end if that only waits for its commit. */
interface Marks {
  thrown: { readonly error: unknown } | undefined;
  ended: Ended | undefined;
}

/** Does the work of a lock, and says what its place gets. Answers at once if the work does. */
function workLocked<Tx>(
  ledger: Ledger<Tx>,
  tx: Tx,
  claim: Claim<Tx>,
  job: OnceJob<Tx>,
  work: Worked<Tx, "transaction">,
  marks: Marks,
): LockedEnds | Promise<LockedEnds> {
  const end = (data: Bytes): LockedEnds | Promise<LockedEnds> => {
    const entry = claim.end(data);
    const value = endedBy(claim, data);
    if (entry === undefined || hasFailpoint()) return endLater(data, value, entry);
    marks.ended = value;
    return { value, entry };
  };
  const endLater = async (
    data: Bytes,
    value: Ended,
    entry: EntryWrite | undefined,
  ): Promise<LockedEnds> => {
    if (entry === undefined) await claim.complete(ledger.in(tx), "done", data);
    await failpoint("once.completed");
    marks.ended = value;
    return { value, entry };
  };
  const data = workInside(tx, claim, job, work, (error) => {
    marks.thrown = { error };
  });
  return data instanceof Promise ? data.then(end) : end(data);
}

type LockedEnds = LockedEnd<AttemptOutcome | "claims first">;

function outcomeOf<Tx>(
  acquired: Exclude<AcquiredLock<Tx>, { readonly kind: "locked" }>,
): AttemptOutcome | "claims first" {
  if (acquired.kind === "claims first") return acquired.kind;
  const { kind, entry } = acquired;
  return kind === "done" ? endedBefore(entry) : { kind, entry };
}

/**
 * Does the work in its transaction. `onThrown` gets what the work has thrown. Answers at once if the work does, and makes a signal
 * only if the work asks for it.
 */
function workInside<Tx>(
  tx: Tx,
  claim: Claim<Tx>,
  job: OnceJob<Tx>,
  work: Worked<Tx, "transaction">,
  onThrown: (error: unknown) => void,
): Bytes | Promise<Bytes> {
  // The transaction of a lock ends with its claim. Work without one, or with a signal of its caller, is watched.
  if (!claim.isLock || job.signal !== undefined || hasFailpoint())
    return workHeeding(tx, claim, job, work, onThrown);
  try {
    const result = work.run(new LockContext(tx, claim));
    if (!(result instanceof Promise)) return result();
    claim.start();
    return encodedLater(result, onThrown);
  } catch (error) {
    onThrown(error);
    throw error;
  }
}

/** What the work of a lock is given. */
class LockContext<Tx> implements OnceTransactionContext<Tx> {
  readonly tx: Tx;
  readonly token: number;
  readonly attempt: number;
  readonly #claim: Claim<Tx>;

  constructor(tx: Tx, claim: Claim<Tx>) {
    this.tx = tx;
    this.token = claim.token;
    this.attempt = claim.attempts;
    this.#claim = claim;
  }

  get signal(): AbortSignal {
    return this.#claim.signal;
  }
}

async function encodedLater(
  working: Promise<Encodable>,
  onThrown: (error: unknown) => void,
): Promise<Bytes> {
  try {
    return (await working)();
  } catch (error) {
    onThrown(error);
    throw error;
  }
}

async function workHeeding<Tx>(
  tx: Tx,
  claim: Claim<Tx>,
  job: OnceJob<Tx>,
  work: Worked<Tx, "transaction">,
  onThrown: (error: unknown) => void,
): Promise<Bytes> {
  if (claim.isLock) claim.start();
  if (hasFailpoint()) await failpoint("once.began");
  let data: Bytes;
  try {
    const { token, attempts: attempt } = claim;
    const result = await heeding(claim, job, async (heard) =>
      work.run({ tx, signal: heard, token, attempt }),
    );
    data = result();
  } catch (error) {
    onThrown(error);
    throw error;
  }
  await failpoint("once.worked");
  return data;
}

/** Works in the caller's transaction. The claim is invisible to others until that commits, so nothing renews it. */
async function workJoined<Tx>(
  ledger: Ledger<Tx>,
  claim: Claim<Tx>,
  job: OnceJob<Tx>,
  work: Worked<Tx, "transaction">,
): Promise<Ended> {
  claim.stop();
  return await ledger.transaction(async (tx) => {
    await failpoint("once.began");
    const { token, attempts: attempt } = claim;
    const result = await heeding(claim, job, async (signal) =>
      work.run({ tx, signal, token, attempt }),
    );
    const data = result();
    await failpoint("once.worked");
    await claim.complete(ledger, "done", data);
    await failpoint("once.completed");
    return endedBy(claim, data);
  });
}

async function workElsewhere<Tx>(
  ledger: Ledger<Tx>,
  claim: Claim<Tx>,
  job: OnceJob<Tx>,
  work: Worked<Tx, "repeatable" | "probed">,
  key: string,
): Promise<Ended> {
  let data: Bytes;
  try {
    await failpoint("once.began");
    // No token stops an effect elsewhere. If another attempt took the key, its probe may have answered "not done".
    claim.requireHeld();
    const { token, attempts: attempt } = claim;
    const result = await heeding(claim, job, (signal) => work.run({ key, signal, token, attempt }));
    data = result();
  } catch (error) {
    return await fail(ledger, claim, job, error);
  }
  await failpoint("once.worked");
  await record(ledger, claim, job, data);
  await failpoint("once.committed");
  return endedBy(claim, data);
}

/** Asks whether the lost attempt had its effect. Returns undefined if it had none: the work may be done now. */
async function probe<Tx>(
  ledger: Ledger<Tx>,
  claim: Claim<Tx>,
  job: OnceJob<Tx>,
  work: Worked<Tx, "probed">,
  key: string,
  isExhausted: boolean,
): Promise<Ended | undefined> {
  const attempt = isExhausted ? claim.attempts : claim.attempts - 1;
  let result: Encodable | undefined;
  try {
    const answer = await heeding(claim, job, (signal) => work.reconcile({ key, attempt, signal }));
    if (answer.kind === "unknown") throw unknownOutcome(job, undefined);
    if (answer.kind === "not_done" && isExhausted) throw exhausted(job, claim.attempts);
    if (answer.kind === "done") ({ result } = answer);
    if (result === undefined) return undefined;
    const data = result();
    await record(ledger, claim, job, data);
    return { ...endedBy(claim, data), isDuplicate: true };
  } catch (error) {
    await leave(() => claim.abandon());
    throw error;
  }
}

/** Records an effect that happened elsewhere. Tries for the length of a lease: the database may be away for a moment. */
async function record<Tx>(
  ledger: Ledger<Tx>,
  claim: Claim<Tx>,
  job: OnceJob<Tx>,
  data: Bytes,
): Promise<void> {
  const nextMs = growingPauses(job.tools.random);
  const endMs = job.clock.steadyMs() + job.terms.leaseMs;
  for (;;) {
    try {
      await completeElsewhere(ledger, claim, data);
      return;
    } catch (error) {
      if (isHapaxError(error, "lease_lost") || job.clock.steadyMs() >= endMs) throw error;
    }
    await pause(job.clock, nextMs());
  }
}

/** Completes the claim. If the answer to an earlier write was lost, this write gets `lease_lost`; the entry decides. */
async function completeElsewhere<Tx>(
  ledger: Ledger<Tx>,
  claim: Claim<Tx>,
  data: Bytes,
): Promise<void> {
  try {
    await claim.complete(ledger, "done", data);
  } catch (error) {
    if (!isHapaxError(error, "lease_lost")) throw error;
    const entry = await ledger.entries.find(claim.place);
    if (entry?.state !== "done" || entry.token !== claim.token) throw error;
  }
}
