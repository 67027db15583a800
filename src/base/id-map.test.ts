import fc from "fast-check";
import { expect, test } from "vitest";
import { IdMap } from "./id-map.ts";

type Entry = { readonly name: string };
const entry = (name: string): Entry => ({ name });

/** Few pages, with their borders, and numbers of more than 32 bits. */
const key = fc.oneof(
  fc.integer({ min: 0, max: 2000 }),
  fc.constantFrom(511, 512, 1023, 1024, 2 ** 32, 2 ** 32 + 1, 2 ** 40, Number.MAX_SAFE_INTEGER),
);
const act = fc.oneof(
  fc.tuple(fc.constant("set" as const), key),
  fc.tuple(fc.constant("delete" as const), key),
);

test("is a Map that walks in the order of its keys", () => {
  fc.assert(
    fc.property(fc.array(act, { maxLength: 200 }), (acts) => {
      const map = new IdMap<number, Entry>();
      const model = new Map<number, Entry>();
      for (const [index, [kind, at]] of acts.entries()) {
        const value = entry(String(index));
        if (kind === "set") {
          map.set(at, value);
          model.set(at, value);
        } else expect(map.delete(at)).toBe(model.delete(at));
        expect(map.get(at)).toBe(model.get(at));
        expect(map.has(at)).toBe(model.has(at));
        expect(map.size).toBe(model.size);
      }
      const sorted = [...model].sort(([one], [other]) => one - other);
      expect([...map]).toEqual(sorted);
      expect([...map.keys()]).toEqual(sorted.map(([one]) => one));
      expect([...map.values()]).toEqual(sorted.map(([, value]) => value));
      const seen: [number, Entry][] = [];
      map.forEach((value, one) => seen.push([one, value]));
      expect(seen).toEqual(sorted);
    }),
  );
});

test("a walk meets all that stays, once, while others come and go", () => {
  fc.assert(
    fc.property(
      fc.uniqueArray(key, { minLength: 1, maxLength: 100 }),
      fc.array(fc.tuple(fc.nat(99), act), { maxLength: 60 }),
      (keys, acts) => {
        const map = new IdMap<number, Entry>();
        for (const one of keys) map.set(one, entry(String(one)));
        const touched = new Set(acts.map(([, [, one]]) => one));
        const met: number[] = [];
        for (const [one] of map) {
          for (const [step, [kind, at]] of acts) {
            if (step !== met.length) continue;
            if (kind === "set") map.set(at, entry("new"));
            else map.delete(at);
          }
          met.push(one);
        }
        expect(met).toEqual([...new Set(met)].sort((one, other) => one - other));
        const stayed = keys.filter((one) => !touched.has(one));
        expect(met.filter((one) => stayed.includes(one))).toEqual(
          stayed.toSorted((one, other) => one - other),
        );
      },
    ),
  );
});

test("a key that does not count is refused, and nothing is found by it", () => {
  const map = new IdMap<number, Entry>();
  for (const wrong of [-1, 0.5, NaN, Infinity, 2 ** 53]) {
    expect(() => map.set(wrong, entry("x"))).toThrow(/counts/);
    expect(map.get(wrong)).toBeUndefined();
  }
  expect(map.size).toBe(0);
});
