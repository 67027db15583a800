/**
 * Query builders that begin transactions themselves: Kysely, Drizzle, Knex and Prisma over PostgreSQL, recognised by their shape.
 * A ledger over one begins its transactions as the user does, and joins those that the user has begun.
 *
 *   - the ledger's statements go past what the user has set for results: plugins, mappers and hooks;
 *   - an error of PostgreSQL has its SQLSTATE, also if the query builder wraps it.
 */

import { HapaxError } from "../../base/errors.ts";
import type { Query, Row } from "./postgres.ts";

type Anything = (...values: never[]) => unknown;

/** `db` of Kysely. */
interface KyselyLike {
  readonly executeQuery: Anything;
  readonly withoutPlugins: Anything;
  readonly transaction: () => { readonly execute: Anything };
}

/** `db` of Drizzle, over `pg` or over `postgres`. */
interface DrizzleLike {
  readonly execute: Anything;
  readonly transaction: Anything;
}

/** `knex` itself. */
interface KnexLike {
  (...values: never[]): unknown;
  readonly client: unknown;
  readonly raw: Anything;
  readonly transaction: Anything;
}

/** The client of Prisma. */
interface PrismaLike {
  readonly $queryRawUnsafe: Anything;
  readonly $transaction: Anything;
}

/** The database object of Kysely, Drizzle, Knex or Prisma. */
export type QueryBuilder = KyselyLike | DrizzleLike | KnexLike | PrismaLike;

/** The transaction of a work that is the first value of a function. */
type FirstOf<Values> = Values extends [infer Work, ...unknown[]]
  ? Work extends (tx: infer Tx) => unknown
    ? Tx
    : never
  : never;

/** The transaction type of a query builder. Kysely has a builder; the others have at most two overloads that count. */
export type BuilderTransactionOf<Client> = Client extends {
  transaction: () => { execute: (...values: infer Values) => unknown };
}
  ? FirstOf<Values>
  : Client extends
        | { $transaction: { (...values: infer One): unknown; (...values: infer Other): unknown } }
        | { transaction: { (...values: infer One): unknown; (...values: infer Other): unknown } }
    ? FirstOf<One> | FirstOf<Other>
    : never;

/** One query builder, in the words of the ledger. */
export interface Builder<Tx extends object> {
  readonly query: Query;
  in(tx: Tx): Query;
  /** As the user would: commits when the work is done, and rolls back when it throws. */
  begin(work: (tx: Tx) => Promise<void>): Promise<unknown>;
  /** Calls to the transaction that would end it. */
  readonly ending: readonly string[];
  /** Whether a transaction failed because its connection is gone. Default: it does if ROLLBACK fails. */
  isLost?(error: unknown): boolean;
}

/** Returns the query builder; undefined if the client is none. */
export function builderOf(client: object): Builder<object> | undefined {
  // Prisma's client makes a model of any name: ask for what no model can be called.
  if (has(client, "$queryRawUnsafe", "$transaction")) return prisma(client as Prisma);
  if (typeof client === "function" && has(client, "raw", "transaction"))
    return knex(client as unknown as Knex);
  if (has(client, "executeQuery", "withoutPlugins", "transaction")) return kysely(client as Kysely);
  if (has(client, "execute", "transaction")) return drizzle(client as Drizzle);
  return undefined;
}

function has(client: object, ...names: readonly string[]): boolean {
  return names.every((name) => typeof Reflect.get(client, name) === "function");
}

type Work<Tx> = (tx: Tx) => Promise<void>;

interface Kysely {
  withoutPlugins(): {
    executeQuery(query: object): Promise<{ readonly rows: readonly unknown[] }>;
  };
  transaction(): { execute(work: Work<Kysely>): Promise<unknown> };
}

function kysely(db: Kysely): Builder<Kysely> {
  const queryIn = (target: Kysely): Query => {
    const plain = target.withoutPlugins();
    return explaining(async (text, parameters) => {
      // What `CompiledQuery.raw` makes.
      const query = { kind: "RawNode", sqlFragments: [text], parameters: [] };
      const queryId = { queryId: "hapax" };
      return (await plain.executeQuery({ sql: text, parameters, query, queryId })).rows;
    });
  };
  return {
    query: queryIn(db),
    in: queryIn,
    begin: (work) => db.transaction().execute(work),
    ending: ["destroy"],
  };
}

interface Drizzle {
  execute(query: object): PromiseLike<unknown>;
  transaction(work: Work<Drizzle>): Promise<unknown>;
}

