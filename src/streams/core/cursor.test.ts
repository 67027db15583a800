// PROTOCOL.md §7
import fc from "fast-check";
import { expect, test } from "vitest";
import { decideCursor, decideNextCursor } from "./cursor.ts";

const EPOCH_MS = Date.UTC(2024, 9, 9);
const time = fc.integer({ min: 0, max: 4_102_444_800_000 });
const unit = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
const cursor = fc.integer({ min: 0, max: 999_999_999_999_000 });
const interval = (nowMs: number): number => Math.max(0, Math.floor((nowMs - EPOCH_MS) / 20_000));

test("an answer's cursor is always greater than the cursor of its request", () => {
  fc.assert(
    fc.property(cursor, time, unit, (received, nowMs, random) => {
      expect(Number(decideCursor(String(received), nowMs, random))).toBeGreaterThan(received);
    }),
  );
});

test("a reader that is ahead of the clock is moved on by at most an hour", () => {
  fc.assert(
    fc.property(time, fc.nat(1000), unit, (nowMs, ahead, random) => {
      const received = interval(nowMs) + ahead;
      const moved = Number(decideCursor(String(received), nowMs, random)) - received;
      expect(moved).toBeGreaterThanOrEqual(1);
      expect(moved * 20).toBeLessThanOrEqual(3600);
    }),
  );
});

test.each([undefined, "", "-1", "01", "1.5", "1e3", " 1", "abc", "9".repeat(16), "١"])(
  "without a usable cursor (%s) the answer carries the current interval",
  (received) => {
    expect(decideCursor(received, EPOCH_MS + 20_000 * 7 + 19_999, 0.5)).toBe("7");
  },
);

test("an old cursor is answered with the current interval", () => {
  fc.assert(
    fc.property(time, cursor, unit, (nowMs, received, random) => {
      fc.pre(received < interval(nowMs));
      expect(decideCursor(String(received), nowMs, random)).toBe(String(interval(nowMs)));
    }),
  );
  expect(decideCursor("6", EPOCH_MS + 20_000 * 7, 0.9)).toBe("7");
});

test("before the first interval the cursor is 0", () => {
  expect(decideCursor(undefined, 0, 0)).toBe("0");
});

test("the cursors of one connection never go back, also when the clock does", () => {
  fc.assert(
    fc.property(cursor, fc.array(time), (first, times) => {
      let current = String(first);
      for (const nowMs of times) {
        const next = decideNextCursor(current, nowMs);
        expect(Number(next)).toBe(Math.max(Number(current), interval(nowMs)));
        current = next;
      }
    }),
  );
});
