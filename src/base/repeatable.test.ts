import { expect, test } from "vitest";
import { createSeededRandom } from "../testing/seeded-random.ts";
import { httpDateMs, isRepeatable, retryAfterMs } from "./repeatable.ts";

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

test("an answer may be repeated if another moment may bring another answer", () => {
  const statuses = [200, 204, 304, 400, 404, 408, 409, 412, 425, 429, 500, 501, 502, 503, 504, 505];
  expect(statuses.filter(isRepeatable)).toEqual([408, 425, 429, 500, 502, 503, 504]);
});

test("Retry-After is seconds, however many digits they have, or a date", () => {
  const nowMs = Date.parse("2026-01-01T00:00:00Z");
  const asked = (text: string | undefined): number => retryAfterMs(text, nowMs);
  expect([undefined, "", "soon", "-1", "1.5"].map(asked)).toEqual([0, 0, 0, 0, 0]);
  expect(["0", "7", "99999999999"].map(asked)).toEqual([0, 7_000, 99_999_999_999_000]);
  expect(asked("Thu, 01 Jan 2026 00:00:05 GMT")).toBe(5_000);
  expect(asked("Wed, 31 Dec 2025 23:59:55 GMT")).toBe(0);
});
