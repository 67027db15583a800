// PROTOCOL.md §21.8
import { createHash } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { systemRandom } from "../../base/random.ts";
import { createApiKey, type NewApiKey } from "./api-key.ts";
import { apiKeyAuthorize, ApiKeys, serverTokenAuthorize } from "./api-keys.ts";
import { ACTIONS, type Authorize, type ClientCertificate, type Credentials } from "./identity.ts";
import type { ApiKeyRecord } from "./key-document.ts";

const sha256 = (text: string | Uint8Array): Buffer => createHash("sha256").update(text).digest();
const START_MS = Date.parse("2026-11-17T09:00:00Z");
const INVALID = { refused: "invalid", detail: "the API key is not valid" };

const asRecord = ({ id, secret }: NewApiKey, more: Partial<ApiKeyRecord> = {}): ApiKeyRecord => ({
  id,
  name: "ci",
  sha256: sha256(secret).toString("hex"),
  createdAt: "2026-11-17T09:00:00.000Z",
  grants: [{ actions: ["read"] }],
  ...more,
});

const credentials = (authorization: string | undefined): Credentials => ({
  method: "GET",
  path: "/v1/stream/a",
  query: "",
  header: (name) => (name === "authorization" ? authorization : undefined),
});

/** A key that a certificate proves. */
function asBound(certificate: string, more: Partial<ApiKeyRecord> = {}): ApiKeyRecord {
  const { sha256: _secret, ...record } = asRecord(createApiKey(systemRandom), more);
  return { ...record, certificate };
}

let nowMs = START_MS;
let digests = 0;
let keys = new ApiKeys();
const digest = (bytes: Uint8Array): Uint8Array => {
  digests += 1;
  return sha256(bytes);
};
let authorize: Authorize = () => ({ refused: "missing" });
const ask = (token: string) => authorize(credentials(`Bearer ${token}`));

beforeEach(() => {
  [nowMs, digests, keys] = [START_MS, 0, new ApiKeys()];
  authorize = apiKeyAuthorize(keys, { digest, nowMs: () => nowMs });
});

