/** The tables of a ledger in SQLite; docs/formats/ledger.md has every column. Times are milliseconds since 1970. */

import type { MigrationPart } from "./migrations.ts";
import { SQLITE_OUTBOX_MIGRATIONS } from "./sqlite-outbox-schema.ts";

/** LG4: the database's clock, in every version of SQLite. The same in all of one statement. */
export const SQLITE_NOW = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)";

export const SQLITE_MIGRATIONS_TABLE = `CREATE TABLE IF NOT EXISTS hapax_migrations (
  part TEXT NOT NULL,
  version INTEGER NOT NULL,
  applied_at INTEGER NOT NULL,
  PRIMARY KEY (part, version)
)`;
export const SQLITE_APPLIED =
  "SELECT part, max(version) AS version FROM hapax_migrations GROUP BY part";
export const SQLITE_APPLY = `INSERT INTO hapax_migrations (part, version, applied_at) VALUES (?, ?, ${SQLITE_NOW})`;

export const SQLITE_ENTRY_COLUMNS = `
  kind TEXT NOT NULL,
  scope TEXT NOT NULL,
  key TEXT NOT NULL,
  token INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'released')),
  attempts INTEGER NOT NULL,
  lease_until INTEGER,
  lease_ms INTEGER,
  expires_at INTEGER,
  made_at INTEGER NOT NULL,
  fingerprint TEXT,
  data BLOB,
  PRIMARY KEY (kind, scope, key)
`;

// One row that is never deleted: what was given is never given again, also when all entries are gone (LG3).
export const SQLITE_TOKENS: readonly string[] = [
  `CREATE TABLE IF NOT EXISTS hapax_tokens (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  last INTEGER NOT NULL
)`,
  `INSERT INTO hapax_tokens (id, last) VALUES (1, 0) ON CONFLICT (id) DO NOTHING`,
];

// Without row ids: an entry is one row in one tree, and a new one is one page less to write.
const ENTRIES = [
  `CREATE TABLE IF NOT EXISTS hapax_entries (${SQLITE_ENTRY_COLUMNS}) WITHOUT ROWID`,
  `CREATE INDEX IF NOT EXISTS hapax_entries_expiry ON hapax_entries (expires_at) WHERE expires_at IS NOT NULL`,
  // What is not over yet is little, however much is kept: this index finds it at once.
  `CREATE INDEX IF NOT EXISTS hapax_entries_open ON hapax_entries (kind, state, made_at)
  WHERE state = 'running' OR state = 'released'`,
  ...SQLITE_TOKENS,
];

// LG10. Of running entries alone: what is done adds nothing to it.
const DUE = [
  `CREATE INDEX IF NOT EXISTS hapax_entries_due ON hapax_entries (kind, lease_until) WHERE state = 'running'`,
];

// LG13. Of failed entries alone: sagas that are stuck are among them.
const FAILED = [
  `CREATE INDEX IF NOT EXISTS hapax_entries_failed ON hapax_entries (kind, state, made_at) WHERE state = 'failed'`,
];

// What was done when it was made, by the day on which it is past its retention. It has no index: an entry is one row in one tree, and
// what goes is in one place.
const DONE = [
  `CREATE TABLE IF NOT EXISTS hapax_done (
  day INTEGER NOT NULL,
  kind TEXT NOT NULL,
  scope TEXT NOT NULL,
  key TEXT NOT NULL,
  token INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  made_at INTEGER NOT NULL,
  fingerprint TEXT,
  data BLOB,
  PRIMARY KEY (day, kind, scope, key)
) WITHOUT ROWID`,
  `CREATE TABLE IF NOT EXISTS hapax_days (day INTEGER PRIMARY KEY)`,
];

export const SQLITE_PARTS: readonly MigrationPart[] = [
  {
    name: "entries",
    steps: [
      { id: "entries and tokens", sql: ENTRIES },
      { id: "what is due", sql: DUE },
      { id: "what has failed", sql: FAILED },
      { id: "what is done, by days", sql: DONE },
    ],
  },
  { name: "outbox", steps: SQLITE_OUTBOX_MIGRATIONS },
];
