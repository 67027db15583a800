/**
 * Signed URLs, for what cannot send a header: `EventSource`, downloads, beacons. Each allows one action on one stream until it
 * expires.
 *
 *   - path, action, end, lowest offset, name, producer and key are signed (HMAC-SHA-256) and compared in constant time; the rest of the
 *     query is free, so that a reader can resume;
 *   - a URL lives at most `signedUrlMsMax`, also if a longer life was signed;
 *   - a request with an `Authorization` header is not looked at: one credential decides.
 *
 * PROTOCOL.md §21.7.
 */

import { decodeBase64url, encodeBase64url } from "../../base/base64.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { OptionsCheck } from "../../base/options-check.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { isReserved } from "../../protocol/reserved.ts";
import { parseOffset, parseQuery, parseStreamPath } from "../../protocol/values.ts";
import type { Authorize, Credentials, Identity, IdentityRefusal } from "./identity.ts";
import {
  isKeyId,
  isSignedName,
  isSignedProducer,
  readSigned,
  type SignedMembers,
  signedText,
  writeSigned,
} from "./signed-url-members.ts";
import { markOwn } from "./own-authorize.ts";

/** A secret that signs URLs. */
export interface UrlKey {
  /** Stands in the URL: 1 to 64 letters, digits, dots, hyphens and underscores. */
  readonly id: string;
  /** At least 32 random bytes in base64url. */
  readonly secret: string;
}

/** Options of `signUrl`. */
export interface SignUrlOptions {
  readonly key: UrlKey;
  /** `read`: GET and HEAD. `append`: POST. */
  readonly action: "read" | "append";
  /** Unix time in ms, at most 7 days from now. */
  readonly expiresAtMs: number;
  /** For `read`: nothing before this offset can be read. */
  readonly fromOffset?: string;
  /** For logs: who uses the URL. 1 to 128 letters, digits and `._~@-`. Default: the id of the key. */
  readonly name?: string;
  /**
   * For `append`: the only producer id that appends may carry, so that the URL cannot fence another producer of the stream. 1 to 128
   * letters, digits and `._~@-`. Default: any id.
   */
  readonly producer?: string;
  readonly clock?: Clock;
}

/** Options of `signedUrlAuthorize`. */
export interface SignedUrlOptions {
  /** Every key that may have signed. A function is asked with each request, so that keys can be replaced. */
  readonly keys: readonly UrlKey[] | (() => readonly UrlKey[]);
  readonly clock?: Clock;
}

interface LoadedKey {
  readonly crypto: Promise<CryptoKey>;
  /** URLs that were verified, by the text that is signed and its signature. */
  readonly verified: Map<string, Identity>;
}

const MISSING: IdentityRefusal = { refused: "missing" };
const HMAC = { name: "HMAC", hash: "SHA-256" } as const;
const SECRET_BYTES_MIN = 32;
const METHODS = { read: ["GET", "HEAD"], append: ["POST"] } as const;
/** For URLs that are only a path. */
const BASE = "http://localhost";
const utf8 = new TextEncoder();

/**
 * Signs the URL of a stream, or its path. Anyone who has the result may do the action until it expires, so treat it as a secret.
 *
 * ```ts
 * import { signedUrlAuthorize, signUrl } from "hapax/server";
 *
 * const key = { id: "2026-11", secret: Buffer.alloc(32, "x").toString("base64url") }; // Yours is random.
 * const expiresAtMs = Date.now() + 10 * 60_000;
 * const url = await signUrl("/v1/stream/orders?offset=-1&live=sse", { key, action: "read", expiresAtMs });
 *
 * const authorize = signedUrlAuthorize({ keys: [key] });
 * const [path = "", query = ""] = url.split("?");
 * const identity = await authorize({ method: "GET", path, query, header: () => undefined });
 * console.assert("grants" in identity && identity.grants[0]?.streams?.[0] === "/v1/stream/orders");
 * ```
 */
