/**
 * Data as the bytes of one append. A JSON stream gets one array, whose elements are the records; other
 * streams get the bytes one after the other.
 *
 * Data is encoded when it is given: what the caller does with it afterwards changes nothing.
 */

import { HapaxError } from "../errors.ts";

/** One encoded piece of data. Both forms are there while the stream's type is not known. */
export interface Piece {
  readonly json: string | undefined;
  readonly raw: string | Uint8Array | undefined;
  /** Bytes of the larger form. */
  readonly size: number;
}

/** How the data of one stream becomes bytes. */
export interface Codec {
  readonly contentType: string;
  readonly isJson: boolean;
}

const utf8 = new TextEncoder();

/** The codec of a media type. */
export function codecOf(contentType: string): Codec {
  const mediaType = contentType.split(";", 1)[0]?.trim().toLowerCase();
  return { contentType, isJson: mediaType === "application/json" };
}

/** Encodes data for a stream, or for one whose type is not known yet. Throws `invalid_request`. */
export function encode(data: unknown, codec: Codec | undefined): Piece {
  const isBytes = data instanceof Uint8Array;
  const json = codec?.isJson === false || isBytes ? undefined : jsonOf(data);
  // A copy: buffers are often filled again by their owner.
  const bytes = isBytes ? data.slice() : typeof data === "string" ? data : undefined;
  const raw = codec?.isJson === true || bytes?.length === 0 ? undefined : bytes;
  if (json === undefined && raw === undefined) throw misfit(codec);
  const rawBytes = typeof raw === "string" ? utf8Bytes(raw) : (raw?.length ?? 0);
  return { json, raw, size: Math.max(rawBytes, json === undefined ? 0 : utf8Bytes(json)) };
}

/** The body of one append. Throws `invalid_request` if a piece does not fit the stream. */
export function join(pieces: readonly Piece[], codec: Codec): Uint8Array {
  if (codec.isJson) {
    const records = pieces.map(({ json }) => {
      if (json === undefined) throw misfit(codec);
      return json;
    });
    return utf8.encode(`[${records.join(",")}]`);
  }
  const parts = pieces.map(({ raw }) => {
    if (raw === undefined) throw misfit(codec);
    return typeof raw === "string" ? utf8.encode(raw) : raw;
  });
  const body = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    body.set(part, at);
    at += part.length;
  }
  return body;
}

function misfit(codec: Codec | undefined): HapaxError {
  const wanted = codec?.isJson === false ? "a string or a Uint8Array, not empty" : "a JSON value";
  return new HapaxError("invalid_request", `data of this stream is ${wanted}`);
}

/** Nothing for what JSON cannot say. */
function jsonOf(data: unknown): string | undefined {
  try {
    return JSON.stringify(data);
  } catch (error) {
    throw new HapaxError("invalid_request", "data is not a JSON value", { cause: error });
  }
}

/** Length in UTF-8. A lone surrogate is written as U+FFFD, which has three bytes. */
function utf8Bytes(text: string): number {
  let bytes = text.length;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit < 0x80) continue;
    bytes += unit < 0x800 ? 1 : 2;
    const isPair = unit >= 0xd800 && unit < 0xdc00 && isLow(text.charCodeAt(at + 1));
    // Two units of two bytes each.
    if (isPair) at += 1;
  }
  return bytes;
}

function isLow(unit: number): boolean {
  return unit >= 0xdc00 && unit < 0xe000;
}
