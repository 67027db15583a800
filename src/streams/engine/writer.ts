/**
 * What everything that writes is made of: find a stream, take the time, ask for room, stage what was decided, and answer
 * when that is durable. Appends, the lives of streams, transactions, groups and subscriptions each take one.
 *
 * A command is one synchronous step (find, decide, stage) followed by one wait. Between the decision and the state there
 * is no await, so two requests cannot decide on the same state.
 *
 *   - an answer waits for the newest batch that touches the stream it speaks of, refusals included;
 *   - what an append causes (links, wakes, wake events) is committed with it, atomically.
 */

import type { Clock } from "../../base/clock.ts";
import type { HapaxError } from "../../base/errors.ts";
import type { StreamAppended, Change } from "../core/change.ts";
import { isSystemStream, type StreamState } from "../core/stream.ts";
import type { RetentionRule } from "../core/trim.ts";
import { assert } from "../../base/assert.ts";
import type { Offset, RunId, StreamName, TimeMs } from "../core/types.ts";
import type { World } from "../core/world.ts";
import type { Store } from "../store.ts";
import type { CommitBatch, GroupCommit } from "./commit.ts";
import type { Expiry } from "./expiry.ts";
import type { JournalClock } from "./journal-clock.ts";
import type { EngineMeter } from "./meter.ts";
import type { AppendObserver } from "./observer.ts";
import type { Registry } from "./registry.ts";
import type { Room } from "./room.ts";
import { Slices } from "./turn-budget.ts";

export interface WriterParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly time: JournalClock;
  readonly commit: GroupCommit;
  readonly room: Room;
  readonly expiry: Expiry;
  /** Undefined: nothing is counted. */
  readonly meter: EngineMeter | undefined;
  readonly run: RunId;
  readonly retentionDefault?: RetentionRule | undefined;
  /** Undefined: the lives of streams are not written down for readers. */
  readonly registry?: Registry | undefined;
}

export class Writer {
  readonly store: Store;
  readonly world: World;
  readonly clock: Clock;
  /** To be asked before anything is decided. */
  readonly room: Room;
  readonly expiry: Expiry;
  readonly meter: EngineMeter | undefined;
  /** Of the streams that this process creates. */
  readonly run: RunId;
  readonly retentionDefault: RetentionRule | undefined;
  readonly #time: JournalClock;
  readonly #commit: GroupCommit;
  readonly #registry: Registry | undefined;
  #observer: AppendObserver | undefined;
  #onCompactable: (state: StreamState, start: Offset, data: Uint8Array) => void = () => undefined;
  #onRetained: (state: StreamState, start: Offset) => void = () => undefined;

  constructor(parts: WriterParts) {
    this.store = parts.store;
    this.world = parts.store.world;
    this.clock = parts.clock;
    this.room = parts.room;
    this.expiry = parts.expiry;
    this.meter = parts.meter;
    this.run = parts.run;
    this.retentionDefault = parts.retentionDefault;
    this.#time = parts.time;
    this.#commit = parts.commit;
    this.#registry = parts.registry;
    if (parts.registry !== undefined) this.#followEnds(parts.registry);
  }

  /** Why nothing can be written, if so. */
  get stopped(): HapaxError | undefined {
    return this.#commit.stopped;
  }

  /** The stream as decided, which may be ahead of what is durable. An expired one is ended here. */
  find(name: StreamName): StreamState | undefined {
    const state = this.world.streams.get(name);
    if (state === undefined || state.expiry.kind === "never") return state;
    if (!this.expiry.isOver(state)) return state;
    if (this.stopped !== undefined) return undefined;
    this.expiry.end(state);
    return this.world.streams.get(name);
  }

  /** Journal time; see JournalClock. Never before the latest change. */
  nowMs(): TimeMs {
    return this.#time.nowMs();
  }

  /** What the time that a key carries is compared with. */
  keyMs(): number {
    return this.#time.unboundMs();
  }

  /** For work on many things that need not be of one moment. */
  slices(): Slices {
    return new Slices(this.clock);
  }

