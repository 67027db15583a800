/**
 * Encodes data as the bytes of one append. A JSON stream gets one array, whose elements are the records; other
 * streams get the bytes one after the other.
 *
 * Data is encoded at the call: later changes by the caller have no effect.
 */

import { HapaxError } from "../base/error-codes.ts";
import type { SseKind } from "../protocol/sse.ts";

/**
 * One piece of data: the text of its JSON, the text of a stream of text, or bytes. As long as the stream's type is
 * not known, a string is kept as JSON, which can be decoded again.
 */
export type Encoded =
  | { readonly form: "json" | "text"; readonly content: string }
  | { readonly form: "bytes"; readonly content: Uint8Array };

/** Says how the data of one stream becomes bytes. */
export interface Codec {
  readonly contentType: string;
  readonly isJson: boolean;
}

/** A JSON value that is a text already. Its maker has checked it. It is appended unchanged, with every digit. */
export class JsonText {
  declare readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** The data of an append that only closes: none. */
export const NO_DATA: Encoded = { form: "text", content: "" };

/** Returns the codec of a media type. */
export function codecOf(contentType: string): Codec {
  return { contentType, isJson: kindOf(contentType) === "json" };
}

/** Returns how events carry the records of a media type. */
export function kindOf(contentType: string): SseKind {
  const mediaType = contentType.split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (mediaType === "application/json") return "json";
  return mediaType.startsWith("text/") ? "text" : "base64";
}

/** Encodes data for a stream, or for one whose type is not known yet. Throws `invalid_request`. */
export function encode(data: unknown, codec: Codec | undefined): Encoded {
  if (data instanceof JsonText) {
    if (codec?.isJson === false) return encode(JSON.parse(data.text), codec);
    return { form: "json", content: data.text };
  }
  if (data instanceof Uint8Array) {
    // A copy: buffers are often filled again by their owner. Not `slice`, which of a `Buffer` copies nothing.
    if (codec?.isJson !== true && data.length > 0) {
      return { form: "bytes", content: new Uint8Array(data) };
    }
  } else if (codec?.isJson === false) {
    if (typeof data === "string" && data !== "") return { form: "text", content: data };
  } else {
    const content = jsonOf(data);
    if (content !== undefined) return { form: "json", content };
  }
  throw misfit(codec);
}

/** Returns the error for data that does not fit the stream. */
export function misfit(codec: Codec | undefined, cause?: unknown): HapaxError {
  const wanted = codec?.isJson === false ? "a string or a Uint8Array, not empty" : "a JSON value";
  return new HapaxError("invalid_request", `data must be ${wanted}`, { cause });
}

/** Returns undefined for a value that JSON does not have. */
function jsonOf(data: unknown): string | undefined {
  try {
    return JSON.stringify(data);
  } catch (error) {
    throw misfit(undefined, error);
  }
}
