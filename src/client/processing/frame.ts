/**
 * Encodes a transaction as one request. PROTOCOL.md §19.1.
 *
 *   | 4 bytes            | head            | bodies              |
 *   | length, big endian | JSON, UTF-8     | one after the other |
 *
 *   - the bodies fill the request exactly, in the order of the appends that name their lengths;
 *   - it is encoded once: every attempt sends the same bytes.
 */

import { type Codec, type Encoded, misfit } from "../records.ts";
import { joinBytes } from "../bytes.ts";

/** The media type of the framed form. */
export const FRAME_TYPE = "application/vnd.hapax.transaction";

const encoder = new TextEncoder();

export function frameOf(operations: readonly unknown[], bodies: readonly Uint8Array[]): Uint8Array {
  const head = encoder.encode(JSON.stringify({ operations }));
  const size = bodies.reduce((bytes, body) => bytes + body.length, 4 + head.length);
  const frame = new Uint8Array(size);
  new DataView(frame.buffer).setUint32(0, head.length);
  frame.set(head, 4);
  let at = 4 + head.length;
  for (const body of bodies) {
    frame.set(body, at);
    at += body.length;
  }
  return frame;
}

/** Returns how many operations a frame of `frameOf` has. */
export function operationsIn(frame: Uint8Array): number {
  const size = new DataView(frame.buffer, frame.byteOffset).getUint32(0);
  const head = JSON.parse(new TextDecoder().decode(frame.subarray(4, 4 + size))) as {
    readonly operations: readonly unknown[];
  };
  return head.operations.length;
}

/** Returns the body of one append; one array for a JSON stream. Throws `invalid_request` for data that does not fit. */
export function frameBodyOf(records: readonly Encoded[], codec: Codec): Uint8Array {
  if (codec.isJson) {
    const texts = records.map(({ form, content }) => {
      if (form !== "json") throw misfit(codec);
      return content;
    });
    return encoder.encode(`[${texts.join(",")}]`);
  }
  return joinBytes(records.map((record) => bytesOf(record, codec)));
}

function bytesOf({ form, content }: Encoded, codec: Codec): Uint8Array {
  if (typeof content !== "string") return content;
  // The record may come from before the type was known: then a string is kept as JSON.
  const text: unknown = form === "json" ? JSON.parse(content) : content;
  if (typeof text !== "string" || text === "") throw misfit(codec);
  return encoder.encode(text);
}
