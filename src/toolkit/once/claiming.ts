/**
 * Claiming a key in a ledger, keeping the claim alive, and ending it. What processOnce, the idempotency keys of HTTP APIs
 * and their completer share; who may claim is toolkit/rules/claim.ts.
 *
 *   CK1  the claim is committed before its work begins, so that everybody else learns of it;
 *   CK2  a claim is renewed at a third of its lease; what cannot be renewed in time aborts its signal before it is over;
 *   CK3  the end of a claim is written only under its token, in the transaction of its work: a lost claim rolls back;
 *   CK4  where one transaction excludes all others, a claim is neither renewed nor lost from the moment on at which its
 *        work waits for its transaction: a line of such works would outlast any lease. What it finds there decides;
 *   CK6  a clock that is set back keeps nobody from the key of a dead process for longer than its lease;
 *   CK5  work that never ends keeps its key for a bounded time: then its claim is given up, and its caller learns of it.
 */

import { type Clock, systemClock } from "../../base/clock.ts";
import { type ClaimDecision, type ClaimRequest, decideClaim } from "../rules/claim.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import type { Entry, EntryWrite, Expected, Ledger, Place } from "../ledgers/ledger.ts";
import { type Meter, noMeter } from "../meters/meter.ts";
import { type Random, systemRandom } from "../../base/random.ts";

/** What the primitives get from outside. All have defaults. */
export interface Tools {
  readonly clock?: Clock;
  readonly random?: Random;
  readonly meter?: Meter;
}

export interface ResolvedTools {
  readonly clock: Clock;
  readonly random: Random;
  readonly meter: Meter;
}

export function resolveTools({ clock, random, meter }: Tools): ResolvedTools {
  return { clock: clock ?? systemClock, random: random ?? systemRandom, meter: meter ?? noMeter };
}

export interface ClaimTerms extends ClaimRequest {
  readonly leaseMs: number;
  /** Of what is done, and of what was begun and lost. */
  readonly retainMs: number;
  /** CK5: how long the claim is renewed. Undefined: until it is ended. */
  readonly workMsMax?: number;
}

/** What came of a claim: the claim, or what the entry says to those who may not work. */
export type Acquired<Tx> =
  | {
      readonly kind: "claimed";
      readonly claim: Claim<Tx>;
      /** Ask for the outcome of the lost attempt first. */
      readonly needsProbe: boolean;
      /** Only ask: it may not be begun again. */
      readonly isExhausted: boolean;
    }
  | {
      readonly kind: Exclude<ClaimDecision["kind"], "claim" | "probe">;
      readonly entry: Entry;
    };

const ABSENT: Expected = { kind: "absent" };
/** How much of a lease is left when its signal aborts: time to stop what is under way. */
const MARGIN = 0.1;

