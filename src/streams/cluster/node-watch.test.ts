import { describe, expect, test } from "vitest";
import { NodeWatch } from "./node-watch.ts";

const LEASE_MS = 1000;
const row = (beat: number, life = "a") => ({ node: "n1", life, beat });

/** Looks every 200 ms; a look takes 1 ms. */
function look(watch: NodeWatch, beats: readonly number[], fromMs: number): number {
  let atMs = fromMs;
  for (const beat of beats) {
    watch.saw([row(beat)], atMs, atMs + 1);
    atMs += 200;
  }
  return atMs;
}

describe("patience with nodes", () => {
  test("NW1 a node is dead after a lease without a new sign, and not before", () => {
    const watch = new NodeWatch(LEASE_MS);
    look(watch, [7, 7, 7, 7, 7, 7], 0);
    expect(watch.isAlive("n1", 1000)).toBe(true);
    expect(watch.isAlive("n1", 1001)).toBe(false);
    look(watch, [8], 1200);
    expect(watch.isAlive("n1", 1300)).toBe(true);
  });

  test("NW1 another life is another node", () => {
    const watch = new NodeWatch(LEASE_MS);
    const endMs = look(watch, [7, 7, 7, 7, 7, 7], 0);
    watch.saw([row(7, "b")], endMs, endMs + 1);
    expect(watch.isAlive("n1", endMs + 1)).toBe(true);
  });

  test.each([
    ["a look that failed", (watch: NodeWatch) => watch.failed(), 1000],
    ["a look that took long", (watch: NodeWatch) => watch.saw([row(7)], 1000, 1700), 1700],
    ["a pause of this process", () => undefined, 60_000],
  ])("NW2 after %s all patience begins anew", (_what, happen, nextMs) => {
    const watch = new NodeWatch(LEASE_MS);
    look(watch, [7, 7, 7, 7, 7], 0);
    happen(watch);
    const endMs = look(watch, [7], nextMs);
    expect(watch.isAlive("n1", endMs)).toBe(true);
    look(watch, [7, 7, 7, 7, 7, 7], endMs);
    expect(watch.isAlive("n1", endMs + 1001)).toBe(false);
  });
});

test("NW3 a node whose process is gone is dead with the next look, and lives with its next sign", () => {
  const watch = new NodeWatch(1000);
  const at = (nowMs: number, beat: number): void => {
    watch.saw([{ node: "n1", life: "l1", beat }], nowMs, nowMs + 1);
  };
  at(0, 7);
  watch.suspect({ node: "n1", life: "l1", beat: 7 }, 2, 2000);
  expect(watch.isAlive("n1", 2)).toBe(true);
  at(100, 7);
  expect([watch.isAlive("n1", 101), watch.goneSinceMs("n1")]).toEqual([false, 2]);
  at(200, 8);
  expect([watch.isAlive("n1", 201), watch.goneSinceMs("n1")]).toEqual([true, undefined]);
  at(300, 8);
  expect(watch.isAlive("n1", 301)).toBe(true);
  // A sign that came before the second look: it was wrongly suspected.
  watch.suspect({ node: "n1", life: "l1", beat: 8 }, 302, 2000);
  at(400, 9);
  at(500, 9);
  expect(watch.isAlive("n1", 501)).toBe(true);
  // A look that comes too late: it may have been silent for other reasons.
  watch.suspect({ node: "n1", life: "l1", beat: 9 }, 502, 590);
  at(600, 9);
  expect(watch.isAlive("n1", 601)).toBe(true);
});