describe("requests with an API key", () => {
  test("a right key is the same identity every time, with its name, id and rights", () => {
    const key = createApiKey(systemRandom);
    const rights = { namespace: "/v1/stream/acme", quotas: { streamsMax: 1 } };
    keys.replace([asRecord(key, { ...rights, expiresAt: "2027-01-01T00:00:00Z" })]);
    const identity = ask(key.key);
    expect(identity).toEqual({
      name: `ci:${key.id}`,
      grants: [{ actions: ["read"] }],
      ...rights,
      expiresAtMs: Date.parse("2027-01-01T00:00:00Z"),
    });
    expect(ask(key.key)).toBe(identity);
    expect(authorize(credentials(`bearer ${key.key}`))).toBe(identity);
  });

  test("a credential of another kind is missing, so that another authorizer may know it", () => {
    for (const header of [undefined, "", "Basic aHB4Xw==", "Bearer eyJhbGciOiJFUzI1NiJ9.e30.x"]) {
      expect(authorize(credentials(header))).toEqual({ refused: "missing" });
    }
    expect(digests).toBe(0);
  });

  test("a key with one changed character is refused before anything is hashed", () => {
    const key = createApiKey(systemRandom);
    keys.replace([asRecord(key)]);
    for (let at = 4; at < key.key.length; at += 1) {
      const other = key.key[at] === "a" ? "b" : "a";
      expect(ask(key.key.slice(0, at) + other + key.key.slice(at + 1))).toEqual(INVALID);
    }
    expect(digests).toBe(0);
  });

  test("G49 an unknown id and a wrong secret take the same steps and get the same answer", () => {
    const [known, unknown] = [createApiKey(systemRandom), createApiKey(systemRandom)];
    keys.replace([asRecord(known, { sha256: sha256("another").toString("hex") })]);
    expect(ask(known.key)).toEqual(INVALID);
    expect(digests).toBe(1);
    expect(ask(unknown.key)).toEqual(INVALID);
    expect(digests).toBe(2);
  });

  test("a key is refused as expired from its time on, and not a millisecond before", () => {
    const key = createApiKey(systemRandom);
    keys.replace([asRecord(key, { expiresAt: "2026-11-17T10:00:00Z" })]);
    nowMs = Date.parse("2026-11-17T10:00:00Z") - 1;
    expect(ask(key.key)).toMatchObject({ name: `ci:${key.id}` });
    nowMs += 1;
    expect(ask(key.key)).toEqual({ refused: "expired", detail: "the API key has expired" });
  });

  test("only the owner of the secret learns that a key has expired", () => {
    const key = createApiKey(systemRandom);
    const expired = { expiresAt: "2026-11-17T08:00:00Z", sha256: "00".repeat(32) };
    keys.replace([asRecord(key, expired)]);
    expect(ask(key.key)).toEqual(INVALID);
  });

  test("a revoked key is refused, also if it has expired", () => {
    const key = createApiKey(systemRandom);
    keys.replace([asRecord(key)]);
    expect(ask(key.key)).toMatchObject({ name: `ci:${key.id}` });
    const revokedAt = "2026-11-17T09:00:00Z";
    keys.replace([asRecord(key, { revokedAt, expiresAt: "2026-11-17T08:00:00Z" })]);
    expect(ask(key.key)).toEqual(INVALID);
    expect(keys.count(nowMs)).toBe(0);
  });

  test("G49 a key is verified once, and its end and its revocation count all the same", () => {
    const key = createApiKey(systemRandom);
    keys.replace([asRecord(key, { expiresAt: "2026-11-17T10:00:00Z" })]);
    for (let round = 0; round < 5; round += 1) expect(ask(key.key)).toHaveProperty("name");
    expect(digests).toBe(1);
    nowMs = Date.parse("2026-11-17T10:00:00Z");
    expect(ask(key.key)).toMatchObject({ refused: "expired" });
    keys.replace([asRecord(key, { sha256: sha256("replaced").toString("hex") })]);
    expect(ask(key.key)).toEqual(INVALID);
    keys.replace([]);
    expect(ask(key.key)).toEqual(INVALID);
    expect(digests).toBe(3);
  });

  test("a client that writes its header in many ways does not fill the memory", () => {
    const key = createApiKey(systemRandom);
    keys.replace([asRecord(key)]);
    const first = `Bearer ${key.key}`;
    void authorize(credentials(first));
    for (let spaces = 2; spaces <= 10_001; spaces += 1) {
      void authorize(credentials(`Bearer${" ".repeat(spaces)}${key.key}`));
    }
    digests = 0;
    void authorize(credentials(first));
    expect(digests).toBe(0); // The long ones were not remembered, so nothing had to be forgotten.
    void authorize(credentials(`Bearer${" ".repeat(500)}${key.key}`));
    expect(digests).toBe(1);
    const letters = "bearer".split("");
    for (let form = 0; form < 64; form += 1) {
      const word = letters
        .map((letter, at) => ((form >> at) & 1 ? letter.toUpperCase() : letter))
        .join("");
      for (let spaces = 1; spaces <= 160; spaces += 1) {
        void authorize(credentials(`${word}${" ".repeat(spaces)}${key.key}`));
      }
    }
    digests = 0;
    void authorize(credentials(first));
    expect(digests).toBe(1); // It was forgotten with the others: there is a limit of them, too.
  });

  test("a key that is revoked while its digest is made is refused", async () => {
    const key = createApiKey(systemRandom);
    keys.replace([asRecord(key)]);
    const slow = apiKeyAuthorize(keys, {
      digest: (bytes) => Promise.resolve(sha256(bytes)),
      nowMs: () => nowMs,
    });
    const before = slow(credentials(`Bearer ${key.key}`));
    keys.replace([]);
    expect(await before).toEqual(INVALID);
  });
});

describe("keys that are replaced", () => {
  test("a key whose record stays the same keeps its identity, and a changed one gets a new one", () => {
    const [one, two] = [createApiKey(systemRandom), createApiKey(systemRandom)];
    keys.replace([asRecord(one), asRecord(two)]);
    const [first, second] = [ask(one.key), ask(two.key)];
    keys.replace([asRecord(one, { grants: [{ actions: ["append"] }] }), asRecord(two)]);
    expect(ask(one.key)).toMatchObject({ grants: [{ actions: ["append"] }] });
    expect(ask(one.key)).not.toBe(first);
    expect(ask(two.key)).toBe(second);
    expect(keys.count(nowMs)).toBe(2);
    keys.replace([asRecord(two)]);
    expect(ask(one.key)).toEqual(INVALID);
  });
});

