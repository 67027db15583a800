/**
 * The index of a key window: from the words of a key to the place of its entry.
 *
 * A leaf is a hash table with linear probing. A slot is a pair: word 1, whose low bits say where a search begins, and
 * place + 1, where 0 means empty. A full leaf of 1,024 slots is divided into sixteen, by the next four bits of word
 * 0.
 *
 * The words are parts of a digest, so keys spread by themselves. A client may search for keys that do not spread:
 * each bit doubles its work for each key, and 20 bits are within reach. That makes the way to one leaf longer, but
 * the leaf is still divided: a search meets at most the 768 entries of a leaf, until that many keys agree in all of
 * word 0. Each such key costs the client 2^32 digests. Only then does a leaf grow further.
 *
 *   KW5  there is no empty slot between the slot of an entry's word and the entry: a removal closes the gap that it
 *        makes;
 *   KW6  an addition or removal moves at most the entries of one leaf, for any number of entries.
 */

import { fittingCapacity, type KeyEntries, type KeyMark } from "./key-window-entries.ts";
import { assert } from "./assert.ts";

const FAN = 16;
const LEVELS_MAX = 8; // of four bits: all of word 0
const LEAF_SLOTS_MIN = 16;
const LEAF_SLOTS_MAX = 1_024;
/** Slots of each leaf of a new branch. A sixteenth of the divided leaf fills three eighths of each. */
const DIVIDED_SLOTS = (LEAF_SLOTS_MAX / FAN) * 2;
/**
 * A branch with so few entries becomes a leaf. The limit is far below the one for dividing, so that a leaf is seldom
 * divided again.
 */
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
    // An entry that may lie at the gap or before it moves there, and leaves its own gap.
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

  /** Returns the child for the rest of word 0, from the top. */
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

  /** Indexes all entries that exist now. */
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

  /** Adds an entry. It is in the window, and not yet in the index. */
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

  /** Removes an entry. It is in the index, and still in the window. */
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
