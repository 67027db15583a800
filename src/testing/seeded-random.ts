/** Randomness that repeats: the same seed gives the same numbers on every machine. */

import type { Random } from "../base/random.ts";

/** A source of randomness that repeats with its seed. */
export interface SeededRandom extends Random {
  /** Returns a whole number from 0 to `limit` - 1. */
  below(limit: number): number;
}

/** Creates a source of numbers that depends only on the seed. Not for secrets. */
export function createSeededRandom(seed: number): SeededRandom {
  let state = seed >>> 0;

  // Mulberry32: 32 bits of state are plenty for choosing interleavings.
  function next(): number {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }

  return {
    unit: () => next() / 4_294_967_296,
    id: () => Array.from({ length: 4 }, () => next().toString(16).padStart(8, "0")).join(""),
    below: (limit) => Math.floor((next() / 4_294_967_296) * limit),
  };
}
