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

import type { Clock } from "../../base/clock.ts";
import type { AppendCommand } from "../core/append.ts";
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
import type { Offset, Run, StreamId, StreamName, TimeMs } from "../core/types.ts";
import type { World } from "../core/world.ts";
import { HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import type { Store, StoreStats, StoreSupport } from "../store.ts";
import type { Act } from "./acts.ts";
import { type AppendParts, Appends } from "./appends.ts";
import { type Batch, type Defer, GroupCommit, type Room } from "./commit.ts";
import { Deadlines } from "./deadlines.ts";
import { findForkSource, type ForkParts, type RecordsEnd } from "./fork-source.ts";
import { JournalClock } from "./journal-clock.ts";
import { KeySweeper } from "./key-sweeper.ts";
import { Boundaries, type IsRecordStart } from "./boundaries.ts";
import { pageOfNames, type StreamPage } from "./listing.ts";
import { Meter } from "./meter.ts";
import type { AppendObserver } from "./observer.ts";
import type {
  AppendOutcome,
  DeleteOutcome,
  Found,
  Gone,
  Look,
  Missing,
  ReadPage,
} from "./outcomes.ts";
import type { Patient } from "./patience.ts";
import { readAcrossForks } from "./reading.ts";
import { drawRun } from "./run.ts";
import { type TailListener, Tails } from "./tails.ts";
import { type TransactionParts, Transactions } from "./transactions.ts";
import { Slices } from "./turn-budget.ts";

export interface EngineParts {
  readonly store: Store;
  readonly clock: Clock;
  /** Default: the platform's. */
  readonly random?: Random;
  /** For JSON streams, whose sub-offsets count records. */
  readonly jsonRecordsEnd: RecordsEnd;
  /** For JSON streams, where a group may stand at any record. Default: at appends only. */
  readonly isJsonRecordStart?: IsRecordStart;
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
  readonly boundaries: Boundaries;
  readonly meter = new Meter();
  readonly #run: Run;
  /** Streams that were read on a full disk: they do not expire before that can be written down. */
  readonly #unwritten = new Set<StreamId>();
  #observer: AppendObserver | undefined;

  constructor(parts: EngineParts) {
    this.#store = parts.store;
    this.#clock = parts.clock;
    this.#run = drawRun(parts.random ?? systemRandom);
    this.#forks = {
      store: parts.store,
      jsonRecordsEnd: parts.jsonRecordsEnd,
      find: (name) => this.#find(name),
      durable: async (name, state) => {
        await this.#answer(name, state, undefined);
        return this.durableTail(state);
      },
    };
    this.#tails = new Tails(parts.clock, parts.onFault ?? (() => undefined));
    const announce = (batch: Batch): void => this.#announce(batch);
    this.#journalClock = new JournalClock(parts.clock, parts.store.world.timeMs);
    this.#commit = new GroupCommit(parts.store, announce, parts.defer, (changes) => {
      const startMs = parts.clock.steadyMs();
      return () => {
        this.meter.commit(changes, parts.clock.steadyMs() - startMs);
      };
    });
    this.boundaries = new Boundaries({
      store: parts.store,
      isJsonRecordStart: parts.isJsonRecordStart ?? (() => false),
      durableTail: (state) => this.durableTail(state),
      durable: (name, state) => this.#answer(name, state, undefined),
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
      boundaries: this.boundaries,
      run: this.#run,
      nowMs: () => this.nowMs(),
      keyMs: () => this.#journalClock.unboundMs(),
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

  /**
   * The time that a stream's expiry is measured by. One that names a wall-clock time follows that clock, also ahead of
   * journal time; a journal that a wrong clock has put ahead does not end it early.
   */
  #expiryNowMs(state: StreamState): TimeMs {
    if (state.expiry.kind !== "at") return this.nowMs();
    return Math.max(this.#journalClock.unboundMs(), this.#clock.nowMs()) as TimeMs;
  }

  /** For work on many things that need not be of one moment. */
  slices(): Slices {
    return new Slices(this.#clock);
  }

  observe(observer: AppendObserver): void {
    this.#observer = observer;
  }

  /** Everything decided so far is durable. */
  settled(): Promise<void> {
    return this.#commit.settled();
  }

  /** To be asked before `submit`. */
  get room(): Room {
    return this.#commit;
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

  delete(name: StreamName, act?: Act): Promise<DeleteOutcome> {
    const state = this.#find(name);
    if (state === undefined) return this.#answer(name, undefined, MISSING);
    if (state.isDeleted) return this.#answer(name, state, GONE);
    this.#commit.admitRemoval();
    act?.guard();
    const batch = this.#end(state);
    act?.note({});
    return batch.done.then(() => ({ kind: "deleted" }) as const);
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
    if (!isUpToDate) this.boundaries.remember(state.id, next);
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
    const { id: stream, tail, isClosed } = state;
    queueMicrotask(() => {
      this.#tails.publish([{ stream, start: tail, tail, isClosed, isGone: true, appends: [] }]);
    });
  }

  /** A read or a refused write: it moves a sliding expiry. Nothing waits for it. */
  touch(state: StreamState): void {
    if (state.expiry.kind !== "ttl" || this.stopped !== undefined) return;
    if (this.world.byId.get(state.id) !== state) return; // It has gone since it was found.
    const change = decideTouch(state, this.nowMs());
    if (change === undefined) return;
    if (this.#commit.hasRoomToSpare) this.#commit.stage(this.#commit.begin(), change);
    else this.#unwritten.add(state.id);
  }

  /** Names in order, after `after`, that start with `prefix`; durable streams only. */
  list(prefix: string, after: string, limit: number): StreamPage {
    const { streams, names } = this.world;
    return pageOfNames(names, { prefix, after, limit }, (name) => {
      const state = streams.get(name);
      if (state === undefined || state.isDeleted || isSystemStream(name)) return undefined;
      if (this.#commit.lifecycle(name) !== undefined) return undefined;
      const isRead = this.#isRead(state.id);
      return isExpired(state, this.#expiryNowMs(state), isRead) ? undefined : this.view(state);
    });
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
    if (!isExpired(state, nowMs, this.#isRead(state.id))) return state;
    if (this.stopped !== undefined) return undefined;
    this.#end(state);
    return this.world.streams.get(name);
  }

  /** Live, or since its sliding expiry was last written down. */
  #isRead(id: StreamId): boolean {
    return this.#tails.hasListeners(id) || this.#unwritten.has(id);
  }

  #end(state: StreamState): Batch {
    const batch = this.#commit.begin();
    this.#unwritten.delete(state.id);
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
        if (!this.#commit.hasRoomToSpare) return this.stopped === undefined ? "later" : "never";
        const before = this.world.byId.get(change.stream)?.keys?.window?.first ?? change.evictTo;
        this.meter.keysExpired += change.evictTo - before;
        this.#commit.stage(this.#commit.begin(), change);
        return "written";
      },
    });
  }

  #decideCreate(
    command: CreateCommand,
    existing: StreamState | undefined,
    source: ForkSource | undefined,
  ): Promise<CreateDecision> {
    const { nextId } = this.world;
    const decision = decideCreate(existing, source, command, nextId, this.#run, this.nowMs());
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
    for (const { stream, tail } of batch.advances.values()) {
      if (this.#tails.hasListeners(stream)) this.boundaries.remember(stream, tail);
    }
    this.#tails.publish(batch.advances.values());
  }

  #watchExpiry(state: StreamState): void {
    const atMs = expiresAtMs(state);
    if (atMs !== undefined && !state.isDeleted) this.#deadlines.add(atMs, state.id);
  }

  #sweep(id: StreamId): void {
    const state = this.world.byId.get(id);
    if (state === undefined || state.isDeleted || this.stopped !== undefined) return;
    if (this.#find(state.name) !== state) return;
    if (this.#unwritten.delete(id)) this.touch(state);
    const nowMs = this.nowMs();
    const atMs = expiresAtMs(state) ?? nowMs;
    // Its deadline has passed but somebody reads it live: look again later.
    this.#deadlines.add(atMs > nowMs ? atMs : nowMs + 1000, id);
  }
}
