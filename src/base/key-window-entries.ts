/**
 * The entries of a key window, oldest first. An entry has 40 bytes:
 *
 *   bytes  0 to 15   128 bits of the key's digest, four words
 *   bytes 16 to 23   64 bits of the body's digest, two words
 *   bytes 24 to 31   place of what was stored: the end offset of an append, the number of an entry
 *   bytes 32 to 39   journal time
 *
 * Entries lie in chunks of 4,096, so growth copies nothing and eviction frees memory. A window that fits one chunk
 * has one of its own size, which doubles, slides and shrinks with it. Many streams have only one or two keys.
 */

import { assert } from "./assert.ts";

/** Identity of a keyed append. Words 0 to 3 are of the key's digest, words 4 and 5 of the body's. */
export type KeyMark = Uint32Array;

export const MARK_WORDS = 6;

const KEY_WORDS = 4;
const ENTRY_WORDS = 10;
const ENTRY_DOUBLES = ENTRY_WORDS / 2;
const END_AT = 3; // in doubles
const TIME_AT = 4; // in doubles
const CHUNK_BITS = 12;
const CHUNK_ENTRIES = 1 << CHUNK_BITS;
const CHUNK_MASK = CHUNK_ENTRIES - 1;
const CHUNK_ENTRIES_MIN = 4;
/** A place is the low 31 bits of an ordinal. That is enough to tell apart the entries of one window. */
const PLACE_MASK = 0x7fff_ffff;

/** Two views of the same bytes. */
interface Chunk {
  readonly words: Uint32Array;
  readonly doubles: Float64Array;
  readonly capacity: number;
}

function createChunk(capacity: number): Chunk {
  const doubles = new Float64Array(capacity * ENTRY_DOUBLES);
  return { doubles, words: new Uint32Array(doubles.buffer), capacity };
}

export class KeyEntries {
  #first: number;
  #next: number;
  /** The ordinal at the start of the first chunk. Its entry may already be evicted. */
  #base: number;
  #chunks: Chunk[] = [];

  constructor(first: number) {
    this.#first = first;
    this.#next = first;
    this.#base = first;
  }

  get first(): number {
    return this.#first;
  }

  get next(): number {
    return this.#next;
  }

  get size(): number {
    return this.#next - this.#first;
  }

  get memoryBytes(): number {
    return this.#capacity * ENTRY_WORDS * 4;
  }

  endOf(ordinal: number): number {
    const at = this.#indexOf(ordinal) * ENTRY_DOUBLES + END_AT;
    return this.#chunkOf(ordinal).doubles[at] ?? 0;
  }

  timeOf(ordinal: number): number {
    const at = this.#indexOf(ordinal) * ENTRY_DOUBLES + TIME_AT;
    return this.#chunkOf(ordinal).doubles[at] ?? 0;
  }

  wordOf(ordinal: number, word: number): number {
    return this.#chunkOf(ordinal).words[this.#indexOf(ordinal) * ENTRY_WORDS + word] ?? 0;
  }

  markOf(ordinal: number): KeyMark {
    const at = this.#indexOf(ordinal) * ENTRY_WORDS;
    return this.#chunkOf(ordinal).words.slice(at, at + MARK_WORDS);
  }

  hasKey(ordinal: number, mark: KeyMark): boolean {
    return this.#isEqual(ordinal, mark, 0, KEY_WORDS);
  }

  hasBody(ordinal: number, mark: KeyMark): boolean {
    return this.#isEqual(ordinal, mark, KEY_WORDS, MARK_WORDS);
  }

  /** Looks for the key in every entry. */
  scan(mark: KeyMark): number | undefined {
    for (let ordinal = this.#first; ordinal < this.#next; ordinal += 1) {
      if (this.hasKey(ordinal, mark)) return ordinal;
    }
    return undefined;
  }

  placeOf(ordinal: number): number {
    return ordinal & PLACE_MASK;
  }

  /** Returns the one ordinal of the window that has this place. */
  ordinalAt(place: number): number {
    return this.#first + ((place - this.#first) & PLACE_MASK);
  }

