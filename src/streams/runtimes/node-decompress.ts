/** Decodes compressed bodies with the zlib of Node, in its pool of threads. */

import { promisify } from "node:util";
import { brotliDecompress, gunzip, inflate } from "node:zlib";
import type { ContentCoding } from "../../protocol/content-encoding.ts";
import { decodedTooLarge, type Decompress, requireGzipEnd } from "../server/decoding.ts";

/** Larger than Node's own: fewer steps for a large body. One step is less than a millisecond of a thread. */
const CHUNK_BYTES = 64 * 1024;

interface Decoded {
  readonly buffer: Buffer;
  readonly engine: { readonly bytesWritten: number };
}

type Decode = (
  body: Uint8Array,
  options: { readonly maxOutputLength: number; readonly chunkSize: number; readonly info: true },
) => Promise<Decoded>;

/** Cast: Node's types do not have `info`, which adds how many bytes were read. */
const DECODES: Readonly<Record<ContentCoding, Decode>> = {
  gzip: promisify(gunzip) as unknown as Decode,
  deflate: promisify(inflate) as unknown as Decode,
  br: promisify(brotliDecompress) as unknown as Decode,
};

export const nodeDecompress: Decompress = {
  codings: ["gzip", "deflate", "br"],
  async decode(coding, body, bytesMax) {
    const options = { maxOutputLength: Math.max(1, bytesMax), chunkSize: CHUNK_BYTES } as const;
    try {
      const { buffer, engine } = await DECODES[coding](body, { ...options, info: true });
      if (engine.bytesWritten < body.length) throw new Error("there are bytes behind its end");
      if (coding === "gzip") requireGzipEnd(body, buffer.length);
      return buffer;
    } catch (error) {
      if (hasCode(error, "ERR_BUFFER_TOO_LARGE")) throw decodedTooLarge(bytesMax);
      throw error;
    }
  },
};

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}
