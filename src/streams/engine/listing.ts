/** Pages of names, in order, without a look at all of them. */

import { assert } from "../../base/assert.ts";
import type { StreamName } from "../core/types.ts";
import type { World } from "../core/world.ts";
import { LIMITS } from "../../protocol/limits.ts";
import type { Found } from "./outcomes.ts";

/** A page of the list of streams, of one moment. */
export interface StreamPage {
  readonly found: readonly Found[];
  /** The next page begins after it. Undefined: there is none. */
  readonly next: StreamName | undefined;
}

/** `find` answers undefined for a name that is not listed. A page may be short, or empty, and not be the last. */
export function pageOfNames(
  names: World["names"],
  { prefix, after, limit }: { prefix: string; after: string; limit: number },
  find: (name: StreamName) => Found | undefined,
): StreamPage {
  const found: Found[] = [];
  let looked = 0;
  let last: StreamName | undefined;
  for (const name of names.from(after > prefix ? after : prefix)) {
    // In order, names with one beginning follow each other.
    if (!name.startsWith(prefix)) break;
    if (name === after) continue;
    const isFull = found.length === limit || looked === LIMITS.listLookedMax;
    if (isFull) return { found, next: last };
    assert(last === undefined || last < name, "the index gives names out of order");
    const one = find(name);
    if (one !== undefined) found.push(one);
    looked += 1;
    last = name;
  }
  return { found, next: undefined };
}

const byText = (one: string, other: string): number => (one < other ? -1 : 1);

/** Collects the first few of many names, in the order of code units, without sorting all of them. */
export class FirstNames<T extends string> {
  readonly #after: string;
  readonly #count: number;
  #kept: T[] = [];

  constructor(after: string, count: number) {
    this.#after = after;
    this.#count = count;
  }

  add(name: T): void {
    if (name <= this.#after) return;
    this.#kept.push(name);
    // Of a million names only the first few are wanted: the others are dropped on the way.
    if (this.#kept.length >= 4 * this.#count + 1024) {
      this.#kept = this.#kept.sort(byText).slice(0, 2 * this.#count);
    }
  }

  /** The first `count` names after `after`. */
  take(): readonly T[] {
    return this.#kept.sort(byText).slice(0, this.#count);
  }
}