/** Claims the key, or says why not. Nothing is waited for. `isKnown`: there probably is an entry, so look first. */
export async function acquire<Tx>(
  ledger: Ledger<Tx>,
  place: Place,
  terms: ClaimTerms,
  tools: ResolvedTools,
  isKnown = false,
): Promise<Acquired<Tx>> {
  const { entries } = ledger;
  // Most keys are new: those cost one statement.
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
      // Whoever does not compare leaves it to those who do.
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

/** The database's clock may be corrected by so much without a word. */
const CLOCK_MS = 1_000;

/**
 * CK6: a lease of which more is left than it ever had was given before the clock was set back. Whoever holds it renews it; for
 * one who is dead it would last until the clock is there again. So it begins anew, as long as it was.
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

/** When to come back to an entry that an open transaction keeps locked: its holder may have been cut off. */
const LOCKED_MS = 1_000;

/** An entry that is being made by a transaction that is not committed. */
const UNSEEN: Entry = {
  token: 0,
  revision: 0,
  state: "running",
  attempts: 0,
  leaseLeftMs: LOCKED_MS,
  keepLeftMs: undefined,
  ageMs: 0,
  fingerprint: undefined,
  data: undefined,
};

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

/** OC5: work that must be asked for stays until somebody has asked. */
function keepWhileRunning({ effect, retainMs }: ClaimTerms): number | undefined {
  return effect === "probed" ? undefined : retainMs;
}

interface ClaimFacts {
  readonly place: Place;
  readonly token: number;
  readonly attempts: number;
  /** Whether somebody else had begun, and was lost. */
  readonly isTakeover: boolean;
  /** What the attempts before left behind. */
  readonly data: Uint8Array | undefined;
}

/** The right to do the work of a key. Renewed until it is ended. */
export class Claim<Tx> implements ClaimFacts {
  readonly place: Place;
  readonly token: number;
  readonly attempts: number;
  readonly isTakeover: boolean;
  readonly data: Uint8Array | undefined;
  readonly #ledger: Ledger<Tx>;
  readonly #terms: ClaimTerms;
  readonly #tools: ResolvedTools;
  readonly #lost = new AbortController();
  readonly #overtime = new AbortController();
  #deadlineMs: number;
  #cancelWork: () => void = () => undefined;
  #cancelRenewal: () => void = () => undefined;
  #cancelDeadline: () => void = () => undefined;
  #isOver = false;
  #pauses = 0;

  constructor(
    ledger: Ledger<Tx>,
    facts: ClaimFacts,
    terms: ClaimTerms,
    tools: ResolvedTools,
    startedMs: number,
  ) {
    this.place = facts.place;
    this.token = facts.token;
    this.attempts = facts.attempts;
    this.isTakeover = facts.isTakeover;
    this.data = facts.data;
    this.#ledger = ledger;
    this.#terms = terms;
    this.#tools = tools;
    // Counted from before the call: the database's lease began later, and ends later.
    this.#deadlineMs = startedMs + terms.leaseMs * (1 - MARGIN);
    if (terms.workMsMax !== undefined) this.#limit(terms.workMsMax);
    // CK4: what is in front of it in the line has no end that is known.
    if (ledger.supports.isExclusive && terms.effect === "transaction") this.#pauses = 1;
    if (this.#isResting()) return;
    this.#renewLater();
    this.#watch();
  }

  /** CK2: aborts when the claim is, or may soon be, somebody else's. Its reason is `lease_lost`. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** CK5: aborts when the work has taken too long; `signal` does so too. */
  get overtime(): AbortSignal {
    return this.#overtime.signal;
  }

  get meter(): Meter {
    return this.#tools.meter;
  }

  /** CK2: throws the signal's reason. Looks at the time itself: after a pause of the process the timers come late. */
  requireHeld(): void {
    if (!this.#isResting() && this.#tools.clock.steadyMs() >= this.#deadlineMs) this.#lose();
    this.signal.throwIfAborted();
  }

  /** Keeps what was done so far, under the token; inside a transaction, pass `ledger.in(tx)`. */
  async progress(ledger: Ledger<Tx>, data: Uint8Array): Promise<void> {
    await this.#end(ledger, { ...this.#running(), data: { value: data } });
  }

  /** CK3: the end of the work, in its own transaction: pass `ledger.in(tx)`. Throws `lease_lost`. */
  async complete(
    ledger: Ledger<Tx>,
    state: "done" | "failed",
    data: Uint8Array | undefined,
    retainMs: number | undefined = this.#terms.retainMs,
  ): Promise<void> {
    // A renewal that comes after the end would take it for a loss.
    this.stop();
    await this.#end(ledger, {
      state,
      token: "same",
      attempts: this.attempts,
      leaseMs: undefined,
      keepMs: retainMs,
      fingerprint: "same",
      data: { value: data },
    });
  }

  /** Gives the key back at once, with its count of attempts and its progress. Says nothing if it is lost already. */
  async release(): Promise<void> {
    this.stop();
    await this.#ledger.entries.put(this.place, this.#owned(), {
      state: "released",
      token: "same",
      attempts: this.attempts,
      leaseMs: undefined,
      keepMs: this.#terms.retainMs,
      fingerprint: "same",
      data: "same",
    });
  }

  /** OC5: leaves it as lost, at once: whoever comes next asks what became of it. */
  async abandon(): Promise<void> {
    this.stop();
    const write = { ...this.#running(), leaseMs: 0 };
    await this.#ledger.entries.put(this.place, this.#owned(), write);
  }

  /** As if it had never been claimed. */
  async forget(): Promise<void> {
    this.stop();
    await this.#ledger.entries.remove(this.place, this.#owned());
  }

  /** No renewal any more: after the end, or to let the lease run out. */
  stop(): void {
    this.#isOver = true;
    this.#cancelRenewal();
    this.#cancelDeadline();
    this.#cancelWork();
  }

  /** CK4: whether the work may begin in its transaction: pass `ledger.in(tx)`. */
  async isOwned(ledger: Ledger<Tx>): Promise<boolean> {
    const entry = await ledger.entries.find(this.place);
    return entry?.token === this.token && entry.state === "running";
  }

  /** CK4: no renewal and no loss until `resume`. Only for a transaction that excludes everybody else. */
  pause(): void {
    this.#pauses += 1;
    this.#cancelRenewal();
    this.#cancelDeadline();
  }

  /** After the transaction: renews at once if it is time, and knows then whether it is still held. */
  async resume(): Promise<void> {
    this.#pauses -= 1;
    if (this.#isResting()) return;
    const leftMs = this.#deadlineMs - this.#tools.clock.steadyMs();
    if (leftMs > this.#terms.leaseMs * (1 - MARGIN - 1 / 3)) this.#renewLater();
    else await this.#renew();
    if (!this.#isResting()) this.#watch();
  }

  /** CK5 */
  #limit(workMsMax: number): void {
    this.#cancelWork = this.#tools.clock.after(workMsMax, () => {
      const error = this.#lose(`the work took longer than workMsMax=${workMsMax}`);
      this.#overtime.abort(error);
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
    const written = await ledger.entries.put(this.place, this.#owned(), write);
    if (written !== undefined) return;
    this.#tools.meter.add("fenced_total", 1, { primitive: this.place.kind });
    throw this.#lose();
  }

  #renewLater(): void {
    if (this.#isResting()) return;
    this.#cancelRenewal();
    this.#cancelRenewal = this.#tools.clock.after(this.#terms.leaseMs / 3, () => {
      void this.#renew();
    });
  }

  async #renew(): Promise<void> {
    const startedMs = this.#tools.clock.steadyMs();
    try {
      const written = await this.#ledger.entries.put(this.place, this.#owned(), this.#running());
      if (this.#isOver) return;
      if (written === undefined) {
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
    this.#lost.abort(error);
    return error;
  }
}
