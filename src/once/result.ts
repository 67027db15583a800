/**
 * Results and failures as bytes of an entry. What cannot come back as it was is refused while it can still be undone.
 */

import { HapaxError } from "../errors.ts";
import { FAILURE_CHARS_MAX } from "./limits.ts";

/** How a result becomes bytes and comes back. `undefined` is kept without it. */
export interface ResultCodec<T> {
  encode(result: T): Uint8Array;
  decode(bytes: Uint8Array): T;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** JSON, refusing what JSON would drop or change without a word. */
export const jsonCodec: ResultCodec<unknown> = {
  encode(result) {
    const text = JSON.stringify(result, refuseOthers) as string | undefined;
    if (text === undefined) throw new TypeError("its toJSON says nothing");
    return encoder.encode(text);
  },
  decode: (bytes) => JSON.parse(decoder.decode(bytes)),
};

function refuseOthers(key: string, value: unknown): unknown {
  const isCarried =
    typeof value !== "function" &&
    typeof value !== "symbol" &&
    typeof value !== "bigint" &&
    (typeof value !== "number" || Number.isFinite(value));
  const what = isCarried ? nameOfEmptied(value) : typeof value;
  if (what !== undefined) throw new TypeError(`JSON cannot carry a ${what} at ${key || "its top"}`);
  return value;
}

/** Of what would come back as an object without its content, or as a list with other content. */
function nameOfEmptied(value: unknown): string | undefined {
  if (value instanceof Map) return "Map";
  if (value instanceof Set) return "Set";
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return "buffer of bytes";
  return Array.isArray(value) && value.includes(undefined) ? "list with undefined" : undefined;
}

/** The bytes of a result. Throws `invalid_request` if it cannot be kept. */
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

/** Of a failure only its name and its message are kept. */
export function encodeFailure(error: unknown): Uint8Array {
  const { name, message } = error instanceof Error ? error : new Error(String(error));
  const cut = { name: name.slice(0, 100), message: message.slice(0, FAILURE_CHARS_MAX) };
  return encoder.encode(JSON.stringify(cut));
}

/** The failure as those get it who come later: `failure_kept`, with what is left of it as its cause. */
export function decodeFailure(bytes: Uint8Array | undefined, where: string): HapaxError {
  const kept = bytes === undefined ? undefined : JSON.parse(decoder.decode(bytes));
  const { name, message } = kept ?? { name: "Error", message: "unknown" };
  const cause = new Error(message);
  cause.name = name;
  return new HapaxError("failure_kept", `${name}: ${message}; ${where}`, { cause });
}
