import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { LIMITS } from "./limits.ts";
import { jsonRecordEnd, splitJson, splitStoredJson, withoutLastComma } from "./json.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const bytes = (text: string): Uint8Array => encoder.encode(text);

function readBack(stored: Uint8Array): string {
  return `[${decoder.decode(withoutLastComma(stored))}]`;
}

function accepted(body: string): { stored: string; count: number } | undefined {
  const split = splitJson(bytes(body));
  if (split.kind === "invalid") return undefined;
  return { stored: decoder.decode(split.stored), count: split.count };
}

// Generators of JSON text: the point is the spelling, so values are never serialised.
const space = fc.string({ unit: fc.constantFrom(" ", "\t", "\n", "\r"), maxLength: 3 });
const unit = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom("]", ",", "[", "{", "}", ":", " ", "a", "é", "😀") },
  { weight: 3, arbitrary: fc.constantFrom('\\"', "\\\\", "\\/", "\\n", "\\u0000", "\\ud800") },
  { weight: 1, arbitrary: fc.constantFrom("\u2028", "\uFEFF", "\u007f", "x".repeat(40)) },
);
const stringText = fc.array(unit, { maxLength: 30 }).map((units) => `"${units.join("")}"`);
const scalarText = fc.oneof(
  stringText,
  fc.constantFrom("null", "true", "false", "0", "-0", "1.0", "1e400", "-1E-7", "0.10"),
  fc.bigInt().map(String),
);
const { element } = fc.letrec<{ element: string; array: string; object: string }>((tie) => ({
  element: fc.oneof({ maxDepth: 5, depthSize: "small" }, scalarText, tie("array"), tie("object")),
  array: fc
    .tuple(space, fc.array(fc.tuple(space, tie("element"), space), { maxLength: 4 }))
    .map(([inner, items]) => `[${items.length === 0 ? inner : items.map(join).join(",")}]`),
  object: fc
    .tuple(
      space,
      fc.array(
        fc.tuple(space, fc.oneof(fc.constant('"same"'), stringText), space, tie("element"), space),
        { maxLength: 4 },
      ),
    )
    .map(([inner, members]) => {
      const texts = members.map(([a, key, b, value, c]) => `${a}${key}${b}:${value}${c}`);
      return `{${texts.length === 0 ? inner : texts.join(",")}}`;
    }),
}));
const elements = fc.array(fc.tuple(space, element, space), { minLength: 1, maxLength: 8 });

function join(parts: readonly string[]): string {
  return parts.join("");
}

describe("what a body becomes", () => {
  test.each([
    ["[]", "", 0],
    [" [ ] ", "", 0],
    ["[\n]", "", 0],
    ["[[1,2],[3]]", "[1,2],[3],", 2],
    ["[[[1]]]", "[[1]],", 1],
    ["[[]]", "[],", 1],
    ["[ [ ] ]", "[ ],", 1],
    ['"a"', '"a",', 1],
    ['""', '"",', 1],
    [" 1 ", "1,", 1],
    ["null", "null,", 1],
    ['{"a":1}', '{"a":1},', 1],
    ['{"a":[1,2],"b":3}', '{"a":[1,2],"b":3},', 1],
    ['{ "a" : 1 , "a" : 2 }', '{ "a" : 1 , "a" : 2 },', 1],
    ['[ {"a": 1} , 2,\r\n"x" ]', '{"a": 1},2,"x",', 3],
    [String.raw`["\\","],[",",\""]`, String.raw`"\\","],[",",\"",`, 3],
    [
      "[1.0,-0,1e400,123456789012345678901234567890]",
      "1.0,-0,1e400,123456789012345678901234567890,",
      4,
    ],
  ])("J3 %j is stored as %j with %i records", (body, stored, count) => {
    expect(accepted(body)).toEqual({ stored, count });
  });

  test.each([
    "",
    " ",
    "[1,]",
    "[,1]",
    "[,]",
    "1 2",
    "[1 2]",
    '{"a":1}{"b":2}',
    "[1],[2]",
    "[1]]",
    "[",
  ])("J1 %j is refused with a reason", (body) => {
    expect(splitJson(bytes(body))).toEqual({ kind: "invalid", reason: expect.stringMatching(/./) });
  });

  test.each([
    "]",
    '"',
    '"a',
    '["a]',
    '"\\"',
    "01",
    "1.",
    "+1",
    "NaN",
    "'a'",
    "[1]x",
    "\u00a01",
    "nul",
  ])("J1 %j is refused", (body) => {
    expect(accepted(body)).toBeUndefined();
  });

  test.each([
    ["a byte order mark", [0xef, 0xbb, 0xbf, 0x31]],
    ["a byte that is never UTF-8", [0x22, 0xff, 0x22]],
    ["a truncated character", [0x22, 0xe2, 0x82, 0x22]],
    ["an overlong slash", [0x22, 0xc0, 0xaf, 0x22]],
    ["an encoded surrogate", [0x22, 0xed, 0xa0, 0x80, 0x22]],
    ["UTF-16", [0x31, 0x00]],
    ["a NUL", [0x00]],
    ["a NUL in a string", [0x22, 0x00, 0x22]],
  ])("J1 %s is refused", (_name, body) => {
    expect(splitJson(Uint8Array.from(body)).kind).toBe("invalid");
  });

  test("J1 a reason is short printable ASCII, for every body", () => {
    const split = splitJson(bytes(`\u001b[31mé${"x".repeat(500)}`));
    expect(split).toEqual({
      kind: "invalid",
      reason: expect.stringMatching(/^[\x20-\x7e]{1,160}$/),
    });
  });
});

