/**
 * The end of streams: those that have expired, those that are deleted, and what keeps one from expiring.
 *
 *   - a stream that has expired is ended through the same batch as any other change.
 */

import type { Clock } from "../../base/clock.ts";
import { decideEnding, decideTouch, expiresAtMs, isExpired } from "../core/retention.ts";
import type { StreamState } from "../core/stream.ts";
import { assert } from "../../base/assert.ts";
import type { StreamId, TimeMs } from "../core/types.ts";
import type { World } from "../core/world.ts";
import type { CommitBatch, GroupCommit } from "./commit.ts";
import { Deadlines } from "./deadlines.ts";
import type { JournalClock } from "./journal-clock.ts";
import type { Room } from "./room.ts";
import type { Tails } from "./tails.ts";

/** Between two looks at a stream whose deadline has passed and that still has a live reader. */
const REST_MS = 1000;

/** What goes with the end of a stream. */
export interface EndFollower {
  /** Whether a stream may end by itself now. */
  mayEnd(state: StreamState): boolean;
  /** Called in the step in which a stream ends, after its end is staged. */
  ended(state: StreamState, batch: CommitBatch, atMs: TimeMs): void;
}

export interface ExpiryParts {
  readonly world: World;
  readonly clock: Clock;
  readonly time: JournalClock;
  readonly commit: GroupCommit;
  readonly room: Room;
  readonly tails: Tails;
}

export class Expiry {
  readonly #parts: ExpiryParts;
  readonly #deadlines: Deadlines<StreamId>;
  /** Streams that were read on a full disk: they do not expire before that can be written down. */
  readonly #unwritten = new Set<StreamId>();
  #onEnd: (id: StreamId) => void = () => undefined;
  #follower: EndFollower | undefined;

  constructor(parts: ExpiryParts) {
    this.#parts = parts;
    this.#deadlines = new Deadlines(
      parts.clock,
      () => parts.time.nowMs(),
      (id) => {
        this.#sweep(id);
      },
    );
    for (const state of parts.world.byId.values()) this.watch(state);
  }

  /** Calls `run` in the step in which a stream is ended, after its end is staged. */
  onEnd(run: (id: StreamId) => void): void {
    this.#onEnd = run;
  }

  /** There is one follower at most. */
  onEnding(follower: EndFollower): void {
    this.#follower = follower;
  }

  /** The stream is ended when its time is over. */
  watch(state: StreamState): void {
    const atMs = expiresAtMs(state);
    if (atMs !== undefined && !state.isDeleted) this.#deadlines.add(atMs, state.id);
  }

  isOver(state: StreamState): boolean {
    if (!isExpired(state, this.#nowMs(state), this.#isRead(state.id))) return false;
    return this.#follower?.mayEnd(state) ?? true;
  }

  /** Stages the end of a stream: at once, or when its last fork goes. */
  end(state: StreamState): CommitBatch {
    const { world, commit, time } = this.#parts;
    assert(world.byId.get(state.id) === state, `a stream is ended twice: id=${state.id}`);
    const batch = commit.begin();
    this.#unwritten.delete(state.id);
    const atMs = time.nowMs();
    for (const change of decideEnding(world.byId, state, atMs)) commit.stage(batch, change);
    this.#follower?.ended(state, batch, atMs);
    this.#onEnd(state.id);
    return batch;
  }

  /** A read or a refused write: it moves a sliding expiry. Nothing waits for it. */
  touch(state: StreamState): void {
    const { world, commit, room, time } = this.#parts;
    if (state.expiry.kind !== "ttl" || commit.stopped !== undefined) return;
    if (world.byId.get(state.id) !== state) return; // It has gone since it was found.
    const change = decideTouch(state, time.nowMs());
    if (change === undefined) return;
    if (room.hasRoomToSpare) commit.stage(commit.begin(), change);
    else this.#unwritten.add(state.id);
  }

  stop(): void {
    this.#deadlines.stop();
  }

  /**
   * The time that a stream's expiry is measured by. One that names a wall-clock time follows that clock, also ahead of
   * journal time; a journal that a wrong clock has put ahead does not end it early.
   */
  #nowMs(state: StreamState): TimeMs {
    const { time, clock } = this.#parts;
    if (state.expiry.kind !== "at") return time.nowMs();
    return Math.max(time.unboundMs(), clock.nowMs()) as TimeMs;
  }

  /** Live, or since its sliding expiry was last written down. */
  #isRead(id: StreamId): boolean {
    return this.#parts.tails.hasListeners(id) || this.#unwritten.has(id);
  }

  #sweep(id: StreamId): void {
    const { world, commit, time } = this.#parts;
    const state = world.byId.get(id);
    if (state === undefined || state.isDeleted || commit.stopped !== undefined) return;
    if (this.isOver(state)) {
      this.end(state);
      return;
    }
    if (this.#unwritten.delete(id)) this.touch(state);
    const nowMs = time.nowMs();
    const atMs = expiresAtMs(state) ?? nowMs;
    this.#deadlines.add(atMs > nowMs ? atMs : nowMs + REST_MS, id);
  }
}
