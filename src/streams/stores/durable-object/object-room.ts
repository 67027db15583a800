/**
 * The room that an object has left. A full database is no error that can be caught: the platform ends the object, with all that its
 * turn has written. So there is a reserve for what must always fit: the next snapshot, the pages that it fills, and deletes.
 */

import type { StoreRoom } from "../../store.ts";
import type { Database } from "./database.ts";

/** What the platform allows a database. */
const DATABASE_BYTES_MAX = 10_000_000_000;
/** For deletes on a full object, and for what SQLite takes beside the data. */
const RESERVE_BYTES = 512 * 1024;

export class ObjectRoom implements StoreRoom {
  bytes = 0;
  /** A snapshot can be written without filling the database. */
  fitsSnapshot = true;
  readonly #database: Database;
  readonly #bytesMax: number;

  constructor(database: Database, bytesMax: number = DATABASE_BYTES_MAX) {
    this.#database = database;
    this.#bytesMax = bytesMax;
  }

  /** Data is refused. A snapshot may free something: the commits before the older one. */
  get isTight(): boolean {
    return this.bytes <= 0;
  }

  /**
   * Looks anew. A snapshot takes what the last one took and what the commits since have added; their data is written once more,
   * into pages, before their rows go.
   */
  measure(snapshotBytes: number, tailBytes: number): void {
    const free = this.#bytesMax - this.#database.bytes;
    const needed = snapshotBytes + (snapshotBytes >> 2) + 4 * tailBytes;
    const left = free - needed - 2 * RESERVE_BYTES;
    this.fitsSnapshot = free > needed;
    // A commit of n bytes takes n bytes now, and four times as many of what the next snapshot needs.
    if (left > 0) this.bytes = Math.floor(left / 6);
    else this.bytes = free > needed + RESERVE_BYTES ? -1 : -2;
  }
}