export async function signUrl(url: string, options: SignUrlOptions): Promise<string> {
  const { key, action, expiresAtMs, fromOffset: from, name, producer } = options;
  const { clock = systemClock } = options;
  const check = new OptionsCheck(HapaxError);
  const target = new URL(URL.canParse(url, BASE) ? url : "/", BASE);
  if (streamOf(target.pathname) === undefined) check.problem("url is not the URL of a stream");
  if (readSigned(target.search.slice(1)) !== "absent") check.problem("url is signed already");
  if (urlKeyProblem(key) !== undefined) check.problem(`key ${urlKeyProblem(key) ?? ""}`);
  if (!Object.hasOwn(METHODS, action)) check.problem("action must be read or append");
  const leftMs = expiresAtMs - clock.nowMs();
  if (!(leftMs > 0 && leftMs <= LIMITS.signedUrlMsMax)) {
    check.problem("expiresAtMs must be later than now, by at most 7 days");
  }
  if (from !== undefined && (action !== "read" || parseOffset(from)?.kind !== "at")) {
    check.problem("fromOffset must be an offset of this server, and action must be read");
  }
  if (name !== undefined && !isSignedName(name)) {
    check.problem("name must be 1 to 128 letters, digits and ._~@-");
  }
  if (producer !== undefined && (action !== "append" || !isSignedProducer(producer))) {
    check.problem("producer must be 1 to 128 letters, digits and ._~@-, and action must be append");
  }
  check.end();
  const { pathname, search, origin } = target;
  const expiresSeconds = Math.floor(expiresAtMs / 1000);
  const members: SignedMembers = { action, expiresSeconds, keyId: key.id, from, name, producer };
  const text = utf8.encode(signedText(pathname, members));
  const bytes = await crypto.subtle.sign(HMAC, await importKey(key), text);
  const signature = encodeBase64url(new Uint8Array(bytes));
  const query = withOffset(search.slice(1), from);
  const start = url.startsWith("/") ? pathname : origin + pathname;
  return `${start}?${query === "" ? "" : `${query}&`}${writeSigned({ ...members, signature })}`;
}

/** Without an offset the URL would read from the beginning, and be refused. */
function withOffset(query: string, from: string | undefined): string {
  if (from === undefined || parseQuery(query).get("offset").kind !== "absent") return query;
  return `${query === "" ? "" : `${query}&`}offset=${from}`;
}

/** Authorizes requests for signed URLs. The identity may do the one action on the one stream. */
export function signedUrlAuthorize(options: SignedUrlOptions): Authorize {
  const { keys, clock = systemClock } = options;
  const current = typeof keys === "function" ? keys : () => keys;
  const check = new OptionsCheck(HapaxError);
  for (const key of current()) {
    const problem = urlKeyProblem(key);
    if (problem !== undefined) check.problem(`keys: a key ${problem}`);
  }
  check.end();
  const verifier = new UrlVerifier(current, clock);
  return markOwn((credentials) => verifier.authorize(credentials));
}

class UrlVerifier {
  readonly #keys: () => readonly UrlKey[];
  readonly #clock: Clock;
  /** By object: what was verified with a key is forgotten with it. */
  readonly #loaded = new WeakMap<UrlKey, LoadedKey>();

  constructor(keys: () => readonly UrlKey[], clock: Clock) {
    this.#keys = keys;
    this.#clock = clock;
  }

  authorize(credentials: Credentials): ReturnType<Authorize> {
    if (credentials.header("authorization") !== undefined) return MISSING;
    const { path, query, method } = credentials;
    const signed = readSigned(query);
    if (signed === "absent") return MISSING;
    if (signed === "invalid") return invalid("the query is not that of a signed URL");
    const stream = streamOf(path);
    const key = this.#keys().find(({ id }) => id === signed.keyId);
    if (stream === undefined || key === undefined) return invalid("the URL is not signed here");
    const loaded = this.#load(key);
    const text = signedText(path, signed);
    const judge = (identity: Identity): Identity | IdentityRefusal =>
      this.#refusalOf(signed, method, credentials) ?? identity;
    const known = loaded.verified.get(`${text}\n${signed.signature}`);
    if (known !== undefined) return judge(known);
    return verify(loaded, text, signed.signature).then((isGood) => {
      if (!isGood) return invalid("the signature of the URL is not valid");
      const identity = identityOf(stream, signed);
      if (loaded.verified.size >= LIMITS.signedUrlsRememberedMax) loaded.verified.clear();
      loaded.verified.set(`${text}\n${signed.signature}`, identity);
      return judge(identity);
    });
  }

