/**
 * Bytes of answers to reads that are being made or sent, over all connections. A reader waits for its share before the store is
 * read, instead of failing. What one client does not take must not lock out the others:
 *
 * - small answers (up to a page) and large ones have at most three quarters each, so that neither locks the other out;
 * - of those that wait, the peer that holds least is served first; those of one peer in the order in which they asked;
 * - while a peer that holds no more waits, an answer has a limited time to leave; then its reader is cut, and can come back
 *   at its offset;
 * - while a peer waits that would hold less, that time is short.
 */

import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import type { StreamState } from "../core/stream.ts";
import type { Offset } from "../core/types.ts";
import { LIMITS } from "../../protocol/limits.ts";
import type { ServerParts } from "./parts.ts";

const CHECK_MS = 1000;

/** The part of the budget that one answer has. */
export interface AnswerShare {
  readonly bytes: number;
  /** Sets how many bytes the answer has, when that is known. */
  resize(bytes: number): void;
  /** Gives the memory back when the bytes were sent or dropped. May be called again. */
  readonly release: () => void;
  /** Calls `run` if the answer has taken too long while others wait. It releases the share. */
  onCut(run: () => void): void;
}

type Kind = "small" | "large";

const KINDS = ["small", "large"] as const;

interface Waiting {
  readonly bytes: number;
  readonly begin: (share: AnswerShare) => void;
}

/** The readers of one kind that wait, by peer; a peer without one is not in it. */
type Queues = Map<string, Waiting[]>;

/** The peer that is served next, and what waits there. */
interface Next {
  readonly peer: string;
  readonly queue: Waiting[];
  readonly bytes: number;
}

export class AnswerBudget {
  readonly #clock: Clock;
  readonly #bytesMax: number;
  readonly #used: Record<Kind, number> = { small: 0, large: 0 };
  readonly #waiting: Record<Kind, Queues> = { small: new Map(), large: new Map() };
  readonly #shares = new Set<Share>();
  /** Bytes of the answers of each peer that has some. */
  readonly #held = new Map<string, number>();
  #isChecking = false;

  constructor(clock: Clock, bytesMax: number = LIMITS.answersBytesMax) {
    this.#clock = clock;
    this.#bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.#used.small + this.#used.large;
  }

  /** Resolves when there is room for this many bytes. `peer`: the address of the other side. */
  take(bytes: number, peer = ""): Promise<AnswerShare> {
    const queues = this.#waiting[kindOf(bytes)];
    if (queues.size === 0 && this.#fits(bytes)) return Promise.resolve(this.#begin(bytes, peer));
    return new Promise((resolve) => {
      const queue = queues.get(peer);
      const one = { bytes, begin: resolve };
      if (queue === undefined) queues.set(peer, [one]);
      else queue.push(one);
      this.#serve(); // Others may wait for more than there is, and hold more.
      this.#checkLater();
    });
  }

  /** One that is larger than everything allowed is let in alone. */
  #fits(bytes: number): boolean {
    const kind = kindOf(bytes);
    const isFirst = this.#used[kind] === 0;
    return isFirst || (this.#isInPart(kind, bytes) && this.bytes + bytes <= this.#bytesMax);
  }

  #isInPart(kind: Kind, bytes: number): boolean {
    return this.#used[kind] + bytes <= (this.#bytesMax * 3) / 4;
  }

