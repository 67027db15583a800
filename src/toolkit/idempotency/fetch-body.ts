/** The content of a call. Every attempt sends the same bytes. */

import { hexOf } from "../../base/hex.ts";
import { canonicalValue } from "../rules/canonical-json.ts";
import { exactJson } from "../../base/exact-json.ts";
import { webDigest } from "../../base/digest.ts";
import { HapaxError } from "../../base/errors.ts";

/** A body that can be sent more than once. */
export type RepeatableBody = string | URLSearchParams | ArrayBuffer | ArrayBufferView;

/** The `RequestInit` of `fetch`, with a body that can be repeated, or a value that is sent as JSON. */
export interface IdempotentInit extends Omit<RequestInit, "body"> {
  readonly body?: RepeatableBody | null;
  /** Sent as `application/json`, with the members of objects sorted by name. */
  readonly json?: unknown;
}

/** The content that every attempt sends. */
export interface Content {
  readonly method: string;
  readonly url: string;
  readonly headers: Headers;
  readonly body: Uint8Array<ArrayBuffer> | undefined;
  readonly digest: string;
}

const utf8 = new TextEncoder();

/** Builds the content of a call. Throws `invalid_request` if it cannot be sent twice, or has a key already. */
export async function contentOf(
  url: string | URL,
  init: IdempotentInit,
  keyHeader: string,
): Promise<Content> {
  const headers = new Headers(init.headers);
  if (headers.has(keyHeader)) {
    throw new HapaxError("invalid_request", `the call has a key of its own: header=${keyHeader}`);
  }
  const { type, bytes } = bodyOf(init);
  if (type !== undefined && !headers.has("content-type")) headers.set("content-type", type);
  const { method, url: address } = checked(url, init.method ?? "POST", headers);
  const head = JSON.stringify([method, address, headers.get("content-type")]);
  // The length of the head separates it from every possible body.
  const digest = await digestOf(utf8.encode(`${head.length} ${head}`), bytes ?? new Uint8Array());
  return { method, url: address, headers, body: bytes, digest };
}

const SAFE = new Set(["GET", "HEAD", "OPTIONS"]);

/** Checks that the platform accepts the request. A refusal in `fetch` would look like a network failure. */
function checked(url: string | URL, method: string, headers: Headers): Request {
  let request: Request;
  try {
    request = new Request(url, { method, headers });
  } catch (cause) {
    throw new HapaxError("invalid_request", `cannot be sent: method=${method} url=${String(url)}`, {
      cause,
    });
  }
  if (SAFE.has(request.method)) {
    throw new HapaxError("invalid_request", `such calls need no key: method=${request.method}`);
  }
  return request;
}

interface Body {
  readonly type: string | undefined;
  readonly bytes: Uint8Array<ArrayBuffer> | undefined;
}

function bodyOf({ body, json }: IdempotentInit): Body {
  if (json !== undefined) {
    if (body !== undefined && body !== null) throw refused("both body and json are given");
    return { type: "application/json", bytes: utf8.encode(jsonOf(json)) };
  }
  if (body === undefined || body === null) return { type: undefined, bytes: undefined };
  if (typeof body === "string") {
    return { type: "text/plain;charset=UTF-8", bytes: utf8.encode(body) };
  }
  if (body instanceof URLSearchParams) {
    const type = "application/x-www-form-urlencoded;charset=UTF-8";
    return { type, bytes: utf8.encode(String(body)) };
  }
  // Copies, so that the caller may change its buffer later and a retry still sends the same bytes.
  if (body instanceof ArrayBuffer) return { type: undefined, bytes: new Uint8Array(body.slice(0)) };
  if (ArrayBuffer.isView(body)) {
    const { buffer, byteOffset, byteLength } = body;
    return { type: undefined, bytes: new Uint8Array(buffer, byteOffset, byteLength).slice() };
  }
  throw refused("a body that may not be readable twice (a stream, a form, a file)");
}

/** Encodes with sorted members: a caller that builds the value anew after a restart sends the same bytes. */
function jsonOf(value: unknown): string {
  const json = exactJson(value, "json");
  if (!("text" in json)) throw refused(`${json.path} ${json.problem}, and JSON cannot keep it`);
  const canonical = canonicalValue(JSON.parse(json.text));
  if (canonical === undefined) throw refused("a JSON value that is too deep");
  return canonical;
}

function refused(what: string): HapaxError {
  const allowed = "send a text, bytes, URLSearchParams, or json";
  return new HapaxError("invalid_request", `cannot repeat this call: ${what}; ${allowed}`);
}

async function digestOf(head: Uint8Array, body: Uint8Array): Promise<string> {
  const all = new Uint8Array(head.length + body.length);
  all.set(head);
  all.set(body, head.length);
  const digest = await webDigest(all);
  return hexOf(digest);
}
