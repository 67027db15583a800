import { describe, expect, test } from "vitest";
import type { ShardId } from "../core/placement.ts";
import type { ServerAnswer } from "../server/exchange.ts";
import { json } from "../server/json.ts";
import { ListMerge, mergeMetrics, type ShardAnswer, wholeBodyOf } from "./gather.ts";

const LISTED = { member: "streams", key: "path" } as const;

interface Page {
  readonly streams: readonly { readonly path: string }[];
  readonly next?: string;
}

const named = (...names: readonly string[]): Page["streams"] => names.map((path) => ({ path }));
const from = (answers: readonly ServerAnswer[]): readonly ShardAnswer[] =>
  answers.map((answer, at) => ({ shard: at as ShardId, answer }));
const text = (answer: ServerAnswer): string => new TextDecoder().decode(wholeBodyOf(answer));

function merged(pages: readonly Page[], limit: number): Page {
  const merge = new ListMerge(`limit=${limit}`, LISTED);
  for (const page of pages) expect(merge.add(json(200, page))).toBe(true);
  return JSON.parse(text(merge.answer())) as Page;
}

/** The page of one shard, which looks at no more than a few names and shows only some of them. */
function pageOf(names: readonly string[], after: string, limit: number, lookedMax: number): Page {
  const looked = names.filter((name) => name > after).slice(0, lookedMax);
  const shown = looked.filter((name) => !name.startsWith("x")).slice(0, limit);
  const last = shown.length === limit ? shown.at(-1) : looked.at(-1);
  const hasMore = last !== undefined && names.some((name) => name > last);
  return { streams: named(...shown), ...(hasMore ? { next: last } : {}) };
}

describe("PROTOCOL.md §24.3: one list of many shards", () => {
  test.each<readonly [string, readonly Page[], Page]>([
    [
      "nothing beyond where the shortest page ends",
      [{ streams: [], next: "m" }, { streams: named("a", "z") }],
      { streams: named("a"), next: "m" },
    ],
    [
      "an empty page that is not the last",
      [{ streams: [], next: "m" }, { streams: [] }],
      { streams: [], next: "m" },
    ],
    [
      "no more than asked for",
      [{ streams: named("a", "c", "e") }, { streams: named("b", "d") }],
      { streams: named("a", "b", "c"), next: "c" },
    ],
    [
      "all of them",
      [{ streams: named("b") }, { streams: named("a", "c") }],
      { streams: named("a", "b", "c") },
    ],
  ])("shows %s", (_what, pages, expected) => {
    expect(merged(pages, 3)).toEqual(expected);
  });

  test.each([1, 2, 3, 7])("its pages of %i skip and repeat nothing", (limit) => {
    const all = Array.from({ length: 60 }, (_, at) => `${at % 7 < 4 ? "x" : "k"}${100 + at}`);
    const shards = [0, 1, 2].map((shard) => all.filter((_, at) => (at * at) % 3 === shard).sort());
    const seen: string[] = [];
    let after = "";
    for (let pages = 0; pages < 200; pages += 1) {
      const page = merged(
        shards.map((names) => pageOf(names, after, limit, 2)),
        limit,
      );
      seen.push(...page.streams.map(({ path }) => path));
      if (page.next === undefined) break;
      expect(page.next > after).toBe(true);
      after = page.next;
    }
    expect(seen).toEqual(all.filter((name) => name.startsWith("k")).sort());
  });
});

describe("PROTOCOL.md §24.5: metrics of many shards", () => {
  const metrics = (...shards: readonly (readonly string[])[]): readonly string[] => {
    const bodies = shards.map((lines) => new TextEncoder().encode(`${lines.join("\n")}\n`));
    const answers = bodies.map((body) => ({ status: 200, headers: {}, body }));
    return text(mergeMetrics(from(answers), "own 1\n")).split("\n");
  };
  const head = ["# HELP a Help.", "# TYPE a counter"];

  test("every sample has the label of its shard, and families have one head", () => {
    const lines = metrics([...head, "a 1", 'a{b="c d"} 2'], [...head, "a +Inf"]);
    expect(lines).toEqual([
      ...head,
      'a{shard="0"} 1',
      'a{shard="0",b="c d"} 2',
      'a{shard="1"} +Inf',
      "own 1",
      "",
    ]);
  });

  test.each([
    ["a name with digits", "a_p99_Of:x 1", 'a_p99_Of:x{shard="0"} 1'],
    ["a moment", 'a{b="c"} 1 1700000000000', 'a{shard="0",b="c"} 1 1700000000000'],
    ["empty labels", "a{} 1", 'a{shard="0"} 1'],
    ["a brace in a label", 'a{b="}"} 1', 'a{shard="0",b="}"} 1'],
    ["no known form", "something else", "something else"],
  ])("a sample with %s is not lost", (_what, line, expected) => {
    expect(metrics([...head, line])[2]).toBe(expected);
  });
});
