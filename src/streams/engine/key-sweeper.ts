/**
 * Forgets idempotency keys that are older than their window on streams that are not written to. An append
 * forgets them by itself.
 *
 *   - an idle stream gives back the memory of its keys soon after their time, a bounded part at once.
 */

import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import type { KeysEvicted } from "../core/change.ts";
import { firstKeptOf, type KeyDefaults, windowMsOf } from "../core/keys.ts";
import type { StreamState } from "../core/stream.ts";
import type { Offset, StreamId, TimeMs } from "../core/types.ts";
import { Deadlines } from "./deadlines.ts";

/** Keys of one step: well under a millisecond. */
const STEP = 2000;
/** Between two looks at a stream that still has keys to forget later. */
const REST_MS = 1000;
/** The same when it could not be written down. */
const FULL_REST_MS = 10_000;

export interface SweeperParts {
  readonly clock: Clock;
  readonly nowMs: () => TimeMs;
  readonly defaults: KeyDefaults;
  readonly find: (id: StreamId) => StreamState | undefined;
  readonly durableTail: (state: StreamState) => Offset;
  /** Applies the change, unless the disk is full, or nothing can be written any more. */
  readonly submit: (change: KeysEvicted) => "written" | "later" | "never";
}

export class KeySweeper {
  readonly #parts: SweeperParts;
  readonly #deadlines: Deadlines<StreamId>;
  readonly #watched = new Set<StreamId>();

  constructor(parts: SweeperParts) {
    this.#parts = parts;
    this.#deadlines = new Deadlines(parts.clock, parts.nowMs, (id) => {
      this.#sweep(id);
    });
  }

  /** Streams with keys. */
  get watched(): ReadonlySet<StreamId> {
    return this.#watched;
  }

  /** The stream has keys; it is looked after until it has none. */
  watch(state: StreamState): void {
    if (this.#watched.has(state.id) || state.keys?.window === undefined) return;
    this.#watched.add(state.id);
    this.#wait(state);
  }

  stop(): void {
    this.#deadlines.stop();
  }

  #wait(state: StreamState): void {
    const window = state.keys?.window;
    if (window === undefined || window.first === window.next) {
      this.#watched.delete(state.id);
      return;
    }
    const windowMs = windowMsOf(state.keys?.policy, this.#parts.defaults);
    const dueMs = window.timeOf(window.first) + windowMs;
    this.#deadlines.add(Math.max(dueMs, this.#parts.nowMs() + REST_MS), state.id);
  }

  #sweep(id: StreamId): void {
    const state = this.#parts.find(id);
    const window = state?.keys?.window;
    if (state === undefined || window === undefined) {
      this.#watched.delete(id);
      return;
    }
    const atMs = this.#parts.nowMs();
    const windowMs = windowMsOf(state.keys?.policy, this.#parts.defaults);
    const kept = firstKeptOf(window, windowMs, this.#parts.durableTail(state), atMs);
    const evictTo = Math.min(kept, window.first + STEP);
    assert(evictTo <= window.next, "more keys are forgotten than there are");
    if (evictTo > window.first) {
      const outcome = this.#parts.submit({ kind: "keys_evicted", atMs, stream: id, evictTo });
      if (outcome === "later") this.#deadlines.add(atMs + FULL_REST_MS, id);
      if (outcome !== "written") return;
    }
    if (evictTo < kept) this.#deadlines.add(atMs + 1, id);
    else this.#wait(state);
  }
}
