/**
 * `hapax/sinks/postgres`: positions in the user's own PostgreSQL. Takes a pool of `pg`, or whatever has its shape.
 *
 *   PS1  the row of a place is locked from the first statement of a transaction on: two holders never work at once.
 */

import {
  type PgClient,
  type PgPool,
  pgSession,
  type TransactionOf,
} from "../databases/postgres.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Sink } from "../../client/processing/sink.ts";
import { CREATE_TABLE, readRow, requireMovable, requireToken } from "./table.ts";

export type { PgClient, PgPool } from "../databases/postgres.ts";

const FIND =
  "SELECT position, token FROM hapax_positions WHERE pipeline = $1 AND stream = $2 FOR UPDATE";
const CLAIM = `INSERT INTO hapax_positions (pipeline, stream, position, token) VALUES ($1, $2, NULL, $3)
  ON CONFLICT (pipeline, stream) DO NOTHING`;
const PUT =
  "UPDATE hapax_positions SET position = $3, token = $4 WHERE pipeline = $1 AND stream = $2";
const FOUND = "SELECT 1 AS one WHERE to_regclass('hapax_positions') IS NOT NULL";
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
 *   await sink.move(place, 7, from, async (tx) => {
 *     await tx.query("INSERT INTO payments VALUES ($1, $2)", ["order 1", 100]);
 *     return "0000000000000000_0000000000000042";
 *   });
 * }
 * console.assert(typeof pay === "function");
 * ```
 */
export function postgresSink<Pool extends Pick<PgPool, "connect">>(
  pool: Pool,
): Sink<TransactionOf<Pool>>;
/** The same with the type of the pool's clients given. */
export function postgresSink<Client extends PgClient>(
  pool: Pick<PgPool<Client>, "connect">,
): Sink<Client>;
/** Both. */
export function postgresSink(pool: Pick<PgPool, "connect">): Sink<PgClient> {
  const session = pgSession(pool, told);
  return {
    prepare: () =>
      session.transaction(async (client) => {
        await client.query(LOCK);
        // Not by IF NOT EXISTS alone: that fails for a role that may not create, also if there is nothing to do.
        const { rows } = await client.query(FOUND);
        if (rows.length === 0) await client.query(CREATE_TABLE);
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
    move: ({ pipeline, stream }, token, from, work) =>
      session.transaction(async (client) => {
        const { rows } = await client.query(FIND, [pipeline, stream]);
        requireMovable(readRow(rows[0]), { pipeline, stream }, token, from);
        const to = await work(client);
        await client.query(PUT, [pipeline, stream, to, token]);
      }),
  };
}

/** SQLSTATE: what may succeed when it is tried again. Deadlock, serialization, no resources, a restart, a connection. */
const PASSING = /^(40001|40P01|08|53|57P)/;
const DISK_FULL = "53100";
/** What no retry can cure: the user, the password or the database. */
const HOPELESS = /^(28|3D000)/;

/** SK4 */
function told(error: unknown, isLost: boolean): unknown {
  // The error that the work threw may be the cause of the one that undid the transaction.
  const codes = [error, causeOf(error)].map(sqlState);
  if (codes.some((code) => HOPELESS.test(code))) {
    return new HapaxError("invalid_settings", `the database refuses: ${wordsOf(error)}`, {
      cause: error,
    });
  }
  if (codes.includes(DISK_FULL)) {
    return new HapaxError("store_full", `the database has no room: ${wordsOf(error)}`, {
      cause: error,
    });
  }
  if (!isLost && !codes.some((code) => PASSING.test(code))) return error;
  return new HapaxError("unreachable", `the database could not do it now: ${wordsOf(error)}`, {
    cause: error,
  });
}

function causeOf(error: unknown): unknown {
  return error instanceof Error ? error.cause : undefined;
}

function sqlState(error: unknown): string {
  const code: unknown = error instanceof Error && "code" in error ? error.code : undefined;
  // Codes of Node have another length; those of this project are words.
  return typeof code === "string" && code.length === 5 ? code : "";
}

function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
