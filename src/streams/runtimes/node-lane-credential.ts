/**
 * The last credential of a connection. A client sends the same one each time, hundreds of bytes: they are checked once, and their
 * text is made, and hashed by those who look it up, once.
 *
 *   - compared in constant time, since clients behind a proxy may share a connection;
 *   - a server that asks for no credential keeps none.
 */

import { timingSafeEqual } from "node:crypto";

export class LaneCredential {
  #bytes: Uint8Array = new Uint8Array(0);
  #text = "";

  get text(): string {
    return this.#text;
  }

  /** How many of the bytes from `start` on are the last credential: all of it, or none. `to` is where the bytes end. */
  repeatedBytes(head: Buffer, start: number, to: number): number {
    const { length } = this.#bytes;
    if (length === 0 || start + length > to) return 0;
    return timingSafeEqual(head.subarray(start, start + length), this.#bytes) ? length : 0;
  }

  /** Keeps a value that the parser has found to be one. */
  keep(head: Buffer, start: number, end: number): string {
    this.#bytes = Uint8Array.from(head.subarray(start, end)); // A copy, so that the received bytes are not held.
    this.#text = head.toString("latin1", start, end);
    return this.#text;
  }
}
