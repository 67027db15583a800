/**
 * What the last head of a connection said. A client sends nearly the same head each time: a value that is the same again keeps
 * its text, which every map that it is looked up in has hashed before.
 *
 *   - a credential has hundreds of bytes, which are checked once. It is compared in constant time, since clients behind a proxy
 *     may share a connection;
 *   - a server that asks for no credential keeps none;
 *   - a long value is not kept: a connection that is idle holds little.
 */

/** From this length on, reading words is worth the view that it needs. */
const LONG_BYTES = 128;
const WORDS_BYTES = 16;

const TEXT_CHARS_MAX = 64;

export class LaneMemory {
  /** By their place in a head. */
  readonly #texts: string[] = [];
  #bytes: Uint8Array = new Uint8Array(0);
  #words = viewOf(this.#bytes, 0, 0);
  #credential = "";

  /** The last credential that was asked for. */
  get credential(): string {
    return this.#credential;
  }

  /** The text of the bytes. `place` says what it is in the head, so that it is compared with the same of the last one. */
  textOf(head: Buffer, place: number, start: number, end: number): string {
    const known = this.#texts[place];
    if (known !== undefined && isText(head, start, end, known)) return known;
    const text = head.toString("latin1", start, end);
    if (text.length <= TEXT_CHARS_MAX) this.#texts[place] = text;
    return text;
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
      for (; at + WORDS_BYTES <= length; at += WORDS_BYTES) {
        difference |= differenceAt(sent, words, at) | differenceAt(sent, words, at + 4);
        difference |= differenceAt(sent, words, at + 8) | differenceAt(sent, words, at + 12);
      }
    }
    for (; at < length; at += 1) difference |= (head[start + at] ?? 0) ^ (known[at] ?? 0);
    return difference === 0 ? length : 0;
  }

  /** Keeps a credential that the parser has found to be a value, and returns its text. */
  keepCredential(head: Buffer, start: number, end: number): string {
    this.#bytes = Uint8Array.from(head.subarray(start, end)); // A copy, so that the received bytes are not held.
    this.#words = viewOf(this.#bytes, 0, this.#bytes.length);
    this.#credential = head.toString("latin1", start, end);
    return this.#credential;
  }
}

function isText(bytes: Buffer, start: number, end: number, text: string): boolean {
  const { length } = text;
  if (end - start !== length) return false;
  // From the end, since numbers that count change there.
  for (let at = length - 1; at >= 0; at -= 1) {
    if (bytes[start + at] !== text.charCodeAt(at)) return false;
  }
  return true;
}

function differenceAt(one: DataView, other: DataView, at: number): number {
  return one.getInt32(at, true) ^ other.getInt32(at, true);
}

function viewOf(bytes: Uint8Array, start: number, length: number): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset + start, length);
}
