// JSON without repeated members: JSON.parse is the judge of everything else.
import fc from "fast-check";
import { expect, test } from "vitest";
import { parseUniqueJson } from "./unique-json.ts";

test("every JSON value that JSON.stringify writes is read as JSON.parse reads it", () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.constantFrom(0, 1, "\t"), (value, indent) => {
      const text = JSON.stringify(value, undefined, indent);
      expect(parseUniqueJson(text, 512)).toEqual({ value: JSON.parse(text) });
    }),
  );
});

test("any text is read as JSON.parse reads it, or refused", () => {
  const pieces = ['"', "\\", "{", "}", "[", "]", ":", ",", "a", " ", "1", "u0061", '"a"'];
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...pieces), { maxLength: 24 }), (parts) => {
      const text = parts.join("");
      const found = parseUniqueJson(text, 512);
      if (found !== undefined) expect(found.value).toEqual(JSON.parse(text));
    }),
    { numRuns: 2000 },
  );
});

test.each([
  ["side by side", '{"a":1,"a":1}'],
  ["with space before the colon", '{"a" :1,"b":2,"a"\n:3}'],
  ["in another spelling", String.raw`{"a":1,"\u0061":2}`],
  ["inside", '{"x":[{"y":1,"z":{"a":[],"b":0,"a":{}}}]}'],
  ["the empty name", '{"":1,"":2}'],
])("a member that is there twice is refused: %s", (_name, text) => {
  expect(() => JSON.parse(text) as unknown).not.toThrow();
  expect(parseUniqueJson(text, 512)).toBeUndefined();
});

test("the same name in two objects, as a value, and within a text is no repetition", () => {
  for (const text of [
    '[{"a":1},{"a":2}]',
    '{"a":"a","b":"a"}',
    String.raw`{"a":"\"a\":1,\"a\":2"}`,
  ]) {
    expect(parseUniqueJson(text, 512)).toEqual({ value: JSON.parse(text) });
  }
});

test("nesting has a limit, and a hundred thousand brackets cost no stack", () => {
  expect(parseUniqueJson("[[[]]]", 3)).toEqual({ value: [[[]]] });
  expect(parseUniqueJson("[[[]]]", 2)).toBeUndefined();
  expect(parseUniqueJson("[".repeat(100_000), 1_000_000)).toBeUndefined();
});
