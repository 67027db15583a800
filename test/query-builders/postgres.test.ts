// Kysely, Drizzle, Knex and Prisma over PostgreSQL: the ledger joins their transactions, and hands them out.
import knexOf from "knex";
import { Kysely, type KyselyPlugin, PostgresDialect } from "kysely";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { ledgerConformance, whySkipped } from "../../src/testing/ledger-conformance.ts";
import { GLOBAL, processOnce } from "../../src/toolkit/ledger.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { databaseSuite } from "../once/database-suite.ts";
import {
  type BuilderCase,
  drizzleCase,
  drizzlePostgresCase,
  knexCase,
  kyselyCase,
  type Opened,
  PAID_AT,
  prismaCase,
  TABLES,
} from "./builders.ts";
import { builderSuite } from "./suite.ts";

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: query builders on PostgreSQL: ${reason}`);

let server: TestPostgres;
const endings: (() => unknown)[] = [];

describe.skipIf(reason !== undefined)("on PostgreSQL", () => {
  beforeAll(async () => {
    server = await startPostgres();
    await server.pool.query(TABLES);
    await postgresLedger(server.pool).migrate();
  });
  afterAll(() => server.stop());
  afterEach(async () => {
    for (const end of endings.splice(0)) await end();
  });

  test("a call of Prisma that runs many statements and is not awaited cannot fail after the last look", async () => {
    await server.pool.query("TRUNCATE payments");
    const opened = prismaCase.open(server.host, 2);
    const { ledger } = opened;
    endings.push(() => opened.close());
    const payment = { cents: 500, paidAt: PAID_AT };
    const call = ledger.transaction(async (tx) => {
      await prismaCase.pay(tx, "first");
      // A query, and then an INSERT that fails.
      const bad = { where: { id: 0 }, create: { ...payment, order: "bad" }, update: {} };
      void tx.payment.upsert(bad).catch(() => undefined);
    });
    await expect(call).rejects.toThrow("a statement failed: the transaction is undone");
    expect((await server.pool.query("SELECT 1 FROM payments")).rowCount).toBe(0);
  });

  test("a plugin of Kysely that renames every column does not touch the ledger", async () => {
    const pool = server.openPool();
    const plugin: KyselyPlugin = {
      transformQuery: ({ node }) => node,
      transformResult: async ({ result }) => ({
        ...result,
        rows: result.rows.map((row) =>
          Object.fromEntries(Object.entries(row).map(([name, value]) => [`_${name}`, value])),
        ),
      }),
    };
    const db = new Kysely({ dialect: new PostgresDialect({ pool }), plugins: [plugin] });
    const ledger = postgresLedger(db);
    const call = () => processOnce(ledger, { scope: GLOBAL, key: "renamed" }, () => 17);
    expect([await call(), await call()]).toMatchObject([{ result: 17 }, { result: 17 }]);
  });

  suitesOf(kyselyCase);
  suitesOf(drizzleCase);
  suitesOf(drizzlePostgresCase);
  suitesOf(knexCase);
  suitesOf(prismaCase);
});

function suitesOf<Tx extends object>(one: BuilderCase<Tx>): void {
  // Four processes, as far as the database is concerned, in turns. To open one takes longer than most tests.
  const opened: Opened<Tx>[] = [];
  let turn = 0;
  const open = (): Opened<Tx> => {
    const at = (turn += 1) % 4;
    return (opened[at] ??= one.open(server.host, 4));
  };
  const ordersOf = async (): Promise<readonly string[]> => {
    const { rows } = await server.pool.query<{ order_id: string }>(
      "SELECT order_id FROM payments ORDER BY id",
    );
    return rows.map(({ order_id: order }) => order);
  };
  const write = async (tx: Tx, text: string): Promise<void> => void (await one.pay(tx, text));

  describe(one.name, () => {
    afterAll(() => Promise.all(opened.map((process) => process.close())));
    builderSuite(one, () => server, endings);
    databaseSuite<Tx>({
      open: async () => open().ledger,
      write,
      count: async (text) => (await ordersOf()).filter((order) => order === text).length,
    });
    test.for(ledgerConformance)("as a ledger: $title", async (ledgerCase, context) => {
      const reason = whySkipped(ledgerCase, open().ledger);
      context.skip(reason !== undefined, reason);
      await server.pool.query("TRUNCATE payments, hapax_entries");
      await ledgerCase.run<Tx>({ open: async () => open().ledger, write, read: ordersOf });
    });
    test("it makes its tables by itself, and can do so again", async () => {
      const { ledger, begin } = open();
      await begin((tx) => ledger.in(tx).migrate());
      await ledger.migrate();
    });
  });
}

test("a Knex of another database is refused, and so is what is no client", () => {
  const knex = knexOf({ client: "better-sqlite3", useNullAsDefault: true });
  expect(() => postgresLedger(knex)).toThrow("dialect=sqlite3");
  const nothing = { execute: () => undefined, transaction: undefined };
  expect(() => Reflect.apply(postgresLedger, undefined, [nothing])).toThrow(
    "takes a pool of pg, the sql of postgres, or the database of Kysely",
  );
});
