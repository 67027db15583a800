/**
 * Finds out by its API key who sends a request: `Authorization: Bearer hpx_…`, or a certificate that TLS has checked. PROTOCOL.md
 * §21.8.
 *
 *   - a text that is no key is refused before anything is hashed;
 *   - an unknown id and a wrong secret take the same steps: one digest and one comparison. Both get the same answer;
 *   - only a client that has the secret learns that its key has expired;
 *   - a client that sends its key with every request is verified once. The key is looked up again for each request, so that a change,
 *     a revocation and the end of its time count at once;
 *   - a key has one `Identity` object as long as its record stays the same, so that its grants are worked out once.
 */

import { utf8Of } from "../../base/bytes.ts";
import type { Digest } from "../../base/digest.ts";
import { parseBearer, parseRfc3339 } from "../../protocol/values.ts";
import { API_KEY_PREFIX, areSameDigests, parseApiKey } from "./api-key.ts";
import {
  ACTIONS,
  type Authorize,
  type ClientCertificate,
  type Identity,
  type IdentityRefusal,
} from "./identity.ts";
import { endIdentity } from "./endings.ts";
import type { ApiKeyRecord } from "./key-document.ts";
import { markOwn } from "./own-authorize.ts";
import type { ShownKey } from "./shown-keys.ts";

/** A key that the server knows. */
export interface ApiKey {
  /** SHA-256 of the secret. */
  readonly digest: Uint8Array;
  readonly identity: Identity;
  readonly isRevoked: boolean;
}

/** Where keys are found by their id. */
export interface ApiKeySource {
  find(id: string): ApiKey | undefined;
  /** The key that is bound to a name or the fingerprint of this certificate. */
  findByCertificate(certificate: ClientCertificate): ApiKey | undefined;
}

export interface KeyParts {
  readonly digest: Digest;
  readonly nowMs: () => number;
}

/** The name of the identity that has the server's own token. */
export const SERVER_TOKEN_NAME = "server-token";

const MISSING: IdentityRefusal = { refused: "missing" };
const INVALID: IdentityRefusal = { refused: "invalid", detail: "the API key is not valid" };
const EXPIRED: IdentityRefusal = { refused: "expired", detail: "the API key has expired" };
const NO_DIGEST = new Uint8Array(32);
/** The digest of no text that is known: a key of a certificate is proved by TLS alone. */
const NO_SECRET = "00".repeat(32);
const DNS = "DNS:";

/** Returns an `Authorize` for API keys. It answers `missing` for a credential of another kind. */
export function apiKeyAuthorize(source: ApiKeySource, parts: KeyParts): Authorize {
  const verified = new Verified<{ readonly id: string; readonly key: ApiKey }>();
  const answerFor = (key: ApiKey): Identity | IdentityRefusal => {
    if (key.isRevoked) return INVALID;
    return isExpired(key.identity, parts.nowMs()) ? EXPIRED : key.identity;
  };
  return markOwn((credentials) => {
    const header = credentials.header("authorization") ?? "";
    const known = verified.get(header);
    if (known !== undefined && source.find(known.id) === known.key) return answerFor(known.key);
    if (header === "") {
      const { certificate } = credentials;
      const bound = certificate === undefined ? undefined : source.findByCertificate(certificate);
      return bound === undefined ? MISSING : answerFor(bound);
    }
    if (hasOtherToken(header)) return MISSING;
    const token = parseBearer(header);
    if (token === undefined || !token.startsWith(API_KEY_PREFIX)) return MISSING;
    const sent = parseApiKey(token);
    if (sent === undefined) return INVALID;
    return after(parts.digest(utf8Of(sent.secret)), (digest) => {
      // Found now and not before the digest: the keys may have changed since.
      const found = source.find(sent.id);
      const isRight = areSameDigests(digest, found?.digest ?? NO_DIGEST);
      if (found === undefined || !isRight) return INVALID;
      verified.add(header, { id: sent.id, key: found });
      return answerFor(found);
    });
  });
}

/** Returns an `Authorize` for one token of any form, which has all rights. It answers `missing` for every other token. */
export function serverTokenAuthorize(
  token: string,
  { digest }: Pick<KeyParts, "digest">,
): Authorize {
  const identity = fullIdentity(SERVER_TOKEN_NAME);
  const wanted = digest(utf8Of(token));
  const verified = new Verified<Identity>();
  const hasDot = token.includes(".");
  return markOwn((credentials) => {
    const header = credentials.header("authorization") ?? "";
    const known = verified.get(header);
    if (known !== undefined) return known;
    // A token of a provider has dots, and is sent with every request. That ours has none is no secret; all else is compared as a digest.
    if (!hasDot && header.includes(".")) return MISSING;
    const given = parseBearer(header);
    if (given === undefined) return MISSING;
    return after(wanted, (right) =>
      after(digest(utf8Of(given)), (one) => {
        if (!areSameDigests(one, right)) return MISSING;
        verified.add(header, identity);
        return identity;
      }),
    );
  });
}

const BEARER = "Bearer ";

/** A token of a provider has hundreds of characters, so it is passed on before it is parsed. Only the usual spelling is known here. */
function hasOtherToken(header: string): boolean {
  if (!header.startsWith(BEARER) || header[BEARER.length] === " ") return false;
  return !header.startsWith(API_KEY_PREFIX, BEARER.length);
}

