/**
 * The tables of a ledger in a Durable Object; docs/formats/ledger.md has every column. Times are milliseconds since 1970.
 *
 * What has ended, and is kept for an hour or longer, is in tables of days (durable-object-days.ts), without any index: one
 * row is written for it. All else is in hapax_open.
 */

import type { MigrationPart } from "./migrations.ts";
import { SQLITE_HELD_TABLES } from "./sqlite-outbox-schema.ts";
import { SQLITE_ENTRY_COLUMNS, SQLITE_TOKENS } from "./sqlite-schema.ts";

export const OPEN_TABLE = "hapax_open";

export function dayTableSql(table: string): string {
  return `CREATE TABLE IF NOT EXISTS ${table} (${SQLITE_ENTRY_COLUMNS}) WITHOUT ROWID`;
}

const ENTRIES = [
  `CREATE TABLE IF NOT EXISTS ${OPEN_TABLE} (${SQLITE_ENTRY_COLUMNS}) WITHOUT ROWID`,
  // LG8, and what `recover` looks for.
  `CREATE INDEX IF NOT EXISTS hapax_open_expiry ON ${OPEN_TABLE} (expires_at) WHERE expires_at IS NOT NULL`,
  // LG10
  `CREATE INDEX IF NOT EXISTS hapax_open_due ON ${OPEN_TABLE} (kind, lease_until) WHERE state = 'running'`,
  ...SQLITE_TOKENS,
];

// The ids are tokens: they are in the order of the transactions, and no counter has to be written beside the event.
const OUTBOX = [
  `CREATE TABLE IF NOT EXISTS hapax_outbox (
  id INTEGER PRIMARY KEY,
  topic TEXT NOT NULL,
  key TEXT,
  payload BLOB NOT NULL,
  headers TEXT NOT NULL,
  added_at INTEGER NOT NULL
)`,
  ...SQLITE_HELD_TABLES,
];

export const OBJECT_PARTS: readonly MigrationPart[] = [
  { name: "object entries", steps: [{ id: "open entries and tokens", sql: ENTRIES }] },
  { name: "object outbox", steps: [{ id: "events and held events", sql: OUTBOX }] },
];
