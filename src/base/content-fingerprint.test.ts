import { describe, expect, test } from "vitest";
import { formatFingerprint, isOtherContent } from "./content-fingerprint.ts";

const of = (head: string, plain?: string, exact?: string): string =>
  formatFingerprint({ head, plain, exact });

describe("fingerprints of requests", () => {
  test.each([
    ["the same", of("aa", "01", "01"), of("aa", "01", "01"), false],
    ["another head", of("aa", "01", "01"), of("ab", "01", "01"), true],
    ["another body", of("aa", "01", "01"), of("aa", "02", "02"), true],
    ["bytes that say more", of("aa", "01", "01"), of("aa", "01", "03"), true],
    ["a parser beside bytes", of("aa", "01"), of("aa", "01", "03"), false],
    ["a parser with another body", of("aa", "02"), of("aa", "01", "03"), true],
    [
      "bytes that are not understood, beside a parser",
      of("aa", undefined, "03"),
      of("aa", "01"),
      false,
    ],
    [
      "two bytes that are not understood",
      of("aa", undefined, "03"),
      of("aa", undefined, "04"),
      true,
    ],
    ["another version", "http-2:ff:99:=", of("aa", "01", "01"), false],
    ["a text of the user", "order:17", "invoice:17", true],
    ["a text of the user beside ours", "order:17", of("aa", "01", "01"), true],
    ["nothing", undefined, of("aa", "01", "01"), false],
  ])("compares with %s", (_what, one, other, isOther) => {
    expect([isOtherContent(one, other), isOtherContent(other, one)]).toEqual([isOther, isOther]);
  });
});
