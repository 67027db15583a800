/** Content-Encoding of requests. What is stored is what the body decodes to. RFC 9110, 8.4. */

import { HapaxError } from "../base/errors.ts";
import type { HeaderGetter } from "./headers.ts";

/** A coding of a body. `deflate` is the format of zlib (RFC 1950), as RFC 9110 has it. */
export type ContentCoding = "gzip" | "deflate" | "br";

/** A body whose coding this server does not decode. */
export class EncodingRefusal extends HapaxError {
  /** The value of `Accept-Encoding`: what this path takes. */
  readonly accepted: string;

  constructor(sent: string, codings: readonly ContentCoding[]) {
    const accepted = acceptedCodings(codings);
    super("unsupported_encoding", `Content-Encoding is ${sent.slice(0, 64)}; taken: ${accepted}`);
    this.accepted = accepted;
  }
}

/** Returns the value of `Accept-Encoding` in an answer (RFC 9110, 12.5.3): the codings that a request may have. */
export function acceptedCodings(codings: readonly ContentCoding[]): string {
  return codings.length === 0 ? "identity" : codings.join(", ");
}

/** What a server decodes. It is asked only for a body that has a coding. */
export interface KnownCodings {
  readonly codings: readonly ContentCoding[];
}

/** Returns the coding of a body, or nothing if it has none. Throws `unsupported_encoding` for one that is not known. */
export function parseEncoding(
  header: HeaderGetter,
  known: KnownCodings,
): ContentCoding | undefined {
  const sent = header("content-encoding");
  if (sent === undefined) return undefined;
  const { codings } = known;
  const name = sent.toLowerCase();
  if (name === "identity") return undefined;
  // RFC 9110, 8.4.1.3: the old name counts.
  const wanted = name === "x-gzip" ? "gzip" : name;
  const coding = codings.find((one) => one === wanted);
  if (coding === undefined) throw new EncodingRefusal(sent, codings);
  return coding;
}

/** Refuses every coding, on paths whose bodies are small. */
export function refuseEncoding(header: HeaderGetter): void {
  parseEncoding(header, { codings: [] });
}
