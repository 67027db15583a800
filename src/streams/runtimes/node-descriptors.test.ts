// Sockets and files share one limit.
import { expect, test } from "vitest";
import { LIMITS } from "../../protocol/all-limits.ts";
import { connectionsFor, descriptorsMax } from "./node-descriptors.ts";

test("connections leave descriptors for the journal, also when there are few", () => {
  expect([Infinity, 1_000_000, 1024, 256, 64].map(connectionsFor)).toEqual([
    LIMITS.connectionsMax,
    LIMITS.connectionsMax,
    832,
    64,
    16,
  ]);
  expect(descriptorsMax()).toBeGreaterThan(0);
});
