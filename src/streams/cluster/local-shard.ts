/** A shard that this node owns: a whole server over the store of the shard, and the requests that run on it. */

import type { Clock } from "../../base/clock.ts";
import type { HapaxServer } from "../server.ts";
import type { ServerAnswer } from "../server/exchange.ts";
import type { KeptExchange } from "./kept-exchange.ts";

/**
 * What takes longer, such as a body that comes slowly, is cut off. It is well below the time that other requests wait for an owner: the
 * next one must read the shard within the rest.
 */
const LEAVE_MS = 2000;

export class LocalShard {
  readonly server: HapaxServer;
  readonly #clock: Clock;
  /** It takes no new requests: they wait for the next owner. */
  #isLeaving = false;
  #running = 0;
  #onIdle: (() => void) | undefined;

  constructor(server: HapaxServer, clock: Clock) {
    this.server = server;
    this.#clock = clock;
  }

  get isLeaving(): boolean {
    return this.#isLeaving;
  }

  /** Another node owns the shard. What the store acknowledged before is stored; nothing later will be. */
  get isMoved(): boolean {
    return this.server.engine.stopped?.code === "shard_moved";
  }

  async answer(exchange: KeptExchange): Promise<ServerAnswer> {
    this.#running += 1;
    try {
      return await this.server.handle(exchange);
    } finally {
      this.#running -= 1;
      if (this.#running === 0) this.#onIdle?.();
    }
  }

  /** Lets what runs end, and closes the store. */
  async leave(): Promise<void> {
    this.#isLeaving = true;
    this.server.drain();
    if (this.#running > 0) {
      await new Promise<void>((resolve) => {
        const cancel = this.#clock.after(LEAVE_MS, resolve);
        this.#onIdle = () => {
          cancel();
          resolve();
        };
      });
    }
    await this.server.close();
  }

  /** Ends without waiting: the store takes nothing more. */
  drop(): void {
    this.#isLeaving = true;
    this.server.drain();
    this.server.close().catch(() => undefined);
  }
}
