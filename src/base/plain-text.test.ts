import fc from "fast-check";
import { expect, test } from "vitest";
import { isBareText, isPlainText, plainBytes } from "./plain-text.ts";

const text = fc.oneof(fc.string({ maxLength: 200 }), fc.string({ unit: "binary" }));

test("a plain text has only characters from space to ~, is short, and is its bytes", () => {
  fc.assert(
    fc.property(text, (given) => {
      expect(isPlainText(given)).toBe(/^[ -~]{0,160}$/.test(given) && !given.endsWith("\n"));
      if (isPlainText(given)) expect(plainBytes(given)).toEqual(new TextEncoder().encode(given));
    }),
  );
});

test("a bare text is in JSON what it is, between quotes", () => {
  fc.assert(
    fc.property(text, (given) => {
      if (isBareText(given)) expect(JSON.stringify(given)).toBe(`"${given}"`);
    }),
  );
  expect([isBareText("a b"), isBareText('a"b'), isBareText("a\\b")]).toEqual([true, false, false]);
});
