/**
 * The tables of the outbox in PostgreSQL. Names are without a schema: the search path says where they are made.
 *
 *   hapax_outbox            what was added. `tx` is the transaction that added it: see postgres-outbox-spans.ts. The
 *                           sequence of `id` has no cache, so that an id that is given later is greater.
 *   hapax_outbox_origin     two rows of two transactions, which tell whether transaction ids are still those of the server
 *                           that wrote them: see postgres-outbox-position.ts.
 *   hapax_outbox_batches    rows that relays have taken, as lists of ids: an event is written once, and deleted once.
 *   hapax_outbox_held       events behind a failure. `place` is their order: the id, or a number of its own where ids
 *                           are no numbers.
 *   hapax_outbox_tokens     never goes back: a token is greater than all before it.
 */

/** One step of the schema: run once, in its order. */
export interface PostgresMigration {
  readonly id: string;
  readonly sql: readonly string[];
}

export const POSTGRES_OUTBOX_MIGRATIONS: readonly PostgresMigration[] = [
  {
    id: "outbox-1",
    sql: [
      `CREATE TABLE IF NOT EXISTS hapax_outbox (
  id bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
  tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
  topic text COLLATE "C" NOT NULL,
  key text COLLATE "C",
  payload bytea NOT NULL,
  headers jsonb NOT NULL DEFAULT '{}',
  added_at timestamptz NOT NULL DEFAULT clock_timestamp()
)`,
      "CREATE INDEX IF NOT EXISTS hapax_outbox_by_tx ON hapax_outbox (tx, id)",
      `CREATE TABLE IF NOT EXISTS hapax_outbox_origin (
  place integer PRIMARY KEY,
  tx xid8 NOT NULL DEFAULT pg_current_xact_id()
)`,
      "CREATE SEQUENCE IF NOT EXISTS hapax_outbox_tokens CACHE 1",
      `CREATE TABLE IF NOT EXISTS hapax_outbox_batches (
  id bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
  relay text COLLATE "C" NOT NULL,
  token bigint NOT NULL,
  lease_until timestamptz NOT NULL,
  event_ids bigint[] NOT NULL,
  keys text[] COLLATE "C" NOT NULL
)`,
      "CREATE SEQUENCE IF NOT EXISTS hapax_outbox_places CACHE 1",
      `CREATE TABLE IF NOT EXISTS hapax_outbox_held (
  relay text COLLATE "C" NOT NULL,
  event_id text COLLATE "C" NOT NULL,
  place bigint NOT NULL,
  topic text COLLATE "C" NOT NULL,
  key text COLLATE "C",
  payload bytea NOT NULL,
  headers jsonb NOT NULL,
  added_at timestamptz NOT NULL,
  state text NOT NULL CHECK (state IN ('waiting', 'dead')),
  attempts integer NOT NULL,
  due_at timestamptz NOT NULL,
  fingerprint text,
  message text,
  PRIMARY KEY (relay, event_id)
)`,
      "CREATE INDEX IF NOT EXISTS hapax_outbox_held_by_place ON hapax_outbox_held (relay, place)",
      "CREATE INDEX IF NOT EXISTS hapax_outbox_held_by_key ON hapax_outbox_held (relay, key, place)",
    ],
  },
  {
    // What is due is found among any number that wait behind it.
    id: "outbox-2",
    sql: [
      "CREATE INDEX IF NOT EXISTS hapax_outbox_held_by_due ON hapax_outbox_held (relay, state, due_at)",
    ],
  },
];