  /** What is wrong with a request whose URL is signed. Asked each time: the signature is remembered, the rest is not. */
  #refusalOf(
    signed: SignedMembers,
    method: string,
    credentials: Credentials,
  ): IdentityRefusal | undefined {
    const leftMs = signed.expiresSeconds * 1000 - this.#clock.nowMs();
    if (leftMs <= 0) return { refused: "expired", detail: "the signed URL has expired" };
    if (leftMs > LIMITS.signedUrlMsMax + LIMITS.signedUrlSkewMs) {
      return invalid("the signed URL lives longer than 7 days");
    }
    const methods: readonly string[] = METHODS[signed.action];
    if (!methods.includes(method)) return invalid(`the URL is signed for ${signed.action} alone`);
    if (signed.from === undefined) return undefined;
    if (signed.action === "read" && isWithin(signed.from, credentials)) return undefined;
    return invalid("the URL is signed for later offsets alone");
  }

  #load(key: UrlKey): LoadedKey {
    let loaded = this.#loaded.get(key);
    if (loaded === undefined) {
      loaded = { crypto: importKey(key), verified: new Map() };
      this.#loaded.set(key, loaded);
    }
    return loaded;
  }
}

/** Both must be within: the server takes Last-Event-ID instead of the offset, but only from some readers. */
function isWithin(from: string, credentials: Credentials): boolean {
  // It has no content.
  if (credentials.method === "HEAD") return true;
  const given = parseQuery(credentials.query).get("offset");
  if (given.kind !== "value" && given.kind !== "absent") return false;
  const lastEventId = credentials.header("last-event-id") ?? "";
  const offsets = [given.kind === "value" ? given.value : "-1"];
  if (lastEventId !== "") offsets.push(lastEventId);
  return offsets.every((offset) => isFrom(from, offset));
}

function isFrom(from: string, offset: string): boolean {
  const [least, parsed] = [parseOffset(from), parseOffset(offset)];
  if (parsed?.kind === "now" || parsed?.kind === "beyond") return true;
  if (least?.kind !== "at" || parsed === undefined) return false;
  return (parsed.kind === "at" ? parsed.offset : 0) >= least.offset;
}

function identityOf(
  stream: string,
  { action, expiresSeconds, keyId, name, producer }: SignedMembers,
): Identity {
  return {
    name: name ?? `signed-url:${keyId}`,
    grants: [
      {
        actions: [action],
        streams: [stream.replaceAll("*", "%2A")],
        ...(producer === undefined ? {} : { producers: [producer] }),
      },
    ],
    expiresAtMs: expiresSeconds * 1000,
  };
}

/** The name of the stream at a path. In a pattern `%2A` is a star, so a name that has it cannot be granted. */
function streamOf(path: string): string | undefined {
  const parsed = parseStreamPath(path);
  if (parsed.kind === "invalid" || isReserved(parsed.name)) return undefined;
  return parsed.name === "/" || /%2a/i.test(parsed.name) ? undefined : parsed.name;
}

async function verify(loaded: LoadedKey, text: string, signature: string): Promise<boolean> {
  const bytes = decodeBase64url(signature);
  if (bytes === undefined) return false;
  // The platform compares in constant time.
  return crypto.subtle.verify(HMAC, await loaded.crypto, new Uint8Array(bytes), utf8.encode(text));
}

function importKey({ secret }: UrlKey): Promise<CryptoKey> {
  const bytes = new Uint8Array(decodeBase64url(secret) ?? []);
  return crypto.subtle.importKey("raw", bytes, HMAC, false, ["sign", "verify"]);
}

/** What is wrong with a key, without a word of its secret. */
export function urlKeyProblem({ id, secret }: UrlKey): string | undefined {
  if (typeof id !== "string" || !isKeyId(id)) {
    return "must have an id of 1 to 64 letters, digits, dots, hyphens and underscores";
  }
  const bytes = typeof secret === "string" ? decodeBase64url(secret) : undefined;
  if (bytes === undefined || bytes.length < SECRET_BYTES_MIN) {
    return `id=${id} must have a secret of at least ${SECRET_BYTES_MIN} bytes in base64url`;
  }
  return undefined;
}

function invalid(detail: string): IdentityRefusal {
  return { refused: "invalid", detail };
}
