/**
 * Snapshots as rows: the file of the file store (journal/snapshot-format.ts) in parts of at most 1 MB. Its blocks carry their
 * checksums, and its head the LSN.
 */

import type { Disk, DiskFile } from "../file/disk.ts";
import { HapaxError } from "../../../base/errors.ts";
import { blobOf, type Database } from "./database.ts";

const PART_BYTES = 1_000_000;

export function snapshotTable(lsn: number): string {
  return `hapax_snapshot_${lsn}`;
}

/** The directory of one snapshot: it is written to memory, and read from there. */
export class SnapshotMemory implements Disk {
  #bytes: Buffer;

  constructor(bytes: Buffer = Buffer.alloc(0)) {
    this.#bytes = bytes;
  }

  get bytes(): Buffer {
    return this.#bytes;
  }

  list(): Promise<readonly string[]> {
    return Promise.resolve([]);
  }

  open(): Promise<DiskFile> {
    const pieces: Uint8Array[] = [];
    return Promise.resolve({
      size: () => Promise.resolve(this.#bytes.length),
      read: (position, length) =>
        Promise.resolve(this.#bytes.subarray(position, position + length)),
      write: (buffers) => {
        pieces.push(...buffers);
        return Promise.resolve();
      },
      sync: () => {
        this.#bytes = Buffer.concat(pieces);
        return Promise.resolve();
      },
      close: () => Promise.resolve(),
    });
  }

  rename(): Promise<void> {
    return Promise.resolve();
  }

  remove(): Promise<void> {
    return Promise.resolve();
  }

  syncDirectory(): Promise<void> {
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
