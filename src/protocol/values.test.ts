import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Offset, StreamName } from "../streams/core/types.ts";
import { LIMITS } from "./limits.ts";
import {
  decodePercent,
  encodeStreamPath,
  formatOffset,
  formatRfc3339,
  normaliseContentType,
  parseBearer,
  parseCount,
  parseOffset,
  parseQuery,
  parseRfc3339,
  parseStreamPath,
  parseTrue,
} from "./values.ts";

const safe = fc.maxSafeNat();
const words = (text: string): string[] => text.split(" ");

describe("counts", () => {
  test.each([
    ...words("+1 -1 -0 01 00 1e3 1.0 1. .5 1,2 0x10 1_0 1n 1abc １ ٣ Infinity NaN"),
    ...words("9007199254740992 9007199254740993 99999999999999999999"),
    "",
    " 1",
    "1 ",
    "1, 2",
    "1\n",
    "\t1",
  ])("V1 %j is not a count", (text) => {
    expect(parseCount(text)).toBeUndefined();
  });

  test.each([
    ["0", 0],
    ["7", 7],
    ["10", 10],
    ["9007199254740991", Number.MAX_SAFE_INTEGER],
  ])("V1 %j is the count %i", (text, count) => {
    expect(parseCount(text)).toBe(count);
  });

  test("V1 a text is a count exactly when it is how a safe integer is written", () => {
    fc.assert(
      fc.property(
        fc.oneof(safe.map(String), fc.string(), fc.stringMatching(/^[0-9]+$/)),
        (text) => {
          const value = Number(text);
          const isCount = Number.isSafeInteger(value) && String(value) === text && value >= 0;
          expect(parseCount(text)).toBe(isCount ? value : undefined);
        },
      ),
    );
  });
});

describe("offsets", () => {
  const zeros = "0".repeat(16);

  test.each([
    [`${zeros}_${zeros}`, { kind: "at", offset: 0 }],
    [`${zeros}_0000000000000042`, { kind: "at", offset: 42 }],
    [`${zeros}_9007199254740991`, { kind: "at", offset: Number.MAX_SAFE_INTEGER }],
    [`${zeros}_9007199254740992`, { kind: "beyond" }],
    [`${zeros}_9999999999999999`, { kind: "beyond" }],
    [`0000000000000001_${zeros}`, { kind: "beyond" }],
    ["9999999999999999_9999999999999999", { kind: "beyond" }],
    ["-1", { kind: "start" }],
    ["now", { kind: "now" }],
  ])("V1 %j is %j", (text, parsed) => {
    expect(parseOffset(text)).toEqual(parsed);
  });

  test.each([
    ...words(
      `0 42 -2 NOW +1 0,1 a ../x _ ${zeros}_ _${zeros} ${zeros}-${zeros} ${zeros}_${zeros}0`,
    ),
    ...words(`${zeros}_${zeros.slice(1)} ${zeros}_00000000000000４2 ${zeros}_00000000000001e1`),
    "",
    "now ",
    " -1",
    "0 1",
    `${zeros}_${zeros}\n`,
    `${zeros}_${zeros}\0`,
  ])("V1 %j is malformed", (text) => {
    expect(parseOffset(text)).toBeUndefined();
  });

  test("V3 offsets come back as they were written, and sort as text as they do as numbers", () => {
    fc.assert(
      fc.property(safe, safe, (a, b) => {
        expect(parseOffset(formatOffset(a as Offset))).toEqual({ kind: "at", offset: a });
        expect(formatOffset(a as Offset) < formatOffset(b as Offset)).toBe(a < b);
      }),
    );
    expect(formatOffset(42 as Offset)).toBe("0000000000000000_0000000000000042");
  });

  test.each([-1, 1.5, 2 ** 53, Number.NaN])("V3 %d is never written as an offset", (value) => {
    expect(() => formatOffset(value as Offset)).toThrow("V3");
  });
});

