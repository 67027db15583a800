import { describe, expect, test } from "vitest";
import {
  type MetricsLook,
  parseMetrics,
  quantileMs,
  rateOfMetric,
  sumOfMetric,
} from "./metrics-reading.ts";

const look = (atMs: number, text: string): MetricsLook => ({ atMs, values: parseMetrics(text) });

const histogram = (...counts: readonly number[]): string =>
  ["0.001", "0.01", "+Inf"].map((le, at) => `t_bucket{le="${le}"} ${counts[at] ?? 0}`).join("\n");

test("text is read by name and labels; comments and broken lines are left out", () => {
  const values = parseMetrics('# HELP a words\na{by="key"} 2\na{by="x y"} 3\nab 7\nbroken\n');
  expect([...values]).toEqual([
    ['a{by="key"}', 2],
    ['a{by="x y"}', 3],
    ["ab", 7],
  ]);
  expect([sumOfMetric(values, "a"), sumOfMetric(values, "ab")]).toEqual([5, 7]);
});

test("a rate is the growth in a second, and begins anew with the server", () => {
  const [one, two, anew] = [look(0, "n 10"), look(2000, "n 30"), look(4000, "n 4")];
  expect([rateOfMetric(one, two, "n"), rateOfMetric(two, anew, "n")]).toEqual([10, 2]);
});

describe("a quantile", () => {
  test("lies between the bounds of its bucket", () => {
    const [before, now] = [look(0, histogram(10, 10, 10)), look(1, histogram(20, 30, 30))];
    expect(quantileMs(before, now, "t", 0.5)).toBe(1);
    expect(quantileMs(before, now, "t", 0.75)).toBeCloseTo(5.5);
    expect(quantileMs(before, now, "t", 1)).toBeCloseTo(10);
  });

  test("is null without events, and the last bound for events beyond it", () => {
    const [before, now] = [look(0, histogram(1, 1, 1)), look(1, histogram(1, 1, 5))];
    expect(quantileMs(before, before, "t", 0.99)).toBeNull();
    expect(quantileMs(before, now, "t", 0.99)).toBe(10);
  });
});