describe("spelling", () => {
  test("J2 what is read back is the sent elements joined by commas, byte for byte", () => {
    fc.assert(
      fc.property(elements, space, space, (parts, before, after) => {
        const body = `${before}[${parts.map(join).join(",")}]${after}`;
        const split = splitJson(bytes(body));
        if (split.kind === "invalid") throw new Error(`${body}: ${split.reason}`);
        const texts = parts.map(([, text]) => text);
        expect(split.count).toBe(texts.length);
        expect(readBack(split.stored)).toBe(`[${texts.join(",")}]`);
        expect(splitStoredJson(split.stored).map((part) => decoder.decode(part))).toEqual(texts);
      }),
      { numRuns: 500 },
    );
  });

  test("J2 a single value is one record, and an array inside an array stays", () => {
    fc.assert(
      fc.property(space, element, space, (before, text, after) => {
        expect(accepted(`[${before}${text}${after}]`)).toEqual({ stored: `${text},`, count: 1 });
        if (!text.startsWith("[")) {
          expect(accepted(`${before}${text}${after}`)).toEqual({ stored: `${text},`, count: 1 });
        }
      }),
    );
  });

  test("J1 a damaged body is refused exactly when JSON.parse refuses it", () => {
    const junk = fc.constantFrom(
      "",
      ",",
      "]",
      "[",
      "{",
      "}",
      '"',
      "\\",
      ":",
      " ",
      "0",
      "-",
      "\u0001",
    );
    fc.assert(
      fc.property(elements, fc.nat(), fc.nat(2), junk, (parts, at, cut, inserted) => {
        const body = `[${parts.map(join).join(",")}]`;
        const place = at % body.length;
        // The round trip makes half a surrogate pair a replacement character in both views.
        const damaged = decoder.decode(
          bytes(body.slice(0, place) + inserted + body.slice(place + cut)),
        );
        const split = splitJson(bytes(damaged));
        expect(split.kind).toBe(isJson(damaged) ? "records" : "invalid");
        if (split.kind === "invalid") return;
        const value: unknown = JSON.parse(damaged);
        expect(JSON.parse(readBack(split.stored))).toEqual(Array.isArray(value) ? value : [value]);
      }),
      { numRuns: 1000 },
    );
  });

  test("J2 the body is left as it was, and the stored bytes are not a view of it", () => {
    const body = bytes('[ 1 , "a" ]');
    const before = body.slice();
    const split = splitJson(body);
    expect(body).toEqual(before);
    expect(split.kind === "records" && split.stored.buffer).not.toBe(body.buffer);
  });
});

describe("size", () => {
  const nested = (depth: number): string => "[".repeat(depth) + "]".repeat(depth);

  test("J1 a record may nest as deep as the limit and no deeper", () => {
    expect(accepted(`[${nested(LIMITS.jsonDepthMax)}]`)?.count).toBe(1);
    expect(accepted(`[${nested(LIMITS.jsonDepthMax + 1)}]`)).toBeUndefined();
    const object = (depth: number): string => '{"a":'.repeat(depth) + "1" + "}".repeat(depth);
    expect(accepted(object(LIMITS.jsonDepthMax))?.count).toBe(1);
    expect(accepted(object(LIMITS.jsonDepthMax + 1))).toBeUndefined();
    // The shortest value that is too deep without being an array, which is flattened.
    expect(accepted(`{"":${nested(LIMITS.jsonDepthMax)}}`)).toBeUndefined();
  });

  test("J4 a million open brackets are refused without exhausting the stack", () => {
    expect(accepted("[".repeat(1_000_000))).toBeUndefined();
    expect(accepted(nested(1_000_000))).toBeUndefined();
  });

  test("J4 a million elements are a million records, with and without whitespace", () => {
    const texts = Array.from({ length: 1_000_000 }, (_, index) => String(index));
    const dense = accepted(`[${texts.join(",")}]`);
    const sparse = accepted(`[ ${texts.join(" , ")} ]`);
    expect(dense?.count).toBe(1_000_000);
    expect(dense?.stored === `${texts.join(",")},`).toBe(true);
    expect(sparse?.stored === dense?.stored && sparse?.count === dense?.count).toBe(true);
  });

  test("J4 long strings of escapes end where they end", () => {
    for (const inner of ['\\"', "\\\\", "x".repeat(25), '\\\\\\"']) {
      for (const length of [1, 11, 12, 13, 1000]) {
        const text = `"${inner.repeat(length)}"`;
        expect(accepted(`[${text},${text}]`)).toEqual({ stored: `${text},${text},`, count: 2 });
      }
    }
  });
});

describe("stored bytes", () => {
  test("J2 the end of the first n records is the length of their texts and commas", () => {
    fc.assert(
      fc.property(fc.array(element, { maxLength: 6 }), (texts) => {
        const stored = bytes(texts.map((text) => `${text},`).join(""));
        let end = 0;
        for (let count = 0; count <= texts.length; count++) {
          expect(jsonRecordEnd(stored, count)).toBe(end);
          end += bytes(texts[count] ?? "").length + 1;
        }
        expect(jsonRecordEnd(stored, texts.length + 1)).toBeUndefined();
      }),
    );
  });

  test("J2 a read copies nothing of what is stored", () => {
    const stored = bytes("1,2,");
    const inside = withoutLastComma(stored);
    expect(inside.buffer).toBe(stored.buffer);
    expect(decoder.decode(inside)).toBe("1,2");
    expect(readBack(new Uint8Array(0))).toBe("[]");
  });

  test("J2 stored bytes without the last comma are a bug and not an answer", () => {
    expect(() => withoutLastComma(bytes("1,2"))).toThrow("J2");
  });
});

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
