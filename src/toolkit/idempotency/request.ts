/** A request as the engine sees it, for every framework. */

import { BodyPieces } from "../../base/body-pieces.ts";
import { mediaType } from "../../base/media-type.ts";
import { HapaxError } from "../../base/errors.ts";

/** A request with a key. `Source` is the framework's own type for it. */
export interface IdempotencyRequest<Source = unknown> {
  readonly method: string;
  /** Absolute. Adapters of `node:http` do not trust the Host header, and put `http://localhost` before the path. */
  readonly url: string;
  readonly headers: Headers;
  readonly body: RequestBody;
  /** The request of the framework: of `fetch`, `node:http`, Express, Fastify, or the context of Hono. */
  readonly source: Source;
  /** Aborts when its client has gone. Then the request stops waiting, but work that has begun goes on. */
  readonly signal?: AbortSignal | undefined;
}

/** Reads single headers: `Headers`, or what is cheaper to make. */
export type HeaderReader = Pick<Headers, "get" | "has">;

/** A request of an adapter whose `headers` are made when they are asked for. The engine reads with `reader`. */
export interface AdaptedRequest<Source> extends IdempotencyRequest<Source> {
  readonly reader?: HeaderReader;
}

/** The bytes of a body, or the result of an earlier parser. */
export type RequestBody =
  | { readonly kind: "bytes"; readonly bytes: Uint8Array }
  | { readonly kind: "parsed"; readonly value: unknown }
  /** A body exists, but other code reads it, and leaves nothing that could be compared. */
  | { readonly kind: "unseen" };

const NOTHING = new Uint8Array(0);
const encoder = new TextEncoder();

/** Returns the body from the value that a framework left in `request.body`. */
export function bodyOf(value: unknown, headers: HeaderReader): RequestBody {
  // An empty body and an unknown one must differ: otherwise all requests would look the same.
  if (!hasBody(headers) && isNothing(value)) return { kind: "bytes", bytes: NOTHING };
  if (value === undefined) return { kind: "unseen" };
  if (value instanceof Uint8Array) return { kind: "bytes", bytes: value };
  if (value instanceof ArrayBuffer) return { kind: "bytes", bytes: new Uint8Array(value) };
  // A JSON text may be a single string.
  if (typeof value === "string" && !isJsonEssence(essenceOf(headers.get("content-type"))))
    return { kind: "bytes", bytes: encoder.encode(value) };
  return { kind: "parsed", value };
}

/** Returns whether a parser found no body; some parsers return `{}` then. */
function isNothing(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  return Object.getPrototypeOf(value) === Object.prototype && Object.keys(value).length === 0;
}

/** RFC 9112, 6. */
function hasBody(headers: HeaderReader): boolean {
  return headers.has("transfer-encoding") || Number(headers.get("content-length") ?? 0) > 0;
}

/** Returns the bytes of a body; for parsed JSON, bytes with the same meaning; undefined if they are unknown. */
export function bytesOf(body: RequestBody, headers: HeaderReader): Uint8Array | undefined {
  if (body.kind === "bytes") return body.bytes;
  // A value that was parsed from another type must not become JSON: later readers go by the type.
  if (body.kind === "unseen" || !isJsonEssence(essenceOf(headers.get("content-type"))))
    return undefined;
  return encoder.encode(JSON.stringify(body.value) ?? "");
}

/** Returns the type without its parameters, in lower case. */
export function essenceOf(contentType: string | null): string {
  return mediaType(contentType ?? "");
}

export function isJsonEssence(essence: string): boolean {
  return essence === "application/json" || essence.endsWith("+json") || essence === "text/json";
}

/**
 * Returns the address of a request of `node:http`. Only the path counts, because the client chooses the host. The path stays
 * as it was sent, as routers take it: `//a/b` is a path, and not a host.
 */
export function urlOf(target: string): string {
  const path = target.startsWith("/") ? target : target.replace(AUTHORITY, "");
  return `http://localhost${path.startsWith("/") ? "" : "/"}${path}`;
}

const AUTHORITY = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i;

/** Returns the path and the query, unchanged. */
export function targetOf(url: string): string {
  return url.replace(AUTHORITY, "").split("#", 1)[0] ?? "";
}

/** Reads the whole body of a request of `fetch`. Throws `body_too_large`. */
export async function readBody(request: Request, bytesMax: number): Promise<Uint8Array> {
  if (Number(request.headers.get("content-length") ?? 0) > bytesMax) throw bodyTooLarge(bytesMax);
  if (request.body === null) return NOTHING;
  const pieces = new BodyPieces();
  const reader = request.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return pieces.whole();
    if (pieces.bytes + value.length > bytesMax) {
      await reader.cancel();
      throw bodyTooLarge(bytesMax);
    }
    pieces.add(value);
  }
}

