/** Who waits until a number of changes is durable. */

import type { HapaxError } from "../../../base/errors.ts";

interface Waiter {
  readonly ordinal: number;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

export class DurableWaiters {
  #waiting: Waiter[] = [];

  wait(ordinal: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ ordinal, resolve, reject });
    });
  }

  /** So many changes are durable by now, or no more ever will be. */
  settle(ordinal: number, failure: HapaxError | undefined): void {
    if (this.#waiting.length === 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const waiter of waiting) {
      if (failure !== undefined) waiter.reject(failure);
      else if (waiter.ordinal <= ordinal) waiter.resolve();
      else this.#waiting.push(waiter);
    }
  }
}
