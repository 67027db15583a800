/**
 * The store in PostgreSQL: streams in tables, written by one server at a time. If that server is gone, another one takes over.
 *
 * The journal is in journal/. In postgres/ is what a database adds: session and clients (the user's client), hosts (URLs),
 * engine-checks, schema, tables and postgres-tables (each call is one statement), fence (unknown outcomes), ownership (who
 * writes), contents (replay), postgres-log, postgres-room, and verification and row-scan for `hapax verify --store`.
 */

import { systemClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import {
  isPgConnections,
  isPostgresConnections,
  type PgConnections,
  pgSession,
  type PostgresConnections,
  sqlSession,
} from "./postgres/clients.ts";
import type { PostgresStore, PostgresStoreOptions } from "./postgres/contract.ts";
import { readSettings, requireSettings } from "./postgres/engine-checks.ts";
import { openHosts, withPatience } from "./postgres/hosts.ts";
import { openOnSession, requireOptions } from "./postgres/postgres-store.ts";
import type { Session } from "./postgres/session.ts";

export { PostgresNotices } from "./postgres/clients.ts";
export type { PostgresStore, PostgresStoreOptions } from "./postgres/contract.ts";

const ANSWER_MS = 30_000;

/**
 * Opens the store in a database. `database` is a URL, which may have several hosts (`postgres://user@a,b/name`), a pool of
 * `pg`, or `sql` of `postgres`. The store makes its tables in a schema of their own.
 *
 * ```text (needs a database)
 * import { openPostgresStore } from "hapax/stores/postgres";
 * import { startNodeServer } from "hapax/node";
 *
 * const store = await openPostgresStore("postgres://hapax@db-a,db-b/hapax");
 * const server = await startNodeServer({ store, port: 4437 });
 * ```
 */
export async function openPostgresStore(
  database: string | PgConnections | PostgresConnections,
  options: PostgresStoreOptions = {},
): Promise<PostgresStore> {
  requireOptions(options);
  const opened = await sessionOf(database, options);
  const session = withPatience(opened, options.clock ?? systemClock, options.answerMs ?? ANSWER_MS);
  try {
    requireSettings(await readSettings(session), options, options.onWarning ?? (() => undefined));
    return await openOnSession(session, options);
  } catch (error) {
    await session.close().catch(() => undefined);
    throw asOpenError(error);
  }
}

async function sessionOf(
  database: string | PgConnections | PostgresConnections,
  options: PostgresStoreOptions,
): Promise<Session> {
  if (typeof database === "string") return openHosts(database);
  if (isPgConnections(database)) return pgSession(database);
  if (isPostgresConnections(database)) return sqlSession(database, options.notices);
  throw new HapaxError("invalid_options", "give a URL, a pool of pg, or sql of postgres");
}

/** Errors of ours say what to do. Others are the client's: the database cannot be reached, or refuses. */
function asOpenError(error: unknown): unknown {
  if (error instanceof HapaxError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return new HapaxError("unreachable", `the database cannot be opened: ${reason}`, {
    cause: error,
  });
}