/**
 * Returns the request with a body that can be read again. Some servers hand over an object that only looks like a `Request`, and the
 * platform cannot copy it: then the copy is made from its parts.
 */
export function unreadRequest(request: Request, bytes: Uint8Array): Request {
  // Cast: the type requires bytes that no other thread can change; ours are never shared.
  const body = bytes as Uint8Array<ArrayBuffer>;
  const { method, url, headers, signal } = request;
  try {
    return new Request(request, { method, body });
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    return new Request(url, { method, headers: [...headers], body, signal });
  }
}

/** The headers of a message of `node:http`. */
type MessageHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** Converts the headers of `node:http`. */
function headersOf(all: MessageHeaders): Headers {
  const headers = new Headers();
  for (const [name, value] of Object.entries(all)) {
    // HTTP/2 has the target among its headers.
    if (value === undefined || name.startsWith(":")) continue;
    for (const one of Array.isArray(value) ? value : [value]) headers.append(name, one);
  }
  return headers;
}

/** Reads the headers of a message of `node:http`. Most requests need three of them: `Headers` of all take much longer. */
export class MessageReader implements HeaderReader {
  readonly #all: MessageHeaders;
  readonly #values = new Map<string, string>();
  #headers: Headers | undefined;

  constructor(all: MessageHeaders) {
    this.#all = all;
    for (const name of Object.keys(all)) {
      const value = all[name];
      if (value === undefined) continue;
      const lower = name.toLowerCase();
      const before = this.#values.get(lower);
      const text = Array.isArray(value) ? value.join(", ") : String(value);
      this.#values.set(lower, before === undefined ? text : `${before}, ${text}`);
    }
  }

  /** All of them. They are made once. */
  get headers(): Headers {
    this.#headers ??= headersOf(this.#all);
    return this.#headers;
  }

  get(name: string): string | null {
    return this.#values.get(name.toLowerCase()) ?? null;
  }

  has(name: string): boolean {
    return this.#values.has(name.toLowerCase());
  }
}

/** The part of a response that says when its client has gone. */
interface ClosingResponse {
  readonly closed?: boolean;
  once(event: "close", listener: () => void): unknown;
}

/** Returns a request whose headers and signal are made when they are asked for: most handlers ask for neither. */
export function adaptedRequest<Source>(
  parts: Pick<IdempotencyRequest<Source>, "method" | "url" | "body" | "source">,
  reader: MessageReader,
  response: ClosingResponse,
): AdaptedRequest<Source> {
  let gone: AbortController | undefined;
  return {
    method: parts.method,
    url: parts.url,
    body: parts.body,
    source: parts.source,
    reader,
    get headers() {
      return reader.headers;
    },
    get signal() {
      gone ??= goneWith(response);
      return gone.signal;
    },
  };
}

function goneWith(response: ClosingResponse): AbortController {
  const gone = new AbortController();
  if (response.closed === true) gone.abort();
  else
    response.once("close", () => {
      gone.abort();
    });
  return gone;
}

/** The members of a `node:http` message that are needed to count its headers. */
export interface CountedHeaders {
  readonly headers: Readonly<Record<string, unknown>>;
  readonly rawHeaders: readonly string[];
  /** Absent in HTTP/2, where nothing is left out. */
  readonly headersDistinct?: Readonly<Record<string, readonly string[] | undefined>>;
}

/**
 * Returns whether `node:http` has left headers out. It silently drops those after `maxHeadersCount`, by default 1,000. The
 * key may be one of them.
 */
export function hasLostHeaders(message: CountedHeaders): boolean {
  const { headers, rawHeaders } = message;
  if (Object.keys(headers).length * 2 === rawHeaders.length) return false;
  // Made when it is asked for. Most requests have each header once, and do not come here.
  const { headersDistinct } = message;
  if (headersDistinct === undefined) return false;
  let values = 0;
  for (const name in headersDistinct) values += headersDistinct[name]?.length ?? 0;
  return values * 2 < rawHeaders.length;
}

export const LOST_HEADERS = "the request has more headers than this server reads";

export function bodyTooLarge(bytesMax: number): HapaxError {
  return new HapaxError("body_too_large", `the body is too large; bodyBytesMax=${bytesMax}`);
}