  #heldBy(peer: string): number {
    return this.#held.get(peer) ?? 0;
  }

  #count(peer: string, bytes: number, change: 1 | -1): void {
    this.#used[kindOf(bytes)] += change * bytes;
    const held = this.#heldBy(peer) + change * bytes;
    assert(held >= 0 && this.bytes >= held, "answers gave back more room than they took");
    if (held === 0) this.#held.delete(peer);
    else this.#held.set(peer, held);
  }

  #begin(bytes: number, peer: string): Share {
    const share = new Share(bytes, peer, this.#clock.nowMs(), (one, from, to) => {
      this.#count(peer, from, -1);
      if (to === undefined) this.#shares.delete(one);
      else this.#count(peer, to, 1);
      this.#serve();
    });
    this.#count(peer, bytes, 1);
    this.#shares.add(share);
    return share;
  }

  /** Of the peers that wait, the one that holds least; of those that hold the same, the first that waits. */
  #next(kind: Kind): Next | undefined {
    let least: Next | undefined;
    let held = Infinity;
    for (const [peer, queue] of this.#waiting[kind]) {
      const own = this.#heldBy(peer);
      const [first] = queue;
      if (own >= held || first === undefined) continue;
      least = { peer, queue, bytes: first.bytes };
      held = own;
    }
    return least;
  }

  #serve(): void {
    for (const kind of KINDS) {
      for (let next = this.#next(kind); next !== undefined; next = this.#next(kind)) {
        if (!this.#fits(next.bytes)) break;
        const one = next.queue.shift();
        // A peer that has got something goes behind the others that hold as much.
        this.#waiting[kind].delete(next.peer);
        if (next.queue.length > 0) this.#waiting[kind].set(next.peer, next.queue);
        one?.begin(this.#begin(one.bytes, next.peer));
      }
    }
  }

  #checkLater(): void {
    if (this.#isChecking) return;
    this.#isChecking = true;
    this.#clock.after(CHECK_MS, () => {
      this.#isChecking = false;
      this.#check();
    });
  }

  /** Cuts the answers that were wanted by others for too long. */
  #check(): void {
    const nowMs = this.#clock.nowMs();
    const lowest = Math.min(...KINDS.map((kind) => this.#lowest(kind)));
    for (const share of [...this.#shares]) {
      if (lowest > this.#heldBy(share.peer)) share.wantedSinceMs = undefined;
      else if (nowMs - (share.wantedSinceMs ??= nowMs) > timeFor(share.bytes)) share.cut();
    }
    for (const kind of KINDS) this.#takeFromGreedy(kind, nowMs);
    if (this.#waiting.small.size + this.#waiting.large.size > 0) this.#checkLater();
  }

  /** What the waiting peer that holds least has; without bound if none waits. */
  #lowest(kind: Kind): number {
    const next = this.#next(kind);
    return next === undefined ? Infinity : this.#heldBy(next.peer);
  }

  /** Cuts old answers of peers that would still hold as much as the one that waits, until that one is served. */
  #takeFromGreedy(kind: Kind, nowMs: number): void {
    let next = this.#next(kind);
    for (const share of [...this.#shares]) {
      if (next === undefined) return;
      const isOld = nowMs - share.beganMs >= LIMITS.answerGreedyMs;
      const isOfUse = kindOf(share.bytes) === kind || this.#isInPart(kind, next.bytes);
      const left = this.#heldBy(share.peer) - share.bytes;
      if (!isOld || !isOfUse || share.peer === next.peer) continue;
      if (left < this.#heldBy(next.peer) + next.bytes) continue;
      share.cut();
      next = this.#next(kind);
    }
  }
}

class Share implements AnswerShare {
  bytes: number;
  readonly peer: string;
  readonly beganMs: number;
  wantedSinceMs: number | undefined;
  readonly #move: (share: Share, from: number, to: number | undefined) => void;
  #isOver = false;
  #cut: () => void = () => undefined;

  constructor(
    bytes: number,
    peer: string,
    beganMs: number,
    move: (share: Share, from: number, to: number | undefined) => void,
  ) {
    this.bytes = bytes;
    this.peer = peer;
    this.beganMs = beganMs;
    this.#move = move;
  }

  resize(bytes: number): void {
    if (this.#isOver) return;
    const from = this.bytes;
    this.bytes = bytes;
    this.#move(this, from, bytes);
  }

  readonly release = (): void => {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#move(this, this.bytes, undefined);
  };

  onCut(run: () => void): void {
    this.#cut = run;
  }

  cut(): void {
    this.#cut();
    this.release();
  }
}

function kindOf(bytes: number): Kind {
  return bytes <= LIMITS.pageBytesMax ? "small" : "large";
}

function timeFor(bytes: number): number {
  return LIMITS.answerWantedMs + (bytes * 1000) / LIMITS.answerBytesPerSecondFull;
}

/** Room for what may be read from here: a page is one append at least, however large. */
export function takeShare(
  { answers, engine, options }: Pick<ServerParts, "answers" | "engine" | "options">,
  state: StreamState,
  from: Offset,
  peer: string | undefined,
): Promise<AnswerShare> {
  const appendBytesMax = Math.max(LIMITS.pageBytesMax, options.bodyBytesMax);
  return answers.take(Math.min(Math.max(engine.view(state).tail - from, 0), appendBytesMax), peer);
}
