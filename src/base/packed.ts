/**
 * Little-endian bytes with variable-length integers, on every platform. Snapshots and logs of windows consist of them.
 *
 * streams/stores/journal/bytes.ts writes the same numbers into a `Buffer`, for the journal: there every append passes through it.
 */

/** Bytes that were not written by a `PackedWriter`, or not whole. */
export class Unreadable extends Error {
  override readonly name = "Unreadable";
}

/** Writes into bytes that grow. */
export class PackedWriter {
  #bytes: Uint8Array;
  #length = 0;

  constructor(capacity = 256) {
    this.#bytes = new Uint8Array(capacity);
  }

  /** Returns everything written so far, without a copy. */
  bytes(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }

  u8(value: number): void {
    this.#reserve(1);
    this.#bytes[this.#length++] = value;
  }

  u32(value: number): void {
    this.#reserve(4);
    for (let shift = 0; shift < 32; shift += 8) this.#bytes[this.#length++] = value >>> shift;
  }

  /** Writes a whole number from 0 to 2^53-1, seven bits a byte, low bits first. */
  varint(value: number): void {
    this.#reserve(8);
    let rest = value;
    while (rest >= 128) {
      this.#bytes[this.#length++] = (rest % 128) | 128;
      rest = Math.floor(rest / 128);
    }
    this.#bytes[this.#length++] = rest;
  }

  /** Writes a whole number from -2^52 to 2^52: small ones of either sign are short. */
  signed(value: number): void {
    this.varint(value < 0 ? -2 * value - 1 : 2 * value);
  }

  raw(bytes: Uint8Array): void {
    this.#reserve(bytes.length);
    this.#bytes.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  /** Writes the length, then the bytes. */
  sized(bytes: Uint8Array): void {
    this.varint(bytes.length);
    this.raw(bytes);
  }

  #reserve(count: number): void {
    const needed = this.#length + count;
    if (needed <= this.#bytes.length) return;
    const grown = new Uint8Array(Math.max(needed, this.#bytes.length * 2));
    grown.set(this.bytes());
    this.#bytes = grown;
  }
}

/** Reads what a `PackedWriter` wrote. Throws `Unreadable` instead of reading past the end. */
export class PackedReader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get left(): number {
    return this.#bytes.length - this.#at;
  }

  u8(): number {
    if (this.left < 1) throw new Unreadable("it ends too early");
    return this.#bytes[this.#at++] ?? 0;
  }

  u32(): number {
    if (this.left < 4) throw new Unreadable("it ends too early");
    const value = this.#view.getUint32(this.#at, true);
    this.#at += 4;
    return value;
  }

  varint(): number {
    let value = 0;
    for (let scale = 1; scale < 2 ** 56; scale *= 128) {
      const byte = this.u8();
      value += (byte & 127) * scale;
      if (byte >= 128) continue;
      if (!Number.isSafeInteger(value)) break;
      return value;
    }
    throw new Unreadable("a number has too many bytes");
  }

  signed(): number {
    const value = this.varint();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  /** Returns a view of the bytes. */
  raw(length: number): Uint8Array {
    if (this.left < length) throw new Unreadable("it ends too early");
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  sized(): Uint8Array {
    return this.raw(this.varint());
  }
}
