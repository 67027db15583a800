/**
 * A set of public keys as an identity provider publishes it (JWKS, RFC 7517).
 *
 *   - a set with a secret in it, a symmetric key or a private one, is refused as a whole: its owner must replace it;
 *   - keys for other purposes and of other kinds are passed over;
 *   - a key that is the same in the next set is the same object there. So a token remembers its key, and asks the newest set
 *     for it.
 */

import { parseUniqueJson } from "../../base/unique-json.ts";
import { LIMITS } from "../../protocol/all-limits.ts";

/** A public key, as far as it is looked at here. */
export interface PublicKey {
  readonly kid: string | undefined;
  readonly kty: string;
  /** The whole key, for the library that verifies with it. */
  readonly jwk: Readonly<Record<string, unknown>> & { readonly kty: string };
  /** Two keys with the same text are the same key. */
  readonly text: string;
}

/** The members that only a private or a symmetric key has. RFC 7518, 6. */
const SECRET_MEMBERS = ["d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"];
const KINDS = new Set(["RSA", "EC", "OKP"]);
const DEPTH_MAX = 8;

export class KeySet {
  readonly #keys: ReadonlySet<PublicKey>;

  constructor(keys: readonly PublicKey[]) {
    this.#keys = new Set(keys);
  }

  get size(): number {
    return this.#keys.size;
  }

  holds(key: PublicKey): boolean {
    return this.#keys.has(key);
  }

  /** Whether any key has this id. */
  knows(kid: string): boolean {
    return [...this.#keys].some((key) => key.kid === kid);
  }

  /** The one key that fits. Undefined: there is none, or the token does not say which of several. */
  find(kid: string | undefined, kty: string): PublicKey | undefined {
    const [first, second] = [...this.#keys].filter(
      (key) => key.kty === kty && (kid === undefined || key.kid === kid),
    );
    return second === undefined ? first : undefined;
  }

  /** This set with the objects of an older one for the keys that are in both. */
  after(older: KeySet | undefined): KeySet {
    if (older === undefined) return this;
    const known = new Map([...older.#keys].map((key) => [key.text, key]));
    return new KeySet([...this.#keys].map((key) => known.get(key.text) ?? key));
  }

  equals(other: KeySet): boolean {
    return this.size === other.size && [...this.#keys].every((key) => other.holds(key));
  }
}

/** Parses a key set. Throws an error whose text says what is wrong, without a word of the keys. */
export function parseKeySet(text: string): KeySet {
  if (text.length > LIMITS.jwksBytesMax) {
    throw new Error(`the key set is larger than ${LIMITS.jwksBytesMax} bytes`);
  }
  const json = parseUniqueJson(text, DEPTH_MAX)?.value;
  const keys = isObject(json) ? json["keys"] : undefined;
  if (!Array.isArray(keys)) throw new Error('it is no key set: {"keys": [...]} in JSON');
  if (keys.length > LIMITS.jwksKeysMax) {
    throw new Error(`the key set has more than ${LIMITS.jwksKeysMax} keys`);
  }
  return new KeySet(
    keys.flatMap((jwk: unknown, at) => {
      const key = readKey(jwk, at);
      return key === undefined ? [] : [key];
    }),
  );
}

/** Undefined for a key that is not for signatures, or of a kind that is not known here. */
function readKey(jwk: unknown, at: number): PublicKey | undefined {
  if (!isObject(jwk) || typeof jwk["kty"] !== "string") throw new Error(`keys[${at}] is no key`);
  const { kty, kid, use, key_ops: operations } = jwk;
  if (kty === "oct" || SECRET_MEMBERS.some((name) => Object.hasOwn(jwk, name))) {
    const kind = kty === "oct" ? "symmetric" : "private";
    throw new Error(
      `keys[${at}] is a ${kind} key: publish public keys only, and replace this one, because others may have seen it`,
    );
  }
  if (kid !== undefined && typeof kid !== "string") throw new Error(`keys[${at}].kid is no text`);
  if (use !== undefined && use !== "sig") return undefined;
  if (operations !== undefined && !(Array.isArray(operations) && operations.includes("verify"))) {
    return undefined;
  }
  if (!KINDS.has(kty)) return undefined;
  const sorted = Object.entries(jwk).toSorted(([one], [other]) => (one < other ? -1 : 1));
  return { kid, kty, jwk: { ...jwk, kty }, text: JSON.stringify(sorted) };
}

function isObject(json: unknown): json is Readonly<Record<string, unknown>> {
  return typeof json === "object" && json !== null && !Array.isArray(json);
}
