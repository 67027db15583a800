// The rule of a changelog on the wire, and the keys of records. PROTOCOL.md §26
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { utf8Of } from "../base/bytes.ts";
import type { CompactionRule } from "../streams/core/compaction.ts";
import { formatCompaction, parseCompaction, recordKey } from "./compaction.ts";

describe("the header", () => {
  test.each([
    ["id", { key: "id", tombstone: undefined, lagSeconds: 60 }],
    ["user.id, lag=0", { key: "user.id", tombstone: undefined, lagSeconds: 0 }],
    ["key,tombstone=value,lag=3600", { key: "key", tombstone: "value", lagSeconds: 3600 }],
    ["$ref.@id/x-y_z", { key: "$ref.@id/x-y_z", tombstone: undefined, lagSeconds: 60 }],
  ])("%s is a rule, and comes back", (text, rule) => {
    expect(parseCompaction(text)).toEqual(rule);
    expect(parseCompaction(formatCompaction(rule))).toEqual(rule);
  });

  test("none is no rule", () => {
    expect(parseCompaction("none")).toBe("none");
  });

  test.each([
    "",
    ".",
    "a.",
    ".a",
    "a..b",
    "a b",
    "a;b",
    'a"b',
    "ä",
    "a, lag",
    "a, lag=-1",
    "a, lag=1.5",
    "a, lag=1, lag=2",
    "a, tombstone=",
    "a, tombstone=b=c",
    "a, other=1",
    "a.b.c.d.e.f.g.h.i",
    "x".repeat(65),
    `a, tombstone=${"x.".repeat(300)}y`,
    "a, lag=99999999999999",
  ])("%s is refused", (text) => {
    expect(() => parseCompaction(text)).toThrow("Stream-Compact-Key");
  });
});

describe("the key of a record", () => {
  const rule = (key: string, tombstone?: string): CompactionRule => ({
    key,
    tombstone,
    lagSeconds: 0,
  });
  /** The same record, small and so large that it is scanned. */
  const both = (text: string, one: CompactionRule) => {
    const large = text.replace(/^\{/, `{"filler":"${'\\"}{'.repeat(5000)}",`);
    return [text, large].map((each) => recordKey(utf8Of(each), one));
  };
  const KEY = { isTombstone: false };

  test.each([
    ['{"id":"a"}', "id", "a"],
    ['{"id":"a\\n\\u00e9"}', "id", "a\né"],
    ['{ "x" : { "id" : "b" } , "id":1 }', "x.id", "b"],
    ['{"id":"a","id":"b"}', "id", "b"],
    ['{"id":"a","id":5}', "id", undefined],
    ['{"\\u0069d":"a"}', "id", "a"],
    ['{"id":""}', "id", ""],
    ['{"id":5}', "id", undefined],
    ['{"id":null}', "id", undefined],
    ['{"id":["a"]}', "id.0", undefined],
    ['{"id":"a"}', "id.length", undefined],
    ['{"other":"a"}', "id", undefined],
    ["{}", "id", undefined],
    ['{"a":1}', "constructor.name", undefined],
    ['{"__proto__":"a"}', "__proto__", "a"],
  ])("%s at %s", (text, path, key) => {
    for (const found of both(text, rule(path))) expect(found).toEqual({ ...KEY, key });
  });

  test.each(["5", '"id"', "null", "true", "[]", '[{"id":"a"}]'])("%s has none", (text) => {
    expect(recordKey(utf8Of(text), rule("id"))).toEqual({ key: undefined, isTombstone: false });
  });

  test.each([
    ['{"id":"a"}', true],
    ['{"id":"a","value":null}', true],
    ['{"id":"a","value":{"of":null}}', false],
    ['{"id":"a","value":0}', false],
    ['{"id":"a","value":""}', false],
    ['{"id":"a","value":false}', false],
    ['{"id":"a","value":1,"value":null}', true],
    ['{"value":null}', false],
  ])("%s is a deletion: %o", (text, isTombstone) => {
    for (const found of both(text, rule("id", "value"))) {
      expect(found.isTombstone).toBe(isTombstone);
    }
    for (const found of both(text, rule("id"))) expect(found.isTombstone).toBe(false);
  });

  test("is the same for a record that is parsed and one that is scanned, for any record", () => {
    fc.assert(
      fc.property(fc.object({ key: fc.constantFrom("id", "a", "b") }), (value) => {
        const text = JSON.stringify(value);
        for (const path of ["id", "a.id", "b.a.id"]) {
          const [small, large] = both(text === "{}" ? '{"z":1}' : text, rule(path, "a.b"));
          expect(large).toEqual(small);
        }
      }),
      { numRuns: 300 },
    );
  });
});
