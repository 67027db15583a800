import { expect, test } from "vitest";
import { decideMessageAge } from "./inbox-window.ts";

test("a message counts as new only while the inbox would still know it", () => {
  for (const [ageMs, kind, headroom] of [
    [-500, "new", 1],
    [0, "new", 1],
    [250, "new", 0.75],
    [999, "new", 0.001],
    [1000, "expired", 0],
    [5000, "expired", 0],
  ] as const) {
    const age = decideMessageAge(10_000 - ageMs, 10_000, 1000);
    expect(age.kind).toBe(kind);
    expect(age.headroom).toBeCloseTo(headroom, 9);
  }
});

test("a message that does not say when it was sent is new if it is not known", () => {
  expect(decideMessageAge(undefined, 10_000, 1000)).toEqual({ kind: "new", headroom: undefined });
});
