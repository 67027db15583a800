/** A ledger over a query builder has the transaction type of that query builder, whichever way it is declared. */

import { drizzle, type NodePgDatabase } from "drizzle-orm/node-postgres";
import { drizzle as drizzlePostgres } from "drizzle-orm/postgres-js";
import knex, { type Knex } from "knex";
import { Kysely, PostgresDialect, type Transaction } from "kysely";
import pg from "pg";
import postgres from "postgres";
import { processOnce } from "hapax/ledger";
import { postgresLedger } from "hapax/ledgers/postgres";
import { createOutbox } from "hapax/outbox";
import { type Prisma, PrismaClient } from "./generated/prisma/client.ts";
import { PrismaPg } from "@prisma/adapter-pg";

type Same<One, Other> =
  (<T>() => T extends One ? 1 : 2) extends <T>() => T extends Other ? 1 : 2 ? true : false;
declare function same<One, Other>(isSame: Same<One, Other>): void;

export interface Tables {
  payments: { order_id: string; cents: number };
}
const id = { scope: "shop 1", key: "order 17" };

const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool: new pg.Pool() }) });
export const ledger = postgresLedger(db);

export async function withKysely(): Promise<void> {
  await processOnce(ledger, id, async ({ tx }) => {
    same<typeof tx, Transaction<Tables>>(true);
    await tx.insertInto("payments").values({ order_id: "17", cents: 5 }).execute();
  });
  await db.transaction().execute(async (trx) => {
    await createOutbox(ledger).add(trx, { topic: "t", payload: 1 });
    await ledger.in(trx).entries.sweep(1);
  });
}

export async function withDrizzle(typed: NodePgDatabase): Promise<void> {
  const db = drizzle({ client: new pg.Pool() });
  type Tx = Parameters<Parameters<typeof db.transaction>[0]>[0];
  await processOnce(postgresLedger(db), id, async ({ tx }) => {
    same<typeof tx, Tx>(true);
    await tx.execute("SELECT 1");
  });
  await typed.transaction((tx) =>
    createOutbox(postgresLedger(typed)).add(tx, { topic: "t", payload: 1 }),
  );
  const other = drizzlePostgres({ client: postgres() });
  await other.transaction((tx) => postgresLedger(other).in(tx).entries.sweep(1));
}

export async function withKnex(): Promise<void> {
  const db: Knex = knex({ client: "pg" });
  const ledger = postgresLedger(db);
  await processOnce(ledger, id, async ({ tx }) => {
    same<typeof tx, Knex.Transaction>(true);
    await tx<Tables["payments"]>("payments").insert({ order_id: "17", cents: 5 });
  });
  await db.transaction((trx) => ledger.in(trx).entries.sweep(1));
}

export async function withPrisma(): Promise<void> {
  const prisma = new PrismaClient({ adapter: new PrismaPg({}) });
  const ledger = postgresLedger(prisma);
  const pay = (tx: Prisma.TransactionClient) =>
    tx.payment.create({ data: { order: "17", cents: 5, paidAt: new Date() } });
  await processOnce(ledger, id, async ({ tx }) => (await pay(tx)).cents);
  await prisma.$transaction((tx) => ledger.in(tx).entries.sweep(1));
  const extended = prisma.$extends({ name: "mine" });
  await processOnce(postgresLedger(extended), id, async ({ tx }) => tx.payment.count());
}

// What is no client of PostgreSQL is an error of the compiler. Calls are refused at run time.
type Taken = Parameters<typeof postgresLedger>[0];
same<{ readonly query: () => void } extends Taken ? true : false, false>(true);
