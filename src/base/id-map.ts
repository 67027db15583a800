/**
 * A map whose keys are numbers that count: each new key is larger than those before, and old ones are removed now and then. It keeps
 * values in pages, by their numbers, so that an entry costs a word where `Map` needs six, and no page is ever copied: a `Map` of a
 * million entries that grows holds everything up for as long as it takes to write all of them again.
 *
 *   - it walks in the order of the keys, and a walk may go on while entries come and go: it meets every entry that is there the
 *     whole time, once;
 *   - a page without entries is given back.
 */

import { assert } from "./assert.ts";

const PAGE_BITS = 9;
const PAGE_SIZE = 1 << PAGE_BITS;

interface Page<V> {
  readonly values: (V | undefined)[];
  count: number;
}

export class IdMap<K extends number, V extends object> implements ReadonlyMap<K, V> {
  readonly #pages = new Map<number, Page<V>>();
  /** Numbers of pages from the smallest to the largest. Undefined: they are not in order now. */
  #ordered: number[] = [];
  #isOrdered = true;
  #size = 0;
  /** The page that was used last: neighbours are used together. */
  #number = -1;
  #page: Page<V> | undefined;

  get size(): number {
    return this.#size;
  }

  get(key: K): V | undefined {
    return this.#pageOf(key)?.values[key % PAGE_SIZE];
  }

  has(key: K): boolean {
    return this.get(key) !== undefined;
  }

  set(key: K, value: V): this {
    assert(Number.isSafeInteger(key) && key >= 0, `a number that counts is ${key}`);
    const page = this.#pageOf(key) ?? this.#addPage(numberOf(key));
    const at = key % PAGE_SIZE;
    if (page.values[at] === undefined) {
      page.count += 1;
      this.#size += 1;
    }
    page.values[at] = value;
    return this;
  }

  delete(key: K): boolean {
    const page = this.#pageOf(key);
    const at = key % PAGE_SIZE;
    if (page?.values[at] === undefined) return false;
    page.values[at] = undefined;
    page.count -= 1;
    this.#size -= 1;
    if (page.count === 0) this.#dropPage(numberOf(key));
    return true;
  }

  entries(): MapIterator<[K, V]> {
    return this.#walk((key, value): [K, V] => [key, value]);
  }

  keys(): MapIterator<K> {
    return this.#walk((key) => key);
  }

  values(): MapIterator<V> {
    return this.#walk((_key, value) => value);
  }

  [Symbol.iterator](): MapIterator<[K, V]> {
    return this.entries();
  }

  forEach(run: (value: V, key: K, map: ReadonlyMap<K, V>) => void): void {
    for (const [key, value] of this.entries()) run(value, key, this);
  }

  *#walk<T>(pick: (key: K, value: V) => T): MapIterator<T> {
    for (let number = this.#from(0); number !== undefined; number = this.#from(number + 1)) {
      for (let at = 0; ; at += 1) {
        // Looked up each time: the page may have gone, or have grown.
        const values = this.#pages.get(number)?.values;
        if (values === undefined || at >= values.length) break;
        const value = values[at];
        // Cast: it is a number that was a key.
        if (value !== undefined) yield pick((number * PAGE_SIZE + at) as K, value);
      }
    }
  }

  #pageOf(key: K): Page<V> | undefined {
    const number = numberOf(key);
    if (number !== this.#number) {
      this.#number = number;
      this.#page = this.#pages.get(number);
    }
    return this.#page;
  }

  #addPage(number: number): Page<V> {
    const page: Page<V> = { values: [], count: 0 };
    this.#pages.set(number, page);
    this.#isOrdered &&= number > (this.#ordered.at(-1) ?? -1);
    this.#ordered.push(number);
    this.#number = number;
    this.#page = page;
    return page;
  }

  #dropPage(number: number): void {
    this.#pages.delete(number);
    this.#page = undefined;
    this.#number = -1;
    const at = this.#ordered.indexOf(number);
    this.#ordered.splice(at, 1);
  }

  /** The first page from this number on. */
  #from(number: number): number | undefined {
    if (!this.#isOrdered) {
      this.#ordered.sort((one, other) => one - other);
      this.#isOrdered = true;
    }
    let low = 0;
    let high = this.#ordered.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#ordered[middle] ?? 0) < number) low = middle + 1;
      else high = middle;
    }
    return this.#ordered[low];
  }
}

/** Not by shifts: a number may have more than 32 bits. */
function numberOf(key: number): number {
  return Math.floor(key / PAGE_SIZE);
}
