// PROTOCOL.md §16
import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isHapaxError } from "../base/errors.ts";
import { LIMITS } from "./all-limits.ts";
import { keyBytes, keyTimeMs, markOf, parseKey } from "./key.ts";

const sha256 = (bytes: Uint8Array | string): Uint8Array =>
  new Uint8Array(createHash("sha256").update(bytes).digest());
const quote = (text: string): string => `"${text.replaceAll(/["\\]/g, "\\$&")}"`;

function refusal(value: string): string {
  try {
    parseKey(value);
  } catch (error) {
    if (isHapaxError(error)) return error.code;
    throw error;
  }
  return "accepted";
}

const codes = Array.from({ length: 0x7f - 0x20 }, (_, index) => String.fromCharCode(0x20 + index));
const text = fc
  .array(fc.constantFrom(...codes), { minLength: 1, maxLength: LIMITS.keyBytesMax })
  .map((characters) => characters.join(""));
const bareText = fc
  .array(fc.constantFrom(...codes.filter((code) => !' ",;'.includes(code))), {
    minLength: 1,
    maxLength: LIMITS.keyBytesMax,
  })
  .map((characters) => characters.join(""));

describe("the header", () => {
  test("every bare key is the same key in quotes", () => {
    const property = fc.property(bareText, (key) => {
      expect(parseKey(key)).toEqual(parseKey(quote(key)));
      expect(parseKey(key)?.text).toBe(key);
    });
    fc.assert(property);
  });

  test("every text from space to ~ can be said in quotes, and is taken as it stands", () => {
    const property = fc.property(text, (key) => {
      expect(parseKey(quote(key))?.text).toBe(key);
    });
    fc.assert(property);
  });

  test("a header that is absent is no key", () => {
    expect(parseKey(undefined)).toBeUndefined();
  });

  test("what is neither bare text nor one string in quotes is refused", () => {
    const inner = String.raw`(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])`;
    const parameter = `; *[a-z*][a-z]*(?:=(?:[a'=]+|"${inner}*"))?`;
    const grammar = new RegExp(`^[ \\t]*(?:[!#-+\\--:<-~]+|"${inner}+"(?:${parameter})*)[ \\t]*$`);
    const unit = fc.constantFrom('"', "\\", ",", ";", " ", "a", "\t", "\u00e9", "\u0000", "'", "=");
    const value = fc.array(unit, { maxLength: 6 }).map((characters) => characters.join(""));
    const property = fc.property(value, (sent) => {
      expect(refusal(sent)).toBe(grammar.test(sent) ? "accepted" : "invalid_request");
    });
    fc.assert(property, { numRuns: 2000 });
  });

  test("the limit counts the characters of the key", () => {
    const longest = "k".repeat(LIMITS.keyBytesMax);
    const escaped = '"'.repeat(LIMITS.keyBytesMax);
    expect([refusal(longest), refusal(quote(longest)), refusal(quote(escaped))]).toEqual([
      "accepted",
      "accepted",
      "accepted",
    ]);
    expect(refusal(`${longest}k`)).toBe("invalid_request");
    expect(refusal(quote(`${escaped}"`))).toBe("invalid_request");
    expect(refusal("")).toBe("invalid_request");
    expect(refusal('""')).toBe("invalid_request");
  });
});

