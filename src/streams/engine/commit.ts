/**
 * Group commit: the only place where a decision meets the store.
 *
 * A change is applied to the world when it is staged and joins the open batch. While one batch is being made
 * durable the next one fills; nothing waits for a timer.
 *
 *   W1  deciding and staging happen in one synchronous step: no await in between;
 *   W2  no answer leaves before the state it speaks of is durable. This holds for "duplicate" too: the
 *       original may still be on its way to the disk;
 *   W3  after a failed commit nothing is committed any more: the world is ahead of the store, and only
 *       recovery knows the truth. Reads go on from what was durable before;
 *   W4  readers learn of data when it is durable, in order, and never of more.
 */

import type { Change } from "../core/change.ts";
import type { StreamState } from "../core/stream.ts";
import { ownEarliest } from "../core/trim.ts";
import { assert } from "../../base/assert.ts";
import { advance, type Offset, type StreamId, type StreamName } from "../core/types.ts";
import { applyChange, type World } from "../core/world.ts";
import { wordsOfError } from "../../base/error-words.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/limits.ts";
import type { Store } from "../store.ts";
import type { Holdings } from "./holdings.ts";

/** Of the reason of a failed commit. */
const REASON_CHARS_MAX = 1000;

/** What one batch did to one stream. */
export interface StreamAdvance {
  readonly stream: StreamId;
  readonly start: Offset;
  tail: Offset;
  isClosed: boolean;
  isGone: boolean;
  readonly appends: Uint8Array[];
}

/** What readers may know of a stream while some of its changes are not durable yet. */
interface PendingStream {
  tail: Offset;
  isClosed: boolean;
  /** The newest batch that touches the stream. */
  batch: CommitBatch;
}

/** Changes that become durable together. `done` settles when they are, or cannot be. */
export class CommitBatch {
  readonly changes: Change[] = [];
  readonly advances = new Map<StreamId, StreamAdvance>();
  readonly names = new Set<StreamName>();
  /** What the batch trims, and how far. */
  readonly trims = new Map<StreamId, Offset>();
  readonly done: Promise<void>;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
  bytes = 0;
  /** Its commit has begun: nothing joins it any more. */
  isClosed = false;

  constructor() {
    let resolve: () => void = () => undefined;
    let reject: (reason: unknown) => void = () => undefined;
    this.done = new Promise<void>((onResolve, onReject) => {
      resolve = onResolve;
      reject = onReject;
    });
    this.resolve = resolve;
    this.reject = (reason) => {
      // Every answer that waits for the batch gets the rejection; a batch without one must not crash.
      this.done.catch(() => undefined);
      reject(reason);
    };
  }
}

/** Calls `run` soon: after this synchronous step, and never by a timer. */
export type Defer = (run: () => void) => void;

/** Called when a commit begins; what it returns is called when the commit is durable. */
export type CommitWatch = (changes: number) => () => void;

export class GroupCommit {
  readonly #store: Store;
  readonly #world: World;
  readonly #onDurable: (batch: CommitBatch) => void;
  readonly #defer: Defer;
  readonly #watch: CommitWatch;
  readonly #holdings: Holdings | undefined;
  readonly #onStopped: (error: HapaxError) => void;
  readonly #flights = new Map<StreamId, PendingStream>();
  /** Streams whose trim is not durable yet. */
  readonly #trims = new Map<StreamId, { earliest: Offset; batch: CommitBatch }>();
  /** Streams that a batch creates or removes, by name, until that batch is durable. */
  readonly #lifecycles = new Map<StreamName, CommitBatch>();
  /** Batches that fill, oldest first. There is more than one only when the first is full. */
  readonly #waiting: CommitBatch[] = [];
  #isBusy = false;
  #last: Promise<void> = Promise.resolve();
  #pendingBytes = 0;
  #landed = 0;
  #stopped: HapaxError | undefined;

  constructor(
    store: Store,
    onDurable: (batch: CommitBatch) => void,
    // Not the function itself: some platforms refuse theirs as a method of another object.
    defer: Defer = (run) => {
      queueMicrotask(run);
    },
    watch: CommitWatch = () => () => undefined,
    holdings?: Holdings,
    onStopped: (error: HapaxError) => void = () => undefined,
  ) {
    this.#holdings = holdings;
    this.#onStopped = onStopped;
    this.#defer = defer;
    this.#watch = watch;
    this.#store = store;
    this.#world = store.world;
    this.#onDurable = onDurable;
  }

  /** Why nothing can be written, if so. */
  get stopped(): HapaxError | undefined {
    return this.#stopped;
  }

  /** Counts the batches that have become durable: a caller that waits sees by it that the store gets on. */
  get landed(): number {
    return this.#landed;
  }

