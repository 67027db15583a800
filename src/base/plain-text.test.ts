import fc from "fast-check";
import { expect, test } from "vitest";
import { isPlainText, plainBytes } from "./plain-text.ts";

const text = fc.oneof(fc.string({ maxLength: 200 }), fc.string({ unit: "binary" }));

test("a plain text has only characters from space to ~, is short, and is its bytes", () => {
  fc.assert(
    fc.property(text, (given) => {
      expect(isPlainText(given)).toBe(/^[ -~]{0,160}$/.test(given) && !given.endsWith("\n"));
      if (isPlainText(given)) expect(plainBytes(given)).toEqual(new TextEncoder().encode(given));
    }),
  );
});
