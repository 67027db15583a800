import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { canonicalText, canonicalValue } from "./canonical-json.ts";

/** Another text for the same value: members turned round, white space, and other spellings of strings. */
function respelled(value: unknown): string {
  if (Array.isArray(value)) return `[ ${value.map(respelled).join(" , ")} ]`;
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value).toReversed();
    return `{\n${members.map(([name, one]) => `${respelled(name)} : ${respelled(one)}`).join(",\t")} }`;
  }
  if (typeof value !== "string") return JSON.stringify(value);
  const units = Array.from({ length: value.length }, (_, at) => value.charCodeAt(at));
  return `"${units.map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`).join("")}"`;
}

describe("canonical JSON", () => {
  test("is the same for every text of a value", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const plain = JSON.stringify(value);
        expect(canonicalText(respelled(JSON.parse(plain)))).toBe(canonicalText(plain));
        expect(canonicalValue(JSON.parse(plain))).toBe(canonicalText(plain));
      }),
    );
  });

  test("is another one for another value", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (one, other) => {
        const [a, b] = [JSON.parse(JSON.stringify(one)), JSON.parse(JSON.stringify(other))];
        const areEqual = respelledSorted(a) === respelledSorted(b);
        expect(canonicalValue(a) === canonicalValue(b)).toBe(areEqual);
      }),
    );
  });

  test.each([
    ["1", "1.0"],
    ["1", "1e0"],
    ["100", "1E2"],
    ["0.1", "1e-1"],
    ["0", "-0"],
    ["0", "0.000"],
    ["12345678901234567000", "1.2345678901234567e19"],
    ["9007199254740993", "9007199254740993.0"],
    ['"é"', '"\\u00e9"'],
    ['{"a":1,"b":2}', '{ "b": 2, "a": 1.0 }'],
  ])("takes %s and %s for the same", (one, other) => {
    expect(canonicalText(other)).toBe(canonicalText(one));
  });

  test.each([
    ["9007199254740992", "9007199254740993"],
    ["0.1", "0.10000000000000000001"],
    ["123456789012.12345678901", "123456789012.12345678902"],
    ["12345678.123456789012", "12345678.123456789013"],
    ["1e400", "1e500"],
    ["1e-400", "0"],
    ["1", '"1"'],
    ["{}", "[]"],
    ["null", "false"],
    ['{"a":{"b":1}}', '{"a":{},"b":1}'],
    ['["a","b"]', '["a,b"]'],
    ["[1,2]", "[2,1]"],
  ])("tells %s from %s", (one, other) => {
    expect(canonicalText(other)).not.toBe(canonicalText(one));
  });

  test("leaves alone what is no JSON, and what is too deep", () => {
    expect(canonicalText("{a:1}")).toBeUndefined();
    expect(canonicalText("")).toBeUndefined();
    expect(canonicalText("[".repeat(600) + "]".repeat(600))).toBeUndefined();
    expect(canonicalText("[".repeat(500) + "]".repeat(500))).toBeDefined();
    expect(canonicalValue(() => 1)).toBeUndefined();
  });

  test("reads a member called __proto__ as any other", () => {
    expect(canonicalText('{"__proto__":1,"a":2}')).toBe('{"__proto__":1,"a":2}');
  });

  test("takes no longer for numbers with many zeros", () => {
    const zeros = `1${"0".repeat(200_000)}1`.repeat(2);
    expect(canonicalText(`[${zeros}]`)).toContain("e0");
  });
});

function respelledSorted(value: unknown): string {
  return JSON.stringify(value, (_name, one: unknown) =>
    typeof one === "object" && one !== null && !Array.isArray(one)
      ? Object.fromEntries(
          Object.entries(one)
            .toSorted(([a], [b]) => (a < b ? -1 : 1))
            .map(([name, member]) => [`:${name}`, member]),
        )
      : one,
  );
}