function drizzle(db: Drizzle): Builder<Drizzle> {
  const queryIn = (target: Drizzle): Query =>
    explaining(async (text, params) => {
      // An `SQLWrapper`, whose `SQL` is written already.
      const written = { toQuery: () => ({ sql: text, params }) };
      const result = await target.execute({ getSQL: () => written });
      // `pg` answers an object with rows, `postgres` an array of them.
      return (Array.isArray(result) ? result : (result as { rows: unknown[] }).rows) as unknown[];
    });
  return {
    query: queryIn(db),
    in: queryIn,
    begin: (work) => db.transaction(work),
    ending: [],
  };
}

/** A connection of Knex is one of `pg`. */
interface KnexConnection {
  query(text: string, values: unknown[]): Promise<{ readonly rows: readonly unknown[] }>;
}

interface Knex {
  readonly client: {
    readonly dialect?: unknown;
    acquireConnection(): Promise<KnexConnection>;
    releaseConnection(connection: KnexConnection): Promise<void>;
  };
  transaction(work: Work<Knex>): Promise<unknown>;
  isCompleted?(): boolean;
}

function knex(db: Knex): Builder<Knex> {
  if (db.client.dialect !== "postgresql")
    throw new HapaxError(
      "invalid_options",
      `postgresLedger takes a knex of PostgreSQL; dialect=${String(db.client.dialect)}`,
    );
  // Not `raw`: it takes a question mark for a value, and its result goes through postProcessResponse.
  const queryIn = (target: Knex): Query =>
    explaining(async (text, values) => {
      if (target.isCompleted?.() === true) throw new Error("the transaction of Knex has ended");
      const connection = await target.client.acquireConnection();
      try {
        return (await connection.query(text, [...values])).rows;
      } finally {
        await target.client.releaseConnection(connection);
      }
    });
  return {
    query: queryIn(db),
    in: queryIn,
    begin: (work) => db.transaction(work),
    ending: ["commit", "rollback"],
  };
}

interface Prisma {
  $queryRawUnsafe(text: string, ...values: readonly unknown[]): Promise<readonly unknown[]>;
  $transaction(work: Work<Prisma>, options: object): Promise<unknown>;
}

/** The limits of Prisma are for its own users: 2 s to begin and 5 s in all. The ledger has its own. */
const PRISMA_LIMITS = { maxWait: 60_000, timeout: 2 ** 31 - 1 };

function prisma(client: Prisma): Builder<Prisma> {
  const queryIn = (target: Prisma): Query =>
    explaining((text, values) => target.$queryRawUnsafe(text, ...values));
  return {
    query: queryIn(client),
    in: queryIn,
    begin: (work) => client.$transaction(work, PRISMA_LIMITS),
    ending: ["$transaction", "$disconnect"],
    // It does not tell that ROLLBACK failed. These are words of `pg`, whose errors have no code.
    isLost: (error) =>
      error instanceof Error &&
      /^(Connection terminated|Client has encountered a connection error)/.test(error.message),
  };
}

function explaining(
  run: (text: string, values: readonly unknown[]) => Promise<readonly unknown[]>,
): Query {
  return async (text, values = []) => {
    try {
      return (await run(text, values)) as readonly Row[];
    } catch (error) {
      throw databaseError(error);
    }
  };
}

const SQL_STATE = /^[0-9A-Z]{5}$/;
/** Prisma has codes of its own, which look the same. */
const PRISMA_CODE = /^P[1-6]\d{3}$/;

/** Returns the error of PostgreSQL inside that of a query builder, or the error itself. */
export function databaseError(error: unknown): unknown {
  let one: unknown = error;
  for (let depth = 0; depth < 5 && typeof one === "object" && one !== null; depth += 1) {
    const { code, originalCode, originalMessage, meta, driverAdapterError, cause } = one as {
      readonly [name: string]: unknown;
    };
    // What Prisma keeps of an error.
    if (isSqlState(originalCode))
      return Object.assign(new Error(String(originalMessage), { cause: error }), {
        code: originalCode,
      });
    if (isSqlState(code)) return one;
    one = driverAdapterError ?? (meta as Row | undefined)?.["driverAdapterError"] ?? cause;
  }
  return error;
}

function isSqlState(code: unknown): code is string {
  return typeof code === "string" && SQL_STATE.test(code) && !PRISMA_CODE.test(code);
}
