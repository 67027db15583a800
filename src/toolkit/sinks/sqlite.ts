/**
 * `hapax/sinks/sqlite`: positions in the user's own SQLite. Takes whatever has `exec` and `prepare`: `node:sqlite`,
 * better-sqlite3, libsql, bun:sqlite; how it is used is toolkit/databases/sqlite.ts.
 */

import {
  closeSqlite,
  type OpenSqlite,
  ownSqliteSession,
  type SqliteConnection,
} from "../databases/sqlite.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Sink, SinkPlace } from "../../client/processing/sink.ts";
import { CREATE_TABLE, type PositionRow, readRow, requireMovable, requireToken } from "./table.ts";

export type { OpenSqlite, SqliteConnection, SqliteStatement } from "../databases/sqlite.ts";

const FIND = "SELECT position, token FROM hapax_positions WHERE pipeline = ? AND stream = ?";
const PUT = `INSERT INTO hapax_positions (pipeline, stream, position, token) VALUES (?, ?, ?, ?)
  ON CONFLICT (pipeline, stream) DO UPDATE SET position = excluded.position, token = excluded.token`;

/** A sink in SQLite. It owns a connection. */
export interface SqliteSink<Connection> extends Sink<Connection>, Disposable {
  /** Closes the connection, when nothing uses the sink any more. */
  close(): void;
}

/**
 * A sink that keeps positions in SQLite. `open` opens a connection for the sink alone: a transaction stays open while your
 * work awaits, and what others wrote with the same connection meanwhile would be a part of it. Other parts of the program
 * open connections of their own. Throws `invalid_settings`.
 *
 * ```ts
 * import { sqliteSink, type SqliteConnection } from "hapax/sinks/sqlite";
 *
 * // For example: pay(() => new Database("shop.db"))
 * async function pay(open: () => SqliteConnection): Promise<void> {
 *   const sink = sqliteSink(open);
 *   await sink.prepare();
 *   const place = { pipeline: "payments", stream: "/v1/stream/orders" };
 *   const from = await sink.take(place, 7);
 *   await sink.move(place, 7, from, (tx) => {
 *     tx.exec("INSERT INTO payments VALUES ('order 1', 100)");
 *     return "0000000000000000_0000000000000042";
 *   });
 * }
 * console.assert(typeof pay === "function");
 * ```
 */
export function sqliteSink<Connection extends SqliteConnection>(
  open: OpenSqlite<Connection>,
): SqliteSink<Connection> {
  const session = ownSqliteSession(open, "sqliteSink");
  const close = (): void => {
    closeSqlite(session);
  };

  function find({ pipeline, stream }: SinkPlace): PositionRow | undefined {
    return readRow(session.prepare(FIND).get(pipeline, stream));
  }

  function put({ pipeline, stream }: SinkPlace, position: string | null, token: number): void {
    session.prepare(PUT).run(pipeline, stream, position, token);
  }

  // SK4
  const inTransaction = async <Value>(work: () => Value | Promise<Value>): Promise<Value> => {
    try {
      return await session.transaction(work);
    } catch (error) {
      throw told(error);
    }
  };

  return {
    prepare: () =>
      session.inTurn(() => {
        session.connection.exec(CREATE_TABLE);
      }),
    take: (place, token) =>
      inTransaction(() => {
        const row = find(place);
        requireToken(row, place, token);
        put(place, row?.position ?? null, token);
        return row?.position ?? undefined;
      }),
    move: (place, token, from, work) =>
      inTransaction(async () => {
        requireMovable(find(place), place, token, from);
        put(place, await session.lend(work), token);
      }),
    close,
    [Symbol.dispose]: close,
  };
}

/** The clients have the words of SQLite, or the names of its codes. */
const FULL = /database or disk is full|SQLITE_FULL/;
const PASSING = /database is (locked|busy)|SQLITE_BUSY|disk I\/O error|SQLITE_IOERR/;

function told(error: unknown): unknown {
  // The error that the work threw may be the cause of the one that undid the transaction.
  const cause = error instanceof Error ? error.cause : undefined;
  const words = [error, cause].map((one) => (one instanceof Error ? one.message : "")).join("; ");
  if (FULL.test(words)) {
    return new HapaxError("store_full", `the database has no room: ${words}`, { cause: error });
  }
  if (!PASSING.test(words)) return error;
  return new HapaxError("unreachable", `the database could not do it now: ${words}`, {
    cause: error,
  });
}
