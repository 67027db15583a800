/** The tables of a ledger in PostgreSQL; docs/formats/ledger.md has every column. */

import type { MigrationPart } from "./migrations.ts";
import { POSTGRES_OUTBOX_MIGRATIONS } from "./postgres-outbox-schema.ts";
import { TOKEN_CLOCK_MAX } from "./tokens.ts";

export const POSTGRES_MIGRATIONS_TABLE = `CREATE TABLE IF NOT EXISTS hapax_migrations (
  part text NOT NULL,
  version integer NOT NULL,
  applied_at timestamptz NOT NULL,
  PRIMARY KEY (part, version)
)`;

// Nothing checks the state: PostgreSQL reads a check anew for every statement, which takes as long as an index.
const ENTRIES = [
  // Compared byte by byte: a collation could hold two keys for equal, and changes with the operating system.
  `CREATE TABLE IF NOT EXISTS hapax_entries (
  kind text COLLATE "C" NOT NULL,
  scope text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  token bigint NOT NULL,
  revision bigint NOT NULL,
  state text COLLATE "C" NOT NULL,
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

/** How far the sequence may be behind the clock, in microseconds. */
export const TOKEN_BEHIND_MAX = 10_000;

const CLOCK = `least(extract(epoch FROM clock_timestamp()) * 1000000, ${TOKEN_CLOCK_MAX})::bigint`;

/**
 * LG3. The sequence follows the clock: one that is 10 ms behind it is set to it. A restored database needs longer than that
 * to give its first token, so that it gives none again, and a busy one sets its sequence a hundred times a second at most.
 *
 * Only one at a time may set it, or a late one would take it back. `nextval` goes on beside the one that sets it: to be taken
 * back, the sequence would have to give 10,000 tokens between two steps of one function. The lock must not last until the end of a
 * caller's transaction: it is taken in a block that is rolled back, which frees it, and leaves the sequence as it is.
 */
const NEXT_TOKEN = `CREATE OR REPLACE FUNCTION hapax_next_token(tokens regclass) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  drawn bigint := nextval(tokens);
  clock bigint := ${CLOCK};
BEGIN
  IF drawn > clock - ${TOKEN_BEHIND_MAX} THEN RETURN drawn; END IF;
  BEGIN
    PERFORM pg_advisory_xact_lock(71654370, tokens::oid::integer);
    drawn := nextval(tokens);
    clock := ${CLOCK};
    IF drawn <= clock - ${TOKEN_BEHIND_MAX} THEN drawn := setval(tokens, clock); END IF;
    RAISE EXCEPTION USING ERRCODE = 'HPX01';
  EXCEPTION WHEN SQLSTATE 'HPX01' THEN
    RETURN drawn;
  END;
END $$`;

// LG10. Of running entries alone: what is done adds nothing to it.
const DUE = `CREATE INDEX IF NOT EXISTS hapax_entries_due ON hapax_entries (kind, lease_until) WHERE state = 'running'`;

// LG13. Of failed entries alone: sagas that are stuck are among them.
const FAILED = `CREATE INDEX IF NOT EXISTS hapax_entries_failed ON hapax_entries (kind, state, made_at) WHERE state = 'failed'`;

// PostgreSQL prepares the condition of each index anew for every insert: entries that are done meet as few of them as can be.
const FEWER = [
  "DROP INDEX IF EXISTS hapax_entries_expiry",
  "CREATE INDEX IF NOT EXISTS hapax_entries_expiry ON hapax_entries (expires_at)",
  "DROP INDEX IF EXISTS hapax_entries_open",
  "DROP INDEX IF EXISTS hapax_entries_failed",
  "CREATE INDEX IF NOT EXISTS hapax_entries_open ON hapax_entries (kind, state, made_at) WHERE state <> 'done'",
];

export const POSTGRES_PARTS: readonly MigrationPart[] = [
  {
    name: "entries",
    steps: [
      { id: "entries and tokens", sql: ENTRIES },
      { id: "what is due, and tokens that follow the clock", sql: [DUE, NEXT_TOKEN] },
      { id: "what has failed", sql: [FAILED] },
      { id: "fewer indexes with conditions", sql: FEWER },
    ],
  },
  { name: "outbox", steps: POSTGRES_OUTBOX_MIGRATIONS },
];
