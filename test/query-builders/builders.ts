/** Kysely, Drizzle, Knex and Prisma over one PostgreSQL, as users have them: each with its own words for the same acts. */

import { PrismaPg } from "@prisma/adapter-pg";
import { drizzle } from "drizzle-orm/node-postgres";
import { drizzle as drizzlePostgres } from "drizzle-orm/postgres-js";
import { sql as drizzleSql } from "drizzle-orm";
import { integer, pgTable, serial, text, timestamp } from "drizzle-orm/pg-core";
import knexOf, { type Knex } from "knex";
import { CamelCasePlugin, type Generated, Kysely, PostgresDialect, sql } from "kysely";
import type { Transaction } from "kysely";
import pg from "pg";
import postgres from "postgres";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { PrismaClient } from "./prisma/generated/client.ts";

export const TABLES = `CREATE TABLE once_only (id INTEGER UNIQUE DEFERRABLE INITIALLY DEFERRED);
  CREATE TABLE payments (id SERIAL PRIMARY KEY, order_id TEXT NOT NULL CHECK (order_id <> 'bad'),
  cents INTEGER NOT NULL, paid_at TIMESTAMPTZ NOT NULL)`;
export const PAID_AT = new Date("2026-02-03T04:05:06.789Z");

/** A row as its query builder returns it. */
export interface Paid {
  readonly order: string;
  readonly cents: number;
  readonly paidAt: Date;
}

/** One query builder with a pool of its own: another process, as far as the database is concerned. */
export interface Opened<Tx> {
  readonly ledger: Ledger<Tx>;
  /** A transaction that the user begins. */
  readonly begin: <T>(work: (tx: Tx) => Promise<T>) => Promise<T>;
  close(): Promise<unknown>;
}

/** What a test does with a query builder. */
export interface BuilderCase<Tx> {
  readonly name: string;
  readonly open: (host: string, max: number) => Opened<Tx>;
  readonly pay: (tx: Tx, order: string) => Promise<unknown>;
  readonly paid: (tx: Tx, order: string) => Promise<readonly Paid[]>;
  /** A query that is made now, and run by the returned function. */
  readonly payLater: (tx: Tx, order: string) => () => unknown;
  /** A statement as a text. */
  readonly run: (tx: Tx, text: string) => PromiseLike<unknown>;
  /** Why no connection may be lost in a test; undefined: one may. */
  readonly frail?: string;
  /** The query builder's own part of a transaction that can be undone; undefined if it has none. */
  readonly nest: ((tx: Tx, work: (inner: Tx) => Promise<void>) => Promise<unknown>) | undefined;
}

function poolOf(host: string, max: number): pg.Pool {
  const pool = new pg.Pool({ host, user: "postgres", database: "postgres", max });
  pool.on("error", () => undefined);
  // Kysely and Drizzle do not listen to a connection that they use.
  pool.on("connect", (client) => client.on("error", () => undefined));
  return pool;
}

interface Tables {
  readonly payments: { id: Generated<number>; orderId: string; cents: number; paidAt: Date };
}

export const kyselyCase: BuilderCase<Transaction<Tables>> = {
  name: "Kysely",
  open(host, max) {
    // The plugin renames the columns of every result.
    const dialect = new PostgresDialect({ pool: poolOf(host, max) });
    const db = new Kysely<Tables>({ dialect, plugins: [new CamelCasePlugin()] });
    return {
      ledger: postgresLedger(db),
      begin: (work) => db.transaction().execute(work),
      close: () => db.destroy(),
    };
  },
  pay: (tx, orderId) =>
    tx.insertInto("payments").values({ orderId, cents: 500, paidAt: PAID_AT }).execute(),
  async paid(tx, order) {
    const rows = await tx.selectFrom("payments").selectAll().where("orderId", "=", order).execute();
    return rows.map(({ orderId, cents, paidAt }) => ({ order: orderId, cents, paidAt }));
  },
  payLater(tx, orderId) {
    const query = tx.insertInto("payments").values({ orderId, cents: 500, paidAt: PAID_AT });
    return () => query.execute();
  },
  run: (tx, statement) => sql.raw(statement).execute(tx),
  nest: undefined,
};

const payments = pgTable("payments", {
  id: serial().primaryKey(),
  order: text("order_id").notNull(),
  cents: integer().notNull(),
  paidAt: timestamp("paid_at", { withTimezone: true, mode: "date" }).notNull(),
});
const schema = { payments };

type DrizzleTx = Parameters<Parameters<ReturnType<typeof openDrizzle>["transaction"]>[0]>[0];

function openDrizzle(pool: pg.Pool) {
  return drizzle({ client: pool, schema });
}

