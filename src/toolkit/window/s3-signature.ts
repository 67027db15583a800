/**
 * Signs requests to S3 and stores like it: AWS Signature Version 4, by Web Crypto. The whole request is signed, its body by its
 * SHA-256, so a changed body is refused by the store.
 */

import { utf8Of } from "../../base/bytes.ts";
import { webDigest } from "../../base/digest.ts";
import { hexOf } from "../../base/hex.ts";

/** The credentials that requests are signed with. Never written into logs or errors. */
export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** The token of temporary credentials. */
  readonly sessionToken?: string | undefined;
}

export interface S3Request {
  readonly method: string;
  readonly url: URL;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** Returns the headers of the request with those of its signature. */
export async function signS3Request(
  request: S3Request,
  credentials: S3Credentials,
  region: string,
  nowMs: number,
): Promise<Record<string, string>> {
  const time = timeText(nowMs);
  const scope = `${time.slice(0, 8)}/${region}/s3/aws4_request`;
  const bodyDigest = hexOf(await webDigest(request.body));
  const { sessionToken } = credentials;
  const headers: Record<string, string> = {
    ...request.headers,
    host: request.url.host,
    "x-amz-content-sha256": bodyDigest,
    "x-amz-date": time,
    ...(sessionToken === undefined ? {} : { "x-amz-security-token": sessionToken }),
  };
  const names = Object.keys(headers).toSorted();
  const canonical = [
    request.method,
    request.url.pathname.split("/").map(encoded).join("/"),
    queryText(request.url),
    ...names.map((name) => `${name}:${headers[name]?.trim() ?? ""}`),
    "",
    names.join(";"),
    bodyDigest,
  ].join("\n");
  const canonicalDigest = hexOf(await webDigest(utf8Of(canonical)));
  const text = ["AWS4-HMAC-SHA256", time, scope, canonicalDigest].join("\n");
  const signature = hexOf(await hmac(await signingKey(credentials, scope), text));
  const credential = `${credentials.accessKeyId}/${scope}`;
  const authorization = `AWS4-HMAC-SHA256 Credential=${credential}, SignedHeaders=${names.join(";")}, Signature=${signature}`;
  // `fetch` sets the host by itself, and lets no caller do it.
  const { host: _, ...sent } = headers;
  return { ...sent, authorization };
}

/** `20261118T024500Z` */
function timeText(nowMs: number): string {
  // oxlint-disable-next-line no-restricted-globals -- It writes a given time and reads no clock.
  return new Date(nowMs).toISOString().replace(/[-:]|\.\d+/g, "");
}

async function signingKey(credentials: S3Credentials, scope: string): Promise<Uint8Array> {
  let key = utf8Of(`AWS4${credentials.secretAccessKey}`);
  for (const part of scope.split("/")) key = await hmac(key, part);
  return key;
}

async function hmac(key: Uint8Array, text: string): Promise<Uint8Array> {
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  // The types want bytes that no other thread can change; ours are never shared.
  const secret = key as Uint8Array<ArrayBuffer>;
  const imported = await crypto.subtle.importKey("raw", secret, algorithm, false, ["sign"]);
  const bytes = utf8Of(text) as Uint8Array<ArrayBuffer>;
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, bytes));
}

/** The members in the order of their names, each encoded as the signature wants it. */
function queryText(url: URL): string {
  return [...url.searchParams]
    .map(([name, value]) => `${encodeMember(name)}=${encodeMember(value)}`)
    .toSorted()
    .join("&");
}

/** A part of a path, which the URL has encoded in its own way. */
const encoded = (part: string): string => encodeMember(decodeURIComponent(part));

/** Percent-encodes everything but letters, digits and `-._~` (RFC 3986). */
export function encodeMember(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}
