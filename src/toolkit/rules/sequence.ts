/**
 * Decides what a numbered message of a source is, and holds those that came too early.
 *
 *   - messages count in the order of their numbers, each once, with none left out;
 *   - a number that has counted is a duplicate: its sender lost the answer, and gets it again;
 *   - a message that comes too early is held, up to a number of them and of their bytes; those next in line are kept, the farthest
 *     given up: they were not acknowledged, and come again;
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

interface Held<T> {
  readonly message: T;
  readonly bytes: number;
}

/** Messages that came before those that they follow. */
export class EarlyMessages<T> {
  readonly #max: number;
  readonly #bytesMax: number;
  readonly #held = new Map<number, Held<T>>();
  #bytes = 0;

  constructor(max: number, bytesMax = Infinity) {
    this.#max = max;
    this.#bytesMax = bytesMax;
  }

  get size(): number {
    return this.#held.size;
  }

  /** Holds a message. Returns false if it was given up, because others that come sooner have the room. */
  hold(sequence: number, message: T, bytes = 0): boolean {
    if (this.#max < 1 || bytes > this.#bytesMax) return false;
    this.#remove(sequence);
    while (this.#held.size >= this.#max || this.#bytes + bytes > this.#bytesMax) {
      const farthest = this.#end((one, other) => one > other);
      if (farthest === undefined || sequence > farthest) return false;
      this.#remove(farthest);
    }
    this.#held.set(sequence, { message, bytes });
    this.#bytes += bytes;
    return true;
  }

  /** Takes the message with this number out. */
  take(sequence: number): { readonly message: T } | undefined {
    const held = this.#remove(sequence);
    return held && { message: held.message };
  }

  /** What is missing before the first held message. Undefined: nothing is known to be missing. */
  missing(last: number): MissingRange | undefined {
    for (const sequence of this.#held.keys()) if (sequence <= last) this.#remove(sequence);
    const first = this.#end((one, other) => one < other);
    if (first === undefined) return undefined;
    return first > last + 1 ? { from: last + 1, to: first - 1 } : undefined;
  }

  #remove(sequence: number): Held<T> | undefined {
    const held = this.#held.get(sequence);
    this.#bytes -= held?.bytes ?? 0;
    this.#held.delete(sequence);
    return held;
  }

  /** The first or the last number. There may be too many for the arguments of a function. */
  #end(isBefore: (one: number, other: number) => boolean): number | undefined {
    let end: number | undefined;
    for (const one of this.#held.keys()) if (end === undefined || isBefore(one, end)) end = one;
    return end;
  }
}
