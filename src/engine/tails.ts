/**
 * Live readers: who is told when a stream moves on.
 *
 *   T1  a reader is told of durable data only, once, in order, without holes;
 *   T2  a reader that registers and then looks at the tail misses nothing: both happen in one
 *       synchronous step, so no append can fall between.
 */

import type { Offset, StreamId } from "../core/types.ts";
import type { Advance } from "./commit.ts";

/** What readers are told. One object for all readers of a stream, so that it is encoded once. */
export interface TailEvent {
  readonly start: Offset;
  readonly tail: Offset;
  readonly appends: readonly Uint8Array[];
  readonly isClosed: boolean;
  /** The stream was deleted or has expired. */
  readonly isGone: boolean;
}

export type TailListener = (event: TailEvent) => void;

export class Tails {
  readonly #onFault: (error: unknown) => void;
  readonly #listeners = new Map<StreamId, Set<TailListener>>();
  #count = 0;

  constructor(onFault: (error: unknown) => void) {
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

  /** Tells the readers of a stream what has just become durable. */
  publish(advance: Advance): void {
    const listeners = this.#listeners.get(advance.stream);
    if (listeners === undefined) return;
    // A listener may leave, or start another one, while it is told.
    for (const listener of [...listeners]) {
      try {
        listener(advance);
      } catch (error) {
        this.#onFault(error); // One broken reader must not hold up the commits of everybody.
      }
    }
  }
}
