// What work does with the connection that it is lent, and what SQLite does by itself: G25, G26.
import { expect, test } from "vitest";
import { createInbox, GLOBAL, processOnce } from "../../src/toolkit/ledger.ts";
import { LentStatements } from "../../src/toolkit/databases/sqlite-lending.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { type Connection, connect, newFile } from "./kit.ts";

async function opened(schema: string) {
  const file = newFile();
  const ledger = sqliteLedger(() => connect(file));
  await ledger.migrate();
  const connection = connect(file);
  connection.exec(schema);
  const all = (sql: string): unknown[] => connection.prepare(sql).all() as unknown[];
  /** Work that begins at once, or after others had a turn, under a key of its own. */
  let keys = 0;
  const once = (work: (tx: Connection) => unknown, options = {}) =>
    processOnce(
      ledger,
      { scope: GLOBAL, key: `key-${(keys += 1)}` },
      async ({ tx }) => {
        await Promise.resolve();
        return work(tx) ?? null;
      },
      options,
    );
  return { ledger, all, once };
}

/** SQLite ends the transaction at this, as it does on a full disk. */
function endsItself(tx: Connection): void {
  try {
    tx.prepare("INSERT OR ROLLBACK INTO one VALUES (1)").run();
  } catch {
    // The work goes on, as if nothing else was lost.
  }
}

test.each([
  ["at once", (key: string) => ({ key, isAsync: false, options: {} })],
  ["after others", (key: string) => ({ key, isAsync: true, options: {} })],
  ["after a claim", (key: string) => ({ key, isAsync: true, options: { attemptsMax: 3 } })],
])(
  "G25 work whose transaction SQLite has ended is not done, and writes nothing more: %s",
  async (key, how) => {
    const { ledger, all } = await opened(
      "CREATE TABLE paid (what TEXT); CREATE TABLE one (x INTEGER PRIMARY KEY); INSERT INTO one VALUES (1)",
    );
    // The day on which such an entry is past its retention is there: one statement would write the entry.
    await processOnce(ledger, { scope: GLOBAL, key: "earlier" }, () => 1);
    const { isAsync, options } = how(key);
    const body = (tx: Connection): string => {
      tx.prepare("INSERT INTO paid VALUES (?)").run("before");
      endsItself(tx);
      return "paid";
    };
    const late = async (tx: Connection): Promise<string> => {
      await Promise.resolve();
      body(tx);
      await Promise.resolve();
      tx.prepare("INSERT INTO paid VALUES (?)").run("after");
      return "paid";
    };
    const attempt = (work: (tx: Connection) => string | Promise<string>) =>
      processOnce(ledger, { scope: GLOBAL, key }, ({ tx }) => work(tx), options);
    await expect(attempt(isAsync ? late : body)).rejects.toMatchObject({ code: "invalid_request" });
    expect(all("SELECT what FROM paid")).toEqual([]);
    expect(all("SELECT key FROM hapax_done")).toEqual([{ key: "earlier" }]);
    const again = await attempt((tx) => {
      tx.prepare("INSERT INTO paid VALUES (?)").run("again");
      return "paid";
    });
    expect(again).toMatchObject({ result: "paid", isDuplicate: false });
    expect(all("SELECT what FROM paid")).toEqual([{ what: "again" }]);
  },
);

test("a message whose transaction SQLite has ended is handled again, and once", async () => {
  const { ledger, all } = await opened(
    "CREATE TABLE paid (what TEXT); CREATE TABLE one (x INTEGER PRIMARY KEY); INSERT INTO one VALUES (1)",
  );
  const inbox = createInbox(ledger, { consumer: "c", retainMs: 60_000 });
  let isFirst = true;
  const handle = () =>
    inbox.handle({ scope: "s", key: "m" }, (tx) => {
      if (isFirst) endsItself(tx);
      isFirst = false;
      tx.prepare("INSERT INTO paid VALUES (?)").run("handled");
      return null;
    });
  await expect(handle()).rejects.toMatchObject({ code: "invalid_request" });
  expect(all("SELECT what FROM paid")).toEqual([]);
  await handle();
  expect(all("SELECT what FROM paid")).toEqual([{ what: "handled" }]);
});

test("G25 a virtual table, which writes more rows than it answers, is no stranger", async () => {
  const { once, all } = await opened("CREATE VIRTUAL TABLE notes USING fts5(text)");
  for (let count = 0; count < 6; count += 1) {
    await once((tx) => void tx.prepare("INSERT INTO notes VALUES (?)").run("hello"));
  }
  expect(all("SELECT text FROM notes")).toHaveLength(6);
});

test("G25 a statement of one work has no values of another", async () => {
  const { once, all } = await opened("CREATE TABLE t (a TEXT, b TEXT)");
  const sql = "INSERT INTO t VALUES (?, ?)";
  await once((tx) => void tx.prepare(sql).run("one", "secret"));
  await once((tx) => {
    try {
      tx.prepare(sql).run("two");
    } catch {
      // Some clients refuse it.
    }
  });
  expect(JSON.stringify(all("SELECT a, b FROM t")).match(/secret/g)).toHaveLength(1);
  await once((tx) => void tx.prepare(sql).run("three", "3"));
  expect(all("SELECT a, b FROM t WHERE a = 'three'")).toEqual([{ a: "three", b: "3" }]);
});

test("G25 a statement with rows is not kept: while they are not read, it holds the connection", () => {
  expect(LentStatements.isKept("INSERT INTO t VALUES (?)")).toBe(true);
  expect(LentStatements.isKept("INSERT INTO t VALUES (?) Returning a")).toBe(false);
  expect(LentStatements.isKept("SELECT a FROM t")).toBe(false);
});
