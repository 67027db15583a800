/** Compares the index of names with a sorted array, and counts how much it looks at. */

import fc from "fast-check";
import { expect, test } from "vitest";
import { NameIndex } from "./name-index.ts";

const few = fc.array(
  fc.record({ isAdded: fc.boolean(), name: fc.stringMatching(/^[ab/é]{0,3}$/u) }),
  { maxLength: 60 },
);

test("has what a sorted set has, from every place on", () => {
  fc.assert(
    fc.property(few, fc.string({ maxLength: 3 }), (steps, from) => {
      const index = new NameIndex();
      const names = new Set<string>();
      for (const { isAdded, name } of steps) {
        if (isAdded) {
          index.add(name);
          names.add(name);
        } else {
          index.delete(name);
          names.delete(name);
        }
      }
      const sorted = [...names].toSorted((one, other) => (one < other ? -1 : 1));
      expect([...index.from("")]).toEqual(sorted);
      expect([...index.from(from)]).toEqual(sorted.filter((name) => name >= from));
      expect(index.size).toBe(names.size);
    }),
  );
});

test.each(["in order", "backwards", "at random"])("keeps 20,000 names that come %s", (way) => {
  const index = new NameIndex();
  const names = Array.from(
    { length: 20_000 },
    (_, number) => `/s/${String(number).padStart(6, "0")}`,
  );
  // 7919 is prime to the count: every name comes once.
  const at = (step: number): number => (step * 7919) % names.length;
  const order = names.map((_, step) =>
    way === "in order" ? step : way === "backwards" ? names.length - 1 - step : at(step),
  );
  for (const place of order) index.add(names[place] ?? "");
  expect(index.size).toBe(names.length);
  expect([...index.from("")]).toEqual(names);
  for (const place of order) if (place % 3 !== 0) index.delete(names[place] ?? "");
  expect([...index.from("/s/010000")]).toEqual(
    names.filter((name, place) => place % 3 === 0 && name >= "/s/010000"),
  );
});

/** A name that counts how often it is compared. */
function counting(text: string, count: () => void): string {
  const value = { toString: () => text, valueOf: () => (count(), text) };
  return value as unknown as string;
}

test("a place among 100,000 names is found with a few comparisons", () => {
  const index = new NameIndex();
  for (let number = 0; number < 100_000; number += 1) {
    index.add(`/s/${String(number).padStart(6, "0")}`);
  }
  let comparisons = 0;
  const wanted = counting("/s/077777", () => (comparisons += 1));
  const [first] = index.from(wanted);
  expect(first).toBe("/s/077777");
  expect(comparisons).toBeLessThan(64);
});
