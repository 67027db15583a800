/** A connection and a clock that a test moves, for live readers. */

import type { Clock } from "../../src/base/clock.ts";
import { SseDecoder, type SseEvent } from "../../src/protocol/sse-decoder.ts";
import type { LiveSink } from "../../src/streams/server/exchange.ts";

const START_MS = Date.UTC(2026, 0, 1);

/** Time that stands still until it is moved; what is due runs in order. */
export class ManualClock implements Clock {
  #nowMs = START_MS;
  readonly #timers = new Map<symbol, { readonly atMs: number; readonly run: () => void }>();

  nowMs(): number {
    return this.#nowMs;
  }

  steadyMs(): number {
    return this.#nowMs;
  }

  after(delayMs: number, run: () => void): () => void {
    const key = Symbol("timer");
    this.#timers.set(key, { atMs: this.#nowMs + delayMs, run });
    return () => {
      this.#timers.delete(key);
    };
  }

  /** Time goes on, and nothing that is due runs. */
  hold(byMs: number): void {
    this.#nowMs += byMs;
  }

  move(byMs: number): void {
    const untilMs = this.#nowMs + byMs;
    for (;;) {
      const [next] = [...this.#timers]
        .filter(([, timer]) => timer.atMs <= untilMs)
        .toSorted(([, one], [, other]) => one.atMs - other.atMs);
      if (next === undefined) break;
      this.#timers.delete(next[0]);
      this.#nowMs = Math.max(this.#nowMs, next[1].atMs);
      next[1].run();
    }
    this.#nowMs = untilMs;
  }
}

/** A connection whose other side takes bytes only when the test says so. */
export class ManualSink implements LiveSink {
  readonly writes: Uint8Array[] = [];
  ending: "open" | "ended" | "cut" = "open";
  isTaking = true;
  #queuedBytes = 0;
  #drains: (() => void)[] = [];
  #closes: (() => void)[] = [];
  #stuck: (() => void) | undefined;

  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  write(bytes: Uint8Array): void {
    if (this.ending !== "open") throw new Error("written after the end");
    this.writes.push(bytes);
    if (!this.isTaking) this.#queuedBytes += bytes.length;
  }

  onDrain(run: () => void): void {
    this.#drains.push(run);
  }

  onStuck(_delayMs: number, run: () => void): () => void {
    this.#stuck = run;
    return () => {
      this.#stuck = undefined;
    };
  }

  onClose(run: () => void): void {
    this.#closes.push(run);
  }

  end(): void {
    this.ending = "ended";
  }

  cut(): void {
    this.ending = "cut";
  }

  get isWatched(): boolean {
    return this.#stuck !== undefined;
  }

  /** The other side takes everything. */
  drain(): void {
    this.isTaking = true;
    this.#queuedBytes = 0;
    for (const run of this.#drains.splice(0)) run();
  }

  /** The other side has taken nothing for too long. */
  stick(): void {
    this.#stuck?.();
  }

  /** The other side has gone. */
  leave(): void {
    for (const run of this.#closes.splice(0)) run();
  }

  events(): SseEvent[] {
    const decoder = new SseDecoder();
    return this.writes.flatMap((bytes) => [...decoder.push(bytes)]);
  }

  data(): string {
    return this.events()
      .filter(({ event }) => event === "data")
      .map(({ data }) => data)
      .join("");
  }
}
