/**
 * `hapax/ledgers/sqlite`: the ledger in your own SQLite. Takes anything with `exec` and `prepare`: `node:sqlite`,
 * better-sqlite3, libsql, bun:sqlite.
 *
 *   - how it uses the client is in toolkit/databases/sqlite.ts;
 *   - `in` refuses a connection that says that it has no transaction.
 */

import {
  closeSqlite,
  joinSqlite,
  type OpenSqlite,
  ownSqliteSession,
  type RunJoined,
  type SqliteConnection,
  type SqliteSession,
} from "../databases/sqlite.ts";
import type { Ledger } from "./ledger.ts";
import type { OutboxLog } from "../outbox/log.ts";
import { integerOf, textOf } from "./entry-statements.ts";
import { pendingSteps } from "./migrations.ts";
import { sqliteEntries, sqliteLocked } from "./sqlite-entries.ts";
import { createSqliteOutbox } from "./sqlite-outbox.ts";
import { keepingTokens } from "./sqlite-tokens.ts";
import {
  SQLITE_APPLIED,
  SQLITE_APPLY,
  SQLITE_MIGRATIONS_TABLE,
  SQLITE_PARTS,
} from "./sqlite-schema.ts";

export type { SqliteConnection } from "../databases/sqlite.ts";
export { ledgerSchema } from "./schema.ts";

/** A ledger in SQLite. It owns a connection. */
export interface SqliteLedger<Connection> extends Ledger<Connection>, Disposable {
  /** Closes the connection, when nothing uses the ledger any more. */
  close(): void;
}

/**
 * Creates a ledger in SQLite. `open` opens a connection that only the ledger uses: a transaction stays open while your work
 * awaits, and writes of other code with the same connection would become a part of it. Other parts of the program open
 * connections of their own. The ledger waits for writers by itself; it turns the client's own timeout off, which would block
 * the whole process.
 *
 * Inside a transaction use `ledger.in(tx)`: a call of the ledger itself would wait for the end of the transaction. A
 * transaction of yours on another connection should begin with `BEGIN IMMEDIATE`. Throws `invalid_options`.
 *
 * ```ts
 * import Database from "libsql"; // Or better-sqlite3, node:sqlite, bun:sqlite.
 * import { sqliteLedger } from "hapax/ledgers/sqlite";
 *
 * const ledger = sqliteLedger(() => new Database(":memory:"));
 * await ledger.migrate();
 * const rows = await ledger.transaction(async (tx) => {
 *   tx.exec("CREATE TABLE payments (cents INTEGER)"); // `tx` is the client's own connection.
 *   tx.prepare("INSERT INTO payments VALUES (?)").run(500);
 *   return tx.prepare("SELECT cents FROM payments").all();
 * });
 * console.assert(rows.length === 1);
 * ledger.close();
 * ```
 */
export function sqliteLedger<Connection extends SqliteConnection>(
  open: OpenSqlite<Connection>,
): SqliteLedger<Connection> {
  const session = ownSqliteSession(open);
  const close = (): void => {
    closeSqlite(session);
  };
  return Object.defineProperties(ledgerOf(session, undefined), {
    close: { value: close },
    [Symbol.dispose]: { value: close },
  }) as SqliteLedger<Connection>; // With what was just defined.
}

/** `tx`: what the caller has for its transaction, and how what belongs to it is run. */
function ledgerOf<Connection extends SqliteConnection>(
  session: SqliteSession<Connection>,
  joined: { readonly tx: Connection; readonly run: RunJoined } | undefined,
): Ledger<Connection> {
  let outbox: OutboxLog<Connection> | undefined;
  return {
    name: "sqlite",
    supports: { transactions: true, isExclusive: true, durability: "database", outbox: ["log"] },
    isJoined: joined !== undefined,
    entries: sqliteEntries(session, joined?.run),
    get outbox() {
      outbox ??= createSqliteOutbox(session, joined?.run);
      return outbox;
    },
    async migrate() {
      if (joined === undefined) await session.transaction(() => migrate(session));
      else joined.run(() => migrate(session));
    },
    transaction: async (work, signal) =>
      joined === undefined
        ? keepingTokens(session, ({ tx }) => work(tx), signal && { signal })
        : work(joined.tx),
    ...(joined === undefined ? { lockedTransaction: sqliteLocked(session) } : {}),
    in: (tx) => {
      const { session: own, run } = joinSqlite(tx);
      return ledgerOf(own, { tx, run });
    },
  };
}

/** LG7: in a transaction for writing, of which there is one at a time. */
function migrate(session: SqliteSession<SqliteConnection>): void {
  const { connection } = session;
  connection.exec(SQLITE_MIGRATIONS_TABLE);
  const rows = session.prepare(SQLITE_APPLIED).all() as readonly Readonly<
    Record<string, unknown>
  >[];
  const applied = new Map(
    rows.map(({ part, version }) => [textOf(part), integerOf(version)] as const),
  );
  for (const { part, version, sql } of pendingSteps(SQLITE_PARTS, applied)) {
    for (const text of sql) connection.exec(text);
    session.prepare(SQLITE_APPLY).run(part, version);
  }
}
