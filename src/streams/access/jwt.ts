/**
 * Identities from tokens of an identity provider (JWT, RFC 7519). The library `jose` verifies signatures, issuer, audience and
 * times; this file decides what reaches it.
 *
 *   - the algorithm and the key are the server's choice: the header of a token can only choose among them. No symmetric algorithm
 *     is allowed, and keys that a token brings along are not looked at;
 *   - a token has one spelling: another base64url text of the same bytes is refused;
 *   - a verified token is remembered until it expires or its key is gone from the set, and not longer.
 *
 * PROTOCOL.md §21.6. The library is loaded with the first call of `jwtAuthorize`.
 */

import type { JWTVerifyGetKey } from "jose";
import { decodeBase64url } from "../../base/base64.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { OptionsCheck } from "../../base/options-check.ts";
import { parseUniqueJson } from "../../base/unique-json.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { parseBearer } from "../../protocol/values.ts";
import { checkGrants } from "./check-identity.ts";
import type { Authorize, Credentials, Grant, Identity, IdentityRefusal } from "./identity.ts";
import { fetchKeySet, isKeySetUrl, KeyKeeper } from "./jwks-keeper.ts";
import type { PublicKey } from "./jwks.ts";
import { identityOf } from "./jwt-claims.ts";
import { markOwn } from "./own-authorize.ts";

/** The algorithms that a token may have, and the kind of key that each needs. */
const KEY_KINDS = {
  RS256: "RSA",
  RS384: "RSA",
  RS512: "RSA",
  PS256: "RSA",
  PS384: "RSA",
  PS512: "RSA",
  ES256: "EC",
  ES384: "EC",
  ES512: "EC",
  EdDSA: "OKP",
  Ed25519: "OKP",
} as const;

type Algorithm = keyof typeof KEY_KINDS;

/** Options of `jwtAuthorize`. */
export interface JwtOptions {
  /**
   * The provider's public keys (JWKS): an https URL, or a function that reads the text, such as `() => readFile("jwks.json",
   * "utf8")`. `http` is allowed for this machine only.
   */
  readonly jwks: string | ((signal: AbortSignal) => Promise<string>);
  /** The `iss` that a token must have, character by character. */
  readonly issuer: string;
  /** The `aud` that a token must have; one of them if you name several. */
  readonly audience: string | readonly string[];
  /** Default: RS, PS and ES with 256, 384 and 512 bits, EdDSA, Ed25519. */
  readonly algorithms?: readonly Algorithm[];
  /** How many seconds the clocks of provider and server may differ. Default 30, at most 600. */
  readonly leewaySeconds?: number;
  /** The claim that has `{ grants, namespace?, quotas?, name? }`. Default `hapax`. */
  readonly claim?: string;
  /**
   * Grants for scopes, for providers that can issue only a `scope`. Used for tokens without the claim. Scopes that are not named
   * here grant nothing.
   */
  readonly scopes?: Readonly<Record<string, readonly Grant[]>>;
  /** How often the keys are read again, in seconds. Default 300. */
  readonly refreshSeconds?: number;
  /** Receives a line when the keys change or cannot be read. */
  readonly onNote?: (note: string) => void;
  readonly clock?: Clock;
  /** Ends the reading of keys. */
  readonly signal?: AbortSignal;
}

type ResolvedOptions = Required<Omit<JwtOptions, "jwks" | "signal" | "onNote">>;

interface Remembered {
  readonly identity: Identity;
  readonly expiresAtMs: number;
  readonly key: PublicKey;
}

const MISSING: IdentityRefusal = { refused: "missing" };
const EXPIRED: IdentityRefusal = { refused: "expired", detail: "the token has expired" };
const NO_KEYS: IdentityRefusal = {
  refused: "unavailable",
  detail: "the keys of the identity provider cannot be read now",
};
const SHAPE = /^[\w-]*\.[\w-]*\.[\w-]*$/;
const HEADER_DEPTH_MAX = 8;

/**
 * Authorizes clients by tokens (JWT) of an identity provider. Reads the provider's keys in the background, now and again while
 * requests come. Until the first keys have arrived, tokens are refused as `unavailable`.
 *
 * ```ts
 * import { jwtAuthorize } from "hapax/server";
 *
 * const ending = new AbortController();
 * const authorize = jwtAuthorize({
 *   jwks: async () => '{"keys":[]}', // Or the URL of your provider's keys.
 *   issuer: "https://login.example.com/",
 *   audience: "https://streams.example.com",
 *   signal: ending.signal,
 * });
 * const request = { method: "GET", path: "/v1/stream/a", query: "", header: () => undefined };
 * const outcome = await authorize(request);
 * console.assert("refused" in outcome && outcome.refused === "missing");
 * ending.abort();
 * ```
 */
