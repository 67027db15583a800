/**
 * Encodes results and failures as bytes of an entry. A result that would change on its way back is refused while the work
 * can still be undone.
 */

import { exactJson } from "../../base/exact-json.ts";
import { wordsOfError } from "../../base/error-words.ts";
import { HapaxError } from "../../base/errors.ts";
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
  if (bytes.length <= bytesMax) return bytes;
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
