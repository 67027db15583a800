/**
 * A saga that this process holds. All its writes are in this file.
 *
 *   - SA1: a write counts only if the entry is the one that this process knows, under its token. A process that has
 *     lost the saga gets `lease_lost`;
 *   - writes are made one after the other. An act of an operator, or a signal, that came in between is taken over
 *     first;
 *   - after such an act nothing begins and no transaction commits before the next step is decided anew;
 *   - a record without an answer is written again, and a commit without an answer is looked up under a lock. Each write
 *     has a number, by which this process recognises what was stored; acts keep that number.
 */

import type { Clock } from "../../base/clock.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import { pause } from "../../base/pause.ts";
import { Turns } from "../../base/turns.ts";
import type { Entry, EntryWrite, Expected, Ledger } from "../ledgers/ledger.ts";
import type { Claim } from "../once/claiming.ts";
import type { ResolvedTools } from "../once/tools.ts";
import { growingPauses } from "../once/pauses.ts";
import { decideNext, type SagaDecision } from "../rules/saga.ts";
import { applySagaEvent, SagaContradiction, type SagaEvent } from "../rules/saga-events.ts";
import type { SagaProgress, SagaWait } from "../rules/saga-plan.ts";
import type { SagaDefinition } from "./definition.ts";
import { decodeSaga, encodeSaga, refOfPlace, type SagaRef } from "./record.ts";

/** The parts that all sagas of a runner share. */
export interface SagaShop<Tx> {
  readonly ledger: Ledger<Tx>;
  readonly tools: ResolvedTools;
  /** The clock for waiting: its timers keep the process alive. */
  readonly clock: Clock;
  readonly leaseMs: number;
  readonly retainMs: number;
}

/** An entry as it was read: its progress, and the time of the reading. */
export interface SagaReading {
  readonly progress: SagaProgress;
  readonly revision: number;
  /** The age of the entry when it was read, and the steady time at which the answer arrived. */
  readonly ageMs: number;
  readonly readMs: number;
}

interface Prepared {
  readonly progress: SagaProgress;
  readonly write: EntryWrite;
  readonly isOver: boolean;
  /** The steps whose outcome this write records. */
  readonly told: ReadonlySet<string>;
}

/** A write of this process. Every try writes the same, so that this process recognises what was stored. */
interface Attempt {
  /** No other write under this token has this number. */
  readonly number: number;
  readonly events: readonly SagaEvent[];
  readonly isBeginning: boolean;
  readonly nowMs: number;
}

/** Thrown to roll a transaction back, because an act came in between. */
class Changed extends Error {}

export class HeldSaga<Tx> {
  readonly shop: SagaShop<Tx>;
  readonly definition: SagaDefinition<Tx>;
  readonly claim: Claim<Tx>;
  readonly ref: SagaRef;
  readonly #reading: SagaReading;
  readonly #turns = new Turns(1);
  #progress: SagaProgress;
  #revision: number;
  #isOver = false;
  /** The number of the newest write that was tried, and the numbers of writes that were found stored. */
  #number: number;
  readonly #stored = new Set<number>();
  /** The steps whose attempts have not settled. Their recorded states decide nothing yet. */
  #flying: ReadonlySet<string> = new Set();

  constructor(
    shop: SagaShop<Tx>,
    definition: SagaDefinition<Tx>,
    claim: Claim<Tx>,
    reading: SagaReading,
  ) {
    this.shop = shop;
    this.definition = definition;
    this.claim = claim;
    this.ref = refOfPlace(claim.place);
    this.#reading = reading;
    this.#progress = reading.progress;
    this.#revision = reading.revision;
    this.#number = reading.progress.write ?? 0;
  }

  /** Whether this process has recorded the end, or has given the saga back. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Whether this process may record nothing more: the saga has ended here, or another process has it. */
  get isGone(): boolean {
    return this.#isOver || this.claim.signal.aborted;
  }

  get progress(): SagaProgress {
    return this.#progress;
  }

  /** The time of the saga. It is never ahead of the database's time, so that no sleep ends early. */
  nowMs(): number {
    const { ageMs, readMs } = this.#reading;
    return Math.max(0, Math.floor(ageMs + this.shop.tools.clock.steadyMs() - readMs));
  }