  add(mark: KeyMark, end: number, atMs: number): number {
    assert(this.size < PLACE_MASK, "KW1 the window has more entries than places");
    if (this.#next - this.#base === this.#capacity) this.#makeRoom();
    const ordinal = this.#next;
    this.#next += 1;
    const { words, doubles } = this.#chunkOf(ordinal);
    const index = this.#indexOf(ordinal);
    words.set(mark, index * ENTRY_WORDS);
    doubles[index * ENTRY_DOUBLES + END_AT] = end;
    doubles[index * ENTRY_DOUBLES + TIME_AT] = atMs;
    return ordinal;
  }

  /** Drops all entries before the ordinal. The ordinal is in the window or is its end. */
  dropTo(ordinal: number): void {
    this.#first = ordinal;
    if (ordinal === this.#next) {
      this.#chunks = [];
      this.#base = ordinal;
      return;
    }
    const unused = (ordinal - this.#base) >>> CHUNK_BITS;
    if (unused > 0) {
      this.#chunks.splice(0, unused);
      this.#base += unused * CHUNK_ENTRIES;
    }
    // Only a window of one or two chunks can be so empty, so this moves at most 2,048 entries.
    if (this.#capacity > CHUNK_ENTRIES_MIN && this.size * 4 <= this.#capacity) {
      this.#moveTo(createChunk(fittingCapacity(this.size, CHUNK_ENTRIES_MIN)));
    }
  }

  get #capacity(): number {
    const { length } = this.#chunks;
    return length === 1 ? (this.#chunks[0]?.capacity ?? 0) : length * CHUNK_ENTRIES;
  }

  #indexOf(ordinal: number): number {
    return (ordinal - this.#base) & CHUNK_MASK;
  }

  #chunkOf(ordinal: number): Chunk {
    const isHeld = ordinal >= this.#first && ordinal < this.#next;
    const chunk = isHeld ? this.#chunks[(ordinal - this.#base) >>> CHUNK_BITS] : undefined;
    assert(chunk !== undefined, "KW2 an entry is asked for that is not in the window");
    return chunk;
  }

  #isEqual(ordinal: number, mark: KeyMark, from: number, to: number): boolean {
    const { words } = this.#chunkOf(ordinal);
    const at = this.#indexOf(ordinal) * ENTRY_WORDS;
    for (let word = from; word < to; word += 1) {
      if (words[at + word] !== mark[word]) return false;
    }
    return true;
  }

  #makeRoom(): void {
    const [only] = this.#chunks;
    if (only === undefined) {
      this.#chunks = [createChunk(CHUNK_ENTRIES_MIN)];
    } else if (this.#chunks.length === 1 && this.size * 2 <= only.capacity) {
      // A small window goes round in its chunk. Half of it was evicted, which pays for the slide.
      only.words.copyWithin(0, (this.#first - this.#base) * ENTRY_WORDS);
      this.#base = this.#first;
    } else if (only.capacity < CHUNK_ENTRIES) {
      this.#moveTo(createChunk(only.capacity * 2));
    } else {
      this.#chunks.push(createChunk(CHUNK_ENTRIES));
    }
  }

  /** Moves all entries into one chunk. */
  #moveTo(target: Chunk): void {
    let moved = 0;
    while (moved < this.size) {
      const ordinal = this.#first + moved;
      const { words, capacity } = this.#chunkOf(ordinal);
      const index = this.#indexOf(ordinal);
      const count = Math.min(capacity - index, this.#next - ordinal);
      const source = words.subarray(index * ENTRY_WORDS, (index + count) * ENTRY_WORDS);
      target.words.set(source, moved * ENTRY_WORDS);
      moved += count;
    }
    this.#chunks = [target];
    this.#base = this.#first;
  }
}

/** Returns the power of two that leaves at least half of the room free. */
export function fittingCapacity(count: number, least: number): number {
  let capacity = least;
  while (capacity < count * 2) capacity *= 2;
  return capacity;
}
