// Compares the window with the simplest code that does the same: an array of all entries and a map of keys.
// PROTOCOL.md §16
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { KeyWindow, type KeyMark } from "./key-window.ts";

/** Ordinals that are hard to keep in 31 or 32 bits. */
const STARTS = [0, 2 ** 31 - 5, 2 ** 32 - 5, 2 ** 40 + 3];

/** The final mix of MurmurHash3: as good as a digest, and the same every time. */
function mixed(number: number): number {
  let word = number ^ (number >>> 16);
  word = Math.imul(word, 0x85eb_ca6b);
  word = Math.imul(word ^ (word >>> 13), 0xc2b2_ae35);
  return (word ^ (word >>> 16)) >>> 0;
}

type Spread = (mark: KeyMark) => KeyMark;

const SPREADS: Readonly<Record<string, Spread>> = {
  evenly: (mark) => mark,
  "with word 0 equal": (mark) => mark.fill(7, 0, 1),
  "with word 1 equal": (mark) => mark.fill(7, 1, 2),
  "with words 0 and 1 equal": (mark) => mark.fill(7, 0, 2),
  "with 24 bits of word 0 equal": (mark) => mark.fill((mark[0] ?? 0) & 0xff, 0, 1),
  "at the end of the slots": (mark) => mark.fill((mark[1] ?? 0) | 0xffff_fffc, 1, 2),
};

/** Words 2 and 3 make the numbers differ, also if the spread changes the other words. */
function markOf(number: number, spread: Spread = (mark) => mark): KeyMark {
  const words = [0, 1].map((word) => mixed(number * 2 + word));
  const rest = [mixed(number), number, mixed(number + 0x5555), number % 3];
  return spread(Uint32Array.from([...words, ...rest]));
}

interface ModelEntry {
  readonly number: number;
  readonly end: number;
  readonly atMs: number;
}

/** Adds numbered entries to a window and to the model, and compares the two. */
class Pair {
  readonly window: KeyWindow;
  readonly entries: ModelEntry[] = [];
  readonly ordinals = new Map<number, number>();
  evicted = 0;
  readonly #start: number;
  readonly #spread: Spread;

  constructor(start = 0, spread: Spread = (mark) => mark) {
    this.window = new KeyWindow(start);
    this.#start = start;
    this.#spread = spread;
  }

  get size(): number {
    return this.entries.length - this.evicted;
  }

