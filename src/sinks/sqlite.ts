/**
 * `hapax/sinks/sqlite`: positions in the user's own SQLite. Takes whatever has `exec` and `prepare`: `node:sqlite`,
 * better-sqlite3, libsql, bun:sqlite.
 *
 *   SQ1  transactions of one sink are one after the other: a connection has one at a time;
 *   SQ2  a database that another connection writes to is waited for, without stopping this process.
 */

import { systemClock } from "../clock.ts";
import type { Sink, SinkPlace } from "../sink.ts";
import { CREATE_TABLE, type PositionRow, readRow, requireMovable, requireToken } from "./table.ts";

/** A statement of any of the clients; each types the values in its own way. */
export interface SqliteStatement {
  run(...values: never[]): unknown;
  get(...values: never[]): unknown;
}

/** What all of them take. */
interface Statement {
  run(...values: readonly (string | number | null)[]): unknown;
  get(...values: readonly (string | number | null)[]): unknown;
}

/** A connection of any of the clients. */
export interface SqliteConnection {
  exec(sql: string): unknown;
  prepare(sql: string): SqliteStatement;
}

/** For ten seconds beside the client's own timeout. */
const BUSY_MS = 10;
const BUSY_ATTEMPTS = 1000;

const FIND = "SELECT position, token FROM hapax_positions WHERE pipeline = ? AND stream = ?";
const PUT = `INSERT INTO hapax_positions (pipeline, stream, position, token) VALUES (?, ?, ?, ?)
  ON CONFLICT (pipeline, stream) DO UPDATE SET position = excluded.position, token = excluded.token`;

/**
 * A sink that keeps positions in SQLite. The connection must be the sink's own: whatever others do with it while a
 * transaction runs would be a part of that transaction.
 *
 * ```ts
 * import { sqliteSink, type SqliteConnection } from "hapax/sinks/sqlite";
 *
 * async function pay(connection: SqliteConnection): Promise<void> {
 *   const sink = sqliteSink(connection);
 *   await sink.prepare();
 *   const place = { pipeline: "payments", stream: "/v1/stream/orders" };
 *   const from = await sink.take(place, 7);
 *   await sink.move(place, 7, { from, to: "0000000000000000_0000000000000042" }, (tx) => {
 *     tx.exec("INSERT INTO payments VALUES ('order 1', 100)");
 *   });
 * }
 * console.assert(typeof pay === "function");
 * ```
 */
export function sqliteSink<Connection extends SqliteConnection>(
  connection: Connection,
): Sink<Connection> {
  let last: Promise<unknown> = Promise.resolve();

  /** SQ1 */
  function inTurn<T>(work: () => T | Promise<T>): Promise<T> {
    const turn = last.then(work);
    last = turn.catch(() => undefined);
    return turn;
  }

  function transaction<T>(work: () => T | Promise<T>): Promise<T> {
    return inTurn(async () => {
      await begin(connection);
      try {
        const result = await work();
        connection.exec("COMMIT");
        return result;
      } catch (error) {
        rollBack(connection);
        throw error;
      }
    });
  }

  function prepare(sql: string): Statement {
    return connection.prepare(sql) as Statement;
  }

  function find({ pipeline, stream }: SinkPlace): PositionRow | undefined {
    return readRow(prepare(FIND).get(pipeline, stream));
  }

  function put({ pipeline, stream }: SinkPlace, position: string | null, token: number): void {
    prepare(PUT).run(pipeline, stream, position, token);
  }

  return {
    prepare: () =>
      inTurn(() => {
        connection.exec(CREATE_TABLE);
      }),
    take: (place, token) =>
      transaction(() => {
        const row = find(place);
        requireToken(row, place, token);
        put(place, row?.position ?? null, token);
        return row?.position ?? undefined;
      }),
    move: (place, token, { from, to }, work) =>
      transaction(async () => {
        requireMovable(find(place), place, token, from);
        await work(connection);
        put(place, to, token);
      }),
  };
}

/** At once for writing: a transaction that reads first could be refused when it writes. */
async function begin(connection: SqliteConnection): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      connection.exec("BEGIN IMMEDIATE");
      return;
    } catch (error) {
      if (!isBusy(error) || attempt === BUSY_ATTEMPTS) throw error;
      // Another connection of this process may hold it: it gets on only if this one waits aside.
      await new Promise<void>((resolve) => void systemClock.after(BUSY_MS, resolve));
    }
  }
}

/** Each client has its own words for SQLITE_BUSY. */
function isBusy(error: unknown): boolean {
  return error instanceof Error && /database is (locked|busy)|SQLITE_BUSY/.test(error.message);
}

// SQLite has rolled back by itself after some errors; then there is nothing left to roll back.
function rollBack(connection: SqliteConnection): void {
  try {
    connection.exec("ROLLBACK");
  } catch {
    // The error that led here is the one to tell.
  }
}
