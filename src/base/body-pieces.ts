/**
 * The pieces of a body that is being received, in memory that follows from its bytes and not from the number of its pieces: a client may
 * send every byte by itself, and an object for each would take a hundred times as much.
 */

import { joinBytes } from "./bytes.ts";

/** A smaller piece is copied into a block with others. */
const SMALL_BYTES = 1024;
const BLOCK_BYTES = 16 * SMALL_BYTES;

export class BodyPieces {
  /** How many bytes there are. */
  bytes = 0;
  #pieces: Uint8Array[] = [];
  #block: Uint8Array | undefined;
  #used = 0;

  /** How many objects keep the bytes. */
  get count(): number {
    return this.#pieces.length + (this.#block === undefined ? 0 : 1);
  }

  /** How much memory they take, without that of the objects themselves. */
  get heldBytes(): number {
    const held = this.#pieces.reduce((sum, { buffer }) => sum + buffer.byteLength, 0);
    return held + (this.#block?.length ?? 0);
  }

  /** Takes a piece, which must not change from now on. */
  add(piece: Uint8Array): void {
    if (piece.length === 0) return;
    // The first one is often the only one: it stays as it is.
    const isKept = this.bytes === 0 || piece.length >= SMALL_BYTES;
    this.bytes += piece.length;
    if (isKept) {
      this.#seal();
      this.#pieces.push(piece);
      return;
    }
    if (this.#block === undefined || this.#used + piece.length > BLOCK_BYTES) {
      this.#seal();
      this.#block = new Uint8Array(BLOCK_BYTES);
    }
    this.#block.set(piece, this.#used);
    this.#used += piece.length;
  }

  /** The whole body. Not copied if it has come in one piece. */
  whole(): Uint8Array {
    this.#seal();
    return joinBytes(this.#pieces);
  }

  clear(): void {
    this.bytes = 0;
    this.#pieces = [];
    this.#block = undefined;
    this.#used = 0;
  }

  #seal(): void {
    if (this.#block === undefined) return;
    // A copy, if much of the block is free: a piece of a byte between two large ones must not keep it all.
    this.#pieces.push(
      this.#used > BLOCK_BYTES / 2
        ? this.#block.subarray(0, this.#used)
        : this.#block.slice(0, this.#used),
    );
    this.#block = undefined;
    this.#used = 0;
  }
}