export const drizzleCase: BuilderCase<DrizzleTx> = {
  name: "Drizzle over pg",
  open(host, max) {
    const pool = poolOf(host, max);
    const db = openDrizzle(pool);
    return {
      ledger: postgresLedger(db),
      begin: (work) => db.transaction(work),
      close: () => pool.end(),
    };
  },
  pay: async (tx, order) => tx.insert(payments).values({ order, cents: 500, paidAt: PAID_AT }),
  paid: (tx, order) =>
    tx.query.payments.findMany({
      columns: { id: false },
      where: (table, { eq }) => eq(table.order, order),
    }),
  payLater(tx, order) {
    const query = tx.insert(payments).values({ order, cents: 500, paidAt: PAID_AT });
    return () => query.execute();
  },
  run: (tx, statement) => tx.execute(drizzleSql.raw(statement)),
  nest: (tx, work) => tx.transaction(work),
};

function openDrizzlePostgres(client: postgres.Sql) {
  return drizzlePostgres({ client, schema });
}

type DrizzlePostgresTx = Parameters<
  Parameters<ReturnType<typeof openDrizzlePostgres>["transaction"]>[0]
>[0];

export const drizzlePostgresCase: BuilderCase<DrizzlePostgresTx> = {
  name: "Drizzle over postgres",
  frail:
    "postgres 3.4.9 ends the process, with or without a ledger: it writes ROLLBACK to the lost connection",
  open(host, max) {
    const options = { host, user: "postgres", database: "postgres", max };
    const client = postgres({ ...options, onnotice: () => undefined });
    const db = openDrizzlePostgres(client);
    return {
      ledger: postgresLedger(db),
      begin: (work) => db.transaction(work),
      close: () => client.end({ timeout: 1 }),
    };
  },
  pay: async (tx, order) => tx.insert(payments).values({ order, cents: 500, paidAt: PAID_AT }),
  paid: (tx, order) =>
    tx.query.payments.findMany({
      columns: { id: false },
      where: (table, { eq }) => eq(table.order, order),
    }),
  payLater(tx, order) {
    const query = tx.insert(payments).values({ order, cents: 500, paidAt: PAID_AT });
    return () => query.execute();
  },
  run: (tx, statement) => tx.execute(drizzleSql.raw(statement)),
  nest: (tx, work) => tx.transaction(work),
};

/** Mappers of names are usual with Knex. This one leaves nothing as it was. */
function renamed(result: unknown): unknown {
  if (Array.isArray(result)) return result.map(renamed);
  if (typeof result !== "object" || result === null || result instanceof Date) return result;
  return Object.fromEntries(
    Object.entries(result).map(([name, value]) => [name.toUpperCase(), value]),
  );
}

interface KnexRow {
  readonly ORDER_ID: string;
  readonly CENTS: number;
  readonly PAID_AT: Date;
}

export const knexCase: BuilderCase<Knex.Transaction> = {
  name: "Knex",
  open(host, max) {
    const knex = knexOf({
      client: "pg",
      connection: { host, user: "postgres", database: "postgres" },
      pool: { min: 0, max },
      postProcessResponse: renamed,
    });
    return {
      ledger: postgresLedger(knex),
      begin: (work) => knex.transaction(work),
      close: () => knex.destroy(),
    };
  },
  pay: async (tx, order) =>
    tx("payments").insert({ order_id: order, cents: 500, paid_at: PAID_AT }),
  async paid(tx, order) {
    const rows: readonly KnexRow[] = await tx("payments").where({ order_id: order });
    return rows.map((row) => ({ order: row.ORDER_ID, cents: row.CENTS, paidAt: row.PAID_AT }));
  },
  payLater(tx, order) {
    const query = tx("payments").insert({ order_id: order, cents: 500, paid_at: PAID_AT });
    return () => query.then(() => undefined);
  },
  run: (tx, statement) => tx.raw(statement),
  nest: (tx, work) => tx.transaction(work),
};

type PrismaTx = Parameters<Parameters<PrismaClient["$transaction"]>[0]>[0];

export const prismaCase: BuilderCase<PrismaTx> = {
  name: "Prisma",
  open(host, max) {
    const adapter = new PrismaPg({ host, user: "postgres", database: "postgres", max });
    const prisma = new PrismaClient({ adapter });
    return {
      ledger: postgresLedger(prisma),
      begin: (work) => prisma.$transaction(work),
      close: () => prisma.$disconnect(),
    };
  },
  pay: async (tx, order) => tx.payment.create({ data: { order, cents: 500, paidAt: PAID_AT } }),
  paid: async (tx, order) => tx.payment.findMany({ where: { order }, omit: { id: true } }),
  payLater(tx, order) {
    const query = tx.payment.create({ data: { order, cents: 500, paidAt: PAID_AT } });
    return () => query.then(() => undefined);
  },
  run: (tx, statement) => tx.$executeRawUnsafe(statement),
  nest: undefined,
};
