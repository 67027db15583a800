/**
 * `hapax/ledgers/postgres`: the ledger in your own PostgreSQL. Takes a pool of `pg`, the `sql` of `postgres`
 * (postgres.js), the database object of Kysely, Drizzle, Knex or Prisma, or anything that has their shape.
 *
 *   - what goes wrong in COMMIT is thrown as the client throws it: the outcome is unknown, and the entry knows it.
 */

import {
  builderSession,
  type EnclosedTransaction,
  isPgPool,
  isPostgresSql,
  type PgClient,
  type PgPool,
  pgPoolSession,
  type PostgresSession,
  postgresSession,
  type PostgresSql,
  type PostgresTransaction,
  type Query,
  type TransactionOf,
} from "../databases/postgres.ts";
import { builderOf, type QueryBuilder } from "../databases/query-builders.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Ledger } from "./ledger.ts";
import type { OutboxLog } from "../outbox/log.ts";
import { integerOf, textOf } from "./entry-statements.ts";
import { pendingSteps } from "./migrations.ts";
import { quotedName } from "../databases/quoting.ts";
import { lockedAtOnce, lockedBy, postgresEntries } from "./postgres-entries.ts";
import { isThereAlready, PostgresLocks } from "./postgres-locks.ts";
import { createPostgresOutbox, type PostgresOutboxOptions } from "./postgres-outbox.ts";
import { POSTGRES_MIGRATIONS_TABLE, POSTGRES_PARTS } from "./postgres-schema.ts";

export { type OutboxNotify, pgListener, type PostgresOutboxOptions } from "./postgres-outbox.ts";
export { describeSlot, dropSlot, type SlotDescription } from "./postgres-slot.ts";
export { ledgerSchema } from "./schema.ts";

/** Options of a ledger in PostgreSQL. All have defaults. */
export interface PostgresLedgerOptions {
  /** The schema that has the tables. `migrate` creates it if it is missing. Default: the search path. */
  readonly schema?: string;
  /** How relays read the outbox. Default: `{ way: "log" }`. */
  readonly outbox?: PostgresOutboxOptions;
}

/** PostgreSQL cuts longer names off, in silence. */
const NAME_BYTES_MAX = 63;
/** One number for all: those who make the same tables at once go one after the other. Prisma reads no `void`. */
const LOCK = "SELECT 1 AS one FROM pg_advisory_xact_lock(7165437012346)";
const APPLIED = "SELECT part, max(version) AS version FROM hapax_migrations GROUP BY part";
const APPLY =
  "INSERT INTO hapax_migrations (part, version, applied_at) VALUES ($1, $2, clock_timestamp())";

/**
 * Creates a ledger in PostgreSQL. Its `tx` is a connection of the pool of `pg`, the `sql` that `begin` of `postgres`
 * passes, or the transaction of Kysely, Drizzle, Knex or Prisma. Inside a transaction use `ledger.in(tx)`. Behind a pooler in
 * the mode `transaction`, such as PgBouncer, `postgres` needs `prepare: false`.
 *
 * ```ts
 * import pg from "pg";
 * import { postgresLedger } from "hapax/ledgers/postgres";
 *
 * const pool = new pg.Pool(); // Reads PGHOST, PGUSER and PGDATABASE.
 * const ledger = postgresLedger(pool, { schema: "shop" });
 * await ledger.migrate();
 * const two = await ledger.transaction(async (tx) => {
 *   const { rows } = await tx.query("SELECT 1 + 1 AS two"); // `tx` is a client of the pool.
 *   return rows[0].two;
 * });
 * console.assert(two === 2);
 * await pool.end();
 * ```
 */
export function postgresLedger<Client extends PgPool | PostgresSql | QueryBuilder>(
  client: Client,
  options?: PostgresLedgerOptions,
): Ledger<TransactionOf<Client>>;
/** The same for a pool of `pg`, with the type of its clients given. */
export function postgresLedger<Client extends PgClient>(
  pool: PgPool<Client>,
  options?: PostgresLedgerOptions,
): Ledger<Client>;
/** The same for the `sql` of `postgres`, with the type of its transactions given. */
export function postgresLedger<Tx extends PostgresTransaction>(
  sql: PostgresSql<Tx>,
  options?: PostgresLedgerOptions,
): Ledger<Tx>;
/** All of them. */
export function postgresLedger(
  client: PgPool | PostgresSql | QueryBuilder,
  options: PostgresLedgerOptions = {},
): Ledger<PgClient> | Ledger<PostgresTransaction> | Ledger<object> {
  checkOptions(options);
  if (isPgPool(client)) return ledgerOf(pgPoolSession(client), undefined, options);
  if (isPostgresSql(client)) return ledgerOf(postgresSession(client), undefined, options);
  const builder = builderOf(client);
  if (builder === undefined)
    throw new HapaxError(
      "invalid_options",
      "postgresLedger takes a pool of pg, the sql of postgres, or the database of Kysely, Drizzle, Knex or Prisma",
    );
  return ledgerOf(builderSession(builder), undefined, options);
}

