/** The room of a store in PostgreSQL: what its owner allows it, and what the server says. */

import type { StoreRoom } from "../../store.ts";
import type { LogSpace } from "../journal/segment-log.ts";

/** Of the allowed bytes, what is kept for deletes and snapshots. */
const RESERVE_BYTES = 1024 * 1024;

export class PostgresRoom implements StoreRoom, LogSpace {
  bytes = Number.MAX_SAFE_INTEGER;
  onFull: () => void = () => undefined;
  readonly #bytesMax: number;
  readonly #images = new Map<number, number>();
  #segmentBytes = 0;
  #isRefused = false;
  #stopWaiting: () => void = () => undefined;

  constructor(bytesMax: number | undefined) {
    this.#bytesMax = bytesMax ?? Number.MAX_SAFE_INTEGER;
    this.#measure();
  }

  get isFull(): boolean {
    return this.#isRefused || this.bytes < 0;
  }

  get fileBytes(): number {
    let bytes = this.#segmentBytes;
    for (const size of this.#images.values()) bytes += size;
    return bytes;
  }

  /** Counts bytes of frames that came, or went. */
  add(bytes: number): void {
    this.#segmentBytes += bytes;
    this.#measure();
  }

  /** Counts an image. No bytes: it went. */
  image(lsn: number, bytes: number): void {
    if (bytes === 0) this.#images.delete(lsn);
    else this.#images.set(lsn, bytes);
    this.#measure();
  }

  /** The server has no room on its disk, or has some again. */
  refused(isFull: boolean): void {
    this.#isRefused = isFull;
    this.#measure();
  }

  moveRoomBytes(): number {
    return this.isFull ? 0 : Infinity;
  }

  hasRoomToMove(): Promise<boolean> {
    return Promise.resolve(!this.isFull);
  }

  forImage(write: () => Promise<void>): Promise<void> {
    return write();
  }

  prepare(): void {
    // PostgreSQL makes room by itself.
  }

  stopWaiting(): void {
    this.#stopWaiting();
  }

  onStopWaiting(run: () => void): void {
    this.#stopWaiting = run;
  }

  #measure(): void {
    const wasFull = this.bytes < 0;
    const left = this.#bytesMax - this.fileBytes - RESERVE_BYTES;
    if (this.#isRefused) this.bytes = -2;
    else if (left <= 0) this.bytes = left + RESERVE_BYTES > 0 ? -1 : -2;
    // A small append takes several times its own bytes in a frame.
    else this.bytes = this.#bytesMax === Number.MAX_SAFE_INTEGER ? left : Math.floor(left / 4);
    if (this.bytes < 0 && !wasFull) this.onFull();
  }
}
