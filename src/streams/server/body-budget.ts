/**
 * Limits the bytes of bodies that are being received, over all connections of a server. One client must not lock out
 * the others:
 *
 * - a body that comes too slowly is cut, whether there is room or not;
 * - if there is no room, the slowest body that is too slow to arrive in time makes room. For a peer that holds more than
 *   its part, only a body of its own makes room, or one of a peer that holds as much;
 * - then a body of the peer that holds most makes room, if that is more than the asking peer has.
 */

import { assert } from "../../base/assert.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/limits.ts";

/**
 * A body that holds a smaller part of the wanted bytes is not cut: it would make too little room. So few bodies are
 * cut for one.
 */
const PART_MIN = 1 / 64;
const RATE_MS = 1000;
const CHECK_MS = 1000;

/** What the budget knows of a body. */
export interface Receiving {
  /** The address of the other side. */
  readonly peer: string;
  /** Ends the body with this error. The body then gives its bytes back. */
  readonly cut: (error: HapaxError) => void;
}

/** The share of one body. */
export class BodyShare {
  readonly #budget: BodyBudget;
  readonly receiving: Receiving;
  bytes = 0;
  /** Start of the current second, the bytes in it, and the rate of the second before. */
  #secondMs: number;
  #secondBytes = 0;
  #rate = Infinity;
  /** Start of the window for the lowest rate, and the bytes at that time. */
  windowMs: number;
  windowBytes = 0;

  constructor(budget: BodyBudget, receiving: Receiving, nowMs: number) {
    this.#budget = budget;
    this.receiving = receiving;
    this.#secondMs = nowMs;
    this.windowMs = nowMs;
  }

  /** Takes room for more bytes. Throws `too_many` if there is none. */
  take(bytes: number): void {
    this.#budget.take(this, bytes);
    this.rate(this.#budget.nowMs());
    this.#secondBytes += bytes;
    this.bytes += bytes;
  }

  /** Ends the share: its bytes count elsewhere, or are gone. */
  end(): void {
    this.#budget.end(this);
  }

  /** Returns the recent rate in bytes a second. Infinity for a body that has just begun. */
  rate(nowMs: number): number {
    const elapsedMs = nowMs - this.#secondMs;
    if (elapsedMs >= RATE_MS) {
      this.#rate = (this.#secondBytes * 1000) / elapsedMs;
      this.#secondMs = nowMs;
      this.#secondBytes = 0;
    }
    return this.#rate;
  }
}

export class BodyBudget {
  readonly #shares = new Set<BodyShare>();
  readonly #rateMin: number;
  readonly #clock: Clock;
  readonly #bytesMax: number;
  /** Ends the wait for the next check. Undefined: no body is being received. */
  #cancel: (() => void) | undefined;
  #isClosed = false;
  #bytes = 0;

  /** `rateMin`: a body below this rate, in bytes a second, is cut. 0: no such limit. */
  constructor(
    rateMin: number = LIMITS.bodyBytesPerSecondMin,
    clock: Clock = systemClock,
    bytesMax: number = LIMITS.bodiesBytesMax,
  ) {
    this.#rateMin = rateMin;
    this.#clock = clock;
    this.#bytesMax = bytesMax;
  }

  nowMs(): number {
    return this.#clock.steadyMs();
  }

  get bytes(): number {
    return this.#bytes;
  }

  begin(receiving: Receiving): BodyShare {
    const share = new BodyShare(this, receiving, this.nowMs());
    this.#shares.add(share);
    this.#checkLater();
    return share;
  }

