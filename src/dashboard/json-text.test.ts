import fc from "fast-check";
import { expect, test } from "vitest";
import { hexLines, prettyJson, recordsIn } from "./json-text.ts";

const utf8 = new TextEncoder();

test("the records of a page are its elements, each with the byte at which it begins", () => {
  fc.assert(
    fc.property(fc.array(fc.jsonValue({ maxDepth: 3 })), (values) => {
      const texts = values.map((value) => JSON.stringify(value));
      const page = `[${texts.join(",")}]`;
      const records = recordsIn(page);
      expect(records.map(({ text }) => text)).toEqual(texts);
      const bytes = utf8.encode(page);
      for (const { text, at } of records) {
        const own = utf8.encode(text);
        expect(bytes.subarray(at, at + own.length)).toEqual(own);
      }
    }),
  );
});

test("a record over several lines is the same JSON, and no digit of a number changes", () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 4 }), (value) => {
      expect(prettyJson(JSON.stringify(value))).toBe(JSON.stringify(value, undefined, 2));
    }),
  );
  const exact = '{"n":12345678901234567890,"e":1.0,"s":"a { [ , : \\" b"}';
  expect(prettyJson(exact)).toBe(
    '{\n  "n": 12345678901234567890,\n  "e": 1.0,\n  "s": "a { [ , : \\" b"\n}',
  );
});

test("a record that is cut is shown as far as it goes", () => {
  expect(prettyJson('{"a":[1,"b')).toBe('{\n  "a": [\n    1,\n    "b');
});

test("bytes are lines of sixteen, and what is left out is counted", () => {
  expect(hexLines(utf8.encode("hapax\n"), 16)).toBe(
    `00000000  68 61 70 61 78 0a${" ".repeat(30)}  hapax·`,
  );
  expect(hexLines(new Uint8Array(20), 16).split("\n")[1]).toBe("… 4 bytes more");
});
