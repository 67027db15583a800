/**
 * The last credential of a connection. A client sends the same one each time, hundreds of bytes: they are checked once, and their
 * text is made, and hashed by those who look it up, once.
 *
 *   - compared in constant time, since clients behind a proxy may share a connection;
 *   - a server that asks for no credential keeps none.
 */

const WORD = 4;
/** From this length on, reading words is worth the view that it needs. */
const LONG_BYTES = 256;

export class LaneCredential {
  #bytes: Uint8Array = new Uint8Array(0);
  #words = viewOf(this.#bytes, 0, 0);
  #text = "";

  get text(): string {
    return this.#text;
  }

  /** How many of the bytes from `start` on are the last credential: all of it, or none. `to` is where the bytes end. */
  repeatedBytes(head: Buffer, start: number, to: number): number {
    const known = this.#bytes;
    const { length } = known;
    if (length === 0 || start + length > to) return 0;
    // The loops look at every byte, also behind one that differs. They cost half of `timingSafeEqual`, which needs views.
    let difference = 0;
    let at = 0;
    if (length >= LONG_BYTES) {
      const [sent, words] = [viewOf(head, start, length), this.#words];
      for (; at + WORD <= length; at += WORD) difference |= sent.getInt32(at) ^ words.getInt32(at);
    }
    for (; at < length; at += 1) difference |= (head[start + at] ?? 0) ^ (known[at] ?? 0);
    return difference === 0 ? length : 0;
  }

  /** Keeps a value that the parser has found to be one. */
  keep(head: Buffer, start: number, end: number): string {
    this.#bytes = Uint8Array.from(head.subarray(start, end)); // A copy, so that the received bytes are not held.
    this.#words = viewOf(this.#bytes, 0, this.#bytes.length);
    this.#text = head.toString("latin1", start, end);
    return this.#text;
  }
}

function viewOf(bytes: Uint8Array, start: number, length: number): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset + start, length);
}
