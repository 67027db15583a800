/**
 * Snapshots as rows: the file of the file store (journal/snapshot-format.ts) in parts of at most 1 MB. Its blocks carry their
 * checksums, and its head the LSN.
 */

import { HapaxError } from "../../../base/errors.ts";
import type { ByteSource, ImageSink } from "../journal/segment-log.ts";
import { blobOf, type Database } from "./database.ts";

const PART_BYTES = 1_000_000;

export function snapshotTable(lsn: number): string {
  return `hapax_snapshot_${lsn}`;
}

/** One snapshot in memory: it is written there, and read from there. */
export class SnapshotMemory implements ImageSink, ByteSource {
  #pieces: Uint8Array[];

  constructor(pieces: Uint8Array[] = []) {
    this.#pieces = pieces;
  }

  get bytes(): Buffer {
    const [first] = this.#pieces;
    if (this.#pieces.length === 1 && first instanceof Buffer) return first;
    const joined = Buffer.concat(this.#pieces);
    this.#pieces = [joined];
    return joined;
  }

  write(bytes: Uint8Array): Promise<void> {
    this.#pieces.push(bytes);
    return Promise.resolve();
  }

  size(): Promise<number> {
    return Promise.resolve(this.bytes.length);
  }

  read(position: number, length: number): Promise<Buffer> {
    return Promise.resolve(this.bytes.subarray(position, position + length));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

export function writeParts(database: Database, lsn: number, bytes: Buffer): void {
  const table = snapshotTable(lsn);
  database.run(`CREATE TABLE ${table} (part INTEGER PRIMARY KEY, bytes BLOB NOT NULL)`);
  for (let at = 0, part = 1; at < bytes.length; at += PART_BYTES, part += 1) {
    const query = `INSERT INTO ${table} (part, bytes) VALUES (?, ?)`;
    database.run(query, part, bytes.subarray(at, at + PART_BYTES));
  }
}

export function readParts(database: Database, lsn: number): Buffer {
  const rows = database.run(`SELECT bytes FROM ${snapshotTable(lsn)} ORDER BY part`);
  if (rows.length === 0) throw new HapaxError("data_damaged", `snapshot ${lsn} has no parts`);
  return Buffer.concat(rows.map(({ bytes }) => blobOf(bytes)));
}

export function dropParts(database: Database, lsn: number): void {
  database.run(`DROP TABLE ${snapshotTable(lsn)}`);
}
