/**
 * `hapax/sinks/postgres`: positions in the user's own PostgreSQL. Takes a pool of `pg`, or whatever has its shape.
 *
 *   PS1  the row of a place is locked from the first statement of a transaction on: two holders never work at once.
 */

import { type PgClient, type PgPool, pgSession } from "../databases/postgres.ts";
import type { Sink } from "../sink.ts";
import { CREATE_TABLE, readRow, requireMovable, requireToken } from "./table.ts";

export type { PgClient, PgPool } from "../databases/postgres.ts";

const FIND =
  "SELECT position, token FROM hapax_positions WHERE pipeline = $1 AND stream = $2 FOR UPDATE";
const CLAIM = `INSERT INTO hapax_positions (pipeline, stream, position, token) VALUES ($1, $2, NULL, $3)
  ON CONFLICT (pipeline, stream) DO NOTHING`;
const PUT =
  "UPDATE hapax_positions SET position = $3, token = $4 WHERE pipeline = $1 AND stream = $2";
/** One number for all: two that create the same table at once would fail each other. */
const LOCK = "SELECT pg_advisory_xact_lock(7165437012345)";

/**
 * A sink that keeps positions in PostgreSQL.
 *
 * ```ts
 * import { type PgPool, postgresSink } from "hapax/sinks/postgres";
 *
 * async function pay(pool: PgPool): Promise<void> {
 *   const sink = postgresSink(pool);
 *   await sink.prepare();
 *   const place = { pipeline: "payments", stream: "/v1/stream/orders" };
 *   const from = await sink.take(place, 7);
 *   await sink.move(place, 7, { from, to: "0000000000000000_0000000000000042" }, async (tx) => {
 *     await tx.query("INSERT INTO payments VALUES ($1, $2)", ["order 1", 100]);
 *   });
 * }
 * console.assert(typeof pay === "function");
 * ```
 */
export function postgresSink<Client extends PgClient>(
  pool: Pick<PgPool<Client>, "connect">,
): Sink<Client> {
  const session = pgSession(pool);
  return {
    prepare: () =>
      session.transaction(async (client) => {
        await client.query(LOCK);
        await client.query(CREATE_TABLE);
      }),
    take: ({ pipeline, stream }, token) =>
      session.transaction(async (client) => {
        await client.query(CLAIM, [pipeline, stream, token]);
        const { rows } = await client.query(FIND, [pipeline, stream]);
        const row = readRow(rows[0]);
        requireToken(row, { pipeline, stream }, token);
        await client.query(PUT, [pipeline, stream, row?.position ?? null, token]);
        return row?.position ?? undefined;
      }),
    move: ({ pipeline, stream }, token, { from, to }, work) =>
      session.transaction(async (client) => {
        const { rows } = await client.query(FIND, [pipeline, stream]);
        requireMovable(readRow(rows[0]), { pipeline, stream }, token, from);
        await work(client);
        await client.query(PUT, [pipeline, stream, to, token]);
      }),
  };
}