function checkOptions({ schema }: PostgresLedgerOptions): void {
  if (schema === undefined) return;
  const bytes = new TextEncoder().encode(schema).byteLength;
  if (bytes === 0 || bytes > NAME_BYTES_MAX || schema.includes("\0"))
    throw new HapaxError(
      "invalid_options",
      `schema is a name of 1 to ${NAME_BYTES_MAX} bytes without NUL; schema=${schema}`,
    );
}

function ledgerOf<Tx>(
  session: PostgresSession<Tx>,
  joined: { readonly tx: Tx } | undefined,
  options: PostgresLedgerOptions,
): Ledger<Tx> {
  const { schema } = options;
  const query = joined === undefined ? undefined : session.in(joined.tx);
  let outbox: OutboxLog<Tx> | undefined;
  return {
    name: "postgres",
    supports: {
      transactions: true,
      isExclusive: false,
      durability: "database",
      outbox: ["log", "rows", "decoding", "messages"],
    },
    isJoined: joined !== undefined,
    entries: postgresEntries(session.query, query, schema),
    get outbox() {
      outbox ??= createPostgresOutbox(session, query, {
        ...(schema === undefined ? {} : { schema }),
        ...options.outbox,
      });
      return outbox;
    },
    migrate: () =>
      query === undefined
        ? session.transaction((tx) => migrateAlone(session.in(tx), schema))
        : migrate(query, schema),
    transaction: async (work, signal) =>
      joined === undefined ? session.transaction(work, signal) : work(joined.tx),
    ...(joined === undefined && session.enclosed !== undefined
      ? { lockedTransaction: lockedIn(session, session.enclosed, schema) }
      : {}),
    in: (tx) => ledgerOf(session, { tx }, options),
  };
}

/** The lock goes with BEGIN, and the entry with COMMIT: work of one statement is three round trips. */
function lockedIn<Tx>(
  session: PostgresSession<Tx>,
  enclosed: EnclosedTransaction<Tx>,
  schema: string | undefined,
): NonNullable<Ledger<Tx>["lockedTransaction"]> {
  const locks = new PostgresLocks(schema);
  return async (place, work, onLock, over) => {
    let isEnding = false;
    try {
      return await enclosed(
        { first: locks.lock(place), kept: locks.kept },
        async (tx, [row]) => {
          const locked = lockedAtOnce(row) ?? (await lockedBy(row, place, session.in(tx), schema));
          const end = await work(tx, locked);
          if (end.entry === undefined) return { ...end, last: undefined };
          const last = locks.end(place, end.entry);
          if (last === undefined) {
            const { entries } = ledgerOf(
              session,
              { tx },
              { ...(schema === undefined ? {} : { schema }) },
            );
            if ((await entries.put(place, { kind: "absent" }, end.entry)) === undefined)
              throw new Late();
          }
          isEnding = true;
          return { ...end, last };
        },
        onLock,
        over,
      );
    } catch (error) {
      if (error instanceof Late || (isEnding && isThereAlready(error))) return "late";
      throw error;
    }
  };
}

/** There is an entry where the work was to leave its own. */
class Late extends Error {}

/** LG7: under a stricter default, what others have made while this one waited for the lock would not be seen. */
async function migrateAlone(query: Query, schema: string | undefined): Promise<void> {
  await query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED");
  await migrate(query, schema);
}

/** LG7: inside a transaction, under a lock that ends with it. */
async function migrate(query: Query, schema: string | undefined): Promise<void> {
  await query(LOCK);
  if (schema === undefined) {
    await applySteps(query);
    return;
  }
  const missing = await query("SELECT 1 AS one WHERE to_regnamespace($1) IS NULL", [
    quotedName(schema),
  ]);
  if (missing.length > 0) await query(`CREATE SCHEMA ${quotedName(schema)}`);
  // For this transaction only, and put back for what the caller does in it afterwards.
  const [row] = await query("SELECT current_setting('search_path') AS path");
  await setPath(query, quotedName(schema));
  await applySteps(query);
  await setPath(query, textOf(row?.["path"]));
}

async function setPath(query: Query, path: string): Promise<void> {
  await query("SELECT set_config('search_path', $1, true)", [path]);
}

async function applySteps(query: Query): Promise<void> {
  // Not by IF NOT EXISTS: that fails for a role that may not create, also if there is nothing to do.
  const [found] = await query("SELECT to_regclass('hapax_migrations')::text AS name");
  if (typeof found?.["name"] !== "string") await query(POSTGRES_MIGRATIONS_TABLE);
  const rows = await query(APPLIED);
  const applied = new Map(
    rows.map(({ part, version }) => [textOf(part), integerOf(version)] as const),
  );
  for (const { part, version, sql } of pendingSteps(POSTGRES_PARTS, applied)) {
    for (const text of sql) await query(text);
    await query(APPLY, [part, version]);
  }
}
