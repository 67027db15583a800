import { expect, test } from "vitest";
import { backoffMs, doubledMs, jitteredMs, spreadMs } from "./backoff.ts";

const BOUNDS = { pauseMs: 100, pauseMsMax: 1_000 };
const FAILURES = [1, 2, 3, 4, 5, 1_000_000];

test("a pause doubles up to its maximum; half of it is certain", () => {
  expect(FAILURES.map((n) => doubledMs(n, BOUNDS))).toEqual([100, 200, 400, 800, 1000, 1000]);
  expect(FAILURES.map((n) => backoffMs(n, BOUNDS, 0))).toEqual([50, 100, 200, 400, 500, 500]);
  expect(FAILURES.map((n) => backoffMs(n, BOUNDS, 0.5))).toEqual([75, 150, 300, 600, 750, 750]);
});

test("jitter takes away up to a half, and spread goes both ways", () => {
  expect([0, 0.5, 1].map((unit) => jitteredMs(80, unit))).toEqual([40, 60, 80]);
  expect([0, 0.5, 1].map((unit) => spreadMs(1000, 0.25, unit))).toEqual([750, 1000, 1250]);
});
