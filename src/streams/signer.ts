/**
 * PORT and its one implementation, on the platform's WebCrypto. Signs webhooks and issues the
 * tokens with which a worker answers a wake.
 *
 *   - The key id is the RFC 7638 thumbprint of the public key: the same key always has the same id.
 *   - The newest key signs; every given key stays published and still verifies.
 *   - A token's first part must be, byte for byte, the one that this server writes for that key. So an
 *     algorithm or a type that the sender chose has no effect.
 *   - Every token has one spelling: any changed byte makes it invalid.
 *   - A webhook signature covers text that begins with digits and a dot; a token's text begins with
 *     `ey`. So one cannot be used as the other, although one key makes both.
 *   - A private key leaves this file only in a `SigningKey`: in no answer, error or log.
 *
 * PROTOCOL.md §11.4, §11.6. A valid token says which wake it was issued for. The caller decides whether that wake is
 * still the current one, and whether the kind fits the route.
 *
 *   webhook   t=<unix seconds>,kid=<kid>,ed25519=<signature over "<t>.<raw body>">
 *   token     <header>.<claims>.<signature over "<header>.<claims>">, all base64url without padding
 */

import { decodeBase64url, encodeBase64url } from "../base/base64.ts";
import { HapaxError } from "../base/errors.ts";

/** What a journal keeps of a key: with the secret of the server it makes the key again. It is no secret. */
export interface SigningSalt {
  readonly salt: string;
  readonly createdAtMs: number;
}

/** A private key. It is a secret: it is in memory, and nowhere else. */
export interface SigningKey {
  readonly privateJwk: {
    readonly kty: "OKP";
    readonly crv: "Ed25519";
    readonly d: string;
    readonly x: string;
  };
  readonly createdAtMs: number;
}

export interface PublicJwk {
  readonly kty: "OKP";
  readonly crv: "Ed25519";
  readonly x: string;
  readonly use: "sig";
  readonly alg: "EdDSA";
  readonly kid: string;
}

export interface PublicJwks {
  readonly keys: readonly PublicJwk[];
}

interface ForeignJwk {
  readonly kty?: unknown;
  readonly crv?: unknown;
  readonly x?: unknown;
  readonly kid?: unknown;
}

/** A key set as it was fetched. Its members are not checked yet. */
export interface ForeignJwks {
  readonly keys: readonly ForeignJwk[];
}

export interface Signer {
  /** `ds_` and the thumbprint of the signing key. */
  readonly keyId: string;
  /** Signs with the newest key. The signature has 64 bytes of Ed25519. */
  sign(bytes: Uint8Array): Promise<Uint8Array>;
  /** Checks a signature. False if it is wrong, or if this signer does not have the key. */
  verify(keyId: string, bytes: Uint8Array, signature: Uint8Array): Promise<boolean>;
  /** Returns the answer of `__ds/jwks.json`, newest key first. */
  publicJwks(): PublicJwks;
}

export interface TokenClaims {
  readonly subscription: string;
  readonly kind: "callback" | "claim";
  readonly generation: number;
  readonly wakeId: string;
  readonly expiresAtMs: number;
}

export type TokenReading =
  | { readonly kind: "valid"; readonly claims: TokenClaims }
  | { readonly kind: "expired"; readonly claims: TokenClaims }
  | { readonly kind: "invalid" };

/**
 * An id of 256 bytes, each escaped to six in JSON, makes a token of about 2,500 characters. This limit is three times
 * as much, and half of a header block.
 */
const TOKEN_CHARS_MAX = 8192;
const TOKEN_TYPE = "hapax-wake+jws";
const TOKEN_AUDIENCE = "hapax/subscriptions";
const ED25519 = { name: "Ed25519" } as const;
const SIGNATURE_BYTES = 64;

