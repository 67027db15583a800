/** Little-endian bytes with variable-length integers. The journal and the snapshots consist of them. */

import { HapaxError } from "../../../base/errors.ts";

const TWO_32 = 4_294_967_296;

/** Writes into a buffer that grows. Bytes that it has returned stay valid, because it grows into a new buffer. */
export class ByteWriter {
  #buffer: Buffer;
  #length = 0;

  /** `isOwn`: its memory is not the pool that Node shares among small buffers. */
  constructor(bytes: number, isOwn = false) {
    this.#buffer = isOwn ? Buffer.allocUnsafeSlow(bytes) : Buffer.allocUnsafe(bytes);
  }

  get length(): number {
    return this.#length;
  }

  /** Returns everything written so far, without a copy. */
  bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  u8(value: number): void {
    this.#reserve(1);
    this.#buffer[this.#length++] = value;
  }

  u32(value: number): void {
    this.#reserve(4);
    this.#buffer.writeUInt32LE(value, this.#length);
    this.#length += 4;
  }

  /** Writes a whole number up to 2^53-1 in eight bytes. */
  u64(value: number): void {
    this.#reserve(8);
    this.#buffer.writeUInt32LE(value % TWO_32, this.#length);
    this.#buffer.writeUInt32LE(Math.floor(value / TWO_32), this.#length + 4);
    this.#length += 8;
  }

  /** Writes a whole number up to 2^53-1, seven bits a byte, low bits first. */
  varint(value: number): void {
    this.#reserve(8);
    let rest = value;
    while (rest >= 128) {
      this.#buffer[this.#length++] = (rest % 128) | 128;
      rest = Math.floor(rest / 128);
    }
    this.#buffer[this.#length++] = rest;
  }

  text(value: string): void {
    // Latin-1 and UTF-8 agree on the characters of nearly every name, and three bytes fit any code unit.
    const bytesMax = value.length * 3;
    if (bytesMax < 128) {
      this.#reserve(1 + bytesMax);
      const written = this.#buffer.write(value, this.#length + 1, "utf8");
      this.#buffer[this.#length] = written;
      this.#length += 1 + written;
      return;
    }
    const encoded = Buffer.from(value, "utf8");
    this.varint(encoded.length);
    this.raw(encoded);
  }

  raw(bytes: Uint8Array): void {
    this.#reserve(bytes.length);
    this.#buffer.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  zeros(count: number): void {
    this.#reserve(count);
    this.#buffer.fill(0, this.#length, this.#length + count);
    this.#length += count;
  }

  patchU16(position: number, value: number): void {
    this.#buffer.writeUInt16LE(value, position);
  }

  patchU32(position: number, value: number): void {
    this.#buffer.writeUInt32LE(value, position);
  }

  #reserve(count: number): void {
    const needed = this.#length + count;
    if (needed <= this.#buffer.length) return;
    const grown = Buffer.allocUnsafe(Math.max(needed, this.#buffer.length * 2));
    this.#buffer.copy(grown, 0, 0, this.#length);
    this.#buffer = grown;
  }
}

/** Reads what ByteWriter wrote. Throws damage if it would read past the end. */
export class ByteReader {
  readonly #buffer: Buffer;
  position: number;

  constructor(bytes: Uint8Array, position = 0) {
    this.#buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.position = position;
  }

  get left(): number {
    return this.#buffer.length - this.position;
  }

  u8(): number {
    this.#require(1);
    return this.#buffer[this.position++] ?? 0;
  }

  u16(): number {
    this.#require(2);
    const value = this.#buffer.readUInt16LE(this.position);
    this.position += 2;
    return value;
  }

  u32(): number {
    this.#require(4);
    const value = this.#buffer.readUInt32LE(this.position);
    this.position += 4;
    return value;
  }

  u64(): number {
    const low = this.u32();
    const high = this.u32();
    const value = high * TWO_32 + low;
    if (!Number.isSafeInteger(value)) throw damaged("a number is larger than 2^53-1");
    return value;
  }

  varint(): number {
    let value = 0;
    let scale = 1;
    for (let count = 0; count < 8; count += 1) {
      const byte = this.u8();
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
    throw damaged("a number has too many bytes");
  }

  text(): string {
    const length = this.varint();
    this.#require(length);
    const value = this.#buffer.toString("utf8", this.position, this.position + length);
    this.position += length;
    return value;
  }

  raw(length: number): Buffer {
    this.#require(length);
    const bytes = this.#buffer.subarray(this.position, this.position + length);
    this.position += length;
    return bytes;
  }

  #require(count: number): void {
    if (this.left < count) throw damaged("it ends too early");
  }
}

const shared = new Map<string, string>();
const SHARED_MAX = 1024;

/** Returns one shared copy of equal texts: there are few content types and many streams. */
export function share(text: string): string {
  const known = shared.get(text);
  if (known !== undefined) return known;
  if (shared.size < SHARED_MAX) shared.set(text, text);
  return text;
}

export function damaged(what: string): HapaxError {
  return new HapaxError("data_damaged", what);
}

/** The same error with file and offset, which an operator needs. */
export function damage(file: string, offset: number, what: string, cause?: unknown): HapaxError {
  const message = `${what} file=${file} offset=${offset}`;
  return new HapaxError("data_damaged", message, cause === undefined ? undefined : { cause });
}