  decide(): SagaDecision {
    return decideNext(this.definition.plan, this.#progress, this.nowMs());
  }

  /**
   * SA2: records the steps that are about to begin. Returns false if the next step has to be decided anew. `steps` has
   * all running steps: nothing is decided until each of them has an outcome.
   */
  async begin(steps: readonly string[], events: readonly SagaEvent[]): Promise<boolean> {
    this.claim.requireHeld();
    this.#flying = new Set(steps);
    return events.length === 0 || (await this.#persist(events, true));
  }

  /** Marks all running steps as settled. */
  land(): void {
    this.#flying = new Set();
  }

  /** Records what has happened. */
  async record(events: readonly SagaEvent[]): Promise<void> {
    await this.#persist(events, false);
  }

  /**
   * Writes, and tries again as long as the claim is held: the database may be away for a moment, or an act may have
   * locked the entry.
   */
  async #persist(events: readonly SagaEvent[], isBeginning: boolean): Promise<boolean> {
    const { tools, clock } = this.shop;
    const nextMs = growingPauses(tools.random);
    const attempt = this.#attempt(events, isBeginning);
    for (;;) {
      try {
        return await this.#turns.run(() => this.#write(attempt));
      } catch (error) {
        const isHopeless =
          isHapaxError(error, "lease_lost") ||
          isHapaxError(error, "invalid_request") ||
          error instanceof SagaContradiction;
        if (isHopeless || this.claim.signal.aborted) throw error;
      }
      await pause(clock, nextMs(), this.claim.signal);
    }
  }

  #attempt(events: readonly SagaEvent[], isBeginning: boolean): Attempt {
    this.#number += 1;
    return { number: this.#number, events, isBeginning, nowMs: this.nowMs() };
  }

  /**
   * Gives the saga back until `untilMs`. Undefined: until a signal or an act comes. Returns false if the next step has
   * to be decided anew.
   */
  async park(
    waiting: { readonly for: SagaWait; readonly step?: string | undefined },
    leaseMs: number | undefined,
  ): Promise<boolean> {
    return await this.#turns.run(async () => {
      const { progress } = this.decide();
      const parked = { ...progress, waiting };
      const data = encodeSaga(parked);
      // With a new token: a renewal that is still on its way must not change when it is due.
      const write = { ...this.#running(data), token: "next", leaseMs } as const;
      const { entries } = this.shop.ledger;
      for (;;) {
        const written = await entries.put(this.claim.place, this.#expected(), write);
        if (written !== undefined) {
          this.#end();
          return true;
        }
        if (await this.#refresh(this.shop.ledger)) return false;
      }
    });
  }

  /**
   * SA2: runs work in a transaction that also records its event. Returns false if the next step has to be decided anew.
   * Throws the errors of the work and of the database. In both cases the transaction had no effect.
   */
  async transact(
    work: (tx: Tx, signal: AbortSignal) => Promise<SagaEvent>,
    signal: AbortSignal,
  ): Promise<boolean> {
    return await this.#turns.run(async () => {
      const { claim } = this;
      const { isExclusive } = this.shop.ledger.supports;
      claim.requireHeld();
      // Other transactions may be in front of it, for longer than the lease.
      if (isExclusive) claim.pause();
      try {
        return await this.#transaction(work, signal);
      } finally {
        if (isExclusive) await claim.resume();
      }
    });
  }

  async #transaction(
    work: (tx: Tx, signal: AbortSignal) => Promise<SagaEvent>,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { ledger } = this.shop;
    let prepared: Prepared | undefined;
    try {
      const revision = await ledger.transaction(async (tx) => {
        const joined = ledger.in(tx);
        if (ledger.supports.isExclusive && !(await this.claim.isOwned(joined))) throw this.#lost();
        await failpoint("saga.began");
        const event = await work(tx, signal);
        await failpoint("saga.worked");
        const next = this.#prepare(this.#attempt([event], false));
        const written = await this.#checkpoint(joined, next);
        prepared = next;
        await failpoint("saga.checkpointed");
        return written;
      }, signal);
      await failpoint("saga.committed");
      if (prepared !== undefined) this.#take(prepared, revision);
      return true;
    } catch (error) {
      if (error instanceof Changed) return false;
      if (prepared !== undefined && (await this.#isCommitted(prepared, error))) return true;
      throw error;
    }
  }

  /** Records an event inside a transaction. Throws `Changed` if an act came in between. */
  async #checkpoint(joined: Ledger<Tx>, { write }: Prepared): Promise<number> {
    const { place } = this.claim;
    for (;;) {
      const written = await joined.entries.put(place, this.#expected(), write);
      if (written !== undefined) return written.revision;
      if (await this.#refresh(joined)) throw new Changed();
    }
  }

  /** Finds out whether a commit without an answer happened. The entry is locked until that transaction has ended. */
  async #isCommitted(prepared: Prepared, cause: unknown): Promise<boolean> {
    if (this.claim.signal.aborted) throw cause;
    const { ledger, tools, clock } = this.shop;
    const nextMs = growingPauses(tools.random);
    for (;;) {
      let entry: Entry | undefined;
      try {
        entry = await ledger.transaction((tx) => ledger.in(tx).entries.find(this.claim.place));
      } catch {
        // The database is not back yet. If it does not come back in time, the claim is lost.
        if (this.claim.signal.aborted) throw cause;
        await pause(clock, nextMs(), this.claim.signal);
        continue;
      }
      if (entry?.token !== this.claim.token) throw this.#lost();
      return this.#isStored(prepared, entry.revision, decodeSaga(entry.data));
    }
  }

  /** Returns whether a write is in the entry that was read, also if an act came after it. Takes over both. */
  #isStored(tried: Prepared, revision: number, found: SagaProgress): boolean {
    if (found.write !== tried.progress.write) return false;
    this.#take({ ...tried, progress: found }, revision);
    return true;
  }

