/**
 * The engine: every mutation of a stream goes through here, in order, and every read sees what is durable.
 *
 * Each command is one synchronous step (look, decide, stage) followed by one wait. Between the decision and
 * the state there is no await, so two requests cannot decide on the same state.
 *
 *   E1  an answer waits for the newest batch that touches the stream it speaks of, refusals included;
 *   E2  a stream that has expired is ended through the same batch as any other change;
 *   E3  what an append causes (links, wakes, wake events) is committed with it, atomically.
 */

import type { Clock } from "../clock.ts";
import type { AppendCommand, AppendDecision } from "../core/append.ts";
import type { Appended, Change } from "../core/change.ts";
import {
  type CreateCommand,
  type CreateDecision,
  decideCreate,
  type ForkSource,
} from "../core/create.ts";
import { KEY_DEFAULTS, type KeyDefaults } from "../core/keys.ts";
import { decideEnding, decideTouch, expiresAtMs, isExpired } from "../core/retention.ts";
import { isSystemStream, type StreamState } from "../core/stream.ts";
import type { Offset, StreamId, StreamName, TimeMs } from "../core/types.ts";
import type { World } from "../core/world.ts";
import { HapaxError } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import type { Store, StoreStats, StoreSupport } from "../store.ts";
import { type AppendParts, Appends } from "./appends.ts";
import { type Batch, type Defer, GroupCommit } from "./commit.ts";
import { Deadlines } from "./deadlines.ts";
import { findForkSource, type ForkParts, type RecordsEnd } from "./fork-source.ts";
import { JournalClock } from "./journal-clock.ts";
import { KeySweeper } from "./key-sweeper.ts";
import { firstNames } from "./listing.ts";
import { Meter } from "./meter.ts";
import type { AppendObserver } from "./observer.ts";
import type { Patient } from "./patience.ts";
import { readAcrossForks } from "./reading.ts";
import { type TailListener, Tails } from "./tails.ts";
import { type TransactionParts, Transactions } from "./transactions.ts";

export interface Missing {
  readonly kind: "missing";
}

/** Softly deleted: forks still need the data. */
export interface Gone {
  readonly kind: "gone";
}

export interface Found {
  readonly kind: "found";
  readonly state: StreamState;
  /** The durable tail. */
  readonly tail: Offset;
  readonly isClosed: boolean;
}

export type Look = Found | Missing | Gone;
export type AppendOutcome = AppendDecision | Missing | Gone;
export type DeleteOutcome = { readonly kind: "deleted" } | Missing | Gone;

export interface ReadPage {
  /** Where the first append starts: before the offset asked for, if that was inside an append. */
  readonly start: Offset;
  readonly appends: readonly Uint8Array[];
  readonly bytes: number;
  readonly next: Offset;
  /** The durable state when the page was made. */
  readonly tail: Offset;
  readonly isUpToDate: boolean;
  /** The stream is closed and this page reaches its end. */
  readonly isAtEnd: boolean;
  /** Says that nobody will look at the appends again. Nobody has to say it. */
  readonly release: () => void;
}

export interface EngineParts {
  readonly store: Store;
  readonly clock: Clock;
  /** For JSON streams, whose sub-offsets count records. */
  readonly jsonRecordsEnd: RecordsEnd;
  /** When a batch begins to be written: at the end of the turn in which its first change came. */
  readonly defer?: Defer;
  /** For streams that say nothing of their keys. */
  readonly keyDefaults?: KeyDefaults;
  /** Answers of transactions that are kept. Default: the limit. */
  readonly outcomeBytesMax?: number;
  /** Hears of live readers that throw. */
  readonly onFault?: (error: unknown) => void;
}

const MISSING: Missing = { kind: "missing" };
const GONE: Gone = { kind: "gone" };

export class Engine {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #forks: ForkParts;
  readonly #commit: GroupCommit;
  readonly #tails: Tails;
  readonly #deadlines: Deadlines<StreamId>;
  readonly #journalClock: JournalClock;
  readonly #keySweeper: KeySweeper;
  /** Appends, and what is known of their producers. */
  readonly appends: Appends;
  readonly transactions: Transactions;
  readonly meter = new Meter();
  #observer: AppendObserver | undefined;