test("what a replacement changes is listed by key", () => {
  const made = ["a", "b", "c", "d"].map((name) => ({ name, key: createApiKey(systemRandom) }));
  const named = (name: string): string =>
    `${name}:${made.find((one) => one.name === name)?.key.id ?? ""}`;
  const records = made.map(({ name, key }) => asRecord(key, { name }));
  const [a, b, c, d] = records;
  if (a === undefined || b === undefined || c === undefined || d === undefined) throw new Error();
  expect(keys.replace([a, b, c])).toEqual(["a", "b", "c"].map((name) => `added ${named(name)}`));
  expect(keys.replace([a, b, c])).toEqual([]);
  const revoked = { ...b, revokedAt: "2026-11-17T09:00:00Z" };
  expect(keys.replace([{ ...a, quotas: { streamsMax: 1 } }, revoked, d])).toEqual([
    `changed ${named("a")}`,
    `revoked ${named("b")}`,
    `added ${named("d")}`,
    `removed ${named("c")}`,
  ]);
});

describe("the server's own token", () => {
  const token = "3f9f1c7e5d3b1a2f4e6d8c0b9a7f5e3d";
  const own = serverTokenAuthorize(token, { digest });

  test("it has all rights, and is the same identity every time", () => {
    const identity = own(credentials(`Bearer ${token}`));
    expect(identity).toEqual({ name: "server-token", grants: [{ actions: ACTIONS }] });
    digests = 0;
    expect(own(credentials(`Bearer ${token}`))).toBe(identity);
    expect(digests).toBe(0);
  });

  test("every other token may be of another kind", () => {
    for (const other of [`${token}0`, token.slice(1), token.toUpperCase(), "a"]) {
      expect(own(credentials(`Bearer ${other}`))).toEqual({ refused: "missing" });
    }
    expect(own(credentials(undefined))).toEqual({ refused: "missing" });
  });
});

describe("requests with a certificate", () => {
  const CERTIFICATE = {
    commonName: "worker",
    names: ["DNS:worker-1.internal", "IP Address:10.0.0.1"],
    fingerprint: "ab".repeat(32),
  };
  const askWith = (certificate: ClientCertificate, authorization?: string) =>
    authorize({ ...credentials(authorization), certificate });

  test.each(["ab".repeat(32), "worker-1.internal", "worker"])(
    "a key that is bound to %s is proved by it",
    (bound) => {
      keys.replace([asBound(bound)]);
      expect(askWith(CERTIFICATE)).toMatchObject({ grants: [{ actions: ["read"] }] });
      expect(askWith(CERTIFICATE)).toBe(askWith(CERTIFICATE));
    },
  );

  test.each(["WORKER", "worker-1", "internal", "IP Address:10.0.0.1", "10.0.0.1", "ab"])(
    "a key that is bound to %s is not",
    (bound) => {
      keys.replace([asBound(bound)]);
      expect(askWith(CERTIFICATE)).toEqual({ refused: "missing" });
    },
  );

  test("what says most counts: the certificate itself, its host, its name", () => {
    const record = (bound: string, name: string): ApiKeyRecord => asBound(bound, { name });
    keys.replace([record("worker", "by-name"), record("worker-1.internal", "by-host")]);
    expect(askWith(CERTIFICATE)).toMatchObject({ name: expect.stringMatching(/^by-host:/) });
  });

  test("a revoked or expired key is refused, and one that replaces it is not", () => {
    keys.replace([asBound("worker", { revokedAt: "2026-11-17T09:00:00Z" })]);
    expect(askWith(CERTIFICATE)).toEqual(INVALID);
    keys.replace([asBound("worker", { expiresAt: "2026-11-17T08:00:00Z" })]);
    expect(askWith(CERTIFICATE)).toMatchObject({ refused: "expired" });
    const revoked = asBound("worker", { revokedAt: "2026-11-17T09:00:00Z", name: "old" });
    for (const records of [
      [revoked, asBound("worker", { name: "new" })],
      [asBound("worker", { name: "new" }), revoked],
    ]) {
      keys.replace(records);
      expect(askWith(CERTIFICATE)).toMatchObject({ name: expect.stringMatching(/^new:/) });
    }
  });

  test("a credential in the request is judged alone, and no secret opens a key of a certificate", () => {
    const bound = asBound("worker");
    const key = createApiKey(systemRandom);
    keys.replace([bound]);
    expect(askWith(CERTIFICATE, `Bearer ${key.key}`)).toEqual(INVALID);
    expect(askWith(CERTIFICATE, "Bearer something-else")).toEqual({ refused: "missing" });
    expect(authorize(credentials(undefined))).toEqual({ refused: "missing" });
  });
});
