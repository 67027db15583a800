// Bodies of groups. PROTOCOL.md §20
import { describe, expect, test } from "vitest";
import { isHapaxError } from "../base/errors.ts";
import { LIMITS } from "./all-limits.ts";
import {
  formatStart,
  parseGroupClaim,
  parseGroupCommit,
  parseGroupId,
  parseGroupRelease,
  parseGroupReset,
  parseGroupSettings,
  parseJoin,
} from "./group.ts";

const OFFSET = "0000000000000000_0000000000000007";
const bytesOf = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));

function codeOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (isHapaxError(error)) return error.code;
    throw error;
  }
  return "nothing thrown";
}

describe("a call that names a stream twice is refused", () => {
  const twice = [
    { stream: "/a", token: 1 },
    { stream: "/b", token: 2 },
    { stream: "/a", token: 3 },
  ];
  test("in a commit", () => {
    const body = bytesOf({ member: "m", commits: twice });
    expect(codeOf(() => parseGroupCommit(body))).toBe("invalid_request");
    const once = bytesOf({ member: "m", commits: twice.slice(1) });
    expect(parseGroupCommit(once).commits).toHaveLength(2);
  });
  test("in a release", () => {
    const body = bytesOf({ member: "m", leases: twice });
    expect(codeOf(() => parseGroupRelease(body))).toBe("invalid_request");
  });
});

test("settings have defaults, and the order of named streams says nothing", () => {
  expect(parseGroupSettings(bytesOf({ streams: ["/b", "/a", "/b"], pattern: null }))).toEqual({
    pattern: undefined,
    streams: ["/a", "/b"],
    start: { kind: "beginning" },
    leaseMs: 30_000,
  });
});

test("a group names a bounded number of streams, and the error beyond it says what to do", () => {
  const named = (count: number): Uint8Array =>
    bytesOf({ streams: Array.from({ length: count }, (_, index) => `/${index}`) });
  const { groupStreamsMax } = LIMITS;
  expect(parseGroupSettings(named(groupStreamsMax)).streams.length).toBe(groupStreamsMax);
  expect(() => parseGroupSettings(named(groupStreamsMax + 1))).toThrow("use a pattern");
});

test.for(["beginning", "tail", OFFSET])("a start of %s is written as it was read", (start) => {
  const settings = parseGroupSettings(bytesOf({ pattern: "/**", start }));
  expect(formatStart(settings.start)).toBe(start);
  expect(formatStart(parseGroupReset(bytesOf({ to: start })).to)).toBe(start);
});

test.for([
  ["/orders/*", "/orders/*"],
  ["/**", "/**"],
  ["/a/**/b", "/a/**/b"],
  ["/a%2Ab", "/a%2Ab"],
  ["/a*b", undefined],
  ["/a//b", undefined],
  ["/a/", undefined],
  ["a/*", undefined],
] as const)("the pattern %s is taken as it stands or refused", ([pattern, expected]) => {
  const parse = (): unknown => parseGroupSettings(bytesOf({ pattern })).pattern;
  if (expected === undefined) expect(codeOf(parse)).toBe("invalid_request");
  else expect(parse()).toBe(expected);
});

test("names have 1 to 256 bytes, counted as UTF-8", () => {
  expect(parseGroupId("%C3%A9".repeat(128))).toBe("é".repeat(128));
  expect(codeOf(() => parseGroupId("%C3%A9".repeat(128) + "a"))).toBe("invalid_request");
  expect(codeOf(() => parseGroupId("%FF"))).toBe("invalid_request");
  // A client whose URLs are those of the standard could not reach such a group.
  for (const encoded of [".", "..", "%2E%2e"])
    expect(
      codeOf(() => parseGroupId(encoded)),
      encoded,
    ).toBe("invalid_request");
  expect(parseGroupId("...")).toBe("...");
  expect(parseJoin(new Uint8Array())).toBe("member");
  expect(codeOf(() => parseJoin(bytesOf({ name: "a".repeat(257) })))).toBe("invalid_request");
});

test("a claim without max wants all, and one with it says a whole number", () => {
  expect(parseGroupClaim(bytesOf({ member: "m" }))).toEqual({
    member: "m",
    max: Number.MAX_SAFE_INTEGER,
  });
  expect(parseGroupClaim(bytesOf({ member: "m", max: 0 })).max).toBe(0);
  expect(codeOf(() => parseGroupClaim(bytesOf({ member: "m", max: 1.5 })))).toBe("invalid_request");
  expect(codeOf(() => parseGroupClaim(bytesOf({ max: 1 })))).toBe("invalid_request");
  expect(codeOf(() => parseGroupClaim(new Uint8Array([0xff])))).toBe("invalid_json");
});
