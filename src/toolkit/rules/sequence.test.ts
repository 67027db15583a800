import fc from "fast-check";
import { expect, test } from "vitest";
import { decideArrival, EarlyMessages } from "./sequence.ts";

test("G68 a number is next, a duplicate or early", () => {
  expect(decideArrival(0, 1)).toEqual({ kind: "next" });
  expect(decideArrival(4, 5)).toEqual({ kind: "next" });
  expect(decideArrival(4, 4)).toEqual({ kind: "duplicate" });
  expect(decideArrival(4, 1)).toEqual({ kind: "duplicate" });
  expect(decideArrival(4, 6)).toEqual({ kind: "early" });
});

test("G68 the farthest of too many early messages is given up, and what is missing is known", () => {
  const early = new EarlyMessages<string>(2);
  expect(early.missing(3)).toBeUndefined();
  expect(early.hold(9, "nine")).toBe(true);
  expect(early.hold(7, "seven")).toBe(true);
  expect(early.hold(10, "ten")).toBe(false);
  expect(early.missing(3)).toEqual({ from: 4, to: 6 });
  expect(early.hold(5, "five")).toBe(true);
  expect(early.size).toBe(2);
  expect(early.take(9)).toBeUndefined();
  expect(early.missing(3)).toEqual({ from: 4, to: 4 });
  expect(early.take(5)).toEqual({ message: "five" });
  expect(early.missing(6)).toBeUndefined();
  expect(early.missing(7)).toBeUndefined();
  expect(early.size).toBe(0);
  expect(new EarlyMessages<string>(0).hold(1, "one")).toBe(false);
});

test("G68 messages in any order, repeated and lost, count once and in order, with a replay of what is missing", () => {
  const arrivals = fc.array(fc.integer({ min: 1, max: 12 }), { maxLength: 60 });
  fc.assert(
    fc.property(arrivals, fc.integer({ min: 0, max: 4 }), (numbers, max) => {
      const early = new EarlyMessages<number>(max);
      const counted: number[] = [];
      const arrive = (sequence: number): void => {
        const { kind } = decideArrival(counted.length, sequence);
        if (kind === "early") early.hold(sequence, sequence);
        if (kind !== "next") return;
        counted.push(sequence);
        for (let held = early.take(counted.length + 1); held !== undefined;) {
          counted.push(held.message);
          held = early.take(counted.length + 1);
        }
      };
      for (const sequence of numbers) arrive(sequence);
      expect(early.size).toBeLessThanOrEqual(max);
      // The sender repeats from the number after the last acknowledged one.
      for (let sequence = counted.length + 1; sequence <= 12; sequence += 1) arrive(sequence);
      expect(counted).toEqual(Array.from({ length: 12 }, (_, at) => at + 1));
    }),
  );
});
