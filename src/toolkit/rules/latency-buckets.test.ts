import fc from "fast-check";
import { expect, test } from "vitest";
import { countLatency, latencyAt } from "./latency-buckets.ts";

test("a percentile of buckets is at least the true one, and at most 75 % above it", () => {
  const latencies = fc.array(fc.integer({ min: 0, max: 10_000_000 }), { minLength: 1 });
  fc.assert(
    fc.property(latencies, (all) => {
      const counts: number[] = [];
      for (const ms of all) countLatency(counts, ms);
      const sorted = all.toSorted((one, other) => one - other);
      const exact = sorted[Math.ceil(all.length * 0.99) - 1] ?? 0;
      expect(latencyAt(counts, 0.99)).toBeGreaterThanOrEqual(exact);
      expect(latencyAt(counts, 0.99)).toBeLessThanOrEqual(Math.max(1, exact) * 1.75 + 1);
      expect(counts).toHaveLength(32);
    }),
  );
  expect(latencyAt([], 0.99)).toBe(0);
});