  constructor(parts: EngineParts) {
    this.#store = parts.store;
    this.#clock = parts.clock;
    this.#forks = {
      store: parts.store,
      jsonRecordsEnd: parts.jsonRecordsEnd,
      find: (name) => this.#find(name),
      durable: async (name, state) => {
        await this.#answer(name, state, undefined);
        return this.durableTail(state);
      },
    };
    this.#tails = new Tails(parts.onFault ?? (() => undefined));
    const announce = (batch: Batch): void => {
      this.#announce(batch);
    };
    this.#journalClock = new JournalClock(parts.clock, parts.store.world.timeMs);
    this.#commit = new GroupCommit(parts.store, announce, parts.defer, (changes) => {
      const startMs = parts.clock.steadyMs();
      return () => {
        this.meter.commit(changes, parts.clock.steadyMs() - startMs);
      };
    });
    const keyDefaults = parts.keyDefaults ?? KEY_DEFAULTS;
    this.#keySweeper = this.#createKeySweeper(keyDefaults);
    const lent = this.#lend(parts, keyDefaults);
    this.appends = new Appends(lent);
    this.transactions = new Transactions(lent);
    this.#deadlines = new Deadlines(
      parts.clock,
      () => this.nowMs(),
      (id) => {
        this.#sweep(id);
      },
    );
    for (const state of this.world.byId.values()) {
      this.#watchExpiry(state);
      if (state.keys !== undefined) this.#keySweeper.watch(state);
    }
  }

  /** What appends and transactions are made of. */
  #lend(parts: EngineParts, keyDefaults: KeyDefaults): AppendParts & TransactionParts {
    return {
      store: parts.store,
      clock: parts.clock,
      commit: this.#commit,
      meter: this.meter,
      keyDefaults,
      keySweeper: this.#keySweeper,
      nowMs: () => this.nowMs(),
      find: (name) => this.#find(name),
      stage: this.#stage.bind(this),
      touch: this.touch.bind(this),
      answer: (name, state, outcome) => this.#answer(name, state, outcome),
      observer: () => this.#observer,
      outcomeBytesMax: parts.outcomeBytesMax ?? LIMITS.outcomeBytesMax,
      created: this.#watchExpiry.bind(this),
      closed: (state) => {
        this.appends.release(state.id);
      },
    };
  }

  get world(): World {
    return this.#store.world;
  }

  /** Why nothing can be written, if so. */
  get stopped(): HapaxError | undefined {
    return this.#commit.stopped;
  }

  /** The store has no room for data. */
  get isFull(): boolean {
    return this.#store.roomBytes() <= 0;
  }

  get durability(): StoreSupport["durability"] {
    return this.#store.supports.durability;
  }

  get liveReaders(): number {
    return this.#tails.count;
  }

  /** Streams that remember keys. */
  get keyedStreams(): ReadonlySet<StreamId> {
    return this.#keySweeper.watched;
  }

  storeStats(): StoreStats {
    return this.#store.stats();
  }

  /** Journal time; see JournalClock. Never before the latest change. */
  nowMs(): TimeMs {
    return Math.max(this.world.timeMs, this.#journalClock.nowMs()) as TimeMs;
  }

  /** The time that a stream's expiry is measured by: one that names a wall-clock time follows that too. */
  #expiryNowMs(state: StreamState): TimeMs {
    const nowMs = this.nowMs();
    return state.expiry.kind === "at" ? (Math.max(nowMs, this.#clock.nowMs()) as TimeMs) : nowMs;
  }

  observe(observer: AppendObserver): void {
    this.#observer = observer;
  }

  /** Everything decided so far is durable. */
  settled(): Promise<void> {
    return this.#commit.settled();
  }

  /** Refuses a write of this size, before anything is decided, if there is no room for it. */
  admit(bytes: number): void {
    this.#commit.admit(bytes);
  }

  /** Applies changes that were decided in this same synchronous step; resolves when durable. */
  submit(changes: readonly Change[]): Promise<void> {
    if (changes.length === 0) return this.settled();
    const batch = this.#commit.begin();
    for (const change of changes) this.#stage(batch, change);
    return batch.done;
  }

  /** `patient`: the append may wait for those before it. */
  append(name: StreamName, command: AppendCommand, patient?: Patient): Promise<AppendOutcome> {
    return this.appends.append(name, command, patient);
  }

  async create(command: CreateCommand): Promise<CreateDecision> {
    this.#commit.admit(command.data.length);
    for (;;) {
      let source: ForkSource | undefined;
      if (command.fork !== undefined && this.#find(command.name) === undefined) {
        const found = await findForkSource(this.#forks, command.fork);
        if ("kind" in found) return this.#answer(command.fork.sourceName, undefined, found);
        source = found;
        // The source may have gone while its data was read: then look again.
        if (this.#find(command.fork.sourceName) !== source.state) continue;
      }
      const existing = this.#find(command.name);
      if (existing === undefined && command.fork !== undefined && source === undefined) continue;
      return this.#decideCreate(command, existing, source);
    }
  }

  delete(name: StreamName): Promise<DeleteOutcome> {
    const state = this.#find(name);
    if (state === undefined) return this.#answer(name, undefined, MISSING);
    if (state.isDeleted) return this.#answer(name, state, GONE);
    return this.#end(state).done.then(() => ({ kind: "deleted" }) as const);
  }

  /** The durable state of a stream. */
  async look(name: StreamName): Promise<Look> {
    for (;;) {
      const state = this.#find(name);
      const batch = this.#commit.lifecycle(name);
      if (batch === undefined) {
        if (state === undefined) return MISSING;
        return state.isDeleted ? GONE : this.view(state);
      }
      await batch.done;
    }
  }

  /** The durable state of a stream that was found before, also if it has been deleted since. */
  view(state: StreamState): Found {
    const tail = this.#commit.durableTail(state);
    return { kind: "found", state, tail, isClosed: this.#commit.isDurablyClosed(state) };
  }

  durableTail(state: StreamState): Offset {
    return this.#commit.durableTail(state);
  }

  /** Whole appends from the one that holds `from`. */
  async read(state: StreamState, from: Offset, bytesMax: number): Promise<ReadPage> {
    const { tail, isClosed } = this.view(state);
    const page = await readAcrossForks(this.#store, state, from, tail, bytesMax);
    let bytes = 0;
    for (const append of page.appends) bytes += append.length;
    if (bytes === 0 && from < tail) {
      // Its data is gone: it was deleted between the look and this read.
      throw new HapaxError("stream_not_found", "the stream was deleted while it was read");
    }
    const next = (bytes === 0 ? Math.min(from, tail) : page.start + bytes) as Offset;
    const isUpToDate = next >= tail;
    const { start, appends, release } = page;
    const isAtEnd = isClosed && isUpToDate;
    return { start, appends, bytes, next, tail, isUpToDate, isAtEnd, release };
  }

  /** Tells the listener of everything that becomes durable from now on, until it is taken out. */
  listen(state: StreamState, listener: TailListener): () => void {
    const leave = this.#tails.listen(state.id, listener);
    const isGone = this.world.byId.get(state.id) !== state || state.isDeleted;
    if (isGone && this.#commit.lifecycle(state.name) === undefined) this.#tellGone(state);
    return () => {
      leave();
      // Its time starts anew when the last reader goes: until now it could not expire.
      this.touch(state);
    };
  }

  /** The end came before the reader did. It hears of it all the same, but not within `listen`. */
  #tellGone(state: StreamState): void {
    const { id: stream, tail } = state;
    const { isClosed } = state;
    queueMicrotask(() => {
      this.#tails.publish({ stream, start: tail, tail, isClosed, isGone: true, appends: [] });
    });
  }

  /** A read or a refused write: it moves a sliding expiry. Nothing waits for it. */
  touch(state: StreamState): void {
    if (state.expiry.kind !== "ttl" || this.stopped !== undefined) return;
    if (this.world.byId.get(state.id) !== state) return; // It has gone since it was found.
    const change = decideTouch(state, this.nowMs());
    if (change !== undefined) this.#commit.stage(this.#commit.begin(), change);
  }

  /** Names in order, after `after`, that start with `prefix`; durable streams only. */
  list(prefix: string, after: string, count: number): readonly Found[] {
    const { streams } = this.world;
    const isListed = (name: StreamName): boolean => {
      const state = streams.get(name);
      if (state === undefined || state.isDeleted || !name.startsWith(prefix)) return false;
      if (isSystemStream(name)) return false;
      if (this.#commit.lifecycle(name) !== undefined) return false;
      return !isExpired(state, this.#expiryNowMs(state), this.#tails.hasListeners(state.id));
    };
    const found: Found[] = [];
    for (const name of firstNames(streams.keys(), after, count, isListed)) {
      const state = streams.get(name);
      if (state !== undefined) found.push(this.view(state));
    }
    return found;
  }

  /** Waits for what is under way, as long as it gets on, and closes the store. */
  async close(): Promise<void> {
    this.#deadlines.stop();
    this.#keySweeper.stop();
    this.appends.release();
    // Whoever waited for it has been told.
    const settled = this.settled().then(
      () => true,
      () => true,
    );
    // A commit may wait for room that never comes. Closing ends it, and then it is answered with an error.
    for (let landed = -1; landed !== this.#commit.landed;) {
      landed = this.#commit.landed;
      if (await this.#within(settled, LIMITS.closeStallMs)) break;
    }
    await this.#store.close();
  }

  /** Whether it has come to pass before the time is over. */
  async #within(done: Promise<boolean>, limitMs: number): Promise<boolean> {
    let cancel: () => void = () => undefined;
    const late = new Promise<boolean>((resolve) => {
      cancel = this.#clock.after(limitMs, () => {
        resolve(false);
      });
    });
    return Promise.race([done, late]).finally(cancel);
  }

  /** The outcome, once the state that it speaks of is durable. */
  #answer<T>(name: StreamName, state: StreamState | undefined, outcome: T): Promise<T> {
    const batch = this.#commit.underWay(name, state);
    return batch === undefined ? Promise.resolve(outcome) : batch.done.then(() => outcome);
  }

  /** The stream as decided, which may be ahead of what is durable. An expired one is ended here. */
  #find(name: StreamName): StreamState | undefined {
    const state = this.world.streams.get(name);
    if (state === undefined || state.expiry.kind === "never") return state;
    const nowMs = this.#expiryNowMs(state);
    if (!isExpired(state, nowMs, this.#tails.hasListeners(state.id))) return state;
    if (this.stopped !== undefined) return undefined;
    this.#end(state);
    return this.world.streams.get(name);
  }

  #end(state: StreamState): Batch {
    const batch = this.#commit.begin();
    for (const change of decideEnding(this.world.byId, state, this.nowMs())) {
      this.#commit.stage(batch, change);
    }
    this.appends.release(state.id);
    return batch;
  }

  #createKeySweeper(defaults: KeyDefaults): KeySweeper {
    return new KeySweeper({
      clock: this.#clock,
      nowMs: () => this.nowMs(),
      defaults,
      find: (id) => this.world.byId.get(id),
      durableTail: (state) => this.#commit.durableTail(state),
      submit: (change) => {
        if (this.stopped !== undefined) return;
        const before = this.world.byId.get(change.stream)?.keys?.window?.first ?? change.evictTo;
        this.meter.keysExpired += change.evictTo - before;
        this.#commit.stage(this.#commit.begin(), change);
      },
    });
  }

  #decideCreate(
    command: CreateCommand,
    existing: StreamState | undefined,
    source: ForkSource | undefined,
  ): Promise<CreateDecision> {
    const decision = decideCreate(existing, source, command, this.world.nextId, this.nowMs());
    if (decision.kind !== "created") {
      if (existing !== undefined && !existing.isDeleted) this.touch(existing);
      const [name, state] =
        existing === undefined && command.fork !== undefined
          ? [command.fork.sourceName, source?.state]
          : [command.name, existing];
      return this.#answer(name, state, decision);
    }
    // A fork has waited since it was admitted.
    this.#commit.admit(command.data.length);
    const batch = this.#commit.begin();
    for (const change of decision.changes) this.#stage(batch, change);
    const state = this.world.streams.get(command.name);
    if (state !== undefined) this.#watchExpiry(state);
    return batch.done.then(() => decision);
  }

  /** Stages a change, and with an append whatever it causes. */
  #stage(batch: Batch, change: Change): void {
    if (this.#observer === undefined || change.kind !== "appended" || change.data.length === 0) {
      this.#commit.stage(batch, change);
    } else {
      this.#stageObserved(batch, change, this.#observer);
    }
  }

  #stageObserved(batch: Batch, change: Appended, observer: AppendObserver): void {
    const state = this.world.byId.get(change.stream);
    if (state === undefined) return;
    for (const caused of observer.before(state, change.atMs)) this.#stage(batch, caused);
    this.#commit.stage(batch, change);
    for (const caused of observer.after(state, change.atMs)) this.#stage(batch, caused);
  }

  #announce(batch: Batch): void {
    for (const advance of batch.advances.values()) {
      this.#tails.publish(advance);
    }
  }

  #watchExpiry(state: StreamState): void {
    const atMs = expiresAtMs(state);
    if (atMs !== undefined && !state.isDeleted) this.#deadlines.add(atMs, state.id);
  }

  #sweep(id: StreamId): void {
    const state = this.world.byId.get(id);
    if (state === undefined || state.isDeleted || this.stopped !== undefined) return;
    if (this.#find(state.name) !== state) return;
    const nowMs = this.nowMs();
    const atMs = expiresAtMs(state) ?? nowMs;
    // Its deadline has passed but somebody reads it live: look again later.
    this.#deadlines.add(atMs > nowMs ? atMs : nowMs + 1000, id);
  }
}