  async #write(attempt: Attempt): Promise<boolean> {
    const { ledger } = this.shop;
    const { number, events, isBeginning } = attempt;
    if (this.#stored.has(number)) {
      // Its answer was lost, and a write of another branch has found it.
      if (!isBeginning) this.#settle(new Set(events.map(({ step }) => step)));
      return true;
    }
    for (;;) {
      const prepared = this.#prepare(attempt);
      const { place } = this.claim;
      const written = await ledger.entries.put(place, this.#expected(), prepared.write);
      if (written !== undefined) {
        this.#take(prepared, written.revision);
        return true;
      }
      const isChanged = await this.#refresh(ledger, prepared);
      if (isChanged === "written") return true;
      if (isChanged && isBeginning) return false;
    }
  }

  /** Returns the new progress and the write for it. The last step of a saga also writes its end. */
  #prepare({ number, events, isBeginning, nowMs }: Attempt): Prepared {
    const { plan } = this.definition;
    const told = new Set(events.map(({ step }) => step));
    const isFlying = isBeginning || [...this.#flying].some((step) => !told.has(step));
    const settle = (before: SagaProgress): SagaProgress =>
      isFlying ? before : decideNext(plan, before, nowMs).progress;
    const after = events.reduce(
      (before, event) => applySagaEvent(plan, before, event, nowMs),
      isBeginning ? decideNext(plan, this.#progress, nowMs).progress : this.#progress,
    );
    const progress = { ...settle(after), write: number };
    const next = isFlying ? undefined : decideNext(plan, progress, nowMs).next;
    const running = this.#running(encodeSaga(progress, events.some(bringsValue)));
    const landed = isBeginning ? new Set<string>() : told;
    if (next?.kind === "end") {
      const write = { ...running, state: "done", leaseMs: undefined } as const;
      const kept = { ...write, keepMs: this.shop.retainMs };
      return { progress, write: kept, isOver: true, told: landed };
    }
    if (next?.kind === "stuck") {
      const write = { ...running, state: "failed", leaseMs: undefined } as const;
      return { progress, write, isOver: true, told: landed };
    }
    return { progress, write: running, isOver: false, told: landed };
  }

  #running(data: Uint8Array): EntryWrite {
    return {
      state: "running",
      token: "same",
      attempts: this.claim.attempts,
      leaseMs: this.shop.leaseMs,
      keepMs: undefined,
      fingerprint: "same",
      data: { value: data },
    };
  }

  #expected(): Expected {
    return { kind: "unchanged", token: this.claim.token, revision: this.#revision };
  }

  #take({ progress, isOver, told }: Prepared, revision: number): void {
    this.#progress = progress;
    this.#settle(told);
    this.#revision = revision;
    if (isOver) this.#end();
  }

  #settle(told: ReadonlySet<string>): void {
    this.#flying = new Set([...this.#flying].filter((step) => !told.has(step)));
  }

  #end(): void {
    this.#isOver = true;
    this.claim.stop();
  }

  /** Reads the entry again. Returns whether an operator or a signal has changed the progress. Throws `lease_lost`. */
  async #refresh(ledger: Ledger<Tx>): Promise<boolean>;
  async #refresh(ledger: Ledger<Tx>, tried: Prepared): Promise<boolean | "written">;
  async #refresh(ledger: Ledger<Tx>, tried?: Prepared): Promise<boolean | "written"> {
    const entry = await ledger.entries.find(this.claim.place);
    if (entry?.token !== this.claim.token) throw this.#lost();
    const found = decodeSaga(entry.data);
    // An earlier try was stored, and its answer was lost.
    if (tried !== undefined && this.#isStored(tried, entry.revision, found)) return "written";
    if (entry.state !== "running") throw this.#lost();
    if (found.write !== undefined) this.#stored.add(found.write);
    const isChanged = !isSame(entry.data, encodeSaga(this.#progress));
    if (isChanged) this.#progress = found;
    this.#revision = entry.revision;
    return isChanged;
  }

  #lost(): HapaxError {
    this.#end();
    this.shop.tools.meter.add("fenced_total", 1, { primitive: "saga" });
    const { saga, scope, key } = this.ref;
    const where = `saga=${saga} scope=${scope} key=${key}`;
    return new HapaxError("lease_lost", `another process has taken the saga; ${where}`);
  }
}

function bringsValue(event: SagaEvent): boolean {
  return (event.kind === "done" || event.kind === "asked") && event.result !== undefined;
}

function isSame(one: Uint8Array | undefined, other: Uint8Array): boolean {
  if (one?.length !== other.length) return false;
  return one.every((byte, at) => byte === other[at]);
}
