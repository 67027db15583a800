import { expect, test } from "vitest";
import { connectServer } from "../processing.ts";
import { partitionOf } from "./partitioned.ts";

test("the partition of a key never changes", () => {
  const keys = ["", "a", "customer-7", "é", "日本", "customer-8", "x".repeat(100)];
  expect(keys.map((key) => partitionOf(key, 12))).toEqual([11, 3, 3, 3, 3, 7, 6]);
  expect(keys.map((key) => partitionOf(key, 1))).toEqual(keys.map(() => 0));
  expect(keys.map((key) => partitionOf(key, 4096))).toEqual([
    3083, 435, 2307, 1735, 287, 1523, 546,
  ]);
});

test("keys that differ little are spread evenly", () => {
  for (const count of [2, 3, 8, 10, 64]) {
    const sizes = Array.from({ length: count }, () => 0);
    for (let id = 0; id < 1000 * count; id += 1) {
      const partition = partitionOf(`customer-${String(id)}`, count);
      sizes[partition] = (sizes[partition] ?? 0) + 1;
    }
    expect(Math.min(...sizes)).toBeGreaterThan(850);
    expect(Math.max(...sizes)).toBeLessThan(1150);
  }
});

test("the streams are numbered below the name, and there are as many as there should be", () => {
  const hapax = connectServer("http://127.0.0.1:1/base/");
  const orders = hapax.partitioned("/v1/stream/orders/", 3);
  expect(orders.streams).toEqual([0, 1, 2].map((index) => `/v1/stream/orders/${String(index)}`));
  expect(orders.partition(2).url).toBe("http://127.0.0.1:1/base/v1/stream/orders/2");
  expect(orders.partition(2)).toBe(orders.partition(2));
  expect(() => orders.partition(3)).toThrow("partition=3");
  for (const count of [0, 1.5, 10_001]) {
    expect(() => hapax.partitioned("/o", count)).toThrow(`count=${String(count)}`);
  }
  expect(() => hapax.partitioned("orders", 2)).toThrow("not an absolute path");
});
