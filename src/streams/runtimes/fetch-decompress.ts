/** Decodes compressed bodies with the `DecompressionStream` of the web platform. */

import { BodyPieces } from "../../base/body-pieces.ts";
import type { ContentCoding } from "../../protocol/content-encoding.ts";
import {
  Adler32,
  decodedTooLarge,
  type Decompress,
  requireEnd,
  requireGzipEnd,
} from "../server/decoding.ts";

/** Some platforms decode what they get in one step: this much becomes 4 MiB at most, which takes a few milliseconds. */
const STEP_BYTES = 4096;

/** The names of the codings on this platform. Most have no Brotli. */
const FORMATS = { gzip: "gzip", deflate: "deflate", br: "brotli" } as const;

let codings: readonly ContentCoding[] | undefined;

export const fetchDecompress: Decompress = {
  // Asked for by a request: at the start of a program Workers have no such streams.
  get codings() {
    codings ??= (["gzip", "deflate", "br"] as const).filter(isKnown);
    return codings;
  },
  async decode(coding, body, bytesMax) {
    const reader = inSteps(body).pipeThrough(openStream(coding)).getReader();
    const pieces = new BodyPieces();
    const sum = new Adler32();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (pieces.bytes + value.length > bytesMax) {
        void reader.cancel().catch(() => undefined);
        throw decodedTooLarge(bytesMax);
      }
      pieces.add(value);
      if (coding === "deflate") sum.add(value);
    }
    // Not all platforms see what is behind the end.
    if (coding === "deflate") requireEnd(body, sum.value, false);
    if (coding === "gzip") requireGzipEnd(body, pieces.bytes);
    return pieces.whole();
  },
};

function openStream(coding: ContentCoding): TransformStream<Uint8Array, Uint8Array> {
  // Cast: the types do not have Brotli yet, and ask for memory that is not shared, as our bodies are.
  const stream = new DecompressionStream(FORMATS[coding] as "gzip");
  return stream as unknown as TransformStream<Uint8Array, Uint8Array>;
}

function isKnown(coding: ContentCoding): boolean {
  try {
    openStream(coding);
    return true;
  } catch {
    return false; // The platform says no by throwing.
  }
}

function inSteps(body: Uint8Array): ReadableStream<Uint8Array> {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= body.length) controller.close();
      else controller.enqueue(body.subarray(at, at + STEP_BYTES));
      at += STEP_BYTES;
    },
  });
}
