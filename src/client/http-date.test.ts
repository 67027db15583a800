import { expect, test } from "vitest";
import { createSeededRandom } from "../testing/seeded-random.ts";
import { httpDateMs } from "./http-date.ts";

test("a date of HTTP is read as the platform reads it", () => {
  const random = createSeededRandom(1);
  const days = Array.from({ length: 2_000 }, () => random.below(50_000 * 86_400) * 1000);
  const edges = [
    "1970-01-01",
    "2000-02-29",
    "2024-02-29",
    "2024-03-01",
    "2100-03-01",
    "2026-12-31",
  ];
  for (const ms of [...days, ...edges.map((text) => Date.parse(text))]) {
    expect(httpDateMs(new Date(ms).toUTCString())).toBe(ms);
  }
});

test("what is no date of HTTP is nothing", () => {
  for (const text of ["", "soon", "1e3", "Sun, 06 anF 1994 08:49:37 GMT", "2026-01-01T00:00:00Z"]) {
    expect(httpDateMs(text), text).toBeUndefined();
  }
});
