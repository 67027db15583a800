/**
 * The clock of what waits while no request runs, inside a Durable Object. A timer keeps an object awake and billed, and is gone when
 * the object is. So long waits are left to the alarm of the object: it wakes the object, whose engine knows from its world
 * what was to be done.
 *
 *   - the alarm is never later than the first thing that waits, also after a wake;
 *   - an alarm that comes early, late or twice does what is due, and nothing twice.
 */

import { type Clock, systemClock } from "../../base/clock.ts";
import type { AlarmStorage } from "./object-platform.ts";

/** Shorter waits are timers: setting an alarm is a write. */
const ALARM_MS_MIN = 5_000;
/** An alarm that comes too early finds nothing to do, and is set again. */
const ALARM_MS_MAX = 30 * 86_400_000;

interface Waiting {
  readonly atMs: number;
  readonly run: () => void;
}

export class ObjectClock implements Clock {
  readonly #storage: AlarmStorage;
  readonly #clock: Clock;
  readonly #onFault: (error: unknown) => void;
  readonly #waiting = new Set<Waiting>();
  #armedMs = Infinity;
  #hasBegun = false;

  constructor(
    storage: AlarmStorage,
    onFault: (error: unknown) => void,
    clock: Clock = systemClock,
  ) {
    this.#storage = storage;
    this.#onFault = onFault;
    this.#clock = clock;
  }

  nowMs(): number {
    return this.#clock.nowMs();
  }

  steadyMs(): number {
    return this.#clock.steadyMs();
  }

  after(delayMs: number, run: () => void): () => void {
    if (delayMs < ALARM_MS_MIN) return this.#clock.after(delayMs, run);
    const waiting = { atMs: this.nowMs() + delayMs, run };
    this.#waiting.add(waiting);
    this.#arm();
    return () => {
      this.#waiting.delete(waiting);
    };
  }

  /** Begins to set alarms. Before this, what an earlier life of the object has set is not known. */
  async begin(): Promise<void> {
    const atMs = await this.#storage.getAlarm();
    // One that is over may never come: what is due has registered again.
    if (atMs !== null && atMs > this.nowMs()) this.#armedMs = atMs;
    this.#hasBegun = true;
    this.#arm();
  }

  /** The alarm has come: does what is due, and sets the next one. Never throws: the platform gives up after some failures. */
  alarm(): void {
    this.#armedMs = Infinity;
    const nowMs = this.nowMs();
    for (const waiting of this.#waiting) {
      if (waiting.atMs > nowMs) continue;
      this.#waiting.delete(waiting);
      try {
        waiting.run();
      } catch (error) {
        this.#onFault(error);
      }
    }
    this.#arm();
  }

  #arm(): void {
    if (!this.#hasBegun) return;
    let firstMs = Infinity;
    for (const { atMs } of this.#waiting) if (atMs < firstMs) firstMs = atMs;
    if (firstMs >= this.#armedMs) return;
    this.#armedMs = Math.min(firstMs, this.nowMs() + ALARM_MS_MAX);
    this.#storage.setAlarm(this.#armedMs).catch(this.#onFault);
  }
}
