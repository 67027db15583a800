/** Tokens and key sets for tests, also wrong ones: headers and claims are any text, and the signature any bytes. */

import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import {
  constants,
  createHmac,
  generateKeyPairSync,
  type JsonWebKey,
  type KeyObject,
  sign,
} from "node:crypto";
import type { Credentials } from "../../src/streams/access/identity.ts";

export type KeyKind = "rsa" | "p256" | "p384" | "p521" | "ed25519";

export interface TokenKey {
  readonly kid: string;
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
  /** Public, for a key set. */
  readonly jwk: JsonWebKey;
}

export function makeKey(kid: string, kind: KeyKind = "p256"): TokenKey {
  const { privateKey, publicKey } = makePair(kind);
  return { kid, privateKey, publicKey, jwk: { ...publicKey.export({ format: "jwk" }), kid } };
}

function makePair(kind: KeyKind) {
  if (kind === "rsa") return generateKeyPairSync("rsa", { modulusLength: 2048 });
  if (kind === "ed25519") return generateKeyPairSync("ed25519");
  return generateKeyPairSync("ec", { namedCurve: `P-${kind.slice(1)}` });
}

export function keySet(...keys: readonly (TokenKey | JsonWebKey)[]): string {
  return JSON.stringify({ keys: keys.map((key) => ("jwk" in key ? key.jwk : key)) });
}

/** As text it is taken as it is. */
type Part = string | object;

const encoded = (part: Part): string =>
  Buffer.from(typeof part === "string" ? part : JSON.stringify(part)).toString("base64url");

/** Signs with the algorithm, no matter what the header says. */
export function makeToken(header: Part, claims: Part, key: KeyObject, algorithm: string): string {
  const input = `${encoded(header)}.${encoded(claims)}`;
  return `${input}.${signature(input, key, algorithm).toString("base64url")}`;
}

/** A token with this text as its secret. */
export function makeHmacToken(header: Part, claims: Part, secret: string | Buffer): string {
  const input = `${encoded(header)}.${encoded(claims)}`;
  return `${input}.${createHmac("sha256", secret).update(input).digest("base64url")}`;
}

export function unsigned(header: Part, claims: Part): string {
  return `${encoded(header)}.${encoded(claims)}.`;
}

function signature(input: string, key: KeyObject, algorithm: string): Buffer {
  const bytes = Buffer.from(input);
  const hash = `sha${algorithm.slice(2)}`;
  if (algorithm.startsWith("RS")) return sign(hash, bytes, key);
  if (algorithm.startsWith("PS")) {
    const padding = constants.RSA_PKCS1_PSS_PADDING;
    return sign(hash, bytes, { key, padding, saltLength: constants.RSA_PSS_SALTLEN_DIGEST });
  }
  if (algorithm.startsWith("ES")) return sign(hash, bytes, { key, dsaEncoding: "ieee-p1363" });
  return sign(undefined, bytes, key);
}

/** A request with this token. */
export function bearing(token: string): Credentials {
  return asking({ authorization: `Bearer ${token}` });
}

export function asking(
  headers: Readonly<Record<string, string>> = {},
  target = "/v1/stream/a",
  method = "GET",
): Credentials {
  const { pathname, search } = new URL(target, "http://localhost");
  return {
    method,
    path: pathname,
    query: search.slice(1),
    header: (name) => headers[name],
  };
}

export interface KeyServer extends AsyncDisposable {
  readonly url: string;
  /** Requests so far. */
  readonly calls: number;
  answer: RequestListener;
  /** No connection is taken from now on, and the open ones end. */
  stop(): Promise<void>;
  /** At the same port. */
  start(): Promise<void>;
}

/** A provider's key set on a real server. */
export async function startKeyServer(text: string): Promise<KeyServer> {
  let port = 0;
  let calls = 0;
  const server = createServer((request, response) => {
    calls += 1;
    handle.answer(request, response);
  });
  const stop = async (): Promise<void> => {
    server.closeAllConnections();
    if (server.listening) await new Promise((resolve) => server.close(resolve));
  };
  const start = async (): Promise<void> => {
    await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
    // A TCP server has such an address.
    port = (server.address() as AddressInfo).port;
  };
  await start();
  const handle: KeyServer = {
    url: `http://127.0.0.1:${port}/jwks.json`,
    get calls() {
      return calls;
    },
    answer: (_request, response) => response.end(text),
    stop,
    start,
    [Symbol.asyncDispose]: stop,
  };
  return handle;
}