export function jwtAuthorize(options: JwtOptions): Authorize {
  const resolved = resolveOptions(options);
  const { jwks, signal, onNote = () => undefined } = options;
  const keeper = new KeyKeeper(typeof jwks === "string" ? fetchKeySet(jwks) : jwks, {
    clock: resolved.clock,
    refreshMs: resolved.refreshSeconds * 1000,
    onNote,
    signal,
  });
  const verifier = new Verifier(resolved, keeper);
  return markOwn((credentials) => verifier.authorize(credentials));
}

class Verifier {
  readonly #options: ResolvedOptions;
  readonly #keeper: KeyKeeper;
  /** By the whole header, so that it is found without being parsed. */
  readonly #remembered = new Map<string, Remembered>();
  #rememberedChars = 0;
  /** When it was last asked whether the keys are to be read again. */
  #lookedAtMs = -Infinity;
  /** Tokens that are being verified: many requests with one new token are one verification. */
  readonly #pending = new Map<string, Promise<Identity | IdentityRefusal>>();
  /** What the library has made of a key. */
  readonly #imported = new WeakMap<PublicKey, JWTVerifyGetKey>();

  constructor(options: ResolvedOptions, keeper: KeyKeeper) {
    this.#options = options;
    this.#keeper = keeper;
  }

  authorize(credentials: Credentials): ReturnType<Authorize> {
    const header = credentials.header("authorization");
    if (header === undefined) return MISSING;
    // Before anything else looks at it: nearly every request has a token that was verified before.
    const known = this.#remembered.get(header);
    if (known === undefined) {
      const token = tokenOf(header);
      if (typeof token !== "string") return token;
    }
    const nowMs = this.#options.clock.nowMs();
    // Once in a millisecond is often enough.
    if (nowMs !== this.#lookedAtMs) {
      const reading = this.#keeper.refresh();
      if (reading !== undefined) return reading.then(() => this.#judge(header));
      this.#lookedAtMs = nowMs;
    }
    return this.#judge(header, known, nowMs);
  }

  #judge(
    header: string,
    remembered = this.#remembered.get(header),
    nowMs = this.#options.clock.nowMs(),
  ): ReturnType<Authorize> {
    const known = this.#recall(header, remembered, nowMs);
    if (known !== undefined) return known;
    const token = tokenOf(header);
    if (typeof token !== "string") return token;
    let pending = this.#pending.get(header);
    if (pending === undefined) {
      pending = this.#verify(token, header).finally(() => this.#pending.delete(header));
      this.#pending.set(header, pending);
    }
    return pending;
  }

  /** Undefined: the token is to be verified, now or again. */
  #recall(
    header: string,
    known: Remembered | undefined,
    nowMs: number,
  ): Identity | IdentityRefusal | undefined {
    if (known === undefined) return undefined;
    const isOver = nowMs >= known.expiresAtMs;
    const hasKey = this.#keeper.keys?.holds(known.key) === true;
    if (!isOver && hasKey) return known.identity;
    this.#forget(header);
    return isOver ? EXPIRED : undefined;
  }

  async #verify(token: string, from: string): Promise<Identity | IdentityRefusal> {
    const header = headerOf(token);
    if (header === undefined) return invalid("it is no token that this server can read");
    const kty = this.#kindOf(header.alg);
    if (kty === undefined) return invalid("the algorithm of the token is not allowed here");
    if (header.kid !== undefined && typeof header.kid !== "string") {
      return invalid("the key id of the token is no text");
    }
    const key = await this.#findKey(header.kid, kty);
    if ("refused" in key) return key;
    const claims = await this.#claimsOf(token, key);
    if ("refused" in claims) return claims;
    const identity = identityOf(claims.claims, this.#options);
    if ("refused" in identity) return identity;
    this.#remember(from, { identity, expiresAtMs: identity.expiresAtMs, key });
    return identity;
  }

  #kindOf(algorithm: unknown): string | undefined {
    const found = this.#options.algorithms.find((one) => one === algorithm);
    return found === undefined ? undefined : KEY_KINDS[found];
  }

  async #findKey(kid: string | undefined, kty: string): Promise<PublicKey | IdentityRefusal> {
    const isKnown = (): boolean =>
      kid === undefined ? this.#keeper.keys !== undefined : this.#keeper.keys?.knows(kid) === true;
    if (!isKnown()) await this.#keeper.lookAgain();
    const { keys, isBehind } = this.#keeper;
    if (keys === undefined) return NO_KEYS;
    const key = keys.find(kid, kty);
    if (key !== undefined) return key;
    // The provider may have a new key, and we cannot know it.
    if (kid !== undefined && !keys.knows(kid) && isBehind) return NO_KEYS;
    return invalid("no key of the identity provider is the key of the token");
  }

  async #claimsOf(token: string, key: PublicKey): Promise<{ claims: object } | IdentityRefusal> {
    const { jwtVerify, createLocalJWKSet, errors } = await import("jose");
    let getKey = this.#imported.get(key);
    if (getKey === undefined) {
      getKey = createLocalJWKSet({ keys: [key.jwk] });
      this.#imported.set(key, getKey);
    }
    const { issuer, audience, algorithms, leewaySeconds, clock } = this.#options;
    try {
      await jwtVerify(token, getKey, {
        issuer,
        audience: typeof audience === "string" ? audience : [...audience],
        algorithms: [...algorithms],
        clockTolerance: leewaySeconds,
        // oxlint-disable-next-line no-restricted-globals -- The library wants a Date; the time is that of the port.
        currentDate: new Date(clock.nowMs()),
        requiredClaims: ["exp"],
      });
    } catch (error) {
      if (error instanceof errors.JWTExpired) return EXPIRED;
      if (error instanceof errors.JWTClaimValidationFailed && error.claim in CLAIM_WORDS) {
        return invalid(`the claim ${error.claim} of the token is not one for this server`);
      }
      return invalid("the token is not one of the identity provider");
    }
    // Only now: a stranger's claims are not worth a look. The library takes the last of two members with one name.
    const claims = parsePart(token.split(".")[1] ?? "", LIMITS.jsonDepthMax);
    return claims === undefined ? invalid("the token has a claim twice") : { claims };
  }

  #remember(header: string, remembered: Remembered): void {
    this.#forget(header);
    this.#remembered.set(header, remembered);
    this.#rememberedChars += header.length;
    for (const oldest of this.#remembered.keys()) {
      const isWithin =
        this.#remembered.size <= LIMITS.jwtRememberedMax &&
        this.#rememberedChars <= LIMITS.jwtRememberedCharsMax;
      if (isWithin) break;
      this.#forget(oldest);
    }
  }

  #forget(header: string): void {
    if (this.#remembered.delete(header)) this.#rememberedChars -= header.length;
  }
}