describe("the time that a key carries", () => {
  test("the examples of RFC 9562 and of the ULID specification have their times", () => {
    const uuid = Date.UTC(2022, 1, 22, 19, 22, 22);
    expect(keyTimeMs("017F22E2-79B0-7CC3-98C4-DC0C0C07398F")).toBe(uuid);
    expect(keyTimeMs("017f22e2-79b0-7cc3-98c4-dc0c0c07398f")).toBe(uuid);
    expect(keyTimeMs("01ARZ3NDEKTSV4RRFFQ69G5FAV")).toBe(1_469_922_850_259);
    expect(keyTimeMs("01arz3ndektsv4rrffq69g5fav")).toBe(1_469_922_850_259);
    expect(parseKey('"017F22E2-79B0-7CC3-98C4-DC0C0C07398F"')?.timeMs).toBe(uuid);
  });

  test("a time of 48 bits is read exactly, and one before 2015 is none", () => {
    const property = fc.property(fc.integer({ min: 0, max: 2 ** 48 - 1 }), (timeMs) => {
      const hex = timeMs.toString(16).padStart(12, "0");
      const expected = timeMs < Date.UTC(2015, 0, 1) ? undefined : timeMs;
      expect(keyTimeMs(`${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`)).toBe(expected);
      expect(keyTimeMs(`${crockford(timeMs)}0000000000000000`)).toBe(expected);
    });
    fc.assert(property);
    const edge = Date.UTC(2015, 0, 1);
    const ulid = (timeMs: number): string => `${crockford(timeMs)}0000000000000000`;
    expect([keyTimeMs(ulid(edge - 1)), keyTimeMs(ulid(edge))]).toEqual([undefined, edge]);
  });

  test("what only looks like one has no time", () => {
    for (const key of [
      "017F22E2-79B0-4CC3-98C4-DC0C0C07398F", // version 4
      "017F22E2-79B0-7CC3-C8C4-DC0C0C07398F", // another variant
      "017F22E279B07CC398C4DC0C0C07398F",
      "x017F22E2-79B0-7CC3-98C4-DC0C0C07398F",
      "01ARZ3NDEKTSV4RRFFQ69G5FA",
      "01ARZ3NDEKTSV4RRFFQ69G5FAVV",
      "01ARZ3NDEKTSV4RRFFQ69G5FAU", // U is no letter of it
      "81ARZ3NDEKTSV4RRFFQ69G5FAV", // more than 48 bits
      "order-4711",
    ]) {
      expect([key, keyTimeMs(key)]).toEqual([key, undefined]);
    }
  });
});

function crockford(timeMs: number): string {
  const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
  let text = "";
  for (let rest = timeMs; text.length < 10; rest = Math.floor(rest / 32)) {
    text = (letters[rest % 32] ?? "") + text;
  }
  return text;
}

describe("the mark that is remembered", () => {
  const keyPart = (mark: Uint32Array): string => mark.slice(0, 4).join();
  const bodyPart = (mark: Uint32Array): string => mark.slice(4).join();
  const bytes = fc.uint8Array({ maxLength: 40 });

  test("the key alone decides its part, content and close the other", () => {
    const property = fc.property(text, bytes, bytes, (key, one, other) => {
      const digest = sha256(keyBytes(key));
      const [a, b] = [markOf(digest, sha256(one), false), markOf(digest, sha256(other), false)];
      expect(keyPart(a)).toBe(keyPart(b));
      expect(bodyPart(a) === bodyPart(b)).toBe(Buffer.compare(one, other) === 0);
      const closing = markOf(digest, sha256(one), true);
      expect(keyPart(closing)).toBe(keyPart(a));
      expect(bodyPart(closing)).not.toBe(bodyPart(a));
    });
    fc.assert(property);
  });

  test("content is never the key of a header, not even of its own text", () => {
    const property = fc.property(text, fc.boolean(), (key, closes) => {
      const digest = sha256(keyBytes(key));
      const named = markOf(digest, sha256("other"), closes);
      expect(keyPart(markOf(undefined, digest, closes))).not.toBe(keyPart(named));
    });
    fc.assert(property);
  });

  test("content that closes is another key than the same content that does not", () => {
    const property = fc.property(bytes, (content) => {
      const digest = sha256(content);
      const [open, closing] = [markOf(undefined, digest, false), markOf(undefined, digest, true)];
      expect(keyPart(open)).not.toBe(keyPart(closing));
      expect(bodyPart(open)).not.toBe(bodyPart(closing));
    });
    fc.assert(property);
  });
});
