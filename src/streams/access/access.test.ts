// What grants allow, on names alone. PROTOCOL.md §21.2, §21.3.
import fc from "fast-check";
import { expect, test } from "vitest";
import { Glob } from "../../base/glob.ts";
import { type Access, IdentityAccess, UNLIMITED } from "./access.ts";
import { ACTIONS, type Grant } from "./identity.ts";

const accessOf = (grants: readonly Grant[], namespace?: string): Access =>
  new IdentityAccess({ name: "x", grants, ...(namespace === undefined ? {} : { namespace }) });

test("without authentication everything is allowed", () => {
  for (const action of ACTIONS) {
    expect(UNLIMITED.may(action, { stream: "/a", producer: "p", group: "g" })).toBe(true);
  }
  expect(UNLIMITED.mayFollow("consume", {}, { pattern: "/**", streams: [] })).toBe(true);
});

test("without grants nothing is allowed", () => {
  const access = accessOf([]);
  for (const action of ACTIONS) {
    expect(access.may(action)).toBe(false);
    expect(access.may(action, { stream: "/a" })).toBe(false);
  }
});

const grants: readonly Grant[] = [
  { actions: ["read"], streams: ["/v1/stream/orders/**", "/v1/stream/news"] },
  { actions: ["append"], streams: ["/v1/stream/orders/*"], producers: ["shop-*", "till"] },
  { actions: ["consume"], groups: ["billing"], streams: ["/v1/stream/orders/**"] },
];

test.each([
  ["read", { stream: "/v1/stream/orders/a/b" }, true],
  ["read", { stream: "/v1/stream/orders" }, true],
  ["read", { stream: "/v1/stream/orders-2" }, false],
  ["read", { stream: "/v1/stream/news" }, true],
  ["read", { stream: "/v1/stream/news/today" }, false],
  ["append", { stream: "/v1/stream/orders/a", producer: "shop-1" }, true],
  ["append", { stream: "/v1/stream/orders/a", producer: "till" }, true],
  ["append", { stream: "/v1/stream/orders/a", producer: "till-2" }, false],
  ["append", { stream: "/v1/stream/orders/a", producer: "other" }, false],
  ["append", { stream: "/v1/stream/orders/a/b", producer: "till" }, false],
  ["append", { stream: "/v1/stream/news", producer: "till" }, false],
  ["append", { stream: "/v1/stream/orders/a" }, true],
  ["consume", { group: "billing" }, true],
  ["consume", { group: "billing-2" }, false],
  ["delete", { stream: "/v1/stream/orders/a" }, false],
] as const)("%s of %j: %s", (action, subject, isAllowed) => {
  // Twice: the second answer is the remembered one.
  const access = accessOf(grants);
  expect(access.may(action, subject)).toBe(isAllowed);
  expect(access.may(action, subject)).toBe(isAllowed);
});

test("one grant must allow all of a request: two halves are not enough", () => {
  const access = accessOf([
    { actions: ["append"], streams: ["/a"], producers: ["one"] },
    { actions: ["append"], streams: ["/b"], producers: ["two"] },
  ]);
  expect(access.may("append", { stream: "/a", producer: "one" })).toBe(true);
  expect(access.may("append", { stream: "/a", producer: "two" })).toBe(false);
});

test.each([
  ["/v1/stream/acme", true],
  ["/v1/stream/acme/a", true],
  ["/v1/stream/acme/a/b", true],
  ["/v1/stream/acme-2/a", false],
  ["/v1/stream/acm", false],
  ["/v1/stream/other/acme/a", false],
  ["/v1/stream/acme2", false],
])("G40 a namespace ends at a slash: %s is in it: %s", (stream, isWithin) => {
  const access = accessOf([{ actions: ["read", "consume"] }], "/v1/stream/acme");
  expect(access.may("read", { stream })).toBe(isWithin);
  expect(access.may("read", { stream, producer: "p", group: "g" })).toBe(isWithin);
  expect(access.mayFollow("consume", {}, { streams: [stream] })).toBe(isWithin);
  expect(access.mayFollow("consume", {}, { pattern: `${stream}/**`, streams: [] })).toBe(isWithin);
});

test("names of two namespaces never meet, and each namespace knows its own again", () => {
  const spaces = [undefined, "/v1/stream/a", "/v1/stream/a/b", "/v1/stream/b"];
  const name = fc.string().filter((text) => !text.includes("\u0000"));
  fc.assert(
    fc.property(
      fc.constantFrom(...spaces),
      name,
      fc.constantFrom(...spaces),
      name,
      (s, n, t, m) => {
        const [one, other] = [accessOf([], s), accessOf([], t)];
        expect(one.scoped(n) === other.scoped(m)).toBe(s === t && n === m);
        expect(one.unscoped(one.scoped(n))).toBe(n);
        if (s !== t) expect(other.unscoped(one.scoped(n))).toBe(undefined);
      },
    ),
  );
});

test("a group follows only what its caller may: every stream of a covered pattern is a stream of the grant", () => {
  const segment = fc.constantFrom("a", "b", "*", "**");
  const letter = fc.constantFrom("a", "b", "c");
  const path = <T>(part: fc.Arbitrary<T>): fc.Arbitrary<string> =>
    fc.array(part, { minLength: 1, maxLength: 5 }).map((parts) => `/${parts.join("/")}`);
  let covered = 0;
  fc.assert(
    fc.property(path(segment), path(segment), path(letter), (granted, wanted, name) => {
      if (!new Glob(granted).covers(wanted)) return;
      covered += 1;
      if (new Glob(wanted).matches(name)) expect(new Glob(granted).matches(name)).toBe(true);
    }),
    { numRuns: 20_000 },
  );
  expect(covered).toBeGreaterThan(500);
});

test.each([
  ["/a/**", "/a/**", true],
  ["/a/**", "/a/*/c", true],
  ["/a/**", "/a", true],
  ["/**", "/a/**", true],
  ["/a/*", "/a/b", true],
  ["/a/*", "/a/*", true],
  ["/a/*", "/a/**", false],
  ["/a/*/**", "/a/**", false],
  ["/a/b", "/a/*", false],
  ["/a/%2A", "/a/*", false],
  ["/a/%2A", "/a/%2a", true],
  ["/a/**", "/b/**", false],
  ["/a/**", "/**", false],
])("the pattern %s covers %s: %s", (granted, wanted, isCovered) => {
  expect(new Glob(granted).covers(wanted)).toBe(isCovered);
});

test("a grant for one group does not reach the streams of another grant", () => {
  const access = accessOf(grants);
  const followed = { pattern: "/v1/stream/orders/*", streams: [] };
  expect(access.mayFollow("consume", { group: "billing" }, followed)).toBe(true);
  expect(access.mayFollow("consume", { group: "other" }, followed)).toBe(false);
  const more = { pattern: undefined, streams: ["/v1/stream/news"] };
  expect(access.mayFollow("consume", { group: "billing" }, more)).toBe(false);
});