const CLAIM_WORDS: Readonly<Record<string, true>> = { iss: true, aud: true, exp: true, nbf: true };

/** The token of a header; `missing` if it has none of this kind. */
function tokenOf(header: string): string | IdentityRefusal {
  if (header.length > LIMITS.jwtCharsMax + "Bearer ".length) {
    return /^Bearer +hpx_/i.test(header.slice(0, 64))
      ? MISSING
      : invalid("the token is longer than the server takes");
  }
  const bearer = parseBearer(header);
  if (bearer === undefined || bearer.startsWith("hpx_") || !SHAPE.test(bearer)) return MISSING;
  return bearer;
}

/** The header of a token whose parts have one spelling and whose header asks for nothing special. */
function headerOf(token: string): { alg?: unknown; kid?: unknown } | undefined {
  const [first = "", second = "", third = ""] = token.split(".");
  const header = parsePart(first, HEADER_DEPTH_MAX);
  // An extension that must be understood: none is.
  if (header === undefined || Object.hasOwn(header, "crit")) return undefined;
  const isSpelled = decodeBase64url(second) !== undefined && decodeBase64url(third) !== undefined;
  return isSpelled ? header : undefined;
}

function parsePart(part: string, depthMax: number): object | undefined {
  const bytes = decodeBase64url(part);
  if (bytes === undefined) return undefined;
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    const value = parseUniqueJson(text, depthMax)?.value;
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined; // It is no UTF-8.
  }
}

function invalid(detail: string): IdentityRefusal {
  return { refused: "invalid", detail };
}

function resolveOptions(options: JwtOptions): ResolvedOptions {
  const { jwks, issuer, audience, claim = "hapax", clock = systemClock, scopes = {} } = options;
  const check = new OptionsCheck(HapaxError);
  if (typeof jwks === "string" ? !isKeySetUrl(jwks) : typeof jwks !== "function") {
    check.problem(
      "jwks must be an https URL (http for this machine) or a function that reads the key set",
    );
  }
  const audiences = typeof audience === "string" ? [audience] : audience;
  if (typeof issuer !== "string" || issuer === "") check.problem("issuer must be a text");
  if (!Array.isArray(audiences) || audiences.length === 0 || audiences.includes("")) {
    check.problem("audience must be a text or a list of texts");
  }
  if (claim === "") check.problem("claim must be a text");
  const algorithms = options.algorithms ?? (Object.keys(KEY_KINDS) as Algorithm[]); // The keys are literals.
  if (algorithms.length === 0 || !algorithms.every((one) => Object.hasOwn(KEY_KINDS, one))) {
    check.problem(`algorithms must be some of ${Object.keys(KEY_KINDS).join(", ")}`);
  }
  for (const [scope, grants] of Object.entries(scopes)) {
    checkGrants(grants, `scopes[${JSON.stringify(scope)}]`, (text) => check.problem(text));
  }
  const leewaySeconds = check.number("leewaySeconds", options.leewaySeconds, 30, 0, 600);
  const refreshSeconds = check.number("refreshSeconds", options.refreshSeconds, 300, 1, 86_400);
  check.end();
  return {
    issuer,
    audience,
    algorithms,
    leewaySeconds,
    claim,
    scopes,
    refreshSeconds,
    clock,
  };
}
