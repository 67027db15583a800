/**
 * Makes a digest of a request's content: the same for a repetition, another one for another request.
 *
 *   - the same JSON is the same content, in every spelling and from every parser; so is the same form, with any boundary;
 *   - another method, path, query, type or byte is other content: no two parts can be taken for one another.
 */

import { joinBytes } from "../../base/bytes.ts";
import { hexOf } from "../../base/hex.ts";
import { canonicalForms, canonicalValue } from "../rules/canonical-json.ts";
import { formatFingerprint } from "../../base/content-fingerprint.ts";
import type { Digest } from "../../base/digest.ts";
import { HapaxError } from "../../base/errors.ts";
import {
  type AdaptedRequest,
  essenceOf,
  type HeaderReader,
  isJsonEssence,
  type RequestBody,
  targetOf,
} from "./request.ts";

const FORM_TYPE = "application/x-www-form-urlencoded";
/** Deeper forms are an attack. */
const FORM_DEPTH_MAX = 64;
/** Method, target and type: 128 bits tell them apart. */
const HEAD_CHARS = 32;

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * Returns a digest of method, path with query, content type, and the canonical JSON, the form or the bytes of the body: at once if
 * the digest does.
 */
export function fingerprintOf(
  request: AdaptedRequest<unknown>,
  digest: Digest,
): string | Promise<string> {
  const headers = request.reader ?? request.headers;
  const essence = essenceOf(headers.get("content-type"));
  const { plain, exact } = contentOf(request.body, headers, essence);
  const head = headOf(JSON.stringify([request.method, targetOf(request.url), essence]), digest);
  const plainOf = digestOf(plain, digest);
  const exactOf = exact === plain ? plainOf : digestOf(exact, digest);
  return head instanceof Promise || plainOf instanceof Promise || exactOf instanceof Promise
    ? later(head, plainOf, exactOf)
    : formatted(head, plainOf, exactOf);
}

async function later(
  head: string | Promise<string>,
  plain: ReturnType<Digest> | undefined,
  exact: ReturnType<Digest> | undefined,
): Promise<string> {
  const [headHex, plainOf, exactOf] = await Promise.all([head, plain, exact]);
  return formatted(headHex, plainOf, exactOf);
}

function formatted(
  head: string,
  plainOf: Uint8Array | undefined,
  exactOf: Uint8Array | undefined,
): string {
  const plain = plainOf === undefined ? undefined : hexOf(plainOf);
  const exact = exactOf === plainOf ? plain : exactOf === undefined ? undefined : hexOf(exactOf);
  return formatFingerprint({ head, plain, exact });
}

/** The digests of heads by the heads: the requests of an API have few different ones. */
const heads = new WeakMap<Digest, Map<string, string>>();
const HEADS_MAX = 256;
const HEAD_KEPT_CHARS_MAX = 256;

function headOf(text: string, digest: Digest): string | Promise<string> {
  let known = heads.get(digest);
  if (known === undefined) heads.set(digest, (known = new Map<string, string>()));
  const found = known.get(text);
  if (found !== undefined) return found;
  const bytes = digest(encoder.encode(text));
  if (bytes instanceof Promise) return bytes.then(headHexOf);
  const head = headHexOf(bytes);
  if (known.size === HEADS_MAX) known.clear();
  if (text.length <= HEAD_KEPT_CHARS_MAX) known.set(text, head);
  return head;
}

function headHexOf(bytes: Uint8Array): string {
  return hexOf(bytes).slice(0, HEAD_CHARS);
}

function digestOf(content: Content | undefined, digest: Digest): ReturnType<Digest> | undefined {
  if (content === undefined) return undefined;
  // The name of a form has no line feed, so the first line feed ends it, for every body.
  const before = `${content.form}\n`;
  return "text" in content
    ? digest(encoder.encode(before + content.text))
    : digest(joinBytes([encoder.encode(before), content.bytes]));
}

/** Returns a key for a remote service, of the request's key and the name of a phase: the same in every attempt. */
export async function derivedKey(parts: readonly string[], digest: Digest): Promise<string> {
  return hexOf(await digest(encoder.encode(JSON.stringify(parts))));
}

type Content =
  | { readonly form: "json" | "form" | "parts"; readonly text: string }
  | { readonly form: "bytes"; readonly bytes: Uint8Array };

/** The content as parsers understand it, and with every digit of its bytes. Undefined if this process cannot know it. */
interface Contents {
  readonly plain: Content | undefined;
  readonly exact: Content | undefined;
}

