/**
 * The line of those who wait for a connection that has one transaction at a time.
 *
 *   - turns are one after the other, in the order in which they were asked for;
 *   - a turn that does not end is given up: it may be waiting for the caller who waits for it.
 */

import { waitingClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";

/** The turns of one connection. */
export class TurnLine {
  /** How long one turn may last before those who wait for it give up. */
  readonly #turnMs: number;
  /** The end of the last turn. */
  #last: Promise<unknown> = Promise.resolve();
  /** Turns that were begun. */
  #begun = 0;
  /** Turns that are not over, begun or not. */
  #open = 0;
  readonly #waiters = new Set<Waiter>();
  /** How many timers there were. */
  #round = 0;
  #cancel: () => void = () => undefined;

  constructor(turnMs: number) {
    this.#turnMs = turnMs;
  }

  readonly #end = (): void => {
    this.#open -= 1;
  };

  /** Whether no turn is open, and none waits. */
  get isFree(): boolean {
    return this.#open === 0;
  }

  /** Runs the work in its turn. Rejects with `too_many` if the turn before it does not end. */
  take<T>(work: () => T | Promise<T>): Promise<T> {
    const waiter = this.isFree ? undefined : this.#wait();
    this.#open += 1;
    const turn = this.#last.then(() => {
      if (waiter !== undefined) this.#called(waiter);
      this.#begun += 1;
      return work();
    });
    this.#last = turn.then(this.#end, this.#end);
    if (waiter === undefined) return turn;
    return new Promise((resolve, reject) => {
      waiter.giveUp = reject;
      turn.then(resolve, reject);
    });
  }

  #wait(): Waiter {
    const waiter: Waiter = { round: this.#round, lost: undefined, giveUp: () => undefined };
    this.#waiters.add(waiter);
    if (this.#waiters.size === 1) this.#watch();
    return waiter;
  }

  /** The turn of a waiter has come. Throws if it has given up. */
  #called(waiter: Waiter): void {
    if (waiter.lost !== undefined) throw waiter.lost;
    this.#waiters.delete(waiter);
    if (this.#waiters.size === 0) this.#cancel();
  }

  /** One timer for all who wait. Those who came before it are lost if no turn has begun meanwhile. */
  #watch(): void {
    const begun = this.#begun;
    this.#round += 1;
    const round = this.#round;
    this.#cancel = waitingClock.after(this.#turnMs, () => {
      for (const waiter of this.#begun === begun ? [...this.#waiters] : [])
        if (waiter.round < round) this.#giveUp(waiter);
      if (this.#waiters.size > 0) this.#watch();
    });
  }

  #giveUp(waiter: Waiter): void {
    const what = `one transaction of the connection is open for more than ${this.#turnMs} ms`;
    const why = "a call inside it that does not use ledger.in(tx) waits for its end";
    waiter.lost = new HapaxError("too_many", `${what}; ${why}`);
    this.#waiters.delete(waiter);
    waiter.giveUp(waiter.lost);
  }
}

/** One who waits for its turn. */
interface Waiter {
  /** The timer that was the last one when it came. */
  readonly round: number;
  /** Why it waits no more. */
  lost: HapaxError | undefined;
  giveUp: (error: HapaxError) => void;
}
