/** Bytes and texts. */

const encoder = new TextEncoder();
// A byte order mark in the middle of a stream belongs to the writer's data.
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

export const NO_BYTES = /* @__PURE__ */ new Uint8Array(0);

/** Decodes bytes as UTF-8; invalid bytes are replaced. */
export function decodeText(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}

/** Encodes a text as UTF-8. */
export function utf8Of(text: string): Uint8Array {
  return encoder.encode(text);
}

/** Joins pieces of bytes. Returns a single piece without a copy. */
export function joinBytes(pieces: readonly Uint8Array[]): Uint8Array {
  const [first] = pieces;
  if (first !== undefined && pieces.length === 1) return first;
  let size = 0;
  for (const piece of pieces) size += piece.length;
  const joined = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    joined.set(piece, at);
    at += piece.length;
  }
  return joined;
}

/** Returns whether both exist and have the same bytes. */
export function isSameBytes(one: Uint8Array | undefined, other: Uint8Array): boolean {
  return one?.length === other.length && one.every((byte, at) => byte === other[at]);
}
