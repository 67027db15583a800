/**
 * Decides what a numbered message of a source is, and holds those that came too early.
 *
 *   - messages count in the order of their numbers, each once, with none left out;
 *   - a number that has counted is a duplicate: its sender lost the answer, and gets it again;
 *   - a message that comes too early is held, up to a number of them; those next in line are kept, the farthest given up: they
 *     were not acknowledged, and come again;
 *   - what is missing is from the number after the last one to the number before the first held one.
 *
 * Pure.
 */

/** The result of `decideArrival()`. */
export type Arrival =
  | { readonly kind: "next" }
  | { readonly kind: "duplicate" }
  | { readonly kind: "early" };

/** Decides a message by its number and the last one that has counted. */
export function decideArrival(last: number, sequence: number): Arrival {
  if (sequence <= last) return { kind: "duplicate" };
  return sequence === last + 1 ? { kind: "next" } : { kind: "early" };
}

/** What is missing of a source: the first and the last number. */
export interface MissingRange {
  readonly from: number;
  readonly to: number;
}

/** Messages that came before those that they follow. */
export class EarlyMessages<T> {
  readonly #max: number;
  readonly #held = new Map<number, T>();

  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#held.size;
  }

  /** Holds a message. Returns false if it was given up, because others that come sooner have the room. */
  hold(sequence: number, message: T): boolean {
    if (this.#max < 1) return false;
    if (this.#held.size >= this.#max && !this.#held.has(sequence)) {
      const farthest = Math.max(...this.#held.keys());
      if (sequence > farthest) return false;
      this.#held.delete(farthest);
    }
    this.#held.set(sequence, message);
    return true;
  }

  /** Takes the message with this number out. */
  take(sequence: number): { readonly message: T } | undefined {
    if (!this.#held.has(sequence)) return undefined;
    // Cast: it is there, and T may include undefined.
    const message = this.#held.get(sequence) as T;
    this.#held.delete(sequence);
    return { message };
  }

  /** What is missing before the first held message. Undefined: nothing is known to be missing. */
  missing(last: number): MissingRange | undefined {
    for (const sequence of this.#held.keys()) if (sequence <= last) this.#held.delete(sequence);
    if (this.#held.size === 0) return undefined;
    const first = Math.min(...this.#held.keys());
    return first > last + 1 ? { from: last + 1, to: first - 1 } : undefined;
  }
}
