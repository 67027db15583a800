/**
 * Claims a key in a ledger, keeps the claim alive, and ends it. processOnce, the idempotency keys of HTTP APIs and their
 * completer share it. toolkit/rules/claim.ts decides who may claim.
 *
 *   CK1  the claim is committed before its work begins, so that all other callers see it; or, for work in a transaction that keeps
 *        no count of its attempts, it is the lock of its place in that transaction (CK7);
 *   CK2  a claim is renewed at a third of its lease; one that cannot be renewed in time aborts its signal before it ends;
 *   CK3  the end of a claim is written only under its token, in the transaction of its work: a lost claim rolls back;
 *   CK4  where one transaction excludes all others, a claim is neither renewed nor lost once its work waits for its
 *        transaction: a queue of such works would outlast any lease. The entry that the transaction finds decides;
 *   CK6  a clock that is set back does not block the key of a dead process for longer than its lease;
 *   CK5  work that never ends keeps its key for a bounded time: then the claim is given up, and the caller gets an error;
 *   CK7  a claim that is only a lock is written down with its lease if its work is not over soon. So a lock that is older, and
 *        has no entry, belongs to a process that stands still: others may take its work over, and its end is refused.
 */

import { LightStop, type Stoppable } from "../../base/aborts.ts";
import { type ClaimDecision, type ClaimRequest, decideClaim } from "../rules/claim.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import type { Entry, EntryWrite, Expected, Ledger, Place } from "../ledgers/ledger.ts";
import type { Meter } from "../meters/meter.ts";
import { LOCK_MS_MAX, UNWRITTEN_MS } from "./limits.ts";
import type { ResolvedTools } from "./tools.ts";
import { LOCKED_MS, UNSEEN } from "./unseen.ts";

export interface ClaimTerms extends ClaimRequest {
  readonly leaseMs: number;
  /** How long the entry is kept after the work is done, or was begun and lost. */
  readonly retainMs: number;
  /** CK5: how long the claim is renewed. Undefined: until it ends. */
  readonly workMsMax?: number;
  /** CK7: the claim may be the lock of its place. */
  readonly locks?: boolean;
}

/** The result of `acquire()`: the claim, or the entry that says why there is none. */
export type Acquired<Tx> =
  | {
      readonly kind: "claimed";
      readonly claim: Claim<Tx>;
      /** Ask for the outcome of the lost attempt first. */
      readonly needsProbe: boolean;
      /** Ask only: the work may not be begun again. */
      readonly isExhausted: boolean;
    }
  | {
      readonly kind: Exclude<ClaimDecision["kind"], "claim" | "probe">;
      readonly entry: Entry;
    };

const ABSENT: Expected = { kind: "absent" };
const doNothing = (): void => undefined;
/** The share of a lease that is left when its signal aborts: time to stop the work. */
const MARGIN = 0.1;

/** Claims the key, or says why not. Does not wait. `isKnown`: an entry probably exists, so look it up first. */
export async function acquire<Tx>(
  ledger: Ledger<Tx>,
  place: Place,
  terms: ClaimTerms,
  tools: ResolvedTools,
  isKnown = false,
): Promise<Acquired<Tx>> {
  const { entries } = ledger;
  // Most keys are new: a new key costs one statement.
  let entry = isKnown ? await entries.find(place) : undefined;
  for (;;) {
    const decision = decideClaim(entry, terms);
    if (decision.kind !== "claim" && decision.kind !== "probe") {
      if (entry === undefined) throw new Error("OC1 a key without an entry can be claimed");
      return { kind: decision.kind, entry: await shortened(ledger, place, entry) };
    }
    const startedMs = tools.clock.steadyMs();
    const expected: Expected =
      entry === undefined
        ? ABSENT
        : { kind: "unchanged", token: entry.token, revision: entry.revision };
    const isNew = entry === undefined || decision.attempts === 1;
    const write: EntryWrite = {
      state: "running",
      token: "next",
      attempts: decision.attempts,
      leaseMs: terms.leaseMs,
      keepMs: keepWhileRunning(terms),
      // A caller that does not compare content leaves the fingerprint to those that do.
      fingerprint: isNew || terms.fingerprint !== undefined ? { value: terms.fingerprint } : "same",
      data: isNew ? { value: undefined } : "same",
    };
    const written = await unlessLocked(() => entries.put(place, expected, write));
    if (written === "locked") {
      entry = await entries.find(place);
      const kind = decideClaim(entry, terms).kind;
      if (kind === "claim" || kind === "probe")
        return { kind: "running", entry: { ...(entry ?? UNSEEN), leaseLeftMs: LOCKED_MS } };
      continue;
    }
    if (written !== undefined) {
      tools.meter.add("claims_total", 1, { primitive: place.kind });
      if (decision.isTakeover) tools.meter.add("takeovers_total", 1, { primitive: place.kind });
      const data = isNew ? undefined : entry?.data;
      const { attempts, isTakeover } = decision;
      const facts = { place, token: written.token, attempts, isTakeover, data };
      const claim = new Claim(ledger, facts, terms, tools, startedMs);
      await reached(claim);
      const needsProbe = decision.kind === "probe";
      return {
        kind: "claimed",
        claim,
        needsProbe,
        isExhausted: needsProbe && decision.isExhausted,
      };
    }
    entry = await entries.find(place);
  }
}