describe("timestamps", () => {
  test.each([
    ["1970-01-01T00:00:00Z", 0],
    ["1970-01-01t00:00:00z", 0],
    ["1970-01-01T00:00:00-00:00", 0],
    ["1970-01-01T01:30:00+01:30", 0],
    ["1969-12-31T22:00:00-02:00", 0],
    ["1970-01-01T00:00:00.5Z", 500],
    ["1970-01-01T00:00:00.0019999Z", 1],
    ["2024-02-29T12:00:00Z", Date.UTC(2024, 1, 29, 12)],
    ["2000-02-29T00:00:00Z", Date.UTC(2000, 1, 29)],
    ["0000-01-01T00:00:00Z", -62_167_219_200_000],
    ["0099-12-31T23:59:59Z", -59_011_459_201_000],
    ["9999-12-31T23:59:59.999Z", 253_402_300_799_999],
    ["2016-12-31T23:59:60Z", Date.UTC(2016, 11, 31, 23, 59, 59, 999)],
    ["2016-12-31T23:59:60.75Z", Date.UTC(2016, 11, 31, 23, 59, 59, 999)],
    ["2017-01-01T00:59:60+01:00", Date.UTC(2016, 11, 31, 23, 59, 59, 999)],
  ])("V1 %j is %i", (text, ms) => {
    expect(parseRfc3339(text)).toBe(ms);
  });

  test.each([
    ...words("0 not-a-timestamp 2024 2024-01-01 2024-01-01T00:00Z 2024-01-01T00:00:00"),
    ...words("2024-1-1T00:00:00Z 2024-01-01T00:00:00.Z 2024-01-01T00:00:00,5Z"),
    ...words("2024-01-01T00:00:00+0100 2024-01-01T00:00:00+01 2024-01-01T00:00:00+24:00"),
    ...words("2024-01-01T00:00:00+00:60 2024-01-01T24:00:00Z 2024-01-01T00:60:00Z"),
    ...words("2024-01-01T00:00:61Z +002024-01-01T00:00:00Z ２024-01-01T00:00:00Z"),
    ...words("2016-12-31T12:00:60Z 2016-12-30T23:59:60Z 2016-12-31T23:59:60+01:00"),
    ...words("9999-12-31T23:59:59-00:01 0000-01-01T00:00:00+00:01"),
    "",
    " 2024-01-01T00:00:00Z",
    "2024-01-01T00:00:00Z ",
    "2024-01-01T00:00:00Z\n",
    "2024-01-01 00:00:00Z",
    "Mon, 01 Jan 2024 00:00:00 GMT",
  ])("V1 %j is not a timestamp", (text) => {
    expect(parseRfc3339(text)).toBeUndefined();
  });

  test("V1 every millisecond of the four-digit years comes back as it was written", () => {
    const ms = fc.integer({ min: -62_167_219_200_000, max: 253_402_300_799_999 });
    fc.assert(
      fc.property(ms, (value) => {
        expect(formatRfc3339(value)).toBe(new Date(value).toISOString());
        expect(parseRfc3339(formatRfc3339(value))).toBe(value);
        expect(parseRfc3339(formatRfc3339(value).replace("Z", "+00:00"))).toBe(value);
      }),
    );
    expect(() => formatRfc3339(253_402_300_800_000)).toThrow("V1");
  });

  test("V1 a day exists exactly when the calendar has it, for 400 years and the edges", () => {
    const years = [
      0,
      1,
      4,
      99,
      100,
      400,
      9996,
      9999,
      ...Array.from({ length: 401 }, (_, i) => 1800 + i),
    ];
    const wrong: string[] = [];
    for (const year of years) {
      for (let month = 0; month <= 13; month++) {
        for (const day of [0, 1, 28, 29, 30, 31, 32]) {
          const [y, m, d] = [
            String(year).padStart(4, "0"),
            ...[month, day].map((n) => String(n).padStart(2, "0")),
          ];
          const text = `${y}-${m}-${d}T00:00:00.000Z`;
          const ms = Date.parse(text);
          const exists = !Number.isNaN(ms) && new Date(ms).toISOString() === text;
          if (parseRfc3339(text) !== (exists ? ms : undefined)) wrong.push(text);
        }
      }
    }
    expect(wrong).toEqual([]);
  });
});

