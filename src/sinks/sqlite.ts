/**
 * `hapax/sinks/sqlite`: positions in the user's own SQLite. Takes whatever has `exec` and `prepare`: `node:sqlite`,
 * better-sqlite3, libsql, bun:sqlite; how it is used is databases/sqlite.ts.
 */

import { type SqliteConnection, SqliteSession } from "../databases/sqlite.ts";
import type { Sink, SinkPlace } from "../sink.ts";
import { CREATE_TABLE, type PositionRow, readRow, requireMovable, requireToken } from "./table.ts";

export type { SqliteConnection, SqliteStatement } from "../databases/sqlite.ts";

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
  const session = new SqliteSession(connection);

  function find({ pipeline, stream }: SinkPlace): PositionRow | undefined {
    return readRow(session.prepare(FIND).get(pipeline, stream));
  }

  function put({ pipeline, stream }: SinkPlace, position: string | null, token: number): void {
    session.prepare(PUT).run(pipeline, stream, position, token);
  }

  return {
    prepare: () =>
      session.inTurn(() => {
        connection.exec(CREATE_TABLE);
      }),
    take: (place, token) =>
      session.transaction(() => {
        const row = find(place);
        requireToken(row, place, token);
        put(place, row?.position ?? null, token);
        return row?.position ?? undefined;
      }),
    move: (place, token, { from, to }, work) =>
      session.transaction(async () => {
        requireMovable(find(place), place, token, from);
        await work(connection);
        put(place, to, token);
      }),
  };
}
