/**
 * What tables there are, and what they mean: one row, so that a wake reads one row before it reads data.
 *
 *   hapax_streams          id, text, crc: 1 the manifest (JSON), 2 the secret
 *   hapax_frames_<lsn>     id, bytes: the commits from that LSN on, one row each (frame-rows.ts)
 *   hapax_pages            stream, start, bytes: data of older commits (pages.ts)
 *   hapax_snapshot_<lsn>   part, bytes: the world at that LSN (snapshot-parts.ts)
 *
 * Frames and snapshots are tables of their own because the platform bills rows: dropping a table costs none.
 */

import { crc32Of } from "../../../base/crc32.ts";
import { utf8Of } from "../../../base/bytes.ts";
import { HapaxError } from "../../../base/errors.ts";
import type { Random } from "../../../base/random.ts";
import { damage } from "../journal/bytes.ts";
import type { Database } from "./database.ts";

/** The format that this version writes and reads. */
const FORMAT = 1;
const TABLE = "hapax_streams";
const IDS = { manifest: 1, secret: 2 } as const;

export interface Manifest {
  readonly format: number;
  /** 32 hexadecimal digits. */
  readonly storeId: string;
  /** The start value of every CRC of a frame: a frame of another store is not valid here. */
  readonly salt: number;
  /** First LSNs of the tables of frames, oldest first. */
  readonly frames: readonly number[];
  /** LSNs of the snapshots, newest first. */
  readonly snapshots: readonly number[];
  /** The data of commits up to this LSN is in pages. */
  readonly pagedTo: number;
}

/** Reads the manifest. Undefined: the object has no store yet. */
export function readManifest(database: Database): Manifest | undefined {
  database.run(
    `CREATE TABLE IF NOT EXISTS ${TABLE} (id INTEGER PRIMARY KEY, text TEXT NOT NULL, crc INTEGER)`,
  );
  const text = readText(database, "manifest");
  if (text === undefined) return undefined;
  // writeManifest wrote this text, and its checksum covers it.
  const manifest = JSON.parse(text) as Manifest;
  if (manifest.format !== FORMAT) {
    const what = `its format is ${manifest.format}, this version of Hapax knows format ${FORMAT}`;
    throw new HapaxError("format_unknown", `${what}; nothing was changed: table=${TABLE}`);
  }
  return manifest;
}

/** Makes the tables of a new store. Fails if there are some: then the manifest is lost, and nothing is overwritten. */
export function createManifest(database: Database, random: Random): Manifest {
  const storeId = random.id();
  const salt = Number.parseInt(random.id().slice(0, 8), 16);
  const manifest = { format: FORMAT, storeId, salt, frames: [], snapshots: [], pagedTo: 0 };
  database.inTransaction(() => {
    database.run(
      `CREATE TABLE hapax_pages (stream INTEGER, start INTEGER, bytes BLOB NOT NULL,
        PRIMARY KEY (stream, start)) WITHOUT ROWID`,
    );
    writeManifest(database, manifest);
    writeText(database, "secret", random.id() + random.id());
  });
  return manifest;
}

export function writeManifest(database: Database, manifest: Manifest): void {
  writeText(database, "manifest", JSON.stringify(manifest));
}

/** Kept apart from the data: nothing that is read or exported from streams has it. */
export function readSecret(database: Database): string {
  const secret = readText(database, "secret");
  if (secret === undefined) throw damage(TABLE, 0, "the secret is missing");
  return secret;
}

function readText(database: Database, name: keyof typeof IDS): string | undefined {
  const [row] = database.run(`SELECT text, crc FROM ${TABLE} WHERE id = ?`, IDS[name]);
  if (row === undefined) return undefined;
  const { text, crc } = row;
  if (typeof text !== "string" || crc32Of(utf8Of(text)) !== crc) {
    throw damage(TABLE, 0, `the ${name} does not match its checksum`);
  }
  return text;
}

function writeText(database: Database, name: keyof typeof IDS, text: string): void {
  const crc = crc32Of(utf8Of(text));
  const query = `INSERT OR REPLACE INTO ${TABLE} (id, text, crc) VALUES (?, ?, ?)`;
  database.run(query, IDS[name], text, crc);
}
