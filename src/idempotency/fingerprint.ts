/**
 * What a request is for, as a digest: the same for a repetition, another one for another request.
 *
 *   HF3  the same JSON is the same content, however it is written, and whoever has parsed it; so is the same form, whatever
 *        its boundary is;
 *   HF4  another method, path, query, type or byte is other content: no two parts can be taken for one another.
 */

import { canonicalText, canonicalValue } from "../core/canonical-json.ts";
import type { Digest } from "../digest.ts";
import { HapaxError } from "../errors.ts";
import { concat, essenceOf, type IdempotencyRequest, isJson, targetOf } from "./request.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** Of method, path with query, content type, and the canonical JSON or the bytes of the body. */
export async function fingerprintOf(request: IdempotencyRequest, digest: Digest): Promise<string> {
  const essence = essenceOf(request.headers.get("content-type"));
  const content = contentOf(request, essence);
  const head = [request.method, targetOf(request.url), essence, content.form];
  // JSON has no bare line feed in it: the head ends at the first one, whatever the body has.
  const before = encoder.encode(`${JSON.stringify(head)}\n`);
  const bytes = concat([before, content.bytes], before.length + content.bytes.length);
  return hex(await digest(bytes));
}

/** A key for a remote, of the key of the request and the name of a phase: the same in every attempt. */
export async function derivedKey(parts: readonly string[], digest: Digest): Promise<string> {
  return hex(await digest(encoder.encode(JSON.stringify(parts))));
}

function contentOf(
  { body, headers }: IdempotencyRequest,
  essence: string,
): { readonly form: "json" | "parts" | "bytes"; readonly bytes: Uint8Array } {
  if (body.kind === "unseen")
    throw new HapaxError(
      "unsupported",
      "the body was read before, or is not read yet, and cannot be compared: say what counts by the setting fingerprint",
    );
  if (body.kind === "parsed") {
    const text = canonicalValue(body.value);
    if (text !== undefined) return { form: "json", bytes: encoder.encode(text) };
    throw new HapaxError("invalid_request", "the body is nested too deep to be compared");
  }
  const parts = essence.startsWith("multipart/") ? partsOf(body.bytes, headers) : undefined;
  if (parts !== undefined) return { form: "parts", bytes: encoder.encode(parts) };
  const text = isJson(essence) ? textOf(body.bytes) : undefined;
  const canonical = text === undefined ? undefined : canonicalText(text);
  // What says to be JSON and is not is for the handler to refuse; it is compared as it is.
  if (canonical === undefined) return { form: "bytes", bytes: body.bytes };
  return { form: "json", bytes: encoder.encode(canonical) };
}

const BOUNDARY = /;\s*boundary=(?:"([^"]+)"|([^\s;"]+))/i;
/** Every byte is a character of its own. */
const bytewise = new TextDecoder("latin1");

/** A form that is sent again has another boundary: what is between them counts (RFC 2046, 5.1.1). */
function partsOf(bytes: Uint8Array, headers: Headers): string | undefined {
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

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