/** What HKDF (RFC 5869) binds the seed to, so that the secret can serve for something else too. */
const SEED_INFO = "hapax webhook signing key";
/** PKCS #8 of an Ed25519 key (RFC 8410), up to its 32 bytes. */
const PKCS8_HEAD = [
  0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/** Makes the key of a secret and a salt: always the same one. The salt alone tells nothing of the key. */
export async function deriveSigningKey(
  secret: string,
  { salt, createdAtMs }: SigningSalt,
): Promise<SigningKey> {
  const [bytes, info] = [new TextEncoder().encode(secret), new TextEncoder().encode(SEED_INFO)];
  const material = await crypto.subtle.importKey("raw", bytes, "HKDF", false, ["deriveBits"]);
  const way = { name: "HKDF", hash: "SHA-256", salt: new TextEncoder().encode(salt), info };
  const seed = new Uint8Array(await crypto.subtle.deriveBits(way, material, 256));
  const encoded = new Uint8Array([...PKCS8_HEAD, ...seed]);
  const key = await crypto.subtle.importKey("pkcs8", encoded, ED25519, true, ["sign"]);
  const { d = "", x = "" } = await crypto.subtle.exportKey("jwk", key);
  return { privateJwk: { kty: "OKP", crv: "Ed25519", d, x }, createdAtMs };
}

/**
 * Takes all keys that are still to be published; the newest signs. Throws `invalid_options` for an
 * empty list and for a key that is damaged.
 *
 * ```ts
 * const salt = { salt: "1", createdAtMs: Date.now() };
 * const signer = await createSigner([await deriveSigningKey("64 random digits", salt)]);
 * const header = await webhookSignature(signer, 1_700_000_000, new TextEncoder().encode("{}"));
 * console.assert(header.startsWith(`t=1700000000,kid=${signer.keyId},ed25519=`));
 * ```
 */
export async function createSigner(keys: readonly SigningKey[]): Promise<Signer> {
  const newestFirst = keys.toSorted((left, right) => right.createdAtMs - left.createdAtMs);
  const loaded = await Promise.all(newestFirst.map(loadKey));
  const [current] = loaded;
  if (current === undefined) throw new HapaxError("invalid_options", "no signing key was given");
  const byId = new Map(loaded.map((key) => [key.jwk.kid, key]));
  const published: PublicJwks = { keys: [...byId.values()].map((key) => key.jwk) };
  return {
    keyId: current.jwk.kid,
    sign: (bytes) => signWith(current.privateKey, bytes),
    async verify(keyId, bytes, signature) {
      const key = byId.get(keyId);
      return key !== undefined && verifyWith(key.publicKey, bytes, signature);
    },
    publicJwks: () => structuredClone(published),
  };
}

/** Returns the `Webhook-Signature` header for a body that is sent at `unixSeconds`. */
export async function webhookSignature(
  signer: Signer,
  unixSeconds: number,
  body: Uint8Array,
): Promise<string> {
  const timestamp = String(Math.floor(unixSeconds));
  const signature = await signer.sign(webhookInput(timestamp, body));
  return `t=${timestamp},kid=${signer.keyId},ed25519=${encodeBase64url(signature)}`;
}

/**
 * Checks that a webhook is from the server with this `__ds/jwks.json`, and is not older than the tolerance. For
 * receivers: pass the body exactly as it arrived, before any parsing.
 *
 * ```ts
 * import { verifyWebhookSignature } from "hapax";
 *
 * const body = new TextEncoder().encode('{"wake":"w1"}');
 * const nowSeconds = Date.now() / 1000;
 * // As a server signs it: with a key of its own, whose public half is in `__ds/jwks.json`.
 * const key = await crypto.subtle.generateKey("Ed25519", true, ["sign", "verify"]);
 * if (!("publicKey" in key)) throw new Error("Ed25519 has pairs of keys");
 * const { x } = await crypto.subtle.exportKey("jwk", key.publicKey);
 * const jwks = { keys: [{ kty: "OKP", crv: "Ed25519", kid: "k1", x }] };
 * const t = String(Math.floor(nowSeconds));
 * const signed = Buffer.concat([Buffer.from(`${t}.`), body]);
 * const signature = Buffer.from(await crypto.subtle.sign("Ed25519", key.privateKey, signed));
 * const header = `t=${t},kid=k1,ed25519=${signature.toString("base64url")}`;
 *
 * console.assert(await verifyWebhookSignature(header, body, jwks, nowSeconds));
 * console.assert(!(await verifyWebhookSignature(header, body.subarray(1), jwks, nowSeconds)));
 * console.assert(!(await verifyWebhookSignature(header, body, jwks, nowSeconds + 301)));
 * ```
 */
export async function verifyWebhookSignature(
  header: string,
  body: Uint8Array,
  jwks: ForeignJwks,
  nowSeconds: number,
  toleranceSeconds = 300,
): Promise<boolean> {
  const match = /^t=(0|[1-9]\d{0,14}),kid=([^,\s]{1,256}),ed25519=([\w-]{86})$/.exec(header);
  const [, timestamp = "", keyId = "", encoded = ""] = match ?? [];
  const signature = decodeBase64url(encoded);
  if (match === null || signature === undefined) return false;
  // Written so that a time that is not a number fails.
  if (!(Math.abs(nowSeconds - Number(timestamp)) <= toleranceSeconds)) return false;
  const x = findEd25519(jwks, keyId);
  const publicKey = x === undefined ? undefined : await importPublicKey(x).catch(() => undefined);
  if (publicKey === undefined) return false;
  return verifyWith(publicKey, webhookInput(timestamp, body), signature);
}

/** Issues a token that proves which wake it belongs to. Send it only in `Authorization`. */
export async function issueToken(signer: Signer, claims: TokenClaims): Promise<string> {
  const payload = encodeText(JSON.stringify({ audience: TOKEN_AUDIENCE, ...plainClaims(claims) }));
  const input = `${tokenHeader(signer.keyId)}.${payload}`;
  const signature = await signer.sign(new TextEncoder().encode(input));
  const token = `${input}.${encodeBase64url(signature)}`;
  if (token.length > TOKEN_CHARS_MAX || parseClaims(payload) === undefined) {
    throw new HapaxError("internal", `a token must be readable: chars=${token.length}`);
  }
  return token;
}

/** The subscription that a token names. The signature is not checked: what the name is for must do so. */
export function subscriptionOf(token: string): string | undefined {
  if (token.length > TOKEN_CHARS_MAX) return undefined;
  return parseClaims(token.split(".")[1] ?? "")?.subscription;
}

/** Reads a token that was issued by this server, or by another one with the same keys. */
export async function readToken(
  signer: Signer,
  token: string,
  nowMs: number,
): Promise<TokenReading> {
  if (token.length > TOKEN_CHARS_MAX) return { kind: "invalid" };
  const [header = "", payload = "", encoded = "", ...rest] = token.split(".");
  const key = signer.publicJwks().keys.find(({ kid }) => tokenHeader(kid) === header);
  const signature = decodeBase64url(encoded);
  if (key === undefined || signature === undefined || rest.length > 0) return { kind: "invalid" };
  const input = new TextEncoder().encode(`${header}.${payload}`);
  if (!(await signer.verify(key.kid, input, signature))) return { kind: "invalid" };
  const claims = parseClaims(payload);
  if (claims === undefined) return { kind: "invalid" };
  return { kind: nowMs < claims.expiresAtMs ? "valid" : "expired", claims };
}

interface LoadedKey {
  readonly jwk: PublicJwk;
  readonly privateKey: CryptoKey;
  readonly publicKey: CryptoKey;
}

async function loadKey(key: SigningKey): Promise<LoadedKey> {
  const { d, x } = key.privateJwk;
  // The platform's error is not the cause of ours: it might quote the key.
  const loaded = await importPair(d, x).catch(() => undefined);
  const probe = new TextEncoder().encode("hapax");
  // With a wrong public part, an Ed25519 signature reveals the private key. Not every platform compares the two parts
  // when it imports a key.
  const fits =
    loaded !== undefined &&
    (await verifyWith(loaded.publicKey, probe, await signWith(loaded.privateKey, probe)));
  if (!fits) {
    throw new HapaxError("invalid_options", `a signing key is damaged: created=${key.createdAtMs}`);
  }
  const kid = `ds_${await thumbprint(x)}`;
  return { ...loaded, jwk: { kty: "OKP", crv: "Ed25519", x, use: "sig", alg: "EdDSA", kid } };
}

async function importPair(d: string, x: string): Promise<Omit<LoadedKey, "jwk">> {
  const jwk = { kty: "OKP", crv: "Ed25519", d, x };
  const privateKey = await crypto.subtle.importKey("jwk", jwk, ED25519, false, ["sign"]);
  return { privateKey, publicKey: await importPublicKey(x) };
}

function importPublicKey(x: string): Promise<CryptoKey> {
  const jwk = { kty: "OKP", crv: "Ed25519", x };
  return crypto.subtle.importKey("jwk", jwk, ED25519, false, ["verify"]);
}

/** RFC 7638: the required members in this order, without blanks. */
async function thumbprint(x: string): Promise<string> {
  const canonical = JSON.stringify({ crv: "Ed25519", kty: "OKP", x });
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(canonical));
  return encodeBase64url(new Uint8Array(digest));
}

