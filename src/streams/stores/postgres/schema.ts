/** Makes the tables, and refuses those of another version. docs/formats/postgres.md describes them. */

import { HapaxError } from "../../../base/errors.ts";
import type { Random } from "../../../base/random.ts";
import { type Session, StatementRefused } from "./session.ts";
import { sqlNumber, sqlText } from "./values.ts";

/** The format that this version writes and reads. The statements of the fence are a part of it. */
export const TABLES_FORMAT = 1;
/** The format of tables that a copy has not finished. No version opens them. */
export const UNFINISHED_FORMAT = 0;
/** Any number: it keeps two servers from making the tables at once. */
const LOCK = 4_437_000_017;
/** SQLSTATE: no such table, no such schema. */
const MISSING = new Set(["42P01", "3F000"]);

/** What the tables say of themselves. */
export interface ClusterRow {
  /** 32 hexadecimal digits. */
  readonly storeId: string;
  readonly secret: string;
  readonly shards: number;
}

/** Quotes the name of a schema. */
export function quoteSchema(name: string): string {
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(name)) {
    const what = "schema must be letters, digits and underscores, and must not begin with a digit";
    throw new HapaxError("invalid_options", `${what}: schema=${JSON.stringify(name)}`);
  }
  return `"${name}"`;
}

/** Opens the tables. Makes them if there are none, for so many shards. */
export async function openTables(
  session: Session,
  schema: string,
  random: Random,
  shards: number,
): Promise<ClusterRow> {
  const known = await readCluster(session, schema);
  if (known !== undefined) return known;
  const [id, secret] = [random.id(), random.id() + random.id()];
  await session.run(tablesOf(schema, { id, secret, format: TABLES_FORMAT, shards }));
  const made = await readCluster(session, schema);
  if (made === undefined) throw new HapaxError("data_damaged", "hapax_cluster has no row");
  return made;
}

/** Reads what the tables say of themselves. Undefined: there are none. */
export async function readCluster(
  session: Session,
  schema: string,
): Promise<ClusterRow | undefined> {
  try {
    const { rows } = await session.run(
      `SELECT replace(c.id::text, '-', '') AS id, c.format, c.shards, s.secret
        FROM ${schema}.hapax_cluster c, ${schema}.hapax_secret s`,
      [],
    );
    const [row] = rows;
    if (row === undefined) return undefined;
    const format = sqlNumber(row["format"]);
    if (format === UNFINISHED_FORMAT) {
      const what =
        "a copy into the tables is not finished: run hapax copy again, or drop the schema";
      throw new HapaxError("format_unknown", `${what}: schema=${schema}`);
    }
    if (format !== TABLES_FORMAT) {
      const what = `the format of the tables is ${format}, this version of Hapax knows format ${TABLES_FORMAT}`;
      throw new HapaxError("format_unknown", `${what}; nothing was changed: schema=${schema}`);
    }
    const shards = sqlNumber(row["shards"]);
    return { storeId: sqlText(row["id"]), secret: sqlText(row["secret"]), shards };
  } catch (error) {
    if (error instanceof StatementRefused && MISSING.has(error.state)) return undefined;
    throw error;
  }
}

/** What new tables say of themselves. */
export interface NewTables {
  readonly id: string;
  readonly secret: string;
  readonly format: number;
  readonly shards: number;
}

/** One text, so one transaction: all tables, or none. Two servers that begin together do it one after the other. */
export function tablesOf(schema: string, { id, secret, format, shards }: NewTables): string {
  return `SELECT pg_advisory_xact_lock(${LOCK});
CREATE SCHEMA IF NOT EXISTS ${schema};
CREATE TABLE IF NOT EXISTS ${schema}.hapax_cluster (one boolean PRIMARY KEY DEFAULT true CHECK (one), id uuid NOT NULL,
  incarnation int NOT NULL, format int NOT NULL, shards int NOT NULL, placement text NOT NULL,
  created timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS ${schema}.hapax_secret (one boolean PRIMARY KEY DEFAULT true CHECK (one), secret text NOT NULL);
CREATE TABLE IF NOT EXISTS ${schema}.hapax_node (node text PRIMARY KEY, life text NOT NULL, beat bigint NOT NULL,
  url text, peer text, draining boolean NOT NULL DEFAULT false, version text) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS ${schema}.hapax_shard (shard int PRIMARY KEY, epoch bigint NOT NULL, owner text, life text,
  released_lsn bigint, released_crc bigint, pinned text) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS ${schema}.hapax_name (kind text, namespace text, id text, placement text NOT NULL,
  PRIMARY KEY (kind, namespace, id));
CREATE TABLE IF NOT EXISTS ${schema}.hapax_segment (shard int, number bigint, epoch bigint NOT NULL, first_lsn bigint NOT NULL,
  salt bigint NOT NULL, crc_before bigint NOT NULL, PRIMARY KEY (shard, number));
CREATE TABLE IF NOT EXISTS ${schema}.hapax_image (shard int, lsn bigint, epoch bigint, bytes bigint NOT NULL,
  PRIMARY KEY (shard, lsn, epoch));
CREATE TABLE IF NOT EXISTS ${schema}.hapax_image_part (shard int, lsn bigint, epoch bigint, part int, block bytea NOT NULL,
  PRIMARY KEY (shard, lsn, epoch, part));
ALTER TABLE ${schema}.hapax_image_part ALTER COLUMN block SET STORAGE EXTERNAL;
INSERT INTO ${schema}.hapax_cluster (id, incarnation, format, shards, placement)
  VALUES ('${id}', 1, ${format}, ${shards}, 'namespace') ON CONFLICT DO NOTHING;
INSERT INTO ${schema}.hapax_secret (secret) VALUES ('${secret}') ON CONFLICT DO NOTHING;
INSERT INTO ${schema}.hapax_shard (shard, epoch) SELECT n, 0
  FROM generate_series(0, (SELECT shards FROM ${schema}.hapax_cluster) - 1) AS n ON CONFLICT DO NOTHING`;
}
