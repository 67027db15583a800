/**
 * The engine: the parts that write and read streams, put together, and the only door to them.
 *
 * Appends, the lives of streams, transactions, groups and subscriptions are siblings: each decides by the rules in core/
 * and writes through the one Writer. None of them knows the engine.
 */

import type { Clock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import { LIMITS } from "../../protocol/limits.ts";
import type { AppendCommand } from "../core/append.ts";
import type { Change } from "../core/change.ts";
import type { CompactionRule } from "../core/compaction.ts";
import type { CreateCommand, CreateDecision } from "../core/create.ts";
import type { RegistryPlaces } from "../core/registry.ts";
import { KEY_DEFAULTS, type KeyDefaults } from "../core/keys.ts";
import type { StreamState } from "../core/stream.ts";
import type { RetentionRule } from "../core/trim.ts";
import { isForgottenLog } from "../core/transaction-state.ts";
import type { Offset, ProducerId, StreamId, StreamName, TimeMs } from "../core/types.ts";
import type { World } from "../core/world.ts";
import type { Store, StoreBackup, StoreStats, StoreSupport } from "../store.ts";
import type { Act } from "./acts.ts";
import { Appends, type ProducerView, type ResetOutcome } from "./appends.ts";
import { Boundaries, type IsRecordStart } from "./boundaries.ts";
import type { CompactionOutcome, Compactions } from "./compactions.ts";
import type { RecordReader } from "./compaction-pass.ts";
import { type CommitBatch, type CommitWatch, type Defer, GroupCommit } from "./commit.ts";
import { Expiry } from "./expiry.ts";
import type { RecordsEnd } from "./fork-source.ts";
import type { Groups } from "./groups.ts";
import type { Allowance, Holdings } from "./holdings.ts";
import type { Jobs } from "./jobs.ts";
import { JournalClock } from "./journal-clock.ts";
import { KeySweeper } from "./key-sweeper.ts";
import { Lifecycle } from "./lifecycle.ts";
import type { StreamPage } from "./listing.ts";
import type { EngineMeter } from "./meter.ts";
import type { AppendObserver } from "./observer.ts";
import type { AppendOutcome, DeleteOutcome, Found, Gone, Look, Missing } from "./outcomes.ts";
import type { ReadPage, TrimOutcome } from "./outcomes.ts";
import type { Patient } from "./patience.ts";
import { Reader } from "./reader.ts";
import type { RecordEnd } from "./reading-back.ts";
import { Room } from "./room.ts";
import { drawRun } from "./run.ts";
import type { Subscriptions } from "./subscriptions.ts";
import { type TailListener, Tails } from "./tails.ts";
import type { Transactions } from "./transactions.ts";
import { Slices } from "./turn-budget.ts";
import type { CutCommand, RetentionOutcome, Trims } from "./trims.ts";
import { checkWings, type Wings, wingOf } from "./wings.ts";
import { Writer } from "./writer.ts";

export interface EngineParts extends Wings {
  readonly store: Store;
  readonly clock: Clock;
  /** Default: the platform's. */
  readonly random?: Random;
  /** For JSON streams, whose sub-offsets count records. */
  readonly jsonRecordsEnd: RecordsEnd;
  /** For JSON streams, whose last records can be asked for. Default: an append is one record. */
  readonly jsonRecordEndFrom?: RecordEnd;
  /** For JSON streams, where a group may stand at any record. Default: at appends only. */
  readonly isJsonRecordStart?: IsRecordStart;
  /** What records of JSON streams are, for changelogs. Default: nothing is compacted. */
  readonly records?: RecordReader;
  /** Keys that a pass over a changelog holds in memory, and bytes below which one is left alone. Default: the limits. */
  readonly compaction?: { readonly keysMax?: number; readonly bytesMin?: number };
  /** When a batch begins to be written: at the end of the turn in which its first change came. */
  readonly defer?: Defer;
  /** For streams that say nothing of their keys. */
  readonly keyDefaults?: KeyDefaults;
  /** What new streams keep that say nothing of it. Default: everything. */
  readonly retentionDefault?: RetentionRule | undefined;
  /** Where registries may be. Undefined: the lives of streams are not written into any. */
  readonly registries?: RegistryPlaces | undefined;
  /** Bytes that are decided and not committed. Default: the limit. */
  readonly pendingBytesMax?: number;
  /** Bytes of appends that wait for their predecessors. Default: the limit. */
  readonly heldBytesMax?: number;
  /** Bytes of answers of transactions that are kept. Default: the limit. */
  readonly outcomeBytesMax?: number;
  /** Gets what live readers throw. */
  readonly onFault?: (error: unknown) => void;
}

export class Engine {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #commit: GroupCommit;
  readonly #tails: Tails;
  readonly #boundaries: Boundaries;
  readonly #keySweeper: KeySweeper;
  readonly #writer: Writer;
  readonly #reader: Reader;
  readonly #appends: Appends;
  readonly #lifecycle: Lifecycle;
  readonly #trims: Trims | undefined;
  readonly #compactions: Compactions | undefined;
  readonly #subscriptions: Subscriptions | undefined;
  readonly #transactions: Transactions | undefined;
  readonly #groups: Groups | undefined;
  readonly #jobs: Jobs | undefined;
  readonly #holdings: Holdings | undefined;
  readonly #meter: EngineMeter | undefined;

  constructor(parts: EngineParts) {
    const { store, clock, random = systemRandom, keyDefaults = KEY_DEFAULTS } = parts;
    checkWings(store.world, parts);
    this.#store = store;
    this.#clock = clock;
    const { pendingBytesMax = LIMITS.pendingBytesMax, heldBytesMax = LIMITS.heldBytesMax } = parts;
    const tellingBytesMax = Math.min(pendingBytesMax, LIMITS.tellingBytesMax);
    this.#tails = new Tails(clock, parts.onFault ?? (() => undefined), tellingBytesMax);
    this.#holdings = parts.createHoldings?.(store.world, () => new Slices(clock));
    this.#meter = parts.createMeter?.();
    this.#commit = this.#createCommit(parts);
    const [commit, tails] = [this.#commit, this.#tails];
    const isJsonRecordStart = parts.isJsonRecordStart ?? (() => false);
    const boundaries = new Boundaries({ store, commit, isJsonRecordStart });
    this.#boundaries = boundaries;
    this.#writer = this.#createWriter(random, pendingBytesMax, parts);
    const writer = this.#writer;
    this.#keySweeper = this.#createKeySweeper(keyDefaults);
    const keys = { keyDefaults, keySweeper: this.#keySweeper };
    const jsonRecordEnd = parts.jsonRecordEndFrom ?? wholeAppend;
    this.#reader = new Reader({ writer, commit, tails, boundaries, jsonRecordEnd });
    this.#appends = new Appends({ writer, ...keys, heldBytesMax });
    this.#lifecycle = new Lifecycle(writer, parts.jsonRecordsEnd);
    const outcomeBytesMax = parts.outcomeBytesMax ?? LIMITS.outcomeBytesMax;
    const appends = this.#appends;
    const { jsonRecordsEnd } = parts;
    const ofTransactions = { writer, boundaries, appends, ...keys, outcomeBytesMax };
    this.#transactions = parts.createTransactions?.(ofTransactions);
    this.#groups = parts.createGroups?.({ writer, boundaries, random });
    this.#trims = parts.createTrims?.(writer);
    this.#compactions = this.#createCompactions(parts);
    this.#jobs = parts.createJobs?.({ writer, tails, jsonRecordsEnd });
    this.#subscriptions = parts.createSubscriptions?.({ writer, boundaries, random });
  }

  /** Follows appends and goes on with the deliveries and leases that it finds. Needed with subscriptions only. */
  async start(): Promise<void> {
    await this.#subscriptions?.start();
  }

  get subscriptions(): Subscriptions {
    return wingOf(this.#subscriptions, "subscriptions");
  }

  /** Throws the refusal if the engine has no groups. */
  requireGroups(): void {
    wingOf(this.#groups, "groups");
  }

  get transactions(): Transactions {
    return wingOf(this.#transactions, "transactions");
  }

  /** What the engine has done. */
  get meter(): EngineMeter {
    return wingOf(this.#meter, "observation");
  }

  /** What namespaces hold, for quotas. */
  get holdings(): Holdings {
    return wingOf(this.#holdings, "access");
  }

  get groups(): Groups {
    return wingOf(this.#groups, "groups");
  }

  get jobs(): Jobs {
    return wingOf(this.#jobs, "groups");
  }

  /** An instant of the store, held until it is released. Throws `unsupported` if the store has no backups. */
  async backup(): Promise<StoreBackup> {
    if (this.#store.backup !== undefined) return await this.#store.backup();
    const what = "this store keeps no journal; hapax copy copies its streams to a file";
    throw new HapaxError("unsupported", what);
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
    return this.#writer.room.isFull;
  }

  get durability(): StoreSupport["durability"] {
    return this.#store.supports.durability;
  }

  get liveReaders(): number {
    return this.#tails.count;
  }

  /** Appends that wait for their predecessors. */
  get heldAppends(): number {
    return this.#appends.held;
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
    return this.#writer.nowMs();
  }

  /** For work on many things that need not be of one moment. */
  slices(): Slices {
    return this.#writer.slices();
  }

  /** Calls the observer in the step of every append with data, instead of subscriptions. */
  observe(observer: AppendObserver): void {
    this.#writer.observe(observer);
  }

  /** Everything decided so far is durable. */
  settled(): Promise<void> {
    return this.#writer.settled();
  }

  /** Applies changes that were decided in this same synchronous step; resolves when durable. */
  submit(changes: readonly Change[]): Promise<void> {
    return this.#writer.submit(changes);
  }

  /** `patient`: the append may wait for those before it. `allowance`: what its sender may store. */
  append(
    name: StreamName,
    command: AppendCommand,
    patient?: Patient,
    allowance?: Allowance,
  ): Promise<AppendOutcome> {
    return this.#appends.append(name, command, patient, allowance);
  }

  /** Whether an append without identity is identified by its content. */
  isKeyedByContent(name: StreamName): boolean {
    return this.#appends.isKeyedByContent(name);
  }

  /** Decides all appends that are held: they wait no longer. */
  releaseHeld(): void {
    this.#appends.release();
  }

  /** What a stream knows of a producer, once that is durable. */
  producer(name: StreamName, id: ProducerId): Promise<ProducerView | undefined> {
    return this.#appends.producer(name, id);
  }

  /** Producers of a stream in the order of their ids, after `after`. `mayShow` refuses those that the caller must not see. */
  producers(
    name: StreamName,
    after: string,
    count: number,
    mayShow?: (id: ProducerId) => boolean,
  ): Promise<readonly ProducerView[] | Missing | Gone> {
    return this.#appends.producers(name, after, count, mayShow);
  }

  /** Forgets epoch and sequence of a producer; its sessions stay fenced. */
  resetProducer(name: StreamName, id: ProducerId, act?: Act): Promise<ResetOutcome> {
    return this.#appends.resetProducer(name, id, act);
  }

  create(command: CreateCommand, allowance?: Allowance): Promise<CreateDecision> {
    if (command.retention !== undefined) wingOf(this.#trims, "retention");
    if (command.compaction !== undefined) wingOf(this.#compactions, "retention");
    return this.#lifecycle.create(command, allowance);
  }

  delete(name: StreamName, act?: Act): Promise<DeleteOutcome> {
    return this.#lifecycle.delete(name, act);
  }

  /** Trims a stream before an offset. */
  trim(name: StreamName, cut: CutCommand): Promise<TrimOutcome> {
    return wingOf(this.#trims, "retention").cut(name, cut);
  }

  /** Sets what a stream keeps by itself. Undefined: everything. */
  setRetention(name: StreamName, rule: RetentionRule | undefined): Promise<RetentionOutcome> {
    return wingOf(this.#trims, "retention").setRule(name, rule);
  }

  /** Makes a stream of JSON a changelog, or one that keeps every record. */
  setCompaction(name: StreamName, rule: CompactionRule | undefined): Promise<CompactionOutcome> {
    return wingOf(this.#compactions, "retention").setRule(name, rule);
  }

  /** The durable state of a stream. */
  look(name: StreamName): Promise<Look> {
    return this.#reader.look(name);
  }

  /** The durable state of a stream that was found before, also if it has been deleted since. */
  view(state: StreamState): Found {
    return this.#reader.view(state);
  }

  durableTail(state: StreamState): Offset {
    return this.#commit.durableTail(state);
  }

  /** Whole appends from the one that holds `from`. */
  read(state: StreamState, from: Offset, bytesMax: number): Promise<ReadPage> {
    return this.#reader.read(state, from, bytesMax);
  }

  /** The last records before an offset, or before the tail: as many as fit into a page. */
  readLast(
    state: StreamState,
    count: number,
    before: Offset | undefined,
    bytesMax: number,
  ): Promise<ReadPage> {
    return this.#reader.readLast(state, count, before, bytesMax);
  }

  /** Where the first append is that was stored at a time or later; the tail if there is none. */
  seek(state: StreamState, atMs: TimeMs): Promise<Offset> {
    return this.#reader.seek(state, atMs);
  }

  /** Tells the listener of everything that becomes durable from now on, until the returned function is called. */
  listen(state: StreamState, listener: TailListener): () => void {
    return this.#reader.listen(state, listener);
  }

  /** A read or a refused write: it moves a sliding expiry. Nothing waits for it. */
  touch(state: StreamState): void {
    this.#writer.expiry.touch(state);
  }

  /** Names in order, after `after`, that start with `prefix`; durable streams only. */
  list(prefix: string, after: string, limit: number): StreamPage {
    return this.#reader.list(prefix, after, limit);
  }

  /** Ends timers and deliveries, waits for commits as long as they get on, and closes the store. */
  async close(): Promise<void> {
    this.#subscriptions?.stop();
    this.#writer.expiry.stop();
    this.#keySweeper.stop();
    this.#trims?.stop();
    this.#compactions?.stop();
    this.#appends.release();
    // A commit that fails has been answered to those who wait for it.
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

  /** Resolves to false if `done` has not settled within the time. */
  async #within(done: Promise<boolean>, limitMs: number): Promise<boolean> {
    let cancel: () => void = () => undefined;
    const late = new Promise<boolean>((resolve) => {
      cancel = this.#clock.after(limitMs, () => {
        resolve(false);
      });
    });
    return Promise.race([done, late]).finally(cancel);
  }

  #createCommit({ store, clock, defer, onFault }: EngineParts): GroupCommit {
    const announce = (batch: CommitBatch): void => {
      this.#announce(batch);
    };
    const meter = this.#meter;
    const watch: CommitWatch | undefined =
      meter &&
      ((changes) => {
        const startMs = clock.steadyMs();
        return () => {
          meter.commit(changes, clock.steadyMs() - startMs);
        };
      });
    return new GroupCommit(store, announce, defer, watch, this.#holdings, onFault);
  }

  #createWriter(
    random: Random,
    pendingBytesMax: number,
    { retentionDefault, registries, createRegistry }: EngineParts,
  ): Writer {
    const [store, clock, commit, tails] = [this.#store, this.#clock, this.#commit, this.#tails];
    const { world } = store;
    const run = drawRun(random);
    const time = new JournalClock(clock, world, store.openedAtMs);
    const room = new Room(store.room, commit, pendingBytesMax);
    const expiry = new Expiry({ world, clock, time, commit, room, tails });
    const meter = this.#meter;
    const registry = registries === undefined ? undefined : createRegistry?.(world, registries);
    return new Writer({
      store,
      clock,
      time,
      commit,
      room,
      expiry,
      meter,
      run,
      retentionDefault,
      registry,
    });
  }

  #createCompactions(parts: EngineParts): Compactions | undefined {
    const { records, compaction, onFault = () => undefined } = parts;
    return parts.createCompactions?.({ writer: this.#writer, records, ...compaction, onFault });
  }

  #createKeySweeper(defaults: KeyDefaults): KeySweeper {
    const writer = this.#writer;
    const { world } = writer;
    const sweeper = new KeySweeper({
      clock: this.#clock,
      nowMs: () => writer.nowMs(),
      defaults,
      find: (id) => world.byId.get(id),
      durableTail: (state) => writer.durableTail(state),
      submit: (change) => {
        if (!writer.room.hasRoomToSpare) return this.stopped === undefined ? "later" : "never";
        const before = world.byId.get(change.stream)?.keys?.window?.first ?? change.evictTo;
        if (this.#meter !== undefined) this.#meter.keysExpired += change.evictTo - before;
        writer.stage(change);
        const state = world.byId.get(change.stream);
        if (state !== undefined && isForgottenLog(state)) writer.expiry.end(state);
        return "written";
      },
    });
    for (const state of world.byId.values()) if (state.keys !== undefined) sweeper.watch(state);
    return sweeper;
  }

  #announce(batch: CommitBatch): void {
    for (const { stream, tail } of batch.advances.values()) {
      if (this.#tails.hasListeners(stream)) this.#boundaries.remember(stream, tail);
    }
    this.#tails.publish(batch.advances.values());
  }
}

function wholeAppend({ length }: Uint8Array, start: number): number {
  return start < length ? length : -1;
}