/** Smaller corrections of the database's clock are ignored. */
const CLOCK_MS = 1_000;

/**
 * CK6: a lease that has more time left than it ever had was given before the clock was set back. A living holder renews
 * it. A dead holder would keep it until the clock reaches that time again. So the lease begins anew, with its own length.
 */
async function shortened<Tx>(ledger: Ledger<Tx>, place: Place, entry: Entry): Promise<Entry> {
  const { state, token, revision, attempts, leaseLeftMs = 0, leaseMs, keepLeftMs } = entry;
  if (state !== "running" || leaseMs === undefined || leaseLeftMs <= leaseMs + CLOCK_MS)
    return entry;
  const expected: Expected = { kind: "unchanged", token, revision };
  const same = { token: "same", fingerprint: "same", data: "same" } as const;
  const write: EntryWrite = { state, attempts, leaseMs, keepMs: keepLeftMs, ...same };
  await unlessLocked(() => ledger.entries.put(place, expected, write));
  return { ...entry, leaseLeftMs: leaseMs };
}

async function unlessLocked<T>(write: () => Promise<T>): Promise<T | "locked"> {
  try {
    return await write();
  } catch (error) {
    if (isHapaxError(error, "in_progress")) return "locked";
    throw error;
  }
}

/** A test that fails here leaves the claim to its lease. */
async function reached<Tx>(claim: Claim<Tx>): Promise<void> {
  try {
    await failpoint(`${claim.place.kind}.claimed`);
  } catch (error) {
    claim.stop();
    throw error;
  }
}

/** OC5: the entry of `probed` work stays until a call has asked for its outcome. */
function keepWhileRunning({ effect, retainMs }: ClaimTerms): number | undefined {
  return effect === "probed" ? undefined : retainMs;
}

interface ClaimFacts {
  readonly place: Place;
  readonly token: number;
  readonly attempts: number;
  /** Whether an earlier attempt began and was lost. */
  readonly isTakeover: boolean;
  /** The progress that earlier attempts kept. */
  readonly data: Uint8Array | undefined;
}

/** The right to do the work of a key. It renews itself until it ends. */
export class Claim<Tx> implements ClaimFacts {
  readonly place: Place;
  readonly token: number;
  readonly attempts: number;
  readonly isTakeover: boolean;
  readonly data: Uint8Array | undefined;
  readonly #ledger: Ledger<Tx>;
  readonly #terms: ClaimTerms;
  readonly #tools: ResolvedTools;
  readonly #lost: Stoppable;
  /** Made when it is asked for: most work ends in time. */
  #overtime: AbortController | undefined;
  #deadlineMs: number;
  /** CK5: when the work has taken too long. */
  #endMs = Infinity;
  #cancelWork: () => void = doNothing;
  #cancelRenewal: () => void = doNothing;
  #cancelDeadline: () => void = doNothing;
  /** Why the claim is lost: the reason of its signal. To ask the signal would make it. */
  #loss: HapaxError | undefined;
  #isOver = false;
  #pauses = 0;
  /** CK7: false while the claim is only a lock. */
  #isWritten: boolean;
  /** CK7: the write that writes the claim down. It may still come after the end of the transaction. */
  #writing: Promise<unknown> | undefined;

  constructor(
    ledger: Ledger<Tx>,
    facts: ClaimFacts,
    terms: ClaimTerms,
    tools: ResolvedTools,
    startedMs: number,
    lock?: Stoppable,
  ) {
    this.place = facts.place;
    this.token = facts.token;
    this.attempts = facts.attempts;
    this.isTakeover = facts.isTakeover;
    this.data = facts.data;
    this.#ledger = ledger;
    this.#terms = terms;
    this.#tools = tools;
    // Counted from before the call: the lease in the database began later, so it also ends later.
    this.#lost = lock ?? new LightStop();
    this.isLock = lock !== undefined;
    this.#isWritten = !this.isLock;
    this.#deadlineMs = startedMs + (this.isLock ? LOCK_MS_MAX : terms.leaseMs) * (1 - MARGIN);
    // CK4: nothing says how long the transactions in front of it take.
    if (ledger.supports.isExclusive && terms.effect === "transaction") this.#pauses = 1;
    if (!this.isLock) this.start();
  }

