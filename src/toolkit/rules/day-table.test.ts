import fc from "fast-check";
import { expect, test } from "vitest";
import { dayTableFor, parseDayTable } from "./day-table.ts";

const DAY_MS = 86_400_000;
const times = fc.record({
  nowMs: fc.integer({ min: 0, max: 60_000 * DAY_MS }),
  keepMs: fc.integer({ min: 0, max: 36_600 * DAY_MS }),
});

test("a table ends after the retention of its entries, and at most as much later as they are kept, or a day", () => {
  fc.assert(
    fc.property(times, ({ nowMs, keepMs }) => {
      const { endMs } = dayTableFor(nowMs, keepMs);
      expect(endMs).toBeGreaterThan(nowMs + keepMs);
      expect(endMs - nowMs - keepMs).toBeLessThanOrEqual(Math.max(DAY_MS, (keepMs * 4) / 3));
    }),
  );
});

test("entries of one retention are in five tables at most at any time", () => {
  fc.assert(
    fc.property(times, ({ nowMs, keepMs }) => {
      const kept = new Set<string>();
      for (let share = 0; share <= 64; share += 1)
        kept.add(dayTableFor(nowMs + (keepMs * share) / 64, keepMs).name);
      expect(kept.size).toBeLessThanOrEqual(5);
    }),
  );
});

test("a name says which table it is, and no other name does", () => {
  fc.assert(
    fc.property(times, ({ nowMs, keepMs }) => {
      const table = dayTableFor(nowMs, keepMs);
      expect(parseDayTable(table.name)).toEqual(table);
    }),
  );
  expect(dayTableFor(20_000 * DAY_MS, DAY_MS)).toEqual({
    name: "hapax_done_20001",
    endMs: 20_002 * DAY_MS,
  });
  expect(dayTableFor(20_000 * DAY_MS, 7 * DAY_MS).name).toBe("hapax_done_20004_4");
  for (const name of ["hapax_done_", "hapax_done_x", "hapax_done_1_2_3", "a_hapax_done_1"])
    expect(parseDayTable(name)).toBeUndefined();
});
