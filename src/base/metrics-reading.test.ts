import { describe, expect, test } from "vitest";
import { lookAt as look, quantileMs, rateOfMetric, sumOfMetric } from "./metrics-reading.ts";

const histogram = (...counts: readonly number[]): string =>
  ["0.001", "0.01", "+Inf"].map((le, at) => `t_bucket{le="${le}"} ${counts[at] ?? 0}`).join("\n");

test("text is read by name and labels; comments and broken lines are left out", () => {
  const { values } = look(0, '# HELP a words\na{by="key"} 2\na{by="x y"} 3\nab 7\nbroken\n');
  expect([...values]).toEqual([
    ['a{by="key"}', 2],
    ['a{by="x y"}', 3],
    ["ab", 7],
  ]);
  expect([sumOfMetric(values, "a"), sumOfMetric(values, "ab")]).toEqual([5, 7]);
});

test("the shards of a node of a cluster are added up", () => {
  const text =
    'a{shard="0"} 2\na{shard="15"} 3\nb{shard="0",by="x"} 1\nb{shard="1",by="x"} 4\nc 9\n';
  const buckets = [0, 1].flatMap((shard) =>
    [1, 3].map(
      (count, at) => `t_bucket{shard="${shard}",le="${at === 0 ? "0.001" : "+Inf"}"} ${count}`,
    ),
  );
  expect([...look(0, text).values]).toEqual([
    ["a", 5],
    ['b{by="x"}', 5],
    ["c", 9],
  ]);
  const [before, now] = [look(0, ""), look(1000, buckets.join("\n"))];
  expect(quantileMs(before, now, "t", 0.3)).toBeCloseTo(0.9);
});

test("a shard that moves away takes its counters along, and is no growth of the others", () => {
  const both = look(0, 'n{shard="0"} 1000\nn{shard="1"} 600');
  const left = look(1000, 'n{shard="1"} 607\nn{shard="2"} 1');
  expect(rateOfMetric(both, left, "n")).toBe(8);
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