describe("content types", () => {
  test.each([
    ["text/plain", "text/plain"],
    ["TEXT/PLAIN", "text/plain"],
    ["application/json; charset=utf-8", "application/json"],
    ['Application/Json;Charset=UTF-8 ; a="b;\\"c"', "application/json"],
    ["application/vnd.api+json", "application/vnd.api+json"],
    ["text/plain;", "text/plain"],
    ["text/plain ; ; a=b", "text/plain"],
  ])("V1 %j is of type %j and keeps its text", (text, essence) => {
    expect(normaliseContentType(text)).toEqual({
      essence,
      text,
      isJson: essence === "application/json",
    });
  });

  test.each([
    ...words("text text/ /plain text/plain/x text/plän text/plain;a text/plain;a= text/plain;=b"),
    "",
    "text /plain",
    "text/ plain",
    " text/plain",
    "text/pla in",
    "text/plain; a = b",
    'text/plain; a="b',
    'text/plain; a="b"c',
    "text/plain, text/html",
    "text/plain\r\nX: y",
    "text/plain\n",
    "text/plain\0",
    `text/${"x".repeat(LIMITS.contentTypeBytesMax)}`,
    // Exponential for a pattern that can read the same spaces in two ways.
    `text/plain${"; ".repeat(120)}(`,
  ])("V1 %j is not a content type", (text) => {
    expect(normaliseContentType(text)).toBeUndefined();
  });
});

test("V1 only the word true, in any case, is true", () => {
  expect(["true", "TRUE", "True"].map(parseTrue)).toEqual([true, true, true]);
  const others = [undefined, "", "1", "yes", "false", " true", "true ", "true, true", "true\n"];
  expect(others.map(parseTrue)).toEqual(others.map(() => false));
});

test.each([
  ["Bearer abc", "abc"],
  ["bearer  a-b.c_d~e+f/g==", "a-b.c_d~e+f/g=="],
  ["", undefined],
  ["Bearer", undefined],
  ["Bearer ", undefined],
  ["Bearerabc", undefined],
  ["Basic abc", undefined],
  ["Bearer a b", undefined],
  ["Bearer a=b", undefined],
  ["Bearer a, Bearer b", undefined],
  [" Bearer a", undefined],
  ["Bearer a\n", undefined],
])("V1 the authorization %j carries the token %j", (text, token) => {
  expect(parseBearer(text)).toBe(token);
});

describe("stream paths", () => {
  const max = LIMITS.pathBytesMax;

  test.each([
    ["/v1/stream/orders", "/v1/stream/orders"],
    ["/a", "/a"],
    ["/.a/..b/c./...", "/.a/..b/c./..."],
    ["/a%20b", "/a b"],
    ["/%61", "/a"],
    ["/%E2%82%AC/%f0%9f%98%80", "/€/😀"],
    ["/a%3Fb%23c", "/a?b#c"],
    ["/a+b", "/a+b"],
    ["/a%252e%252Fb%2500", "/a%2e%2Fb%00"],
    [`/${"x".repeat(max - 1)}`, `/${"x".repeat(max - 1)}`],
    [`/${"%78".repeat(max - 1)}`, `/${"x".repeat(max - 1)}`],
  ])("V2 %j names %j", (target, name) => {
    expect(parseStreamPath(target)).toEqual({ kind: "path", name });
  });

  test.each([
    ...words("/ // a a/b /a/ //a /a//b /. /.. /a/. /a/.. /a/../b /./a http://host/a *"),
    ...words("/%2e /%2E%2e /.%2e/a /a/%2e%2E/b /a%2fb /a%2Fb /a\\b /a%5cb /% /%4 /%zz /%u0041"),
    ...words("/%00 /a%00b /a%0ab /a%0D%0Ab /%7f /%c2%85 /é /a?b /a#b"),
    ...words("/%ff /%c0%af /%c0%ae%c0%ae /%ed%a0%80 /%e2%82 /%f5%80%80%80"),
    "",
    "/\0",
    "/a b",
    "/a\tb",
  ])("V2 %j names nothing", (target) => {
    expect(parseStreamPath(target)).toEqual({
      kind: "invalid",
      code: "invalid_request",
      reason: expect.stringMatching(/^[\x20-\x7e]+$/),
    });
  });

  test("V2 a name over the limit in decoded bytes is too long, however it is spelled", () => {
    const targets = [
      `/${"x".repeat(max)}`,
      `/${"%78".repeat(max)}`,
      `/${"%C3%A9".repeat(max / 2)}`,
    ];
    for (const target of [...targets, `/${"x".repeat(LIMITS.targetBytesMax)}`]) {
      expect(parseStreamPath(target)).toMatchObject({ kind: "invalid", code: "uri_too_long" });
    }
  });

  test("V2 every name that is accepted comes back from its encoded path, and has one spelling", () => {
    const piece = fc.oneof(
      fc.constantFrom("/", ".", "%2e", "%2f", "%25", "%41", "A", "%C3%A9", "%00"),
      fc.string({ maxLength: 4 }),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
        const parsed = parseStreamPath(`/${pieces.join("")}`);
        if (parsed.kind === "invalid") return;
        expect(
          parsed.name
            .split("/")
            .slice(1)
            .some((part) => ["", ".", ".."].includes(part)),
        ).toBe(false);
        expect(encodeStreamPath(parsed.name)).toMatch(/^[\x21-\x7e]+$/);
        expect(parseStreamPath(encodeStreamPath(parsed.name))).toEqual(parsed);
      }),
      { numRuns: 1000 },
    );
    expect(encodeStreamPath("/a b/€" as StreamName)).toBe("/a%20b/%E2%82%AC");
  });

  test("V2 percent-encodings are decoded once or refused", () => {
    expect(["a", "%41", "%2541", "manual%2Fb"].map(decodePercent)).toEqual([
      "a",
      "A",
      "%41",
      "manual/b",
    ]);
    expect(["%", "%4", "%gg", "%ff"].map(decodePercent)).toEqual(Array(4).fill(undefined));
  });
});

