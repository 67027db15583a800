// Clocks are set, by people and by NTP. PROTOCOL.md §16.1
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Clock } from "../../base/clock.ts";
import type { TimeMs } from "../core/types.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { JournalClock } from "./journal-clock.ts";

const HOUR_MS = 3_600_000;
const START_MS = 1_800_000_000_000;

function journalAt(clock: Clock, startMs: number): JournalClock {
  return new JournalClock(clock, { timeMs: startMs as TimeMs });
}

describe("journal time", () => {
  test("starts at the wall clock, but never before the latest stored change", () => {
    const clock = createVirtualClock(START_MS);
    expect(journalAt(clock, 0).nowMs()).toBe(START_MS);
    expect(journalAt(clock, START_MS + HOUR_MS).nowMs()).toBe(START_MS + HOUR_MS);
  });

  test("the time for keys starts at the wall clock, not at a stored time, and runs with the steady one", () => {
    const clock = createVirtualClock(START_MS);
    const journal = journalAt(clock, START_MS + 48 * HOUR_MS);
    expect(journal.unboundMs()).toBe(START_MS);
    clock.advance(HOUR_MS);
    expect(journal.unboundMs()).toBe(START_MS + HOUR_MS);
    // Setting the wall clock moves it by a thousandth of the time that passes, and no more.
    clock.jump(-24 * HOUR_MS);
    clock.advance(HOUR_MS);
    expect(journal.unboundMs()).toBeGreaterThan(START_MS + 2 * HOUR_MS - 0.002 * HOUR_MS);
    expect(journalAt(clock, 0).unboundMs()).toBe(clock.nowMs());
  });

  const move = fc.record({
    passedMs: fc.oneof(fc.constant(0), fc.nat(5), fc.nat(100_000)),
    jumpMs: fc.oneof(fc.constant(0), fc.integer({ min: -3 * HOUR_MS, max: 3 * HOUR_MS })),
  });

  test("never goes back, and keeps to the steady clock within a thousandth, for every change of the wall clock", () => {
    fc.assert(
      fc.property(fc.array(move, { maxLength: 50 }), (moves) => {
        const clock = createVirtualClock(START_MS);
        const journal = journalAt(clock, START_MS);
        let last = journal.nowMs();
        let passed = 0;
        for (const { passedMs, jumpMs } of moves) {
          clock.jump(jumpMs);
          clock.advance(passedMs);
          passed += passedMs;
          const now = journal.nowMs();
          expect(now).toBeGreaterThanOrEqual(last);
          expect(now - START_MS).toBeGreaterThanOrEqual(Math.floor(passed * 0.999) - 1);
          expect(now - START_MS).toBeLessThanOrEqual(Math.ceil(passed * 1.001));
          last = now;
        }
      }),
    );
  });

  test.each([-HOUR_MS, 2 * HOUR_MS])("does not follow a jump of %d ms", (jumpMs) => {
    const clock = createVirtualClock(START_MS);
    const journal = journalAt(clock, 0);
    clock.jump(jumpMs);
    expect(journal.nowMs()).toBe(START_MS);
    clock.advance(1_000_000);
    expect(Math.abs(journal.nowMs() - START_MS - 1_000_000)).toBeLessThanOrEqual(1001);
  });

  test.each([-1000, 1000])("comes back to a wall clock that is %d ms off, and stays", (offMs) => {
    const clock = createVirtualClock(START_MS);
    const journal = journalAt(clock, 0);
    clock.jump(offMs);
    for (let second = 0; second < 2000; second += 1) {
      clock.advance(1000);
      journal.nowMs();
    }
    expect(Math.abs(journal.nowMs() - clock.nowMs())).toBeLessThanOrEqual(1);
    clock.advance(12_345);
    expect(Math.abs(journal.nowMs() - clock.nowMs())).toBeLessThanOrEqual(1);
  });
});