async function signWith(privateKey: CryptoKey, bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.sign(ED25519, privateKey, new Uint8Array(bytes)));
}

async function verifyWith(
  publicKey: CryptoKey,
  bytes: Uint8Array,
  signature: Uint8Array,
): Promise<boolean> {
  if (signature.length !== SIGNATURE_BYTES) return false;
  const [copy, input] = [new Uint8Array(signature), new Uint8Array(bytes)];
  return crypto.subtle.verify(ED25519, publicKey, copy, input);
}

/** Returns the public part of the key with this id. A key of another kind may have the same id. */
function findEd25519(jwks: ForeignJwks, keyId: string): string | undefined {
  const isWanted = (key: ForeignJwk): boolean =>
    key.kid === keyId && key.kty === "OKP" && key.crv === "Ed25519";
  const x = jwks.keys.find(isWanted)?.x;
  return typeof x === "string" ? x : undefined;
}

function webhookInput(timestamp: string, body: Uint8Array): Uint8Array {
  const head = new TextEncoder().encode(`${timestamp}.`);
  const input = new Uint8Array(head.length + body.length);
  input.set(head);
  input.set(body, head.length);
  return input;
}

function tokenHeader(keyId: string): string {
  return encodeText(JSON.stringify({ alg: "EdDSA", typ: TOKEN_TYPE, kid: keyId }));
}

