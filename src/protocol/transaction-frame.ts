/**
 * The framed form of a transaction, in both directions. PROTOCOL.md §19.1.
 *
 *   | 4 bytes                        | head        | bodies              |
 *   | length of the head, big endian | JSON, UTF-8 | one after the other |
 *
 * The bodies fill the request exactly, in the order of the appends that name their lengths.
 */

import { joinBytes, utf8Of } from "../base/bytes.ts";
import { invalid } from "./refusal.ts";

/** The media type of the framed form. */
export const TRANSACTION_TYPE = "application/vnd.hapax.transaction";

const LENGTH_BYTES = 4;

export function encodeFrame(
  operations: readonly unknown[],
  bodies: readonly Uint8Array[],
): Uint8Array {
  const head = utf8Of(JSON.stringify({ operations }));
  const length = new Uint8Array(LENGTH_BYTES);
  new DataView(length.buffer).setUint32(0, head.length);
  return joinBytes([length, head, ...bodies]);
}

/** Returns views of the request's own bytes: nothing is copied. */
export function splitFrame(body: Uint8Array): {
  readonly head: Uint8Array;
  readonly rest: Uint8Array;
} {
  if (body.length < LENGTH_BYTES) {
    throw invalid("the request", "is shorter than the length of its head");
  }
  const length = new DataView(body.buffer, body.byteOffset, body.byteLength).getUint32(0);
  const end = LENGTH_BYTES + length;
  if (end > body.length) {
    throw invalid("the request", `ends before its head does: head=${length} bytes`);
  }
  return { head: body.subarray(LENGTH_BYTES, end), rest: body.subarray(end) };
}
