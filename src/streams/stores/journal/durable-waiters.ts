/** Callers that wait until a number of changes is durable. */

import { assert } from "../../../base/assert.ts";
import type { HapaxError } from "../../../base/errors.ts";

interface Waiter {
  readonly ordinal: number;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

export class DurableWaiters {
  #waiting: Waiter[] = [];
  #durable = 0;

  wait(ordinal: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ ordinal, resolve, reject });
    });
  }

  /** Says that so many changes are durable now, or, with a failure, that no more will be. */
  settle(ordinal: number, failure: HapaxError | undefined): void {
    assert(ordinal >= this.#durable, "fewer changes are durable than before");
    this.#durable = ordinal;
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
