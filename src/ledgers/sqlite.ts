/**
 * `hapax/ledgers/sqlite`: the ledger in the user's own SQLite. Takes whatever has `exec` and `prepare`: `node:sqlite`,
 * better-sqlite3, libsql, bun:sqlite; how it is used is databases/sqlite.ts.
 *
 *   LQ4  `in` refuses a connection that says that it has no transaction.
 */

import { type SqliteConnection, type SqliteSession, sqliteSessionOf } from "../databases/sqlite.ts";
import { HapaxError } from "../errors.ts";
import type { Ledger } from "../ledger.ts";
import type { OutboxLog } from "../outbox-log.ts";
import { integerOf, textOf } from "./entry-statements.ts";
import { pendingSteps } from "./migrations.ts";
import { keepingTokens, sqliteEntries } from "./sqlite-entries.ts";
import { createSqliteOutbox } from "./sqlite-outbox.ts";
import { SQLITE_MIGRATIONS_TABLE, SQLITE_NOW, SQLITE_PARTS } from "./sqlite-schema.ts";

export type { SqliteConnection, SqliteStatement } from "../databases/sqlite.ts";
export { ledgerSchema } from "./schema.ts";

const APPLIED = "SELECT part, max(version) AS version FROM hapax_migrations GROUP BY part";
const APPLY = `INSERT INTO hapax_migrations (part, version, applied_at) VALUES (?, ?, ${SQLITE_NOW})`;

/**
 * A ledger in SQLite. The connection must be the ledger's own: whatever others do with it while a transaction runs would
 * be a part of that transaction. Inside a transaction use `ledger.in(tx)`; a call of the ledger itself waits for its end.
 * A transaction of yours, on this or another connection to the same database, should begin with `BEGIN IMMEDIATE`.
 *
 * ```ts
 * import { sqliteLedger, type SqliteConnection } from "hapax/ledgers/sqlite";
 *
 * async function start(connection: SqliteConnection): Promise<number> {
 *   const ledger = sqliteLedger(connection);
 *   await ledger.migrate();
 *   return ledger.entries.sweep(100);
 * }
 * console.assert(typeof start === "function");
 * ```
 */
export function sqliteLedger<Connection extends SqliteConnection>(
  connection: Connection,
): Ledger<Connection> {
  return ledgerOf(sqliteSessionOf(connection), false);
}

function ledgerOf<Connection extends SqliteConnection>(
  session: SqliteSession<Connection>,
  isJoined: boolean,
): Ledger<Connection> {
  const { connection } = session;
  let outbox: OutboxLog<Connection> | undefined;
  return {
    name: "sqlite",
    supports: { transactions: true, isExclusive: true, durability: "database", outbox: ["log"] },
    isJoined,
    entries: sqliteEntries(session, isJoined),
    get outbox() {
      outbox ??= createSqliteOutbox(session, isJoined);
      return outbox;
    },
    async migrate() {
      if (isJoined) migrate(session);
      else await session.transaction(() => migrate(session));
    },
    transaction: async (work) =>
      isJoined ? work(connection) : keepingTokens(session, () => work(connection)),
    in: (tx) => {
      requireTransaction(tx);
      return ledgerOf(sqliteSessionOf(tx), true);
    },
  };
}

/** LG7: in a transaction for writing, of which there is one at a time. */
function migrate(session: SqliteSession<SqliteConnection>): void {
  const { connection } = session;
  connection.exec(SQLITE_MIGRATIONS_TABLE);
  const rows = session.prepare(APPLIED).all() as readonly Readonly<Record<string, unknown>>[];
  const applied = new Map(
    rows.map(({ part, version }) => [textOf(part), integerOf(version)] as const),
  );
  for (const { part, version, sql } of pendingSteps(SQLITE_PARTS, applied)) {
    for (const text of sql) connection.exec(text);
    session.prepare(APPLY).run(part, version);
  }
}

/** LQ4: better-sqlite3, libsql and Bun say `inTransaction`, Node says `isTransaction`. */
function requireTransaction(connection: SqliteConnection): void {
  const { inTransaction, isTransaction } = connection as {
    readonly inTransaction?: unknown;
    readonly isTransaction?: unknown;
  };
  if (inTransaction === false || isTransaction === false)
    throw new HapaxError("invalid_request", "the connection has no transaction: begin one first");
}
