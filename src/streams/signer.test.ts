import { spawnSync } from "node:child_process";
import { createHash, createPublicKey, hkdfSync, verify as nodeVerify } from "node:crypto";
import { describe, expect, test } from "vitest";
import { isHapaxError } from "../base/errors.ts";
import {
  createSigner,
  deriveSigningKey,
  issueToken,
  readToken,
  type Signer,
  type SigningKey,
  type TokenClaims,
  verifyWebhookSignature,
  webhookSignature,
} from "./signer.ts";

const text = (value: string): Uint8Array => new TextEncoder().encode(value);
const base64url = (value: string | Uint8Array): string => Buffer.from(value).toString("base64url");
const NOW_SECONDS = 1_800_000_000;
const NOW_MS = NOW_SECONDS * 1000;
const CLAIMS: TokenClaims = {
  subscription: "orders/ü",
  kind: "callback",
  generation: 7,
  wakeId: "00112233445566778899aabbccddeeff",
  expiresAtMs: NOW_MS + 30_000,
};

/** The published example of RFC 8037, appendix A. */
const RFC8037_KEY: SigningKey = {
  privateJwk: {
    kty: "OKP",
    crv: "Ed25519",
    d: "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
    x: "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
  },
  createdAtMs: 0,
};

const SECRET = "0123456789abcdef".repeat(4);
const makeKey = (createdAtMs: number): Promise<SigningKey> =>
  deriveSigningKey(SECRET, { salt: `salt ${createdAtMs}`, createdAtMs });

const oldKey = await makeKey(1_000);
const newKey = await makeKey(2_000);
const signer = await createSigner([oldKey, newKey]);
const oldSigner = await createSigner([oldKey]);
const stranger = await createSigner([await makeKey(3_000)]);

/** Makes a token with the caller's first two parts, and a genuine signature over them. */
async function forge(by: Signer, header: unknown, payload: unknown): Promise<string> {
  const input = `${base64url(JSON.stringify(header))}.${base64url(JSON.stringify(payload))}`;
  return `${input}.${base64url(await by.sign(text(input)))}`;
}

const genuineHeader = { alg: "EdDSA", typ: "hapax-wake+jws", kid: signer.keyId };
const genuinePayload = { audience: "hapax/subscriptions", ...CLAIMS };

