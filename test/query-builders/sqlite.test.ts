// Kysely, Drizzle and Knex over SQLite: they run on the connection that the ledger hands out, and the ledger joins theirs.
import { eq } from "drizzle-orm";
import { BetterSQLiteSession } from "drizzle-orm/better-sqlite3/session";
import {
  BaseSQLiteDatabase,
  integer,
  sqliteTable,
  SQLiteSyncDialect,
  text,
} from "drizzle-orm/sqlite-core";
import knexOf from "knex";
import { Kysely, SqliteDialect } from "kysely";
import { beforeEach, describe, expect, test } from "vitest";
import { GLOBAL, processOnce } from "../../src/toolkit/ledger.ts";
import { type SqliteLedger, sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { createOutbox } from "../../src/toolkit/outbox.ts";
import { connect, type Connection, newFile } from "../ledgers/kit.ts";

interface Tables {
  payments: { order_id: string; cents: number };
}
const payments = sqliteTable("payments", {
  order: text("order_id").notNull(),
  cents: integer().notNull(),
});
/** Without a connection of its own: each query is given one. */
const knex = knexOf<Tables["payments"]>({ client: "better-sqlite3", useNullAsDefault: true });
const kyselyOn = (database: Connection) =>
  new Kysely<Tables>({ dialect: new SqliteDialect({ database }) });

/** As `drizzle({ client })` of drizzle-orm/better-sqlite3 makes it, which cannot be imported without better-sqlite3. */
function drizzleOn(tx: Connection) {
  const dialect = new SQLiteSyncDialect();
  // Its types are those of better-sqlite3, which has the shape of libsql.
  const session = new BetterSQLiteSession(tx as never, dialect, undefined);
  return new BaseSQLiteDatabase("sync", dialect, session, undefined);
}

/** Each pays on the given connection, and reads back what it paid. */
const builders = [
  {
    name: "Kysely",
    async pay(tx: Connection, order: string) {
      const db = kyselyOn(tx);
      await db.insertInto("payments").values({ order_id: order, cents: 500 }).execute();
      const row = await db
        .selectFrom("payments")
        .selectAll()
        .where("order_id", "=", order)
        .executeTakeFirstOrThrow();
      return row.cents;
    },
    nest: async (tx: Connection) =>
      kyselyOn(tx)
        .transaction()
        .execute(() => Promise.resolve()),
  },
  {
    name: "Drizzle",
    async pay(tx: Connection, order: string) {
      const db = drizzleOn(tx);
      db.insert(payments).values({ order, cents: 500 }).run();
      return db.select().from(payments).where(eq(payments.order, order)).get()?.cents;
    },
    nest: async (tx: Connection) => {
      drizzleOn(tx).transaction((inner) => {
        inner.insert(payments).values({ order: "nested", cents: 1 }).run();
        inner.rollback();
      });
    },
  },
  {
    name: "Knex",
    async pay(tx: Connection, order: string) {
      await knex("payments").insert({ order_id: order, cents: 500 }).connection(tx);
      const [row] = await knex("payments").where({ order_id: order }).connection(tx);
      return row?.cents;
    },
    nest: undefined,
  },
];

describe.for(builders)("$name on SQLite", ({ name, nest, ...builder }) => {
  const pay = (tx: Connection, order: string) => builder.pay(tx, order);
  let file = "";
  let ledger: SqliteLedger<Connection>;
  const rows = (table: string): number => {
    const row = connect(file).prepare(`SELECT count(*) AS n FROM ${table}`).get();
    return (row as { readonly n: number }).n;
  };

  beforeEach(async () => {
    file = newFile();
    connect(file).exec(
      "CREATE TABLE payments (order_id TEXT CHECK (order_id <> 'bad'), cents INT)",
    );
    ledger = sqliteLedger(() => connect(file));
    await ledger.migrate();
  });

  test("runs on the transaction that processOnce hands out, and commits or rolls back with it", async () => {
    const outbox = createOutbox(ledger);
    const call = (key: string, order: string) =>
      processOnce(ledger, { scope: GLOBAL, key }, async ({ tx }) => {
        const cents = await pay(tx, "first");
        await outbox.add(tx, { topic: "paid", payload: { order } });
        await pay(tx, order);
        return cents;
      });
    await expect(call("a", "bad")).rejects.toThrow(/constraint/i);
    expect([rows("payments"), rows("hapax_outbox")]).toEqual([0, 0]);
    expect(await call("a", "second")).toMatchObject({ result: 500, isDuplicate: false });
    expect(await call("a", "third")).toMatchObject({ result: 500, isDuplicate: true });
    expect([rows("payments"), rows("hapax_outbox")]).toEqual([2, 1]);
  });

  test("is refused after the work", async () => {
    let kept: Connection | undefined;
    await ledger.transaction(async (tx) => {
      kept = tx;
    });
    const late = async () => pay(kept as Connection, "late");
    await expect(late()).rejects.toThrow("the transaction has ended");
    expect(rows("payments")).toBe(0);
  });

  if (nest !== undefined)
    test("cannot begin a transaction of its own inside", async () => {
      const call = ledger.transaction((tx) => nest(tx));
      await expect(call, name).rejects.toThrow();
      expect(rows("payments")).toBe(0);
    });
});

test("the ledger joins a transaction that Kysely has begun on a connection of its own", async () => {
  const file = newFile();
  connect(file).exec("CREATE TABLE payments (order_id TEXT, cents INT)");
  const ledger = sqliteLedger(() => connect(file));
  await ledger.migrate();
  const database = connect(file);
  const db = kyselyOn(database);
  const call = (isFailure: boolean) =>
    db.transaction().execute(async (trx) => {
      await trx.insertInto("payments").values({ order_id: "1", cents: 500 }).execute();
      const { isDuplicate } = await processOnce(
        ledger.in(database),
        { scope: GLOBAL, key: "1" },
        () => "done",
      );
      await createOutbox(ledger).add(database, { topic: "paid", payload: {} });
      if (isFailure) throw new RangeError("no");
      return isDuplicate;
    });
  const counts = (): readonly unknown[] =>
    ["payments", "hapax_outbox", "hapax_entries"].map(
      (table) => database.prepare(`SELECT count(*) AS n FROM ${table}`).get() as object,
    );
  await expect(call(true)).rejects.toThrow(RangeError);
  expect(counts()).toMatchObject([{ n: 0 }, { n: 0 }, { n: 0 }]);
  expect([await call(false), await call(false)]).toEqual([false, true]);
  expect(counts()).toMatchObject([{ n: 2 }, { n: 2 }, { n: 1 }]);
  expect(() => ledger.in(database)).toThrow("the connection has no transaction");
});
