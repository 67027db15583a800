/** The tables of the outbox on SQLite. docs/formats/ledger.md describes them. */

/** The events that wait behind a failure, and the dead letters. */
export const SQLITE_HELD_TABLES: readonly string[] = [
  `CREATE TABLE IF NOT EXISTS hapax_outbox_held (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    relay TEXT NOT NULL,
    event_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    key TEXT,
    payload BLOB NOT NULL,
    headers TEXT NOT NULL,
    added_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    fingerprint TEXT,
    message TEXT,
    UNIQUE (relay, event_id)
  )`,
  `CREATE INDEX IF NOT EXISTS hapax_outbox_held_key ON hapax_outbox_held (relay, key, number)`,
  `CREATE INDEX IF NOT EXISTS hapax_outbox_held_due ON hapax_outbox_held (relay, state, due_at)`,
];

/** Steps in their order; one that was released is never changed. */
export const SQLITE_OUTBOX_MIGRATIONS: readonly {
  readonly id: string;
  readonly sql: readonly string[];
}[] = [
  {
    id: "outbox-1",
    sql: [
      // AUTOINCREMENT: the id of a deleted event is never given again.
      `CREATE TABLE IF NOT EXISTS hapax_outbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        topic TEXT NOT NULL,
        key TEXT,
        payload BLOB NOT NULL,
        headers TEXT NOT NULL,
        added_at INTEGER NOT NULL
      )`,
      ...SQLITE_HELD_TABLES,
    ],
  },
];
