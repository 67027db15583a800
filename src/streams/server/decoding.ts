/**
 * Decodes compressed bodies, for every runtime.
 *
 *   - a body decodes to at most the bytes that a body may have, and stops there: a small one cannot fill the memory;
 *   - one body is decoded at a time, in steps of the platform that hold nothing else up. Clients take turns by their address, so
 *     that one with many bodies does not keep the others waiting;
 *   - the bodies that wait are bounded together. An address has half of the room at most.
 */

import { HapaxError } from "../../base/errors.ts";
import type { ContentCoding } from "../../protocol/content-encoding.ts";
import type { Exchange } from "./exchange.ts";

/** PORT. Decodes compressed bodies of requests. A platform lists the codings that it can decode. */
export interface Decompress {
  readonly codings: readonly ContentCoding[];
  /**
   * Decodes a whole body. Rejects with `body_too_large` as soon as there are more than `bytesMax` bytes, and with any other error
   * if the body is not of this coding, is cut, or has something behind its end.
   */
  decode(coding: ContentCoding, body: Uint8Array, bytesMax: number): Promise<Uint8Array>;
}

interface Waiting {
  readonly exchange: Exchange;
  readonly coding: ContentCoding;
  readonly body: Uint8Array;
  readonly bytesMax: number;
  readonly resolve: (decoded: Uint8Array) => void;
  readonly reject: (error: unknown) => void;
}

/** The share of the room that bodies of one address may have. */
const PEER_PART = 0.5;

/** What decodes the bodies of a server. */
export interface BodyDecoding {
  /** What a body may be encoded with. */
  readonly codings: readonly ContentCoding[];
  /** Returns the decoded body. `roomBytes`: for all bodies that wait together. */
  decode(
    exchange: Exchange,
    coding: ContentCoding,
    body: Uint8Array,
    bytesMax: number,
    roomBytes: number,
  ): Promise<Uint8Array>;
}

/** Knows no coding, so that a body with one is refused before it is read. */
export const NO_DECODING: BodyDecoding = {
  codings: [],
  decode: (_exchange, coding) =>
    Promise.reject(new HapaxError("unsupported_encoding", `Content-Encoding is ${coding}`)),
};

export class Decoding implements BodyDecoding {
  readonly #decompress: Decompress | undefined;
  /** By address, in the order of their turns. */
  readonly #queues = new Map<string, { readonly bodies: Waiting[]; bytes: number }>();
  #bytes = 0;
  #isRunning = false;

  constructor(decompress: Decompress | undefined) {
    this.#decompress = decompress;
  }

  get codings(): readonly ContentCoding[] {
    return this.#decompress?.codings ?? [];
  }

  /** Bytes of bodies that wait. */
  get waitingBytes(): number {
    return this.#bytes;
  }

  decode(
    exchange: Exchange,
    coding: ContentCoding,
    body: Uint8Array,
    bytesMax: number,
    roomBytes: number,
  ): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      const { peer = "" } = exchange;
      const queue = this.#queues.get(peer) ?? { bodies: [], bytes: 0 };
      const isFull = this.#bytes + body.length > roomBytes;
      const isGreedy = queue.bytes > 0 && queue.bytes + body.length > roomBytes * PEER_PART;
      if (isFull || isGreedy) {
        throw new HapaxError("too_many", "too many compressed bodies wait to be decoded");
      }
      queue.bodies.push({ exchange, coding, body, bytesMax, resolve, reject });
      queue.bytes += body.length;
      this.#bytes += body.length;
      this.#queues.set(peer, queue);
      if (!this.#isRunning) void this.#run();
    });
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    for (;;) {
      const [turn] = this.#queues;
      if (turn === undefined) break;
      const [peer, queue] = turn;
      const next = queue.bodies.shift();
      // The address goes behind all others.
      this.#queues.delete(peer);
      if (next === undefined) continue;
      queue.bytes -= next.body.length;
      this.#bytes -= next.body.length;
      if (queue.bodies.length > 0) this.#queues.set(peer, queue);
      await this.#decode(next).then(next.resolve, next.reject);
    }
    this.#isRunning = false;
  }

  async #decode({ exchange, coding, body, bytesMax }: Waiting): Promise<Uint8Array> {
    if (exchange.isGone === true) {
      throw new HapaxError("request_timeout", "the connection ended before the body was decoded");
    }
    try {
      const decoded = await this.#decompress?.decode(coding, body, bytesMax);
      if (decoded !== undefined) return decoded;
    } catch (cause) {
      if (cause instanceof HapaxError) throw cause;
      throw new HapaxError("invalid_request", `the body is not ${coding}`, { cause });
    }
    throw new HapaxError("unsupported_encoding", `Content-Encoding is ${coding}`);
  }
}

/** Throws unless a body ends with this number: a check of zlib is at the very end. */
export function requireEnd(body: Uint8Array, value: number, isLittleEndian: boolean): void {
  const { buffer, byteOffset, length } = body;
  const end = new DataView(buffer, byteOffset, length);
  if (length >= 4 && end.getUint32(length - 4, isLittleEndian) === value) return;
  throw new Error("there are bytes behind its end");
}

/** Throws unless a body of gzip is one member: it ends with the length of what it decodes to (RFC 1952, 2.3.1). */
export function requireGzipEnd(body: Uint8Array, decodedBytes: number): void {
  requireEnd(body, decodedBytes % 2 ** 32, true);
}

/** The largest prime below 2^16. */
const ADLER_BASE = 65_521;
/** So many bytes can be added before a sum leaves 32 bits. */
const ADLER_STEP = 5552;

/** The check of zlib (RFC 1950), over pieces. */
export class Adler32 {
  #low = 1;
  #high = 0;

  add(bytes: Uint8Array): void {
    for (let from = 0; from < bytes.length; from += ADLER_STEP) {
      const end = Math.min(from + ADLER_STEP, bytes.length);
      for (let at = from; at < end; at += 1) {
        this.#low += bytes[at] ?? 0;
        this.#high += this.#low;
      }
      this.#low %= ADLER_BASE;
      this.#high %= ADLER_BASE;
    }
  }

  get value(): number {
    return this.#high * 65_536 + this.#low;
  }
}

/** The error of a body that is larger than allowed. */
export function decodedTooLarge(bytesMax: number): HapaxError {
  return new HapaxError("body_too_large", `the limit is ${bytesMax} bytes, decoded`);
}
