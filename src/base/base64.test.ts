import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeBase64, decodeBase64url, encodeBase64, encodeBase64url } from "./base64.ts";
import { hexOf } from "./hex.ts";

test("base64, its form for URLs and hexadecimal digits are those of Node", () => {
  const property = fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
    const buffer = Buffer.from(bytes);
    expect(encodeBase64(bytes)).toBe(buffer.toString("base64"));
    expect(encodeBase64url(bytes)).toBe(buffer.toString("base64url"));
    expect(hexOf(bytes)).toBe(buffer.toString("hex"));
    expect(decodeBase64(encodeBase64(bytes))).toEqual(bytes);
    expect(decodeBase64url(encodeBase64url(bytes))).toEqual(bytes);
  });
  fc.assert(property);
  const large = new Uint8Array(100_001).fill(0xfb);
  expect(decodeBase64(encodeBase64(large))).toEqual(large);
});

test("line breaks are passed over, and what is no base64 is refused", () => {
  expect(decodeBase64("aG\nk=\r\n")).toEqual(Uint8Array.of(0x68, 0x69));
  expect(() => decodeBase64("a*==")).toThrow();
  for (const text of ["aGk=", "a", "aG+", "aGl", "a b"])
    expect(decodeBase64url(text)).toBeUndefined();
});
