/**
 * A heap of deadlines, earliest first, with one timer. What it wakes for is checked again by its owner. Deadlines that
 * are due together are done in slices, so that a hundred thousand of them hold up nothing.
 */

import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { TurnBudget } from "./turn-budget.ts";

interface Entry<T> {
  readonly atMs: number;
  readonly item: T;
}

export class Deadlines<T> {
  readonly #clock: Clock;
  readonly #nowMs: () => number;
  readonly #due: (item: T) => void;
  readonly #heap: Entry<T>[] = [];
  #armedMs = Infinity;
  #disarm: (() => void) | undefined;
  #isStopped = false;

  constructor(clock: Clock, nowMs: () => number, due: (item: T) => void) {
    this.#clock = clock;
    this.#nowMs = nowMs;
    this.#due = due;
  }

  add(atMs: number, item: T): void {
    if (this.#isStopped) return;
    const heap = this.#heap;
    let index = heap.push({ atMs, item }) - 1;
    while (index > 0) {
      const parent = (index - 1) >>> 1;
      if ((heap[parent]?.atMs ?? 0) <= atMs) break;
      this.#swap(index, parent);
      index = parent;
    }
    this.#arm();
  }

  stop(): void {
    this.#isStopped = true;
    this.#disarm?.();
    this.#heap.length = 0;
  }

  #arm(): void {
    const first = this.#heap[0];
    if (first === undefined || first.atMs >= this.#armedMs) return;
    this.#disarm?.();
    this.#armedMs = first.atMs;
    this.#disarm = this.#clock.after(Math.max(0, first.atMs - this.#nowMs()), () => {
      this.#armedMs = Infinity;
      this.#fire();
    });
  }

  #fire(): void {
    const nowMs = this.#nowMs();
    const budget = new TurnBudget(this.#clock, LIMITS.turnStreamsMax);
    for (let first = this.#heap[0]; first !== undefined && first.atMs <= nowMs;) {
      if (!budget.take()) break;
      this.#removeFirst();
      assert((this.#heap[0]?.atMs ?? Infinity) >= first.atMs, "a deadline is out of its order");
      this.#due(first.item);
      first = this.#heap[0];
    }
    if (!this.#isStopped) this.#arm();
  }

  #removeFirst(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    heap[0] = last;
    let index = 0;
    for (;;) {
      const left = 2 * index + 1;
      let least = index;
      for (const child of [left, left + 1]) {
        const entry = heap[child];
        if (entry !== undefined && entry.atMs < (heap[least]?.atMs ?? Infinity)) least = child;
      }
      if (least === index) return;
      this.#swap(index, least);
      index = least;
    }
  }

  #swap(one: number, other: number): void {
    const first = this.#heap[one];
    const second = this.#heap[other];
    if (first === undefined || second === undefined) return;
    this.#heap[one] = second;
    this.#heap[other] = first;
  }
}
