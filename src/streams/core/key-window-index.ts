/**
 * The index of a key window: from the words of a key to the place of its entry.
 *
 * A leaf is a hash table with linear probing. Its slots are pairs of word 1, whose low bits say where to
 * begin, and of place + 1; 0 is empty. A leaf of 1,024 slots that is full is divided into sixteen, by the
 * next four bits of word 0.
 *
 * Words are of a digest, so that keys spread by themselves. A client may search for keys that do not: each
 * bit doubles the work for each key, and 20 bits are within reach. It gains a longer way to one leaf, which
 * is divided all the same: a search meets the 768 entries of a leaf at most, until that many keys agree in
 * all of word 0, which costs 2^32 digests for each. Only then does a leaf grow on.
 *
 *   KW5  an entry is reached from the slot of its word without an empty slot between: a removal closes the
 *        gap that it makes, and nothing stays behind;
 *   KW6  no addition or removal moves more than the entries of a leaf, however many there are.
 */

import { fittingCapacity, type KeyEntries, type KeyMark } from "./key-window-entries.ts";
import { assert } from "./types.ts";

const FAN = 16;
const LEVELS_MAX = 8; // of four bits: all of word 0
const LEAF_SLOTS_MIN = 16;
const LEAF_SLOTS_MAX = 1_024;
/** Of the leaves of a new branch: a sixteenth of what was divided fills three eighths of each. */
const DIVIDED_SLOTS = (LEAF_SLOTS_MAX / FAN) * 2;
/** A branch with as few entries becomes a leaf: far below where it was divided, so that it seldom is again. */
const MERGED_MAX = 256;

class Leaf {
  readonly slots: Uint32Array;
  readonly mask: number;
  count = 0;

  constructor(capacity: number) {
    this.slots = new Uint32Array(capacity * 2);
    this.mask = capacity - 1;
  }

  get capacity(): number {
    return this.mask + 1;
  }

  get bytes(): number {
    return this.slots.byteLength;
  }

  get isFull(): boolean {
    return this.count >= this.capacity * 0.75;
  }

  get isSparse(): boolean {
    return this.capacity > LEAF_SLOTS_MIN && this.count * 6 <= this.capacity;
  }

  put(word: number, value: number): void {
    let slot = word & this.mask;
    while (this.slots[slot * 2 + 1] !== 0) slot = (slot + 1) & this.mask;
    this.slots[slot * 2] = word;
    this.slots[slot * 2 + 1] = value;
    this.count += 1;
  }

  take(word: number, value: number): void {
    const { slots, mask } = this;
    let gap = word & mask;
    while (slots[gap * 2 + 1] !== value) {
      assert(slots[gap * 2 + 1] !== 0, "KW5 an entry is not reached from the slot of its word");
      gap = (gap + 1) & mask;
    }
    // Whatever may lie at the gap or before it moves there, and leaves its own gap.
    for (let slot = (gap + 1) & mask; slots[slot * 2 + 1] !== 0; slot = (slot + 1) & mask) {
      const distance = (slot - (slots[slot * 2] ?? 0)) & mask;
      if (distance < ((slot - gap) & mask)) continue;
      slots[gap * 2] = slots[slot * 2] ?? 0;
      slots[gap * 2 + 1] = slots[slot * 2 + 1] ?? 0;
      gap = slot;
    }
    slots[gap * 2 + 1] = 0;
    this.count -= 1;
  }

  each(visit: (word: number, value: number) => void): void {
    for (let at = 0; at < this.slots.length; at += 2) {
      const value = this.slots[at + 1] ?? 0;
      if (value !== 0) visit(this.slots[at] ?? 0, value);
    }
  }
}

class Branch {
  readonly children: (Leaf | Branch)[] = Array.from({ length: FAN }, () => new Leaf(DIVIDED_SLOTS));
  count = 0;