describe("queries", () => {
  test.each([
    ["", "offset", { kind: "absent" }],
    ["live=sse", "offset", { kind: "absent" }],
    ["xoffset=1&offsetx=2&Offset=3", "offset", { kind: "absent" }],
    ["offset=-1", "offset", { kind: "value", value: "-1" }],
    ["offset=-1&foo=bar&baz=%zz", "offset", { kind: "value", value: "-1" }],
    ["foo=bar&&offset=now", "offset", { kind: "value", value: "now" }],
    ["a=offset=2", "offset", { kind: "absent" }],
    ["offset=", "offset", { kind: "value", value: "" }],
    ["offset", "offset", { kind: "value", value: "" }],
    ["offset&live=sse", "offset", { kind: "value", value: "" }],
    ["offset=a=b", "offset", { kind: "value", value: "a=b" }],
    ["offset=%30%2c1", "offset", { kind: "value", value: "0,1" }],
    ["offset=0+1", "offset", { kind: "value", value: "0 1" }],
    ["offset=0%2B1", "offset", { kind: "value", value: "0+1" }],
    ["offset=a&offset=b", "offset", { kind: "repeated" }],
    ["offset=a&offset=a", "offset", { kind: "repeated" }],
    ["offset=a&offset", "offset", { kind: "repeated" }],
    ["offset=%", "offset", { kind: "invalid" }],
    ["offset=%ff", "offset", { kind: "invalid" }],
    ["offset=0 1", "offset", { kind: "invalid" }],
    ["offset=é", "offset", { kind: "invalid" }],
    ["offset=1&cursor=5&live=long-poll", "cursor", { kind: "value", value: "5" }],
    ["offset=1&cursor=5&live=long-poll", "live", { kind: "value", value: "long-poll" }],
  ])("V1 in %j the value of %s is %j", (query, name, value) => {
    expect(parseQuery(query).get(name)).toEqual(value);
  });

  test("V1 any value survives both common ways of encoding a query", () => {
    const value = fc.string({ unit: "grapheme" });
    fc.assert(
      fc.property(value, (text) => {
        const expected = { kind: "value", value: text };
        expect(parseQuery(`offset=${encodeURIComponent(text)}`).get("offset")).toEqual(expected);
        const form = new URLSearchParams({ live: "sse", offset: text }).toString();
        expect(parseQuery(form).get("offset")).toEqual(expected);
      }),
    );
  });
});
