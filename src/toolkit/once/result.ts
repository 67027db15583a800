/**
 * Encodes results and failures as bytes of an entry. A result that would change on its way back is refused while the work
 * can still be undone.
 */

import { exactJson, flatJson } from "../../base/exact-json.ts";
import { wordsOfError } from "../../base/error-words.ts";
import { HapaxError } from "../../base/errors.ts";
import { isPlainText, plainBytes } from "../../base/plain-text.ts";
import { FAILURE_CHARS_MAX } from "./limits.ts";

/** Encodes a result as bytes, and decodes it. `undefined` needs no codec. */
export interface ResultCodec<T> {
  encode(result: T): Uint8Array;
  decode(bytes: Uint8Array): T;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** Encodes as JSON. Refuses values that JSON would silently drop or change. */
export const jsonCodec: ResultCodec<unknown> = {
  encode(result) {
    const json = exactJson(result, "result");
    if (!("text" in json)) throw new TypeError(`${json.path} ${json.problem}`);
    return encoder.encode(json.text);
  },
  decode: (bytes) => JSON.parse(decoder.decode(bytes)),
};

function bytesOf(text: string): Uint8Array {
  return isPlainText(text) ? plainBytes(text) : encoder.encode(text);
}

/** The result of the work of this call, as its reader gets it: what was just written need not be read. */
export interface FreshResult {
  bytes: Uint8Array | undefined;
  copy: unknown;
}

/** As `encodeResult` with JSON. Keeps in `fresh` what the bytes read back as, if that is known without reading them. */
export function encodeFresh(
  result: unknown,
  bytesMax: number,
  fresh: FreshResult,
): Uint8Array | undefined {
  const flat = result === undefined ? undefined : flatJson(result);
  if (flat === undefined) return encodeResult(result, jsonCodec, bytesMax);
  const bytes = bytesOf(flat.text);
  requireSize(bytes, bytesMax);
  fresh.bytes = bytes;
  fresh.copy = flat.copy;
  return bytes;
}

/** Returns the bytes of a result. Throws `invalid_request` if it cannot be kept. */
export function encodeResult<T>(
  result: T,
  codec: ResultCodec<T>,
  bytesMax: number,
): Uint8Array | undefined {
  if (result === undefined) return undefined;
  let bytes: Uint8Array;
  try {
    bytes = codec.encode(result);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new HapaxError("invalid_request", `the result cannot be kept: ${why}`, { cause: error });
  }
  requireSize(bytes, bytesMax);
  return bytes;
}

function requireSize(bytes: Uint8Array, bytesMax: number): void {
  if (bytes.length <= bytesMax) return;
  const sizes = `bytes=${bytes.length} resultBytesMax=${bytesMax}`;
  throw new HapaxError("invalid_request", `the result is too large to be kept; ${sizes}`);
}

/** Returns the bytes of a failure: only its name and its message. */
export function encodeFailure(error: unknown): Uint8Array {
  const { name, message } = wordsOfError(error, FAILURE_CHARS_MAX);
  return encoder.encode(JSON.stringify({ name, message }));
}

/** Returns the error that later calls get: `failure_kept`, with the kept name and message as its cause. */
export function decodeFailure(bytes: Uint8Array | undefined, where: string): HapaxError {
  const kept = bytes === undefined ? undefined : JSON.parse(decoder.decode(bytes));
  const { name, message } = kept ?? { name: "Error", message: "unknown" };
  const cause = new Error(message);
  cause.name = name;
  return new HapaxError("failure_kept", `${name}: ${message}; ${where}`, { cause });
}