  /** The batch that fills. Everything staged into it in one synchronous step is atomic. */
  begin(): CommitBatch {
    return this.#commit.begin();
  }

  /** Applies a change that was decided in this same synchronous step, and with an append what it causes. */
  stage(change: Change, batch = this.#commit.begin()): CommitBatch {
    const observer = this.#observer;
    const isObserved = change.kind === "appended" && observer?.isFollowing === true;
    const state = change.kind === "appended" ? this.world.byId.get(change.stream) : undefined;
    const start = state?.tail;
    if (isObserved && change.data.length > 0) this.#stageObserved(batch, change, observer);
    else this.#commit.stage(batch, change);
    if (state?.retained !== undefined && start !== undefined) this.#onRetained(state, start);
    if (state?.compaction !== undefined && start !== undefined && change.kind === "appended") {
      this.#onCompactable(state, start, change.data);
    }
    if (this.#registry !== undefined) {
      for (const event of this.#registry.after(change)) this.stage(event, batch);
    }
    return batch;
  }

  /** Bytes that the events of an act on this stream take in registries, at most. They need room too. */
  eventBytes(name: StreamName, contentType: string, events = 1): number {
    return this.#registry?.bytesOf(name, contentType, events) ?? 0;
  }

  /** Applies changes that were decided in this same synchronous step; resolves when they are durable. */
  submit(changes: readonly Change[]): Promise<void> {
    if (changes.length === 0) return this.settled();
    const batch = this.#commit.begin();
    for (const change of changes) this.stage(change, batch);
    return batch.done;
  }

  /** The same for the close of a stream. */
  closeBytes(name: StreamName): number {
    const state = this.#registry === undefined ? undefined : this.world.streams.get(name);
    return state === undefined ? 0 : this.eventBytes(name, state.contentType);
  }

  /** A stream ends together with its events, and does not end by itself while there is no room for them. */
  #followEnds(registry: Registry): void {
    this.expiry.onEnding({
      mayEnd: ({ name, contentType }) => {
        const bytes = registry.bytesOf(name, contentType);
        return bytes === 0 || this.room.has(bytes);
      },
      ended: (state, batch, atMs) => {
        for (const event of registry.ended(state, atMs)) this.stage(event, batch);
      },
    });
  }

  /** The outcome, once the state that it speaks of is durable. */
  answer<T>(name: StreamName, state: StreamState | undefined, outcome: T): Promise<T> {
    const batch = this.#commit.underWay(name, state);
    return batch === undefined ? Promise.resolve(outcome) : batch.done.then(() => outcome);
  }

  /** Everything decided so far is durable. */
  settled(): Promise<void> {
    return this.#commit.settled();
  }

  durableTail(state: StreamState): Offset {
    return this.#commit.durableTail(state);
  }

  /** Calls the observer in the step of every append with data. There is one at most. */
  observe(observer: AppendObserver): void {
    this.#observer = observer;
  }

  /** Calls `run` in the step of every append to a stream that was trimmed or has a rule of retention, with its start. */
  onRetained(run: (state: StreamState, start: Offset) => void): void {
    this.#onRetained = run;
  }

  /** Calls `run` in the step of every append to a changelog, with its start and its data. */
  onCompactable(run: (state: StreamState, start: Offset, data: Uint8Array) => void): void {
    this.#onCompactable = run;
  }

  /** What follows appends, if something does. */
  get observer(): AppendObserver | undefined {
    return this.#observer;
  }

  #stageObserved(batch: CommitBatch, change: StreamAppended, observer: AppendObserver): void {
    const state = this.world.byId.get(change.stream);
    assert(state !== undefined, `an append names no stream: id=${change.stream}`);
    // What the server writes for itself is followed by nothing.
    if (isSystemStream(state.name)) {
      this.#commit.stage(batch, change);
      return;
    }
    for (const caused of observer.before(state, change.atMs)) this.stage(caused, batch);
    this.#commit.stage(batch, change);
    for (const caused of observer.after(state, change.atMs)) this.stage(caused, batch);
  }
}