describe("keys", () => {
  test("a key follows from the secret and the salt, as RFC 5869 derives it", async () => {
    const key = await makeKey(1_000);
    expect(key).toEqual(oldKey);
    const seed = hkdfSync("sha256", SECRET, "salt 1000", "hapax webhook signing key", 32);
    expect(key.privateJwk.d).toBe(Buffer.from(seed).toString("base64url"));
    const other = await deriveSigningKey(`${SECRET}0`, { salt: "salt 1000", createdAtMs: 1_000 });
    expect(other.privateJwk.d).not.toBe(key.privateJwk.d);
  });

  test("the key id is ds_ and the RFC 7638 thumbprint, and does not depend on other keys", async () => {
    const { keyId } = await createSigner([RFC8037_KEY]);
    expect(keyId).toBe("ds_kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    const members = `{"crv":"Ed25519","kty":"OKP","x":"${newKey.privateJwk.x}"}`;
    expect(signer.keyId).toBe(`ds_${createHash("sha256").update(members).digest("base64url")}`);
    expect(signer.keyId).toBe((await createSigner([newKey])).keyId);
    expect(signer.keyId).not.toBe(oldSigner.keyId);
  });

  test("the signature is Ed25519 as RFC 8037 has it", async () => {
    const input = text("eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc");
    expect(base64url(await (await createSigner([RFC8037_KEY])).sign(input))).toBe(
      "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
    );
  });

  test("the newest key signs, in every order of the keys, and all are published", async () => {
    const reversed = await createSigner([newKey, oldKey]);
    expect(reversed.keyId).toBe(signer.keyId);
    for (const one of [signer, reversed]) {
      const kids = one.publicJwks().keys.map(({ kid }) => kid);
      expect(kids).toEqual([signer.keyId, oldSigner.keyId]);
    }
    expect(signer.publicJwks().keys[0]).toEqual({
      kty: "OKP",
      crv: "Ed25519",
      x: newKey.privateJwk.x,
      use: "sig",
      alg: "EdDSA",
      kid: signer.keyId,
    });
  });

  test("a key that is given twice is published once", async () => {
    const twice = await createSigner([newKey, { ...newKey, createdAtMs: 5 }]);
    expect(twice.publicJwks().keys).toHaveLength(1);
  });

  test("no private key is to be seen in the signer or in what it publishes", () => {
    const seen = JSON.stringify([signer, signer.publicJwks(), Object.entries(signer)]);
    expect(seen).not.toContain(newKey.privateJwk.d);
    expect(signer.publicJwks().keys.every((key) => !("d" in key))).toBe(true);
  });

  test("what a caller does to the published keys does not change the signer's", () => {
    (signer.publicJwks().keys as unknown[]).length = 0;
    expect(signer.publicJwks().keys).toHaveLength(2);
  });

  test("a key is plain data: it survives JSON", async () => {
    const copy = JSON.parse(JSON.stringify(newKey)) as SigningKey;
    expect(copy).toEqual(newKey);
    expect((await createSigner([copy])).keyId).toBe(signer.keyId);
  });

  test.each([
    ["no key", []],
    ["an empty private part", [damaged({ d: "" })]],
    ["a short private part", [damaged({ d: newKey.privateJwk.d.slice(4) })]],
    ["another key's public part", [damaged({ x: oldKey.privateJwk.x })]],
    ["one damaged key among good ones", [oldKey, damaged({ d: "" })]],
  ])("%s is refused, without a word about the key", async (_, keys) => {
    const error: unknown = await createSigner(keys).catch((reason: unknown) => reason);
    expect(isHapaxError(error, "invalid_options")).toBe(true);
    expect((error as Error).cause).toBeUndefined();
    for (const { privateJwk } of keys) {
      if (privateJwk.d !== "") expect(String(error)).not.toContain(privateJwk.d);
    }
  });

  test("a process that signs prints no warning", () => {
    const script = `
      const pair = await crypto.subtle.generateKey({ name: "Ed25519" }, true, ["sign", "verify"]);
      await crypto.subtle.sign({ name: "Ed25519" }, pair.privateKey, new Uint8Array(1));`;
    const child = spawnSync(process.execPath, ["--input-type=module", "--eval", script], {
      env: {},
      encoding: "utf8",
    });
    expect([child.status, child.stderr]).toEqual([0, ""]);
  });
});

describe("webhook signatures", () => {
  const body = text('{"subscription_id":"s","wake_id":"w"}');
  const verify = (header: string, bytes = body, now = NOW_SECONDS): Promise<boolean> =>
    verifyWebhookSignature(header, bytes, signer.publicJwks(), now, 300);

  test("a signature has the protocol's form and node:crypto accepts it too", async () => {
    const header = await webhookSignature(signer, NOW_SECONDS + 0.9, body);
    const parts = /^t=(\d+),kid=([^,]+),ed25519=([A-Za-z0-9_-]+)$/.exec(header);
    expect(parts?.slice(1, 3)).toEqual([String(NOW_SECONDS), signer.keyId]);
    const jwk = { ...signer.publicJwks().keys[0] };
    const publicKey = createPublicKey({ key: jwk, format: "jwk" });
    const signed = Buffer.concat([Buffer.from(`${NOW_SECONDS}.`), body]);
    expect(nodeVerify(null, signed, publicKey, Buffer.from(parts?.[3] ?? "", "base64url"))).toBe(
      true,
    );
    expect(await verify(header)).toBe(true);
  });

  test("a signature made before the key changed is still good", async () => {
    expect(await verify(await webhookSignature(oldSigner, NOW_SECONDS, body))).toBe(true);
  });

  test("a signature is good inside the tolerance only, on both sides", async () => {
    const header = await webhookSignature(signer, NOW_SECONDS, body);
    for (const [shift, isGood] of [
      [300, true],
      [-300, true],
      [301, false],
      [-301, false],
      [Number.NaN, false],
    ] as const) {
      expect(await verify(header, body, NOW_SECONDS + shift)).toBe(isGood);
    }
  });

  test("another body, another time, another key or any changed character is refused", async () => {
    const header = await webhookSignature(signer, NOW_SECONDS, body);
    expect(await verify(header, text("{}"))).toBe(false);
    expect(await verify(header.replace(`t=${NOW_SECONDS}`, `t=${NOW_SECONDS + 1}`))).toBe(false);
    expect(await verify(header.replace(signer.keyId, oldSigner.keyId))).toBe(false);
    expect(await verify(await webhookSignature(stranger, NOW_SECONDS, body))).toBe(false);
    for (let at = 0; at < header.length; at += 1) {
      for (const bit of [1, 2, 32]) {
        const changed = header.charCodeAt(at) ^ bit;
        const other = `${header.slice(0, at)}${String.fromCharCode(changed)}${header.slice(at + 1)}`;
        expect(await verify(other), other).toBe(false);
      }
    }
  });

  test.each(["", "t=1", " ", "t=1,kid=a,ed25519=", "v1=abc", "t=01800000000,kid=a,ed25519=b"])(
    "the malformed header %j is refused",
    async (header) => {
      expect(await verify(header)).toBe(false);
    },
  );

  test("keys of another kind under the same id are not used", async () => {
    const header = await webhookSignature(signer, NOW_SECONDS, body);
    const [key] = signer.publicJwks().keys;
    for (const other of [
      { kty: "oct" },
      { crv: "X25519" },
      { x: 1 },
      { x: "AA" },
      { x: undefined },
    ]) {
      const jwks = { keys: [{ ...key, ...other }] };
      expect(await verifyWebhookSignature(header, body, jwks, NOW_SECONDS)).toBe(false);
    }
  });
});

describe("tokens", () => {
  test("a token gives back what was put in, and nothing else", async () => {
    for (const kind of ["callback", "claim"] as const) {
      const token = await issueToken(signer, { ...CLAIMS, kind, extra: "x" } as TokenClaims);
      expect(token).toMatch(/^ey[\w-]+\.[\w-]+\.[\w-]{86}$/);
      expect(await readToken(signer, token, NOW_MS)).toEqual({
        kind: "valid",
        claims: { ...CLAIMS, kind },
      });
    }
  });

  test("a token expires at its time, not later, and still says whose it was", async () => {
    const token = await issueToken(signer, CLAIMS);
    const at = async (nowMs: number): Promise<unknown> => readToken(signer, token, nowMs);
    expect(await at(CLAIMS.expiresAtMs - 1)).toEqual({ kind: "valid", claims: CLAIMS });
    expect(await at(CLAIMS.expiresAtMs)).toEqual({ kind: "expired", claims: CLAIMS });
    expect(await at(Number.NaN)).toEqual({ kind: "expired", claims: CLAIMS });
  });

  test("every changed character makes a token invalid, also one whose bits are not used", async () => {
    const token = await issueToken(signer, CLAIMS);
    for (let at = 0; at < token.length; at += 1) {
      for (let bit = 1; bit < 256; bit *= 2) {
        const changed = String.fromCharCode(token.charCodeAt(at) ^ bit);
        const other = `${token.slice(0, at)}${changed}${token.slice(at + 1)}`;
        expect((await readToken(signer, other, NOW_MS)).kind, other).toBe("invalid");
      }
    }
  });

  test("parts that are dropped, added, padded or exchanged make a token invalid", async () => {
    const token = await issueToken(signer, CLAIMS);
    const other = await issueToken(signer, { ...CLAIMS, generation: 8 });
    const [header, payload, signature] = token.split(".");
    const [, otherPayload] = other.split(".");
    for (const bad of [
      "",
      ".",
      "..",
      `${header}.${payload}`,
      `${header}.${payload}.`,
      `${header}..${signature}`,
      `.${payload}.${signature}`,
      `${header}.${otherPayload}.${signature}`,
      `${token}.`,
      `${token}.${signature}`,
      `${token}=`,
      `${token}==`,
      `${token}A`,
      ` ${token}`,
      `${token}\n`,
      `${token}${" ".repeat(10_000)}`,
      token.replaceAll("-", "+").replaceAll("_", "/").concat("\u0000"),
    ]) {
      expect((await readToken(signer, bad, NOW_MS)).kind, bad).toBe("invalid");
    }
  });

  test("a token of a retired key is valid as long as the key is published", async () => {
    const token = await issueToken(oldSigner, CLAIMS);
    expect((await readToken(signer, token, NOW_MS)).kind).toBe("valid");
    expect((await readToken(await createSigner([newKey]), token, NOW_MS)).kind).toBe("invalid");
  });

  test("a token of another server's key is invalid, under its own key id and under ours", async () => {
    const foreign = await issueToken(stranger, CLAIMS);
    expect((await readToken(signer, foreign, NOW_MS)).kind).toBe("invalid");
    const claimed = await forge(stranger, genuineHeader, genuinePayload);
    expect((await readToken(signer, claimed, NOW_MS)).kind).toBe("invalid");
  });

  test("only our own header is accepted, even over a genuine signature", async () => {
    const genuine = await forge(signer, genuineHeader, genuinePayload);
    expect((await readToken(signer, genuine, NOW_MS)).kind).toBe("valid");
    for (const header of [
      { ...genuineHeader, alg: "none" },
      { ...genuineHeader, alg: "HS256" },
      { ...genuineHeader, alg: "eddsa" },
      { ...genuineHeader, typ: "JWT" },
      { ...genuineHeader, typ: undefined },
      { ...genuineHeader, kid: undefined },
      { ...genuineHeader, kid: oldSigner.keyId },
      { ...genuineHeader, crit: ["exp"] },
      { kid: signer.keyId, typ: "hapax-wake+jws", alg: "EdDSA" },
    ]) {
      const token = await forge(signer, header, genuinePayload);
      expect((await readToken(signer, token, NOW_MS)).kind, JSON.stringify(header)).toBe("invalid");
      const unsigned = token.slice(0, token.lastIndexOf(".") + 1);
      expect((await readToken(signer, unsigned, NOW_MS)).kind).toBe("invalid");
    }
  });

  test("a genuine signature over claims of another audience or shape is worth nothing", async () => {
    for (const payload of [
      { ...genuinePayload, audience: "another" },
      { ...genuinePayload, audience: undefined },
      { ...genuinePayload, kind: "admin" },
      { ...genuinePayload, generation: "7" },
      { ...genuinePayload, generation: -1 },
      { ...genuinePayload, generation: 1.5 },
      { ...genuinePayload, wakeId: undefined },
      { ...genuinePayload, subscription: 5 },
      { ...genuinePayload, expiresAtMs: "9e99" },
      { ...genuinePayload, expiresAtMs: 1e300 },
      [genuinePayload],
      null,
      "x",
    ]) {
      const token = await forge(signer, genuineHeader, payload);
      expect((await readToken(signer, token, NOW_MS)).kind, JSON.stringify(payload)).toBe(
        "invalid",
      );
    }
  });

  test("a webhook signature is no token, and a token's signature signs no webhook", async () => {
    const [header, payload, tokenSignature] = (await issueToken(signer, CLAIMS)).split(".");
    // The body makes the signed text as similar to a token as a sender can.
    const webhook = await webhookSignature(signer, NOW_SECONDS, text(payload ?? ""));
    const webhookBytes = webhook.slice(webhook.lastIndexOf("=") + 1);
    for (const start of [header, String(NOW_SECONDS)]) {
      const token = `${start}.${payload}.${webhookBytes}`;
      expect((await readToken(signer, token, NOW_MS)).kind).toBe("invalid");
    }
    for (const start of [header, String(NOW_SECONDS)]) {
      const asWebhook = `t=${start},kid=${signer.keyId},ed25519=${tokenSignature}`;
      const jwks = signer.publicJwks();
      expect(
        await verifyWebhookSignature(asWebhook, text(payload ?? ""), jwks, NOW_SECONDS, Infinity),
      ).toBe(false);
    }
  });

  test("the longest subscription id fits, and a token that no one could read is never issued", async () => {
    const longest = { ...CLAIMS, subscription: "\u0001".repeat(256) };
    const token = await issueToken(signer, longest);
    expect(await readToken(signer, token, NOW_MS)).toEqual({ kind: "valid", claims: longest });
    for (const claims of [
      { ...CLAIMS, subscription: "a".repeat(10_000) },
      { ...CLAIMS, generation: 0.5 },
      { ...CLAIMS, expiresAtMs: Number.NaN },
    ]) {
      const error: unknown = await issueToken(signer, claims).catch((reason: unknown) => reason);
      expect(isHapaxError(error, "internal")).toBe(true);
    }
  });
});

function damaged(part: { d?: string; x?: string }): SigningKey {
  return { ...newKey, privateJwk: { ...newKey.privateJwk, ...part } };
}
