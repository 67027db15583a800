import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { hashText, placementOf, placementOfPattern, shardOfPlacement } from "./placement.ts";
import type { StreamName } from "./types.ts";
import { Glob } from "../../base/glob.ts";

const name = (text: string): StreamName => text as StreamName;

describe("PROTOCOL.md §24.1: placements", () => {
  test.each([
    ["/v1/stream/orders", "orders"],
    ["/v1/stream/acme/orders", "acme"],
    ["/v1/stream/acme/orders/{x}", "acme"],
    ["/v1/stream/{acme}-orders", "acme"],
    ["/v1/stream/a{b}{c}", "b"],
    ["/v1/stream/{}x", "{}x"],
    ["/v1/stream/{x", "{x"],
    ["/v1/stream/x}y{z}", "z"],
    ["/orders", "orders"],
    ["/v1/other/x", "v1"],
    ["/{t}/v1/stream/x", "t"],
  ])("PL1 PL2 the placement of %s is %s", (text, placement) => {
    expect(placementOf(name(text))).toBe(placement);
  });

  test.each([
    ["/v1/stream/events/*", "events"],
    ["/v1/stream/events/**", "events"],
    ["/v1/stream/{t}events/*", "t"],
    ["/v1/stream/*", undefined],
    ["/v1/stream/**", undefined],
    ["/v1/*/x", undefined],
    ["/**", undefined],
    ["/orders/*", "orders"],
    ["/v1/stream/orders", "orders"],
  ])("PL1 the placement of the pattern %s is %s", (pattern, placement) => {
    expect(placementOfPattern(pattern)).toBe(placement);
  });

  test("PL1 every name that a pattern matches has the placement of the pattern", () => {
    const segment = fc.constantFrom("a", "b", "{t}", "a{t}", "{}", "v1", "stream");
    const path = (one: fc.Arbitrary<string>): fc.Arbitrary<string> =>
      fc.array(one, { minLength: 1, maxLength: 4 }).map((parts) => `/${parts.join("/")}`);
    const pattern = path(fc.oneof(segment, fc.constantFrom("*", "**")));
    const cases = fc.tuple(fc.constantFrom("", "/v1/stream"), pattern, path(segment), fc.boolean());
    let matched = 0;
    fc.assert(
      fc.property(cases, ([root, below, other, isOfPattern]) => {
        const whole = root + below;
        const made = isOfPattern
          ? whole.replaceAll("**", "a/b").replaceAll("*", "{t}")
          : root + other;
        const placement = placementOfPattern(whole);
        if (placement === undefined || !new Glob(whole).matches(made)) return;
        matched += 1;
        expect(placementOf(name(made))).toBe(placement);
      }),
      { numRuns: 2000 },
    );
    expect(matched).toBeGreaterThan(100);
  });

  test("PL3 the hash is the one of the first release", () => {
    const texts = ["", "orders", "acme", "events", "täst", "𝄞", "n1 7"];
    expect(texts.map(hashText)).toEqual([
      2872998923, 3502484104, 3514205898, 3492885733, 723509054, 763714609, 1148856588,
    ]);
    expect(texts.map((text) => shardOfPlacement(text, 16))).toEqual([11, 8, 10, 5, 14, 1, 12]);
  });

  test("PL3 every placement has one shard, and all shards are used alike", () => {
    const counts = Array.from({ length: 16 }, () => 0);
    for (let at = 0; at < 16_000; at += 1) {
      const shard = shardOfPlacement(`tenant-${at}`, 16);
      counts[shard] = (counts[shard] ?? 0) + 1;
    }
    expect(Math.min(...counts)).toBeGreaterThan(850);
    expect(Math.max(...counts)).toBeLessThan(1150);
    fc.assert(
      fc.property(fc.string(), fc.integer({ min: 1, max: 256 }), (placement, shards) => {
        const shard = shardOfPlacement(placement, shards);
        expect(shard >= 0 && shard < shards && Number.isInteger(shard)).toBe(true);
        expect(shardOfPlacement(placement, shards)).toBe(shard);
      }),
    );
  });
});
