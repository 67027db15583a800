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

  constructor(turnMs: number) {
    this.#turnMs = turnMs;
  }

  /** Whether no turn is open, and none waits. */
  get isFree(): boolean {
    return this.#open === 0;
  }

  /** Runs the work in its turn. Rejects with `too_many` if the turn before it does not end. */
  take<T>(work: () => T | Promise<T>): Promise<T> {
    const patience = this.isFree ? undefined : this.#patience();
    this.#open += 1;
    const turn = this.#last.then(() => {
      patience?.end();
      this.#begun += 1;
      return work();
    });
    const over = (): void => {
      this.#open -= 1;
    };
    this.#last = turn.then(over, over);
    return patience === undefined ? turn : Promise.race([turn, patience.lost]);
  }

  /** `lost` rejects when one turn has lasted too long. `end`, at the caller's own turn, throws if it has given up. */
  #patience(): { readonly lost: Promise<never>; readonly end: () => void } {
    let cancel: () => void = () => undefined;
    let error: HapaxError | undefined;
    const lost = new Promise<never>((_, reject) => {
      const wait = (begun: number): void => {
        cancel = waitingClock.after(this.#turnMs, () => {
          if (this.#begun !== begun) {
            wait(this.#begun);
            return;
          }
          const what = `one transaction of the connection is open for more than ${this.#turnMs} ms`;
          const why = "a call inside it that does not use ledger.in(tx) waits for its end";
          error = new HapaxError("too_many", `${what}; ${why}`);
          reject(error);
        });
      };
      wait(this.#begun);
    });
    const end = (): void => {
      cancel();
      if (error !== undefined) throw error;
    };
    return { lost, end };
  }
}