  /** Bytes of appends that are staged and not durable yet. */
  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  /** Changes in batches whose commit has not begun. */
  get waitingChanges(): number {
    let changes = 0;
    for (const batch of this.#waiting) changes += batch.changes.length;
    return changes;
  }

  /** The batch that fills. Everything staged into it in one synchronous step is atomic. */
  begin(): CommitBatch {
    if (this.#stopped !== undefined) throw this.#stopped;
    const batch = this.#openBatch();
    this.#last = batch.done;
    if (!this.#isBusy) {
      this.#isBusy = true;
      // What arrives in this turn still joins: requests that came together are written together.
      this.#defer(() => void this.#run());
    }
    return batch;
  }

  /** Applies a change now and makes it a part of the batch. */
  stage(batch: CommitBatch, change: Change): void {
    assert(!batch.isClosed, "W1 a change joins a batch that is being written");
    this.#holdings?.note(change);
    this.#track(batch, change);
    applyChange(this.#world, change);
    batch.changes.push(change);
  }

  #openBatch(): CommitBatch {
    const open = this.#waiting.at(-1);
    const isFull =
      open === undefined ||
      open.changes.length >= LIMITS.batchChangesMax ||
      open.bytes >= LIMITS.batchBytesMax;
    if (!isFull) return open;
    const batch = new CommitBatch();
    this.#waiting.push(batch);
    return batch;
  }

  /** Resolves when everything staged so far is durable. */
  settled(): Promise<void> {
    return this.#last;
  }

  /** The batch that an answer about this stream must wait for, if any. */
  underWay(name: StreamName, state: StreamState | undefined): CommitBatch | undefined {
    if (state !== undefined) {
      const flight = this.#flights.get(state.id);
      if (flight !== undefined) return flight.batch;
    }
    return this.#lifecycles.size === 0 ? undefined : this.#lifecycles.get(name);
  }

  /** The batch in which a stream of this name comes or goes, if that is not durable yet. */
  lifecycle(name: StreamName): CommitBatch | undefined {
    return this.#lifecycles.size === 0 ? undefined : this.#lifecycles.get(name);
  }

  /** How far a stream itself is trimmed for certain. Before that its data may still be read. */
  durableEarliest(state: StreamState): Offset {
    return this.#trims.get(state.id)?.earliest ?? ownEarliest(state);
  }

  durableTail(state: StreamState): Offset {
    return this.#flights.get(state.id)?.tail ?? state.tail;
  }

  isDurablyClosed(state: StreamState): boolean {
    return this.#flights.get(state.id)?.isClosed ?? state.isClosed;
  }

  #track(batch: CommitBatch, change: Change): void {
    switch (change.kind) {
      case "created":
        this.#trackName(batch, change.name);
        return;
      case "appended": {
        const state = this.#world.byId.get(change.stream);
        if (state === undefined) return;
        batch.bytes += change.data.length;
        this.#pendingBytes += change.data.length;
        const entry = this.#advance(batch, state);
        if (change.data.length > 0) entry.appends.push(change.data);
        entry.tail = advance(entry.tail, change.data.length);
        entry.isClosed ||= change.closes;
        return;
      }
      case "trimmed": {
        const state = this.#world.byId.get(change.stream);
        if (state === undefined) return;
        const trim = this.#trims.get(state.id);
        if (trim === undefined) this.#trims.set(state.id, { earliest: ownEarliest(state), batch });
        else trim.batch = batch;
        batch.trims.set(state.id, change.to);
        return;
      }
      case "producer_reset": {
        const state = this.#world.byId.get(change.stream);
        if (state !== undefined) this.#advance(batch, state);
        return;
      }
      case "deleted":
      case "removed": {
        const state = this.#world.byId.get(change.stream);
        if (state === undefined) return;
        this.#trackName(batch, state.name);
        this.#advance(batch, state).isGone = true;
        return;
      }
      default:
    }
  }

  #trackName(batch: CommitBatch, name: StreamName): void {
    batch.names.add(name);
    this.#lifecycles.set(name, batch);
  }

  #advance(batch: CommitBatch, state: StreamState): StreamAdvance {
    const flight = this.#flights.get(state.id);
    if (flight === undefined) {
      this.#flights.set(state.id, { tail: state.tail, isClosed: state.isClosed, batch });
    } else {
      flight.batch = batch;
    }
    let entry = batch.advances.get(state.id);
    if (entry === undefined) {
      const { id, tail, isClosed } = state;
      entry = { stream: id, start: tail, tail, isClosed, isGone: false, appends: [] };
      batch.advances.set(id, entry);
    }
    return entry;
  }

  async #run(): Promise<void> {
    for (;;) {
      const batch = this.#waiting.shift();
      if (batch === undefined) {
        this.#isBusy = false;
        return;
      }
      batch.isClosed = true;
      const finish = this.#watch(batch.changes.length);
      try {
        await this.#store.commit(batch.changes);
      } catch (cause) {
        this.#stop(batch, cause);
        return;
      }
      finish();
      this.#land(batch);
    }
  }

  #land(batch: CommitBatch): void {
    this.#landed += 1;
    this.#pendingBytes -= batch.bytes;
    assert(this.#pendingBytes >= 0, "W4 more bytes became durable than were staged");
    for (const entry of batch.advances.values()) {
      const flight = this.#flights.get(entry.stream);
      if (flight === undefined) continue;
      if (flight.batch === batch) {
        this.#flights.delete(entry.stream);
      } else {
        flight.tail = entry.tail;
        flight.isClosed = entry.isClosed;
      }
    }
    for (const [stream, to] of batch.trims) {
      const trim = this.#trims.get(stream);
      if (trim?.batch === batch) this.#trims.delete(stream);
      else if (trim !== undefined) trim.earliest = to;
    }
    for (const name of batch.names) {
      if (this.#lifecycles.get(name) === batch) this.#lifecycles.delete(name);
    }
    batch.resolve();
    this.#onDurable(batch);
  }

  // Flights and lifecycles stay as they are: they are what keeps readers at the durable state.
  #stop(batch: CommitBatch, cause: unknown): void {
    // A store may reject with anything, and the requests that wait still need their answers.
    const { message } = wordsOfError(cause, REASON_CHARS_MAX);
    // Another server goes on. Its clients hear that, and not that this one must be restarted.
    this.#stopped = isHapaxError(cause, "shard_moved")
      ? cause
      : new HapaxError("writes_stopped", `a commit failed: ${message}`, { cause });
    batch.reject(this.#stopped);
    for (const waiting of this.#waiting.splice(0)) waiting.reject(this.#stopped);
    this.#onStopped(this.#stopped);
  }
}