  get bytes(): number {
    return this.children.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** The child for what is left of word 0, from the top. */
  child(path: number): Leaf | Branch {
    const child = this.children[path >>> 28];
    assert(child !== undefined, "KW5 a branch has sixteen children");
    return child;
  }

  each(visit: (word: number, value: number) => void): void {
    for (const child of this.children) child.each(visit);
  }
}

function inOneLeaf(node: Leaf | Branch, capacity: number): Leaf {
  const leaf = new Leaf(capacity);
  node.each((word, value) => {
    leaf.put(word, value);
  });
  return leaf;
}

export class KeyIndex {
  readonly #entries: KeyEntries;
  #root: Leaf | Branch;
  #bytes: number;

  /** Indexes all entries that are there. */
  constructor(entries: KeyEntries) {
    this.#entries = entries;
    this.#root = new Leaf(fittingCapacity(entries.size, LEAF_SLOTS_MIN));
    this.#bytes = this.#root.bytes;
    for (let ordinal = entries.first; ordinal < entries.next; ordinal += 1) this.add(ordinal);
  }

  get memoryBytes(): number {
    return this.#bytes;
  }

  find(mark: KeyMark): number | undefined {
    const word = mark[1] ?? 0;
    let node = this.#root;
    for (let path = mark[0] ?? 0; node instanceof Branch; path <<= 4) node = node.child(path);
    const { slots, mask } = node;
    for (let slot = word & mask; ; slot = (slot + 1) & mask) {
      const value = slots[slot * 2 + 1] ?? 0;
      if (value === 0) return undefined;
      if (slots[slot * 2] !== word) continue;
      const ordinal = this.#entries.ordinalAt(value - 1);
      if (this.#entries.hasKey(ordinal, mark)) return ordinal;
    }
  }

  /** The entry is in the window, and not yet here. */
  add(ordinal: number): void {
    let node = this.#root;
    let parent: Branch | undefined;
    let path = this.#entries.wordOf(ordinal, 0);
    for (let level = 0; node instanceof Branch || node.isFull;) {
      if (node instanceof Branch) {
        node.count += 1;
        parent = node;
        node = node.child(path);
        path <<= 4;
        level += 1;
      } else {
        const isDivided = node.capacity >= LEAF_SLOTS_MAX && level < LEVELS_MAX;
        const larger: Leaf | Branch = isDivided
          ? this.#divided(node, level)
          : inOneLeaf(node, node.capacity * 2);
        this.#replace(node, larger, parent);
        node = larger;
      }
    }
    node.put(this.#entries.wordOf(ordinal, 1), this.#entries.placeOf(ordinal) + 1);
  }

  /** The entry is here, and still in the window. */
  remove(ordinal: number): void {
    let node = this.#root;
    let parent: Branch | undefined;
    for (let path = this.#entries.wordOf(ordinal, 0); node instanceof Branch; path <<= 4) {
      node.count -= 1;
      if (node.count <= MERGED_MAX) {
        const leaf = inOneLeaf(node, fittingCapacity(node.count + 1, LEAF_SLOTS_MIN));
        this.#replace(node, leaf, parent);
        node = leaf;
        break;
      }
      parent = node;
      node = node.child(path);
    }
    node.take(this.#entries.wordOf(ordinal, 1), this.#entries.placeOf(ordinal) + 1);
    if (node.isSparse) this.#replace(node, inOneLeaf(node, node.capacity / 2), parent);
  }

  #divided(leaf: Leaf, level: number): Branch {
    const branch = new Branch();
    leaf.each((word, value) => {
      const path = this.#entries.wordOf(this.#entries.ordinalAt(value - 1), 0) << (level * 4);
      let child = branch.children[path >>> 28];
      assert(child instanceof Leaf, "KW5 the children of a new branch are leaves");
      if (child.isFull) {
        child = inOneLeaf(child, child.capacity * 2);
        branch.children[path >>> 28] = child;
      }
      child.put(word, value);
    });
    branch.count = leaf.count;
    return branch;
  }

  #replace(node: Leaf | Branch, other: Leaf | Branch, parent: Branch | undefined): void {
    this.#bytes += other.bytes - node.bytes;
    if (parent === undefined) this.#root = other;
    else parent.children[parent.children.indexOf(node)] = other;
  }
}
