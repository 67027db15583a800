/**
 * Keeps names in the order of code units, so that a page of names costs its own length, and not the number of all
 * names. Adding, deleting and finding look at a logarithm of the names, and move at most one chunk.
 *
 * A sorted list of sorted chunks. A chunk that is full is cut in two; one that is empty is dropped.
 */

import { assert } from "../../base/assert.ts";

/** Moving this many places in memory is a fraction of a microsecond; a million names are 4,000 chunks. */
const CHUNK_MAX = 512;

export class NameIndex<T extends string> {
  readonly #chunks: T[][] = [];
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(name: T): void {
    const at = this.#chunkOf(name);
    const chunk = this.#chunks[at];
    if (chunk === undefined) {
      this.#chunks.push([name]);
      this.#size += 1;
      return;
    }
    const place = placeOf(chunk, name);
    if (chunk[place] === name) return;
    const before = chunk[place - 1];
    assert(before === undefined || before < name, "a name is added behind a later one");
    chunk.splice(place, 0, name);
    this.#size += 1;
    if (chunk.length <= CHUNK_MAX) return;
    // Names often come in order: then the first half stays as full as it is.
    const isLast = place === chunk.length - 1 && at === this.#chunks.length - 1;
    this.#chunks.splice(at + 1, 0, chunk.splice(isLast ? CHUNK_MAX : CHUNK_MAX / 2));
  }

  delete(name: T): void {
    const at = this.#chunkOf(name);
    const chunk = this.#chunks[at];
    if (chunk === undefined) return;
    const place = placeOf(chunk, name);
    if (chunk[place] !== name) return;
    chunk.splice(place, 1);
    this.#size -= 1;
    assert(this.#size >= 0, "more names were deleted than added");
    if (chunk.length === 0) this.#chunks.splice(at, 1);
  }

  /** Yields from the first name that is not before `from`. The caller must not add or delete names meanwhile. */
  *from(from: string): Generator<T, void, undefined> {
    let at = this.#chunkOf(from);
    let place = placeOf(this.#chunks[at] ?? [], from);
    for (let chunk = this.#chunks[at]; chunk !== undefined; chunk = this.#chunks[at]) {
      for (; place < chunk.length; place += 1) {
        const name = chunk[place];
        if (name !== undefined) yield name;
      }
      at += 1;
      place = 0;
    }
  }

  /** Returns the chunk that has the name, or would have it: the last one that begins at or before the name. */
  #chunkOf(name: string): number {
    let low = 0;
    let high = this.#chunks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if ((this.#chunks[middle]?.[0] ?? "") <= name) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

/** Returns the first place whose name is not before this one. */
function placeOf(chunk: readonly string[], name: string): number {
  let low = 0;
  let high = chunk.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((chunk[middle] ?? "") < name) low = middle + 1;
    else high = middle;
  }
  return low;
}