function contentOf(body: RequestBody, headers: HeaderReader, essence: string): Contents {
  if (body.kind === "unseen")
    throw new HapaxError(
      "unsupported",
      "the body was read before, or is not read yet, and cannot be compared: say what counts by the option fingerprint",
    );
  if (body.kind === "parsed")
    return { plain: parsedContent(body.value, essence), exact: undefined };
  const bytes: Content = { form: "bytes", bytes: body.bytes };
  // This file unpacks nothing; only a parser of the framework does.
  if (isPacked(headers)) return { plain: undefined, exact: bytes };
  const parts = essence.startsWith("multipart/") ? partsOf(body.bytes, headers) : undefined;
  if (parts !== undefined) return { plain: undefined, exact: textContent("parts", parts) };
  const text = isJsonEssence(essence) || essence === FORM_TYPE ? textOf(body.bytes) : undefined;
  if (text !== undefined && essence === FORM_TYPE) {
    const pairs = [...new URLSearchParams(text)];
    return {
      plain: textContent("form", formText(pairs.map(([name, value]) => [nameOf(name), value]))),
      exact: textContent("form", JSON.stringify(pairs)),
    };
  }
  const forms = text === undefined ? undefined : canonicalForms(text);
  // The handler refuses a body that claims to be JSON and is not. Here its bytes are compared.
  if (forms === undefined) return { plain: bytes, exact: bytes };
  const plain = textContent("json", forms.plain);
  return { plain, exact: forms.exact === forms.plain ? plain : textContent("json", forms.exact) };
}

function parsedContent(value: unknown, essence: string): Content {
  const pairs = essence === FORM_TYPE ? flatten(value, "", 0) : undefined;
  const text = pairs === undefined ? canonicalValue(value) : formText(pairs);
  if (text !== undefined) return textContent(pairs === undefined ? "json" : "form", text);
  throw new HapaxError("invalid_request", "the body is nested too deep to be compared");
}

function textContent(form: Exclude<Content["form"], "bytes">, text: string): Content {
  return { form, text };
}

function isPacked(headers: HeaderReader): boolean {
  const encoding = headers.get("content-encoding")?.trim().toLowerCase() ?? "identity";
  return encoding !== "identity" && encoding !== "";
}

type Pair = readonly [name: string, value: string];

/** Sorts the pairs: parsers differ in the order of names, and in the names of lists (`a[]`, `a[0]` and `a` are the same). */
function formText(pairs: readonly Pair[]): string {
  return JSON.stringify(
    pairs.toSorted(([one], [other]) => (one < other ? -1 : one > other ? 1 : 0)),
  );
}

function nameOf(name: string): string {
  return name.replaceAll(/\[\d*\]/g, "");
}

/** Returns the names and values of a parsed form; undefined if it is too deep. */
function flatten(value: unknown, name: string, depth: number): readonly Pair[] | undefined {
  if (typeof value === "string") return [[nameOf(name), value]];
  if (typeof value !== "object" || value === null)
    return [[nameOf(name), JSON.stringify(value) ?? ""]];
  if (depth > FORM_DEPTH_MAX) return undefined;
  const pairs: Pair[] = [];
  for (const [member, inner] of Object.entries(value)) {
    const path = name === "" ? member : `${name}[${member}]`;
    const flat = flatten(inner, path, depth + 1);
    if (flat === undefined) return undefined;
    for (const pair of flat) pairs.push(pair);
  }
  return pairs;
}

const BOUNDARY = /;\s*boundary=(?:"([^"]+)"|([^\s;"]+))/i;
/** Makes one character of every byte. */
const bytewise = new TextDecoder("latin1");

/** Returns the parts of a form without its boundary: a form that is sent again has another one (RFC 2046, 5.1.1). */
function partsOf(bytes: Uint8Array, headers: HeaderReader): string | undefined {
  const match = BOUNDARY.exec(headers.get("content-type") ?? "");
  const boundary = match?.[1] ?? match?.[2];
  if (boundary === undefined) return undefined;
  const parts = `\r\n${bytewise.decode(bytes)}`.split(`\r\n--${boundary}`);
  return `${JSON.stringify(parts.map(({ length }) => length))}\n${parts.join("")}`;
}

function textOf(bytes: Uint8Array): string | undefined {
  try {
    return decoder.decode(bytes);
  } catch {
    return undefined;
  }
}
