/** The tables of a ledger in PostgreSQL; docs/formats/ledger.md has every column. */

import type { MigrationPart } from "./migrations.ts";
import { POSTGRES_OUTBOX_MIGRATIONS } from "./postgres-outbox-schema.ts";

export const POSTGRES_MIGRATIONS_TABLE = `CREATE TABLE IF NOT EXISTS hapax_migrations (
  part text NOT NULL,
  version integer NOT NULL,
  applied_at timestamptz NOT NULL,
  PRIMARY KEY (part, version)
)`;

const ENTRIES = [
  // Compared byte by byte: a collation could hold two keys for equal, and changes with the operating system.
  `CREATE TABLE IF NOT EXISTS hapax_entries (
  kind text COLLATE "C" NOT NULL,
  scope text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  token bigint NOT NULL,
  revision bigint NOT NULL,
  state text COLLATE "C" NOT NULL CHECK (state IN ('running', 'done', 'failed', 'released')),
  attempts integer NOT NULL,
  lease_until timestamptz,
  lease_ms bigint,
  expires_at timestamptz,
  made_at timestamptz NOT NULL,
  fingerprint text COLLATE "C",
  data bytea,
  PRIMARY KEY (kind, scope, key)
)`,
  `CREATE INDEX IF NOT EXISTS hapax_entries_expiry ON hapax_entries (expires_at) WHERE expires_at IS NOT NULL`,
  // What is not over yet is little, however much is kept: this index finds it at once.
  `CREATE INDEX IF NOT EXISTS hapax_entries_open ON hapax_entries (kind, state, made_at)
  WHERE state = 'running' OR state = 'released'`,
  // Without a cache: one that a connection keeps for itself would be given after greater ones (LG3).
  `CREATE SEQUENCE IF NOT EXISTS hapax_tokens AS bigint MINVALUE 1 NO CYCLE CACHE 1`,
];

export const POSTGRES_PARTS: readonly MigrationPart[] = [
  { name: "entries", steps: [{ id: "entries and tokens", sql: ENTRIES }] },
  { name: "outbox", steps: POSTGRES_OUTBOX_MIGRATIONS },
];
