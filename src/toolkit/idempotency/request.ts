/** A request as the engine sees it, whatever the framework is. */

import { HapaxError } from "../../base/errors.ts";

/** A request with a key. `Source` is what the framework has for it. */
export interface IdempotencyRequest<Source = unknown> {
  readonly method: string;
  /** Absolute. Adapters of `node:http` do not trust the Host header, and put `http://localhost` before the path. */
  readonly url: string;
  readonly headers: Headers;
  readonly body: RequestBody;
  /** The request of the framework: of `fetch`, `node:http`, Express, Fastify, or the context of Hono. */
  readonly source: Source;
  /** Aborts when its client has gone: nobody waits any more, but what has begun goes on. */
  readonly signal?: AbortSignal | undefined;
}

/** The bytes, or what somebody has parsed from them before. */
export type RequestBody =
  | { readonly kind: "bytes"; readonly bytes: Uint8Array }
  | { readonly kind: "parsed"; readonly value: unknown }
  /** There is a body, and somebody has read it, or will, without leaving it where it can be compared. */
  | { readonly kind: "unseen" };

const NOTHING = new Uint8Array(0);
const encoder = new TextEncoder();

/** What a framework left in `request.body`. */
export function bodyOf(value: unknown, headers: Headers): RequestBody {
  // Nothing and something unknown must not look the same: all requests would.
  if (!hasBody(headers) && isNothing(value)) return { kind: "bytes", bytes: NOTHING };
  if (value === undefined) return { kind: "unseen" };
  if (value instanceof Uint8Array) return { kind: "bytes", bytes: value };
  if (value instanceof ArrayBuffer) return { kind: "bytes", bytes: new Uint8Array(value) };
  // A JSON text may be one string.
  if (typeof value === "string" && !isJson(essenceOf(headers.get("content-type"))))
    return { kind: "bytes", bytes: encoder.encode(value) };
  return { kind: "parsed", value };
}

/** What parsers say of a request without a body; some say `{}`. */
function isNothing(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  return Object.getPrototypeOf(value) === Object.prototype && Object.keys(value).length === 0;
}

/** RFC 9112, 6. */
function hasBody(headers: Headers): boolean {
  return headers.has("transfer-encoding") || Number(headers.get("content-length") ?? 0) > 0;
}

/** The bytes of a body; of parsed JSON, some that say the same; undefined if they are not known. */
export function bytesOf(body: RequestBody, headers: Headers): Uint8Array | undefined {
  if (body.kind === "bytes") return body.bytes;
  // What was parsed from anything else is no JSON to whoever reads it again by its type.
  if (body.kind === "unseen" || !isJson(essenceOf(headers.get("content-type")))) return undefined;
  return encoder.encode(JSON.stringify(body.value) ?? "");
}

/** The type without its parameters, in lower case. */
export function essenceOf(contentType: string | null): string {
  return (contentType ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
}

export function isJson(essence: string): boolean {
  return essence === "application/json" || essence.endsWith("+json") || essence === "text/json";
}

/**
 * The address of a request of `node:http`. The host is the client's word: the path is all that counts. It is as it was
 * sent, since routers take it so: `//a/b` is a path, and no host.
 */
export function urlOf(target: string): string {
  const path = target.startsWith("/") ? target : target.replace(AUTHORITY, "");
  return `http://localhost${path.startsWith("/") ? "" : "/"}${path}`;
}

const AUTHORITY = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i;

/** The path and the query, as they are. */
export function targetOf(url: string): string {
  return url.replace(AUTHORITY, "").split("#", 1)[0] ?? "";
}

/** Reads the whole body of a request of `fetch`. Throws `body_too_large`. */
export async function readBody(request: Request, bytesMax: number): Promise<Uint8Array> {
  if (Number(request.headers.get("content-length") ?? 0) > bytesMax) throw tooLarge(bytesMax);
  if (request.body === null) return NOTHING;
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = request.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return concat(chunks, length);
    length += value.length;
    if (length > bytesMax) {
      await reader.cancel();
      throw tooLarge(bytesMax);
    }
    chunks.push(value);
  }
}

/** Headers as `node:http` has them. */
export function headersOf(all: Readonly<Record<string, string | string[] | undefined>>): Headers {
  const headers = new Headers();
  for (const [name, value] of Object.entries(all)) {
    // HTTP/2 has the target among its headers.
    if (value === undefined || name.startsWith(":")) continue;
    for (const one of Array.isArray(value) ? value : [value]) headers.append(name, one);
  }
  return headers;
}

/** A message of `node:http`, in as much as its headers are counted. */
export interface CountedHeaders {
  readonly headers: Readonly<Record<string, unknown>>;
  readonly rawHeaders: readonly string[];
  /** Absent in HTTP/2, where nothing is left out. */
  readonly headersDistinct?: Readonly<Record<string, readonly string[] | undefined>>;
}

/**
 * Whether `node:http` has left headers out: those behind `maxHeadersCount`, by default the 1,000th, in silence. The key may
 * be one of them.
 */
export function hasLostHeaders({ headers, rawHeaders, headersDistinct }: CountedHeaders): boolean {
  if (headersDistinct === undefined) return false;
  if (Object.keys(headers).length * 2 === rawHeaders.length) return false;
  let values = 0;
  for (const name in headersDistinct) values += headersDistinct[name]?.length ?? 0;
  return values * 2 < rawHeaders.length;
}

export const LOST_HEADERS = "the request has more headers than this server reads";

export function tooLarge(bytesMax: number): HapaxError {
  return new HapaxError("body_too_large", `the body is too large; bodyBytesMax=${bytesMax}`);
}

export function concat(chunks: readonly Uint8Array[], length: number): Uint8Array {
  const [first] = chunks;
  if (first !== undefined && chunks.length === 1) return first;
  const all = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}
