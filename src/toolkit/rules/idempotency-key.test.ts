import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { KEY_CHARS_MAX, parseIdempotencyKey, parseWaitMs } from "./idempotency-key.ts";

const keyOf = (value: string): string | undefined => {
  const parsed = parseIdempotencyKey(value);
  return parsed.kind === "key" ? parsed.key : undefined;
};

describe("an Idempotency-Key", () => {
  test("HK1 in quotes and without them is one key", () => {
    const uuid = "8e03978e-40d5-43dd-bc93-6894a57f9324";
    expect(keyOf(uuid)).toBe(uuid);
    expect(keyOf(`"${uuid}"`)).toBe(uuid);
    expect(keyOf(` "${uuid}" `)).toBe(uuid);
    expect(keyOf(`"${uuid}";v=1;note="x"`)).toBe(uuid);
  });

  test("HK1 comes back from quotes as it was, whatever visible characters it has", () => {
    const visible = fc.string({
      unit: fc.integer({ min: 32, max: 126 }).map((code) => String.fromCharCode(code)),
      minLength: 1,
      maxLength: KEY_CHARS_MAX,
    });
    fc.assert(
      fc.property(visible, (key) => {
        expect(keyOf(`"${key.replaceAll(/["\\]/g, "\\$&")}"`)).toBe(key);
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
  ])("HK2 is refused if it is %j", (value, problem) => {
    const parsed = parseIdempotencyKey(value);
    expect(parsed).toMatchObject({ kind: "malformed" });
    expect(parsed.kind === "malformed" && parsed.problem).toContain(problem);
  });

  test("HK2 may have 255 characters", () => {
    expect(keyOf("x".repeat(KEY_CHARS_MAX))).toHaveLength(KEY_CHARS_MAX);
  });
});

test.each([
  ["wait=10", 10_000],
  ["respond-async, wait=10", 10_000],
  ["respond-async; wait=3", 3000],
  ['Wait = "7"', 7000],
  ["wait=1, wait=9", 1000],
  ["wait=0", 0],
  ["waiting=10", undefined],
  ["wait=-1", undefined],
  ["wait=soon", undefined],
  [undefined, undefined],
])("HK3 Prefer: %s", (prefer, waitMs) => {
  expect(parseWaitMs(prefer)).toBe(waitMs);
});
