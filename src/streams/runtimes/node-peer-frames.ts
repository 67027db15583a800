/**
 * Frames between nodes: many requests and answers at once on one connection, each with the number of its request.
 *
 *   | bytes | what                             |
 *   | ----- | -------------------------------- |
 *   | 4     | length of the rest, big endian   |
 *   | 1     | kind                             |
 *   | 4     | number of the request            |
 *   | 4     | length of the head               |
 *   | …     | head: JSON in UTF-8, or nothing  |
 *   | …     | body                             |
 */

import { HapaxError } from "../../base/errors.ts";

/** What TLS agrees on for a connection of frames (ALPN). */
export const FRAMES_PROTOCOL = "hapax-frames-1";

export const FRAME = {
  request: 1,
  /** The wait for the answer has ended. */
  abort: 2,
  answer: 3,
  /** The node does not own the shard, and has done nothing. */
  moved: 4,
  /** The owner has lost the shard: the call was done, or not. */
  lost: 5,
  /** The node ends: no new requests on this connection. */
  leaving: 6,
} as const;

export interface PeerFrame {
  readonly kind: number;
  readonly id: number;
  /** Empty if there is none. */
  readonly head: string;
  readonly body: Uint8Array;
}

const START_BYTES = 13;
/** Larger than every body and head that is sent this way. */
const FRAME_BYTES_MAX = 32 * 1024 * 1024;

export function encodePeerFrame(
  kind: number,
  id: number,
  head = "",
  body: readonly Uint8Array[] = [],
): readonly Uint8Array[] {
  const headBytes = Buffer.byteLength(head);
  const bodyBytes = body.reduce((sum, { length }) => sum + length, 0);
  const start = Buffer.allocUnsafe(START_BYTES + headBytes);
  start.writeUInt32BE(START_BYTES - 4 + headBytes + bodyBytes, 0);
  start[4] = kind;
  start.writeUInt32BE(id, 5);
  start.writeUInt32BE(headBytes, 9);
  start.write(head, START_BYTES, "utf8");
  return [start, ...body];
}

/** Cuts received bytes into frames. */
export class FrameReader {
  #pieces: Buffer[] = [];
  #bytes = 0;
  /** What is needed before there is anything to do. */
  #needed = 4;

  /** Takes bytes, and calls `onFrame` for each frame that is whole. */
  push(chunk: Buffer, onFrame: (frame: PeerFrame) => void): void {
    this.#pieces.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes < this.#needed) return;
    const [only = chunk] = this.#pieces;
    const bytes = this.#pieces.length === 1 ? only : Buffer.concat(this.#pieces, this.#bytes);
    let at = 0;
    this.#needed = 4;
    while (bytes.length - at >= 4) {
      const rest = bytes.readUInt32BE(at);
      if (rest < START_BYTES - 4 || rest > FRAME_BYTES_MAX) throw broken("its length is wrong");
      this.#needed = rest + 4;
      if (bytes.length - at < this.#needed) break;
      onFrame(frameAt(bytes, at, at + this.#needed));
      at += this.#needed;
      this.#needed = 4;
    }
    this.#pieces = at === bytes.length ? [] : [bytes.subarray(at)];
    this.#bytes = bytes.length - at;
  }
}

function frameAt(bytes: Buffer, at: number, end: number): PeerFrame {
  const headStart = at + START_BYTES;
  const headEnd = headStart + bytes.readUInt32BE(at + 9);
  if (headEnd > end) throw broken("its head is longer than it");
  return {
    kind: bytes[at + 4] ?? 0,
    id: bytes.readUInt32BE(at + 5),
    head: bytes.toString("utf8", headStart, headEnd),
    body: bytes.subarray(headEnd, end),
  };
}

function broken(what: string): HapaxError {
  return new HapaxError("internal", `a frame of another node cannot be read: ${what}`);
}

/** Sends frames. What is given in one turn of the event loop leaves with one write. */
export class FrameWriter {
  readonly #write: (bytes: Uint8Array) => void;
  #pieces: Uint8Array[] = [];

  constructor(write: (bytes: Uint8Array) => void) {
    this.#write = write;
  }

  send(frame: readonly Uint8Array[]): void {
    if (this.#pieces.length === 0) setImmediate(this.flush);
    for (const piece of frame) this.#pieces.push(piece);
  }

  readonly flush = (): void => {
    const pieces = this.#pieces;
    if (pieces.length === 0) return;
    this.#pieces = [];
    const [only] = pieces;
    this.#write(pieces.length === 1 && only !== undefined ? only : Buffer.concat(pieces));
  };
}
