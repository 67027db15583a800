// What a connection remembers must not show.
import fc from "fast-check";
import { expect, test } from "vitest";
import { BodyBudget } from "../server/body-budget.ts";
import { LaneExchange } from "./node-lane-exchange.ts";
import { LaneMemory } from "./node-lane-memory.ts";
import { HeadParser } from "./node-lane-parser.ts";

const NAMES = ["Producer-Id", "Producer-Seq", "Content-Type", "Authorization"] as const;

// Few characters, so that values of one length differ at any place, or nowhere. Some are too long to be kept.
const value = fc
  .array(fc.constantFrom("a", "b", "1", "c".repeat(70)), { minLength: 1, maxLength: 4 })
  .map((parts) => parts.join(""));
const request = fc.record({
  path: value,
  fields: fc
    .shuffledSubarray([...NAMES])
    .chain((names) => fc.tuple(...names.map((name) => fc.tuple(fc.constant(name), value)))),
});

test("G40 a request says what its own bytes say, for any requests before it on its connection", () => {
  const parser = new HeadParser();
  const budget = new BodyBudget();
  try {
    fc.assert(
      fc.property(fc.array(request, { minLength: 2, maxLength: 8 }), (requests) => {
        const memory = new LaneMemory();
        for (const { path, fields } of requests) {
          const lines = fields.map(([name, sent]) => `${name}: ${sent}\r\n`).join("");
          const head = Buffer.from(`POST /${path} HTTP/1.1\r\nHost: t\r\n${lines}\r\n`, "latin1");
          expect(parser.parse(head, 0, memory)).toBe("whole");
          const exchange = new LaneExchange(head, parser, undefined, budget, undefined, {}, memory);
          const sent = new Map<string, string>(fields);
          expect(exchange.path).toBe(`/${path}`);
          expect(NAMES.map((name) => exchange.header(name.toLowerCase()))).toEqual(
            NAMES.map((name) => sent.get(name)),
          );
        }
      }),
    );
  } finally {
    budget.close();
  }
});
