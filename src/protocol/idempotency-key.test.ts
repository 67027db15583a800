import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { encodeKey, KEY_CHARS_MAX, keyProblem, parseIdempotencyKey } from "./idempotency-key.ts";

const keyOf = parseIdempotencyKey;

describe("an Idempotency-Key", () => {
  test("in quotes and without them is one key", () => {
    const uuid = "8e03978e-40d5-43dd-bc93-6894a57f9324";
    expect(keyOf(uuid)).toBe(uuid);
    expect(keyOf(`"${uuid}"`)).toBe(uuid);
    expect(keyOf(` "${uuid}" `)).toBe(uuid);
    expect(keyOf(`"${uuid}";v=1;note="x"`)).toBe(uuid);
  });

  test("is read from quotes as it was written, with any visible characters", () => {
    const visible = fc.string({
      unit: fc.integer({ min: 32, max: 126 }).map((code) => String.fromCharCode(code)),
      minLength: 1,
      maxLength: KEY_CHARS_MAX,
    });
    fc.assert(
      fc.property(visible, (key) => {
        expect(keyOf(encodeKey(key) ?? "")).toBe(key);
      }),
    );
  });

  test.each([
    ["", "is empty"],
    ['""', "is empty"],
    ["a b", "is not one string"],
    ["a,b", "is not one string"],
    ['"a", "b"', "is not one string"],
    ["a;b", "is not one string"],
    ['"a', "is not one string"],
    ['a"', "is not one string"],
    ['"a\\b"', "is not one string"],
    ["a\u0001", "is not one string"],
    ['"a\u007f"', "is not one string"],
    ["clé", "is not one string"],
    ["x".repeat(KEY_CHARS_MAX + 1), "more than 255"],
    [`"${"x".repeat(KEY_CHARS_MAX + 1)}"`, "more than 255"],
  ])("is refused if it is %j", (value, problem) => {
    expect(keyOf(value)).toBeUndefined();
    expect(keyProblem(value)).toContain(problem);
  });

  test("what is no key has no value", () => {
    for (const key of ["", "clé", "a\n", "x".repeat(KEY_CHARS_MAX + 1)]) {
      expect(encodeKey(key)).toBeUndefined();
    }
  });

  test("may have 255 characters", () => {
    expect(keyOf("x".repeat(KEY_CHARS_MAX))).toHaveLength(KEY_CHARS_MAX);
  });
});