/** Returns only the members of a claim, in a fixed order. */
function plainClaims(claims: TokenClaims): TokenClaims {
  const { subscription, kind, generation, wakeId, expiresAtMs } = claims;
  return { subscription, kind, generation, wakeId, expiresAtMs };
}

/** Parses the claims. The signature was good, so this is our own text; the shape is checked all the same. */
function parseClaims(payload: string): TokenClaims | undefined {
  const bytes = decodeBase64url(payload);
  const value = bytes === undefined ? undefined : parseJson(new TextDecoder().decode(bytes));
  if (typeof value !== "object" || value === null) return undefined;
  const candidate = value as Readonly<Record<string, unknown>>; // The cast only allows to look; the checks follow.
  const { audience, subscription, kind, generation, wakeId, expiresAtMs } = candidate;
  if (audience !== TOKEN_AUDIENCE) return undefined;
  if (typeof subscription !== "string" || typeof wakeId !== "string") return undefined;
  if (kind !== "callback" && kind !== "claim") return undefined;
  if (!isWhole(generation) || !isWhole(expiresAtMs)) return undefined;
  return { subscription, kind, generation, wakeId, expiresAtMs };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // Text that is not JSON holds no claims.
  }
}

function isWhole(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function encodeText(text: string): string {
  return encodeBase64url(new TextEncoder().encode(text));
}
