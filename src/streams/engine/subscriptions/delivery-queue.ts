/**
 * Limits how many deliveries run at once, in all and to one host. A host that hangs takes up its own
 * share only; who waits is served in the order of arrival.
 */

import { assert } from "../../../base/assert.ts";

export interface DeliveryQueueSettings {
  readonly countMax: number;
  readonly perHostMax: number;
}

interface Waiting {
  readonly host: string;
  readonly run: () => Promise<void>;
}

export class DeliveryQueue {
  readonly #settings: DeliveryQueueSettings;
  readonly #waiting = new Set<Waiting>();
  readonly #byHost = new Map<string, number>();
  #running = 0;

  constructor(settings: DeliveryQueueSettings) {
    this.#settings = settings;
  }

  get running(): number {
    return this.#running;
  }

  /** Runs `run`, which must not reject, when there is room. The returned function takes it out again. */
  add(host: string, run: () => Promise<void>): () => void {
    const waiting: Waiting = { host, run };
    this.#waiting.add(waiting);
    this.#advance();
    return () => {
      this.#waiting.delete(waiting);
    };
  }

  #advance(): void {
    const { countMax, perHostMax } = this.#settings;
    for (const waiting of this.#waiting) {
      if (this.#running >= countMax) return;
      const ofHost = this.#byHost.get(waiting.host) ?? 0;
      if (ofHost >= perHostMax) continue;
      this.#waiting.delete(waiting);
      this.#running += 1;
      this.#byHost.set(waiting.host, ofHost + 1);
      void waiting.run().finally(() => {
        this.#leave(waiting.host);
      });
    }
  }

  #leave(host: string): void {
    this.#running -= 1;
    assert(this.#running >= 0, "more deliveries have ended than began");
    const ofHost = (this.#byHost.get(host) ?? 1) - 1;
    if (ofHost === 0) this.#byHost.delete(host);
    else this.#byHost.set(host, ofHost);
    this.#advance();
  }
}
