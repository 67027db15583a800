/**
 * Commits as rows. A commit is one frame as in the journal of the file store (journal/format.ts, journal/records.ts), in one row,
 * or in several if it is larger than a row may be.
 */

import { joinBytes } from "../../../base/bytes.ts";
import { damage } from "../journal/bytes.ts";
import {
  alignFrame,
  decodeFrameHeader,
  FRAME_HEADER_BYTES,
  isFrameValid,
} from "../journal/format.ts";
import type { Frame } from "../journal/frame.ts";
import type { ScannedFrame } from "../journal/scan.ts";
import { blobOf, type Database, wholeNumberOf } from "./database.ts";

/** The platform takes rows of 2 MB. */
export const ROW_BYTES_MAX = 1_900_000;

/** A frame and the first of its rows. */
export interface PlacedFrame extends ScannedFrame {
  readonly row: number;
}

export class FrameRows {
  readonly #database: Database;
  readonly #salt: number;

  constructor(database: Database, salt: number) {
    this.#database = database;
    this.#salt = salt;
  }

  create(table: number): void {
    this.#database.run(
      `CREATE TABLE ${nameOf(table)} (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL)`,
    );
  }

  drop(table: number): void {
    this.#database.run(`DROP TABLE ${nameOf(table)}`);
  }

  /** Writes a frame from this row on. Returns how many rows it takes. */
  write(table: number, row: number, frame: Frame): number {
    const whole = joinBytes(frame.buffers);
    const query = `INSERT INTO ${nameOf(table)} (id, bytes) VALUES (?, ?)`;
    let rows = 0;
    for (let at = 0; at < whole.length; at += ROW_BYTES_MAX) {
      this.#database.run(query, row + rows, whole.subarray(at, at + ROW_BYTES_MAX));
      rows += 1;
    }
    return rows;
  }

  /** All frames of a table, each checked. A row that is no part of a frame is damage: SQLite writes whole rows. */
  *scan(table: number): Generator<PlacedFrame> {
    const name = nameOf(table);
    let pieces: Buffer[] = [];
    let [bytes, row, nextRow] = [0, 1, 1];
    for (const found of this.#database.each(`SELECT id, bytes FROM ${name} ORDER BY id`)) {
      if (wholeNumberOf(found["id"]) !== nextRow) throw damage(name, nextRow, "a row is missing");
      nextRow += 1;
      const piece = blobOf(found["bytes"]);
      pieces.push(piece);
      bytes += piece.length;
      const header = decodeFrameHeader(pieces[0] ?? piece, 0, Number.MAX_SAFE_INTEGER);
      if (header === undefined) throw damage(name, row, "a row has no frame");
      const size = alignFrame(FRAME_HEADER_BYTES + header.payloadBytes);
      if (bytes < size) continue;
      const whole = pieces.length === 1 ? piece : Buffer.concat(pieces);
      if (bytes > size || !isFrameValid(whole, 0, header, this.#salt)) {
        throw damage(name, row, "a frame does not match its checksum");
      }
      yield { header, position: 0, bytes: whole, row };
      [pieces, bytes, row] = [[], 0, nextRow];
    }
    if (bytes > 0) throw damage(name, row, "a frame is not whole");
  }

  /** A part of a frame. `at` counts from the beginning of the frame. */
  read(table: number, row: number, at: number, length: number): Buffer {
    const name = nameOf(table);
    const first = row + Math.floor(at / ROW_BYTES_MAX);
    const last = row + Math.floor((at + length - 1) / ROW_BYTES_MAX);
    const query = `SELECT bytes FROM ${name} WHERE id BETWEEN ? AND ? ORDER BY id`;
    const rows = this.#database.run(query, first, last).map(({ bytes }) => blobOf(bytes));
    const [only = Buffer.alloc(0)] = rows;
    const joined = rows.length === 1 ? only : Buffer.concat(rows);
    const from = at - (first - row) * ROW_BYTES_MAX;
    if (from + length > joined.length) throw damage(name, first, "a frame is not whole");
    return joined.subarray(from, from + length);
  }
}

function nameOf(table: number): string {
  return `hapax_frames_${table}`;
}