  add(count: number): void {
    for (let added = 0; added < count; added += 1) {
      const number = this.entries.length;
      // Three entries have the same time, and ends need more than 32 bits.
      const entry = { number, end: number * 5_000_000_001, atMs: Math.floor(number / 3) * 10 };
      this.window.add(this.mark(number), entry.end, entry.atMs);
      this.ordinals.set(number, this.#start + number);
      this.entries.push(entry);
    }
  }

  evict(count: number): void {
    const to = Math.min(this.evicted + count, this.entries.length);
    for (; this.evicted < to; this.evicted += 1) this.ordinals.delete(this.evicted);
    this.window.evictTo(this.#start + to);
  }

  mark(number: number): KeyMark {
    return markOf(number, this.#spread);
  }

  /** Returns what the window says wrongly about an entry, also about an evicted one and one that was never added. */
  wrongAbout(number: number): string | undefined {
    const { window } = this;
    const mark = this.mark(number);
    const ordinal = this.ordinals.get(number);
    const found = window.find(mark);
    if (found !== ordinal) return `${number} is found at ${found}, not at ${ordinal}`;
    const entry = this.entries[number];
    if (ordinal === undefined || entry === undefined) return undefined;
    if (window.endOf(ordinal) !== entry.end) return `${number} ends at ${window.endOf(ordinal)}`;
    if (window.timeOf(ordinal) !== entry.atMs) return `${number} is of ${window.timeOf(ordinal)}`;
    if (!window.isSameBody(ordinal, mark)) return `${number} has another body`;
    if (window.markOf(ordinal).join() !== mark.join()) return `${number} has another mark`;
    return undefined;
  }

  /** Returns everything that is wrong, from every `step`th entry and from all at the two ends. */
  wrong(step = 1): readonly string[] {
    const { window } = this;
    const problems: (string | undefined)[] = [];
    if (window.first !== this.#start + this.evicted) problems.push(`first is ${window.first}`);
    if (window.next !== this.#start + this.entries.length) problems.push(`next is ${window.next}`);
    for (let number = 0; number < this.entries.length; number += step) {
      problems.push(this.wrongAbout(number));
    }
    for (const end of [this.evicted, this.entries.length]) {
      for (let number = Math.max(0, end - 3); number < end + 3; number += 1) {
        problems.push(this.wrongAbout(number));
      }
    }
    return problems.filter((problem) => problem !== undefined);
  }
}

const command = fc.oneof(
  fc.record({ kind: fc.constant("add" as const), count: fc.integer({ min: 1, max: 150 }) }),
  fc.record({ kind: fc.constant("add" as const), count: fc.integer({ min: 1, max: 5 }) }),
  fc.record({ kind: fc.constant("evict" as const), count: fc.integer({ min: 0, max: 120 }) }),
  fc.record({ kind: fc.constant("evict" as const), count: fc.integer({ min: 1, max: 5 }) }),
);

describe.each(Object.entries(SPREADS))("keys that are spread %s", (_, spread) => {
  test("KW1 KW2 any additions and evictions leave the window as the model has it", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...STARTS),
        fc.array(command, { minLength: 1, maxLength: 25 }),
        (start, commands) => {
          const pair = new Pair(start, spread);
          for (const { kind, count } of commands) {
            pair[kind](count);
            expect(pair.wrong(7)).toEqual([]);
          }
          expect(pair.wrong()).toEqual([]);
        },
      ),
      { seed: 16, numRuns: 60 },
    );
  });

  test("KW1 KW5 a window that goes through 64, 4,096 and 6,000 entries and back finds them all", () => {
    const pair = new Pair(2 ** 32 - 5, spread);
    for (const size of [63, 64, 65, 66, 800, 4_095, 4_096, 4_097, 6_000]) {
      pair.add(size - pair.size);
      expect(pair.wrong(13)).toEqual([]);
    }
    for (const size of [5_000, 4_000, 1_200, 400, 65, 64, 33, 32, 31, 1, 0]) {
      pair.evict(pair.size - size);
      expect(pair.wrong(13)).toEqual([]);
    }
  });
});

test("KW1 a key is found under its own ordinal when ordinals pass 2^31, 2^32 and 2^40", () => {
  for (const start of STARTS) {
    const pair = new Pair(start);
    pair.add(200);
    expect(pair.wrong()).toEqual([]);
    for (let round = 0; round < 10; round += 1) {
      pair.add(30);
      pair.evict(30);
      expect(pair.wrong()).toEqual([]);
    }
  }
});

test("KW1 KW2 a window that grows to 100,000 entries, rolls on and shrinks is as the model has it", () => {
  const pair = new Pair(2 ** 32 - 50_000);
  pair.add(100_000);
  expect(pair.wrong(17)).toEqual([]);
  for (let rolled = 0; rolled < 20_000; rolled += 1) {
    pair.add(1);
    pair.evict(1);
  }
  expect(pair.wrong(19)).toEqual([]);
  for (const size of [99_999, 60_000, 10_000, 3_000, 100, 3]) {
    pair.evict(pair.size - size);
    expect(pair.wrong(61)).toEqual([]);
  }
  pair.add(10_000);
  expect(pair.wrong(61)).toEqual([]);
});

test("KW1 a key of which one word or one bit differs is another key", () => {
  for (const count of [10, 1_000]) {
    const pair = new Pair();
    pair.add(count);
    for (let word = 0; word < 6; word += 1) {
      const mark = pair.mark(3);
      mark[word] = (mark[word] ?? 0) ^ 1;
      expect(pair.window.find(mark)).toBe(word < 4 ? undefined : 3);
    }
  }
});

test("KW1 a key that is in the window is not added again, and the attempt changes nothing", () => {
  for (const count of [10, 1_000]) {
    const pair = new Pair();
    pair.add(count);
    const add = (): void => pair.window.add(pair.mark(5), 1, 1e9);
    expect(add).toThrow("KW1");
    expect(pair.wrong()).toEqual([]);
    pair.evict(6);
    add();
    expect(pair.window.find(pair.mark(5))).toBe(count);
  }
});

test("KW2 the body's fingerprint is two words, and both count", () => {
  const window = new KeyWindow();
  const mark = markOf(1);
  window.add(mark, 9, 1);
  const other = (word: number): KeyMark =>
    mark.map((value, at) => (at === word ? value ^ 0x8000_0000 : value));
  expect(window.isSameBody(0, mark)).toBe(true);
  expect(window.isSameBody(0, other(4))).toBe(false);
  expect(window.isSameBody(0, other(5))).toBe(false);
  expect(window.isSameBody(0, other(0))).toBe(true);
});

test("KW2 the mark of an entry is a copy, and the caller's mark may be used again", () => {
  const window = new KeyWindow();
  const mark = markOf(1);
  window.add(mark, 9, 1);
  mark.fill(0);
  window.markOf(0).fill(0);
  expect(window.markOf(0)).toEqual(markOf(1));
  expect(window.find(markOf(1))).toBe(0);
});

test("KW2 nothing beyond the end is evicted, and what is gone already is not missed", () => {
  const pair = new Pair(100);
  pair.add(10);
  expect(() => pair.window.evictTo(111)).toThrow("KW2");
  pair.evict(4);
  for (const ordinal of [0, 99, 103, 104]) pair.window.evictTo(ordinal);
  expect(pair.wrong()).toEqual([]);
});

test("KW2 an entry that is not in the window cannot be asked for", () => {
  const { window } = ((): Pair => {
    const pair = new Pair(5);
    pair.add(100);
    pair.evict(10);
    return pair;
  })();
  for (const ordinal of [0, 14, 105, 4_200]) {
    expect(() => window.endOf(ordinal)).toThrow("KW2");
    expect(() => window.timeOf(ordinal)).toThrow("KW2");
    expect(() => window.markOf(ordinal)).toThrow("KW2");
    expect(() => window.isSameBody(ordinal, markOf(0))).toThrow("KW2");
  }
});

test("KW2 ordinals are whole numbers, and marks have six words", () => {
  expect(() => new KeyWindow(-1)).toThrow("KW2");
  expect(() => new KeyWindow(0.5)).toThrow("KW2");
  const pair = new Pair();
  pair.add(3);
  expect(() => pair.window.evictTo(1.5)).toThrow("KW2");
  expect(() => pair.window.evictTo(Number.NaN)).toThrow("KW2");
  const short = new Uint32Array(4);
  expect(() => pair.window.add(short, 0, 1e9)).toThrow("KW2");
  expect(pair.wrong()).toEqual([]);
});

test("KW3 an entry is never older than the one before it, and as old is allowed", () => {
  const window = new KeyWindow();
  window.add(markOf(1), 1, 500);
  expect(() => window.add(markOf(2), 2, 499)).toThrow("KW3");
  expect(window.next).toBe(1);
  window.add(markOf(2), 2, 500);
  expect(window.timeOf(1)).toBe(500);
});

test("KW3 the first entry after a time has only entries of that time or older before it", () => {
  const gaps = fc.array(fc.nat(3), { maxLength: 200 });
  fc.assert(
    fc.property(fc.constantFrom(...STARTS), gaps, fc.nat(300), (start, gapsMs, evicted) => {
      const window = new KeyWindow(start);
      const timesMs: number[] = [];
      for (const gapMs of gapsMs) {
        timesMs.push((timesMs.at(-1) ?? 1_000) + gapMs);
        const end = timesMs.length;
        window.add(markOf(timesMs.length), end, timesMs.at(-1) ?? 0);
      }
      window.evictTo(start + Math.min(evicted, timesMs.length));
      const lastMs = timesMs.at(-1) ?? 1_000;
      for (const timeMs of [-Infinity, 0, ...timesMs, lastMs - 0.5, lastMs + 1, Infinity]) {
        const after = timesMs.findIndex((ms, at) => start + at >= window.first && ms > timeMs);
        expect(window.firstAfter(timeMs)).toBe(after < 0 ? window.next : start + after);
      }
    }),
    { seed: 16, numRuns: 40 },
  );
});

test("KW4 an empty window holds nothing, and one with a key or two less than 1 KiB", () => {
  const pair = new Pair();
  expect(pair.window.memoryBytes).toBe(0);
  pair.add(1);
  expect(pair.window.memoryBytes).toBeGreaterThan(0);
  expect(pair.window.memoryBytes).toBeLessThanOrEqual(1_024);
  pair.add(1);
  expect(pair.window.memoryBytes).toBeLessThanOrEqual(1_024);
});

test("KW4 a small window stays small, however many keys go through it", () => {
  for (const [size, bytesMax] of [
    [1, 1_024],
    [10, 3_000],
    [64, 14_000],
    [1_000, 200_000],
  ] as const) {
    const pair = new Pair(2 ** 32 - 5);
    pair.add(size);
    let highest = 0;
    for (let rolled = 0; rolled < 10_000; rolled += 1) {
      pair.add(1);
      pair.evict(1);
      highest = Math.max(highest, pair.window.memoryBytes);
    }
    expect(highest).toBeLessThanOrEqual(bytesMax);
    expect(pair.wrong(501)).toEqual([]);
  }
});

test("KW4 100,000 entries hold 10 MB at most, also when there were more before; none hold nothing", () => {
  const pair = new Pair();
  let worst = 0;
  const note = (): void => {
    worst = Math.max(worst, pair.window.memoryBytes / Math.max(pair.size, 4));
  };
  while (pair.size < 100_000) {
    pair.add(50);
    note();
  }
  expect(pair.window.memoryBytes).toBeLessThanOrEqual(10_000_000);
  pair.add(150_000);
  while (pair.size > 100_000) pair.evict(100);
  expect(pair.window.memoryBytes).toBeLessThanOrEqual(10_000_000);
  while (pair.size > 1) {
    pair.evict(Math.min(50, pair.size - 1));
    note();
  }
  // Forty bytes of an entry, four times as many places, and six slots of eight bytes in the index.
  expect(worst).toBeLessThanOrEqual(40 * 4 + 6 * 8);
  const other = new Pair();
  other.add(1);
  expect(pair.window.memoryBytes).toBe(other.window.memoryBytes);
  pair.evict(1);
  expect(pair.window.memoryBytes).toBe(0);
});

test("KW4 KW6 1,000,000 entries hold 80 MB at most, and no addition takes more than 256 KiB at once", () => {
  const window = new KeyWindow();
  let largest = 0;
  let beforeBytes = 0;
  for (let number = 0; number < 1_000_000; number += 1) {
    window.add(markOf(number), number, number);
    largest = Math.max(largest, window.memoryBytes - beforeBytes);
    beforeBytes = window.memoryBytes;
  }
  expect(window.memoryBytes).toBeLessThanOrEqual(80_000_000);
  expect(largest).toBeLessThanOrEqual(256 * 1_024);
  expect(window.find(markOf(999_999))).toBe(999_999);
  window.evictTo(1_000_000);
  expect(window.memoryBytes).toBe(0);
}, 30_000);

test("KW5 keys that begin at the same slot are found after those before them are evicted", () => {
  // Three keys in turn: two homes next to each other, and one at the last slot that wraps around.
  const homes = [7, 8, 0xffff_ffff];
  const pair = new Pair(0, (mark) => mark.fill(homes[(mark[3] ?? 0) % 3] ?? 0, 1, 2));
  pair.add(300);
  while (pair.size > 33) {
    pair.evict(1);
    expect(pair.wrong(5)).toEqual([]);
  }
});

// Keys that agree in all of word 0 are left out: a search for 768 of them takes 2^41 digests.
test.each(["evenly", "with 24 bits of word 0 equal"])(
  "KW6 no addition or eviction of one entry moves more than 256 KiB, of keys that are spread %s",
  (name) => {
    const pair = new Pair(0, SPREADS[name]);
    let largest = 0;
    let beforeBytes = 0;
    const note = (): void => {
      largest = Math.max(largest, Math.abs(pair.window.memoryBytes - beforeBytes));
      beforeBytes = pair.window.memoryBytes;
    };
    while (pair.size < 100_000) {
      pair.add(1);
      note();
    }
    while (pair.size > 0) {
      pair.evict(1);
      note();
    }
    expect(largest).toBeLessThanOrEqual(256 * 1_024);
    expect(pair.window.memoryBytes).toBe(0);
  },
);
