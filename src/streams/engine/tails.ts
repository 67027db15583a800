/**
 * Live readers: tells them when a stream moves on.
 *
 *   - a reader gets durable data only, once, in order, without holes;
 *   - a reader that registers and then looks at the tail misses nothing: both happen in one
 *     synchronous step, so no append can fall between;
 *   - one turn serves as many readers as its budget allows, and the next turns serve the others: readers of one stream
 *     in the same order, readers of other streams in between;
 *   - the queue of undelivered appends is bounded, for any rate of appends and any number of readers: beyond the bound
 *     the readers of a stream receive one event for all appends until then, without data, and read the store.
 */

import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import type { Offset, StreamId } from "../core/types.ts";
import { LIMITS } from "../../protocol/limits.ts";
import type { StreamAdvance } from "./commit.ts";
import { TurnBudget } from "./turn-budget.ts";

/** What readers receive. One object for all readers of a stream, so that it is encoded once. */
export interface TailEvent {
  readonly start: Offset;
  readonly tail: Offset;
  readonly appends: readonly Uint8Array[];
  readonly isClosed: boolean;
  /** The stream was deleted or has expired. */
  readonly isGone: boolean;
}

export type TailListener = (event: TailEvent) => void;

interface Telling {
  event: TailEvent;
  /** Bytes that each reader is given because of it. */
  readonly bytes: number;
  /** What it keeps in memory, of what is bounded. */
  readonly heldBytes: number;
  listeners: readonly TailListener[];
  next: number;
}

/** What telling one reader costs at least, in bytes that could be sent instead. */
const TELL_BYTES = 1024;
/** Memory that one waiting reader takes in the queue. */
const LISTENER_BYTES = 8;
/** No reader stands there: a reader that gets this start reads the store. */
const NOWHERE = -1 as Offset;

export class Tails {
  readonly #clock: Clock;
  readonly #onFault: (error: unknown) => void;
  readonly #listeners = new Map<StreamId, Set<TailListener>>();
  /** Undelivered events by stream, oldest first. The stream whose turn it is comes first. */
  readonly #waiting = new Map<StreamId, Telling[]>();
  readonly #bytesMax: number;
  #heldBytes = 0;
  #isArmed = false;
  #count = 0;

  constructor(
    clock: Clock,
    onFault: (error: unknown) => void,
    bytesMax: number = LIMITS.tellingBytesMax,
  ) {
    this.#bytesMax = bytesMax;
    this.#clock = clock;
    this.#onFault = onFault;
  }

  /** Live readers of all streams. */
  get count(): number {
    return this.#count;
  }

  hasListeners(stream: StreamId): boolean {
    return this.#listeners.has(stream);
  }

  /** Registers a reader; the returned function takes it out again. */
  listen(stream: StreamId, listener: TailListener): () => void {
    let listeners = this.#listeners.get(stream);
    if (listeners === undefined) {
      listeners = new Set();
      this.#listeners.set(stream, listeners);
    }
    listeners.add(listener);
    this.#count += 1;
    return () => {
      const current = this.#listeners.get(stream);
      if (current === undefined || !current.delete(listener)) return;
      this.#count -= 1;
      if (current.size === 0) this.#listeners.delete(stream);
    };
  }

  /** Tells the readers of these streams what has just become durable. */
  publish(advances: Iterable<StreamAdvance>): void {
    for (const advance of advances) this.#enqueue(advance);
    if (!this.#isArmed && this.#waiting.size > 0) this.#tell();
  }

  #enqueue(advance: StreamAdvance): void {
    const listeners = this.#listeners.get(advance.stream);
    if (listeners === undefined) return;
    let tellings = this.#waiting.get(advance.stream);
    if (tellings === undefined) {
      tellings = [];
      this.#waiting.set(advance.stream, tellings);
    }
    let bytes = TELL_BYTES;
    for (const append of advance.appends) bytes += append.length;
    const heldBytes = bytes + LISTENER_BYTES * listeners.size;
    if (this.#heldBytes + heldBytes > this.#bytesMax) {
      sendToStore(tellings, advance, listeners);
      return;
    }
    this.#heldBytes += heldBytes;
    // A listener may leave, or start another one, while it is being called.
    tellings.push({ event: advance, bytes, heldBytes, listeners: [...listeners], next: 0 });
  }

  #tell(): void {
    const budget = new TurnBudget(this.#clock, LIMITS.turnBytesMax);
    // A stream that is put back to the end is met again by the same loop.
    for (const [stream, tellings] of this.#waiting) {
      const [first] = tellings;
      const isTold = first === undefined || this.#tellOne(stream, first, budget);
      if (isTold) {
        tellings.shift();
        this.#heldBytes -= first?.heldBytes ?? 0;
        assert(this.#heldBytes >= 0, "more has been told than was kept");
      }
      this.#waiting.delete(stream);
      if (tellings.length > 0) this.#waiting.set(stream, tellings);
      if (isTold) continue;
      this.#arm();
      return;
    }
  }

  /** False when the turn is over before all were told. */
  #tellOne(stream: StreamId, telling: Telling, budget: TurnBudget): boolean {
    const current = this.#listeners.get(stream);
    for (; telling.next < telling.listeners.length; telling.next += 1) {
      const listener = telling.listeners[telling.next];
      if (listener === undefined || current?.has(listener) !== true) continue;
      if (!budget.take(telling.bytes)) return false;
      this.#call(listener, telling.event);
    }
    return true;
  }

  #arm(): void {
    this.#isArmed = true;
    this.#clock.after(0, () => {
      this.#isArmed = false;
      this.#tell();
    });
  }

  #call(listener: TailListener, event: TailEvent): void {
    try {
      listener(event);
    } catch (error) {
      this.#onFault(error); // One broken reader must not hold up the commits of everybody.
    }
  }
}

/** Its readers find the data in the store, page by page. One telling does for all appends until its turn comes. */
function sendToStore(
  tellings: Telling[],
  advance: StreamAdvance,
  listeners: ReadonlySet<TailListener>,
): void {
  const last = tellings.at(-1);
  const event: TailEvent = { ...advance, appends: [], start: NOWHERE };
  if (last !== undefined && last.event.start === NOWHERE && last.next === 0) {
    last.event = { ...event, isGone: event.isGone || last.event.isGone };
    last.listeners = [...listeners];
    return;
  }
  const bytes = LIMITS.sseEventBytesMax;
  tellings.push({ event, bytes, heldBytes: 0, listeners: [...listeners], next: 0 });
}
