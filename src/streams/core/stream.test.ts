// PROTOCOL.md §3
import fc from "fast-check";
import { expect, test } from "vitest";
import { mediaType } from "../../base/media-type.ts";
import { type ExpiryRule, isJson, isSameExpiry, isSameMediaType } from "./stream.ts";

const SAME = ["application/json", "Application/JSON", "application/json;charset=utf-8"];
const OTHER = ["application/jsonl", "application/json-seq", "text/json", "", "application"];

test("media types are compared without case and parameters, and as a whole", () => {
  for (const one of SAME) {
    for (const other of SAME) expect(isSameMediaType(one, other)).toBe(true);
    for (const other of OTHER) expect(isSameMediaType(one, other)).toBe(false);
  }
});

test("a stream is JSON by its media type alone", () => {
  for (const type of [...SAME, " application/json ; charset=utf-8"])
    expect(isJson(type)).toBe(true);
  for (const type of OTHER) expect(isJson(type)).toBe(false);
});

test("a media type is a fixed point: taking it again changes nothing", () => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      expect(mediaType(mediaType(text))).toBe(mediaType(text));
      expect(isSameMediaType(text, `${text};x=1`)).toBe(true);
    }),
  );
});

test("two expiries are the same exactly if they are equal", () => {
  const expiries: readonly ExpiryRule[] = [
    { kind: "never" },
    { kind: "ttl", seconds: 0 },
    { kind: "ttl", seconds: 60 },
    { kind: "at", timeMs: 0 },
    { kind: "at", timeMs: 60 },
  ];
  for (const [index, one] of expiries.entries()) {
    for (const [place, other] of expiries.entries()) {
      expect(isSameExpiry(one, structuredClone(other))).toBe(index === place);
    }
  }
});