const VERIFIED_MAX = 10_000;
const VERIFIED_CHARS_MAX = 256;

/**
 * Headers that were verified. A map looks for a text by a hash with a secret seed, and compares texts only if all of the hash is equal:
 * the time of a look does not tell how much of a guess is right.
 */
class Verified<T> {
  readonly #found = new Map<string, T>();

  get(header: string): T | undefined {
    return this.#found.get(header);
  }

  /** One client can write its header in many ways. So the map has a limit, and then begins anew. */
  add(header: string, found: T): void {
    if (header.length > VERIFIED_CHARS_MAX) return; // A client with a plain header is remembered.
    if (this.#found.size >= VERIFIED_MAX) this.#found.clear();
    this.#found.set(header, found);
  }
}

function fullIdentity(name: string): Identity {
  return { name, grants: [{ actions: ACTIONS }] };
}

function isExpired({ expiresAtMs }: Identity, nowMs: number): boolean {
  return expiresAtMs !== undefined && nowMs >= expiresAtMs;
}

/** At once where the value is there, so that a request with a key does not wait for a turn of the loop. */
function after<T, U>(value: T | Promise<T>, next: (value: T) => U | Promise<U>): U | Promise<U> {
  return value instanceof Promise ? value.then(next) : next(value);
}

/** The keys of a document, by id. They can be replaced while requests run. */
export class ApiKeys implements ApiKeySource {
  #keys: ReadonlyMap<string, ApiKey & { readonly text: string }> = new Map();
  #byCertificate: ReadonlyMap<string, ApiKey> = new Map();

  find(id: string): ApiKey | undefined {
    return this.#keys.get(id);
  }

  findByCertificate({ fingerprint, names, commonName }: ClientCertificate): ApiKey | undefined {
    const hosts = names
      .filter((name) => name.startsWith(DNS))
      .map((name) => name.slice(DNS.length));
    // From what says most to what says least.
    for (const name of [fingerprint, ...hosts, commonName]) {
      const key = name === undefined ? undefined : this.#byCertificate.get(name);
      if (key !== undefined) return key;
    }
    return undefined;
  }

  /**
   * Puts these keys in force, and no others. A key whose record has not changed keeps its identity; all other identities end, with
   * their live readers. Returns what has changed, a line for each key.
   */
  replace(records: readonly ApiKeyRecord[]): readonly string[] {
    const before = this.#keys;
    const changes: string[] = [];
    const kept = records.map((record) => {
      const text = JSON.stringify(record);
      const old = before.get(record.id);
      if (old?.text === text) return [record.id, old] as const;
      const key = { ...keyOf(record), text };
      const isRevoked = key.isRevoked && old?.isRevoked !== true;
      // A file that was restored from an old copy brings revoked keys back.
      const isBack = old?.isRevoked === true && !key.isRevoked;
      const known = old === undefined ? "added" : "changed";
      const verb = isRevoked ? "revoked" : isBack ? "REVOKED BEFORE, IN FORCE AGAIN:" : known;
      changes.push(`${verb} ${key.identity.name}`);
      return [record.id, key] as const;
    });
    this.#keys = new Map(kept);
    // A revoked key must not stand in the place of one that has come after it.
    this.#byCertificate = new Map(
      records
        .toSorted((one, other) => Number(isRevokedRecord(other)) - Number(isRevokedRecord(one)))
        .flatMap(({ id, certificate }) => {
          const key = this.#keys.get(id);
          return certificate === undefined || key === undefined
            ? []
            : [[certificate, key] as const];
        }),
    );
    for (const [id, old] of before) {
      const now = this.#keys.get(id);
      if (now === old) continue;
      if (now === undefined) changes.push(`removed ${old.identity.name}`);
      endIdentity(old.identity, now === undefined || now.isRevoked ? "revoked" : "changed");
    }
    return changes;
  }

  /** All keys, revoked and expired ones too, without what proves them. */
  shown(): readonly ShownKey[] {
    return [...this.#keys.values()].map(({ text }) => {
      const { sha256: _secret, ...shown } = JSON.parse(text) as ApiKeyRecord;
      return shown;
    });
  }

  /** Keys that are neither revoked nor expired. */
  count(nowMs: number): number {
    return [...this.#keys.values()].filter(
      ({ identity, isRevoked }) => !isRevoked && !isExpired(identity, nowMs),
    ).length;
  }
}

function isRevokedRecord({ revokedAt }: ApiKeyRecord): boolean {
  return revokedAt !== undefined;
}

function keyOf(record: ApiKeyRecord): ApiKey {
  const { id, name, sha256 = NO_SECRET, grants, namespace, quotas, expiresAt, revokedAt } = record;
  const expiresAtMs = expiresAt === undefined ? undefined : parseRfc3339(expiresAt);
  return {
    digest: Uint8Array.from(sha256.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16)),
    identity: {
      // With the id: two keys may have one name, and the audit log must tell them apart.
      name: `${name}:${id}`,
      grants,
      ...(namespace === undefined ? {} : { namespace }),
      ...(quotas === undefined ? {} : { quotas }),
      ...(expiresAtMs === undefined ? {} : { expiresAtMs }),
    },
    isRevoked: revokedAt !== undefined,
  };
}