  /** Called by shares. */
  take(share: BodyShare, bytes: number): void {
    if (this.#lacks(bytes)) this.#makeRoom(share, bytes);
    this.#bytes += bytes;
  }

  /** Called by shares. */
  end(share: BodyShare): void {
    if (!this.#shares.delete(share)) return;
    this.#bytes -= share.bytes;
    assert(this.#bytes >= 0, "bodies gave back more room than they took");
    share.bytes = 0;
  }

  /** Cuts the bodies that were too slow over a whole window. */
  check(): void {
    const nowMs = this.nowMs();
    for (const share of this.#shares) {
      share.rate(nowMs);
      const elapsedMs = nowMs - share.windowMs;
      if (elapsedMs < LIMITS.bodyWindowMs) continue;
      if ((share.bytes - share.windowBytes) * 1000 < this.#rateMin * elapsedMs) {
        const rule = `a body must bring ${this.#rateMin} bytes a second`;
        this.#cut(share, new HapaxError("request_timeout", rule));
      } else {
        share.windowMs = nowMs;
        share.windowBytes = share.bytes;
      }
    }
  }

  /** Cuts the bodies that are still coming. */
  close(): void {
    this.#isClosed = true;
    this.#cancel?.();
    for (const share of [...this.#shares]) {
      this.#cut(share, new HapaxError("shutting_down", "the server stops"));
    }
  }

  #checkLater(): void {
    if (this.#cancel !== undefined || this.#isClosed) return;
    this.#cancel = this.#clock.after(CHECK_MS, () => {
      this.#cancel = undefined;
      this.check();
      if (this.#shares.size > 0) this.#checkLater();
    });
  }

  #cut(share: BodyShare, error: HapaxError): void {
    share.receiving.cut(error);
    this.end(share); // In case that `cut` did not do it.
  }

  #lacks(bytes: number): boolean {
    return this.#bytes + bytes > this.#bytesMax;
  }

  #makeRoom(asking: BodyShare, bytes: number): void {
    const slow = this.#findSlow(asking, bytes);
    while (this.#lacks(bytes)) {
      const victim = slow.pop() ?? this.#findGreedy(asking, bytes);
      if (victim === undefined) {
        throw new HapaxError("too_many", "too many bodies are being received at once");
      }
      this.#cut(victim, new HapaxError("too_many", "the body came too slowly to keep its room"));
    }
  }

  #heldByPeer(): Map<string, number> {
    const held = new Map<string, number>();
    for (const share of this.#shares) {
      const { peer } = share.receiving;
      held.set(peer, (held.get(peer) ?? 0) + share.bytes);
    }
    return held;
  }

  /**
   * Returns other bodies that are too slow to arrive in time and may make room for this one. The slowest is the last.
   */
  #findSlow(asking: BodyShare, bytes: number): BodyShare[] {
    const nowMs = this.nowMs();
    const held = this.#heldByPeer();
    const { peer } = asking.receiving;
    const own = (held.get(peer) ?? 0) + bytes;
    const isModest = own <= this.#bytesMax / held.size;
    const mayCut = (one: string): boolean =>
      isModest || one === peer || (held.get(one) ?? 0) >= own;
    const slow: { readonly share: BodyShare; readonly rate: number }[] = [];
    for (const share of this.#shares) {
      if (share === asking || share.bytes <= bytes * PART_MIN) continue;
      const rate = share.rate(nowMs);
      if (rate >= LIMITS.bodyBytesPerSecondFull || !mayCut(share.receiving.peer)) continue;
      slow.push({ share, rate });
    }
    // Among equally slow ones, one large body makes as much room as many small ones.
    slow.sort((one, other) => other.rate - one.rate || one.share.bytes - other.share.bytes);
    return slow.map(({ share }) => share);
  }

  /** Returns the largest body of the peer that holds most, if the asking peer would still hold less. */
  #findGreedy(asking: BodyShare, bytes: number): BodyShare | undefined {
    const held = this.#heldByPeer();
    const own = (held.get(asking.receiving.peer) ?? 0) + bytes;
    let largest: BodyShare | undefined;
    let most = own;
    for (const share of this.#shares) {
      const peerBytes = held.get(share.receiving.peer) ?? 0;
      const isMore = peerBytes > most || (peerBytes === most && largest !== undefined);
      if (share.receiving.peer === asking.receiving.peer || !isMore) continue;
      if (peerBytes > most || share.bytes > (largest?.bytes ?? 0)) largest = share;
      most = peerBytes;
    }
    return largest;
  }
}
