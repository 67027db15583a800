/** Bytes and texts. */

const encoder = new TextEncoder();
// A byte order mark in the middle of a stream is the writer's.
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** The text of bytes; what is not UTF-8 is replaced. */
export function textOf(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}

/** The bytes of a text, in UTF-8. */
export function bytesOf(text: string): Uint8Array {
  return encoder.encode(text);
}

/** Bytes one after the other. A single piece is returned as it is. */
export function join(pieces: readonly Uint8Array[]): Uint8Array {
  const [first] = pieces;
  if (first !== undefined && pieces.length === 1) return first;
  const joined = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    joined.set(piece, at);
    at += piece.length;
  }
  return joined;
}
