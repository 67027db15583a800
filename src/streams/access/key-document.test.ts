// PROTOCOL.md §21.8: the document of API keys is read strictly.
import { describe, expect, test } from "vitest";
import { encodeKeyDocument, type ApiKeyRecord, parseKeyDocument } from "./key-document.ts";

const PLAIN: ApiKeyRecord = {
  id: "0123456789Az",
  name: "ci",
  sha256: "ab".repeat(32),
  createdAt: "2026-11-17T09:00:00.000Z",
  grants: [{ actions: ["read"] }],
};
const WHOLE: ApiKeyRecord = {
  ...PLAIN,
  id: "zzzzzzzzzzzz",
  expiresAt: "2027-01-01T00:00:00.000Z",
  revokedAt: "2026-12-01T00:00:00.000Z",
  namespace: "/v1/stream/acme",
  quotas: { streamsMax: 3, appendsPerSecond: 10 },
  grants: [
    {
      actions: ["append", "consume"],
      streams: ["/v1/stream/acme/**", "/v1/stream/acme/*/a"],
      groups: ["billing", "g-*"],
      subscriptions: ["*"],
      producers: ["p1"],
    },
  ],
};

/** What a document is refused with. */
function refusal(document: unknown): string {
  const text = typeof document === "string" ? document : JSON.stringify(document);
  try {
    parseKeyDocument(text, "tokens.json");
  } catch (error) {
    expect(error).toMatchObject({ code: "invalid_options" });
    return (error as Error).message;
  }
  return "taken";
}

const withKey = (changes: object): unknown => ({ version: 1, keys: [{ ...PLAIN, ...changes }] });
const withGrant = (grant: unknown): unknown => withKey({ grants: [grant] });

describe("a document of keys", () => {
  test("is read back as it was written", () => {
    const keys = [PLAIN, WHOLE];
    expect(parseKeyDocument(encodeKeyDocument(keys), "tokens.json")).toEqual(keys);
    expect(parseKeyDocument(encodeKeyDocument([]), "tokens.json")).toEqual([]);
  });

  test.each<[unknown, string]>([
    [`{"version": 1, "keys": [ {"sha256": "s3cr3t" `, "tokens.json cannot be used: it is not JSON"],
    ["", "it is not JSON"],
    [`{"version":1,"keys":[],"keys":[]}`, "has a member twice"],
    [[], "the document is not an object"],
    [{ version: 2, keys: [] }, "version must be 1"],
    [{ keys: [] }, "the document.version is missing"],
    [{ version: 1 }, "the document.keys is missing"],
    [{ version: 1, keys: {} }, "keys must be a list"],
    [{ version: 1, keys: {}, more: 1 }, "the document.more is not known"],
    [{ version: 1, keys: ["x"] }, "keys[0] is not an object"],
    [withKey({ expires: "2027" }), "keys[0].expires is not known"],
    [withKey({ id: "short" }), "keys[0].id must be 12 letters and digits"],
    [withKey({ name: "a\nb" }), "keys[0].name must be 1 to 64 letters"],
    [withKey({ certificate: "worker" }), "keys[0] must have exactly one of sha256 and certificate"],
    [withKey({ sha256: undefined }), "keys[0] must have exactly one of sha256 and certificate"],
    [withKey({ sha256: undefined, certificate: "a b" }), "keys[0].certificate must be a name"],
    [withKey({ sha256: "AB".repeat(32) }), "keys[0].sha256 must be 64 hexadecimal digits"],
    [withKey({ createdAt: "yesterday" }), "keys[0].createdAt must be a time"],
    [withKey({ expiresAt: 17 }), "keys[0].expiresAt must be a time"],
    [withKey({ expiresAt: "2027-02-30T00:00:00Z" }), "keys[0].expiresAt must be a time"],
    [withKey({ expiresAt: null }), "keys[0].expiresAt must be a time"],
    [withKey({ revokedAt: false }), "keys[0].revokedAt must be a time"],
    [withKey({ grants: undefined }), "keys[0].grants is missing"],
    [withKey({ namespace: "/v1/streams/acme" }), "keys[0].namespace is not a path"],
    [withKey({ namespace: "/v1/stream/" }), "keys[0].namespace is not a path"],
    [withKey({ namespace: "/v1/stream/a/" }), "keys[0].namespace is not a path"],
    [withKey({ namespace: "/v1/stream/a/../b" }), "keys[0].namespace is not a path"],
    [withKey({ quotas: { streams: 1 } }), "keys[0].quotas.streams is not known"],
    [withKey({ quotas: { streamsMax: -1 } }), "keys[0].quotas.streamsMax is not a whole number"],
    [withKey({ quotas: { bytesPerSecond: "9" } }), "keys[0].quotas.bytesPerSecond is not a whole"],
    [withGrant({ actions: ["read", "reed"] }), "keys[0].grants[0].actions[1] is none of read,"],
    [withGrant({}), "keys[0].grants[0].actions is missing"],
    [withGrant({ actions: ["read"], stream: ["/a"] }), "keys[0].grants[0].stream is not known"],
    [withGrant({ actions: ["read"], streams: "/a" }), "keys[0].grants[0].streams is not a list"],
    [withGrant({ actions: ["read"], streams: [3] }), "grants[0].streams[0] is not a pattern"],
    [withGrant({ actions: ["read"], streams: ["a"] }), "grants[0].streams[0] is not a pattern"],
    [withGrant({ actions: ["read"], streams: ["/a/b*"] }), "grants[0].streams[0] is not a pattern"],
    [withGrant({ actions: ["read"], groups: ["a*b"] }), "grants[0].groups[0] is not a name"],
    [withGrant({ actions: ["read"], producers: [""] }), "grants[0].producers[0] is not a name"],
    [{ version: 1, keys: [PLAIN, PLAIN] }, "keys[1].id is the id of another key in the list"],
  ])("%j is refused with the path of the member", (document, problem) => {
    expect(refusal(document)).toContain(problem);
  });

  test("every problem is listed, up to twenty, and no value of the document", () => {
    const secret = "hpx_secret_that_stands_in_the_wrong_place";
    const bad = { ...PLAIN, sha256: secret, name: secret.repeat(3), extra: secret };
    const message = refusal({ version: 1, keys: Array.from({ length: 10 }, () => bad) });
    expect(message).toContain("keys[0].extra");
    expect(message).toContain("keys[0].name");
    expect(message).toContain("keys[0].sha256");
    expect(message).toMatch(/and \d+ more$/);
    expect(message).not.toContain(secret);
  });

  test("a member of an object's prototype is not known", () => {
    const text = `{"version":1,"keys":[{"__proto__":{"id":"0123456789Az"}}]}`;
    expect(refusal(text)).toContain("keys[0].__proto__ is not known");
  });
});