  /** Begins to renew the claim, and to watch its time. Of a lock: call it when its work awaits, since what does not is over soon. */
  start(): void {
    const { workMsMax = Infinity } = this.#terms;
    this.#endMs = this.#tools.clock.steadyMs() + workMsMax;
    // Most work of a lock is over before it is written down: until then it has that timer alone.
    if (this.#isWritten || this.#isResting() || workMsMax <= UNWRITTEN_MS) this.#watchAll();
    this.#renewLater();
  }

  #watchAll(): void {
    this.#limit();
    if (!this.#isResting()) this.#watch();
  }

  /** CK2: aborts when another attempt has the claim, or may soon have it. Its reason is `lease_lost`. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Whether `signal` has aborted. */
  get isLost(): boolean {
    return this.#loss !== undefined;
  }

  /** CK5: aborts when the work has taken too long; `signal` does so too. */
  get overtime(): AbortSignal {
    this.#overtime ??= new AbortController();
    return this.#overtime.signal;
  }

  get meter(): Meter {
    return this.#tools.meter;
  }

  /** CK7: whether the claim began as a lock, without an entry. */
  readonly isLock: boolean;
  /** CK7: whether another one had made the entry before the end of this lock. */
  isLate = false;

  /** CK2: throws the signal's reason if the claim is lost. Reads the clock: after a pause of the process timers are late. */
  requireHeld(): void {
    if (!this.#isResting() && this.#tools.clock.steadyMs() >= this.#deadlineMs) this.#lose();
    if (this.#loss !== undefined) throw this.#loss;
  }

  /** Keeps the progress so far, under the token. Inside a transaction, pass `ledger.in(tx)`. */
  async progress(ledger: Ledger<Tx>, data: Uint8Array): Promise<void> {
    await this.#end(ledger, { ...this.#running(), data: { value: data } });
  }

  /**
   * CK7: ends a claim that is only a lock, with the entry that its transaction makes at its end. Undefined: the claim is written
   * down, or may be by now, and `complete` has to end it. Throws `lease_lost`.
   */
  end(data: Uint8Array | undefined): EntryWrite | undefined {
    if (this.#isWritten || this.#writing !== undefined) return undefined;
    this.requireHeld();
    this.stop();
    return {
      state: "done",
      token: { drawn: this.token },
      attempts: this.attempts,
      leaseMs: undefined,
      keepMs: this.#terms.retainMs,
      fingerprint: { value: this.#terms.fingerprint },
      data: { value: data },
    };
  }

  /** CK3: records the end of the work, in the transaction of the work: pass `ledger.in(tx)`. Throws `lease_lost`. */
  async complete(
    ledger: Ledger<Tx>,
    state: "done" | "failed",
    data: Uint8Array | undefined,
    retainMs: number | undefined = this.#terms.retainMs,
  ): Promise<void> {
    // CK7: a process that stood still beyond its time has lost its lock, also if no other has taken the work.
    if (!this.#isWritten) this.requireHeld();
    // A renewal after the end would take the end for a loss.
    this.stop();
    await this.#end(ledger, this.#ended(state, data, retainMs));
  }

  #ended(
    state: "done" | "failed",
    data: Uint8Array | undefined,
    retainMs: number | undefined,
  ): EntryWrite {
    return {
      state,
      token: "same",
      attempts: this.attempts,
      leaseMs: undefined,
      keepMs: retainMs,
      fingerprint: "same",
      data: { value: data },
    };
  }

  /** Gives the key back at once, with its count of attempts and its progress. Does nothing if the claim is lost already. */
  async release(): Promise<void> {
    this.stop();
    await this.#writing;
    const write: EntryWrite = {
      state: "released",
      token: "same",
      attempts: this.attempts,
      leaseMs: undefined,
      keepMs: this.#terms.retainMs,
      fingerprint: "same",
      data: "same",
    };
    // CK7: what failed has begun, also if its claim was only a lock.
    if (!this.#isWritten && (await this.#make(this.#ledger, write))) return;
    await this.#ledger.entries.put(this.place, this.#owned(), write);
  }

  /** OC5: ends the lease at once, as if the claim were lost: the next attempt asks for its outcome. */
  async abandon(): Promise<void> {
    this.stop();
    const write = { ...this.#running(), leaseMs: 0 };
    await this.#ledger.entries.put(this.place, this.#owned(), write);
  }

  /** Removes the entry, as if the key had never been claimed. */
  async forget(): Promise<void> {
    this.stop();
    await this.#writing;
    await this.#ledger.entries.remove(this.place, this.#owned());
  }

  /** Stops the renewal: after the end, or to let the lease run out. */
  stop(): void {
    this.#isOver = true;
    this.#cancelRenewal();
    this.#cancelDeadline();
    this.#cancelWork();
  }

  /** CK4: returns whether the work may begin in its transaction: pass `ledger.in(tx)`. */
  async isOwned(ledger: Ledger<Tx>): Promise<boolean> {
    const entry = await ledger.entries.find(this.place);
    return entry?.token === this.token && entry.state === "running";
  }

  /** CK4: neither renews nor loses the claim until `resume`. Only for a transaction that excludes all others. */
  pause(): void {
    this.#pauses += 1;
    this.#limit();
    this.#cancelRenewal();
    this.#cancelDeadline();
  }

  /** Call after the transaction. Renews at once if it is time, and then knows whether the claim is still held. */
  async resume(): Promise<void> {
    this.#pauses -= 1;
    if (this.#isResting()) return;
    const leftMs = this.#deadlineMs - this.#tools.clock.steadyMs();
    if (leftMs > this.#terms.leaseMs * (1 - MARGIN - 1 / 3)) this.#renewLater();
    else await this.#renew();
    if (!this.#isResting()) this.#watch();
  }

  /** CK5 */
  #limit(): void {
    if (this.#endMs === Infinity) return;
    const leftMs = Math.max(0, this.#endMs - this.#tools.clock.steadyMs());
    this.#cancelWork();
    this.#cancelWork = this.#tools.clock.after(leftMs, () => {
      const error = this.#lose(`the work took longer than workMsMax=${this.#terms.workMsMax}`);
      this.#overtime?.abort(error);
    });
  }

  #isResting(): boolean {
    return this.#isOver || this.#pauses > 0;
  }

  #owned(): Expected {
    return { kind: "owned", token: this.token };
  }

  #running(): EntryWrite {
    return {
      state: "running",
      token: "same",
      attempts: this.attempts,
      leaseMs: this.#terms.leaseMs,
      keepMs: keepWhileRunning(this.#terms),
      fingerprint: "same",
      data: "same",
    };
  }

  async #end(ledger: Ledger<Tx>, write: EntryWrite): Promise<void> {
    // CK7: the end of a lock is a new entry, unless the claim was written down meanwhile.
    const isMaking = !this.#isWritten;
    if (isMaking && (await this.#make(ledger, write))) return;
    const written = await ledger.entries.put(this.place, this.#owned(), write);
    if (written !== undefined) return;
    this.isLate = isMaking;
    this.#tools.meter.add("fenced_total", 1, { primitive: this.place.kind });
    throw this.#lose();
  }

  /** CK7: makes the entry of a lock. False: there is one, which may be its own. */
  async #make(ledger: Ledger<Tx>, write: EntryWrite): Promise<boolean> {
    return (await ledger.entries.put(this.place, ABSENT, this.#made(write))) !== undefined;
  }

  /** The same write, for an entry that is not there yet. */
  #made(write: EntryWrite): EntryWrite {
    return {
      ...write,
      token: { drawn: this.token },
      fingerprint: { value: this.#terms.fingerprint },
      data: write.data === "same" ? { value: undefined } : write.data,
    };
  }

  #renewLater(): void {
    if (this.#isResting()) return;
    this.#cancelRenewal();
    const delayMs = this.#isWritten ? this.#terms.leaseMs / 3 : UNWRITTEN_MS;
    this.#cancelRenewal = this.#tools.clock.after(delayMs, () => {
      if (!this.#isWritten) this.#watchAll();
      if (this.#isResting()) return;
      if (this.#isWritten) void this.#renew();
      else this.#writing = this.#renew();
    });
  }

  async #renew(): Promise<void> {
    const startedMs = this.#tools.clock.steadyMs();
    try {
      const isHeld =
        (!this.#isWritten && (await this.#make(this.#ledger, this.#running()))) ||
        (await this.#ledger.entries.put(this.place, this.#owned(), this.#running())) !== undefined;
      if (isHeld) this.#isWritten = true;
      if (this.#isOver) return;
      if (!isHeld) {
        this.#lose();
        return;
      }
      this.#deadlineMs = startedMs + this.#terms.leaseMs * (1 - MARGIN);
    } catch {
      // The database may be back before the lease is over: the deadline decides.
    }
    this.#renewLater();
  }

  #watch(): void {
    const leftMs = this.#deadlineMs - this.#tools.clock.steadyMs();
    if (leftMs <= 0) {
      this.#lose();
      return;
    }
    this.#cancelDeadline();
    this.#cancelDeadline = this.#tools.clock.after(leftMs, () => {
      if (!this.#isResting()) this.#watch();
    });
  }

  #lose(why = "the claim is over, or may soon be"): HapaxError {
    this.stop();
    const { kind, scope, key } = this.place;
    const error = new HapaxError("lease_lost", `${why}; kind=${kind} scope=${scope} key=${key}`);
    this.#loss ??= error;
    this.#lost.abort(error);
    return error;
  }
}
