import { expect, test } from "vitest";
import { checkIdentity } from "./check-identity.ts";

const GOOD = {
  name: "shop",
  grants: [{ actions: ["read"], streams: ["/v1/stream/a/**", "/v1/stream/*/b"], groups: ["g*"] }],
  namespace: "/v1/stream/acme",
  quotas: { appendsPerSecond: 5 },
  expiresAtMs: 1,
};

test("an identity with everything is one", () => {
  const problems: string[] = [];
  expect(checkIdentity(GOOD, (text) => problems.push(text))).toBe(true);
  expect(problems).toEqual([]);
});

test.each([
  [undefined, "identity is not an object"],
  [null, "identity is not an object"],
  ["shop", "identity is not an object"],
  [[], "identity is not an object"],
  [{}, "identity.name is missing"],
  [{ ...GOOD, name: "" }, "identity.name is not a text"],
  [{ ...GOOD, name: 7 }, "identity.name is not a text"],
  // It would be the name `x` of the namespace `/v1/stream/acme`, with the quotas and the audit of that one.
  [{ ...GOOD, name: "/v1/stream/acme\u0000x" }, "identity.name is not a text"],
  [{ ...GOOD, name: "a\nb" }, "identity.name is not a text"],
  [{ ...GOOD, grants: {} }, "identity.grants is not a list"],
  [{ ...GOOD, grants: undefined }, "identity.grants is not a list"],
  [{ ...GOOD, grants: [null] }, "identity.grants[0] is not an object"],
  [{ ...GOOD, grants: [{}] }, "identity.grants[0].actions is missing"],
  [{ ...GOOD, grants: [{ actions: ["write"] }] }, "identity.grants[0].actions[0] is none of"],
  [{ ...GOOD, grants: [{ actions: "read" }] }, "identity.grants[0].actions is not a list"],
  [{ ...GOOD, grants: [{ actions: [], stream: "/a" }] }, "identity.grants[0].stream is not known"],
  [{ ...GOOD, grants: [{ actions: [], streams: ["a"] }] }, "streams[0] is not a pattern"],
  [{ ...GOOD, grants: [{ actions: [], streams: ["/a*"] }] }, "streams[0] is not a pattern"],
  [{ ...GOOD, grants: [{ actions: [], streams: ["/../a"] }] }, "streams[0] is not a pattern"],
  [{ ...GOOD, grants: [{ actions: [], streams: ["/a//b"] }] }, "streams[0] is not a pattern"],
  [{ ...GOOD, grants: [{ actions: [], groups: ["a*b"] }] }, "groups[0] is not a name"],
  [{ ...GOOD, namespace: "/v1/streams/acme" }, "identity.namespace is not a path"],
  [{ ...GOOD, namespace: "/v1/stream/" }, "identity.namespace is not a path"],
  [{ ...GOOD, namespace: "/v1/stream/acme/" }, "identity.namespace is not a path"],
  [{ ...GOOD, namespace: "/v1/stream/a\u0000b" }, "identity.namespace is not a path"],
  [{ ...GOOD, namespace: `/v1/stream/${"x".repeat(300)}` }, "identity.namespace is not a path"],
  [{ ...GOOD, quotas: { appends: 1 } }, "identity.quotas.appends is not known"],
  [{ ...GOOD, quotas: { requestsMax: -1 } }, "identity.quotas.requestsMax is not a whole number"],
  [{ ...GOOD, expiresAtMs: Number.NaN }, "identity.expiresAtMs is not a time"],
  [{ ...GOOD, tenant: "acme" }, "identity.tenant is not known"],
  [{ ...GOOD, ["__proto__x"]: 1 }, "identity.__proto__x is not known"],
  [{ ...GOOD, ["constructor"]: 1 }, "identity.constructor is not known"],
])("%j is no identity: %s", (value, problem) => {
  const problems: string[] = [];
  expect(checkIdentity(value, (text) => problems.push(text))).toBe(false);
  expect(problems.join("; ")).toContain(problem);
});
