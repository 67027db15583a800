// Calls that wait, inside a transaction of SQLite, for the end of that transaction.
import Database from "libsql";
import { afterEach, expect, test, vi } from "vitest";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { GLOBAL, processOnce } from "../../src/toolkit/ledger.ts";

afterEach(() => {
  vi.useRealTimers();
});

async function opened() {
  const connection = new Database(":memory:");
  const ledger = sqliteLedger(() => connection);
  await ledger.migrate();
  connection.exec("CREATE TABLE effects (text TEXT)");
  return { connection, ledger };
}

test("a call that waits for the end of its own transaction is refused, and all others go on", async () => {
  const { connection, ledger } = await opened();
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const outer = processOnce(ledger, { scope: GLOBAL, key: "outer" }, async ({ tx }) => {
    tx.prepare("INSERT INTO effects VALUES ('outer')").run();
    await processOnce(ledger, { scope: GLOBAL, key: "inner" }, () => 1);
  }).catch((error) => error);
  await vi.advanceTimersByTimeAsync(121_000);
  const error: unknown = await outer;
  expect(error).toMatchObject({ code: "too_many" });
  expect((error as Error).message).toContain("ledger.in(tx)");
  expect(connection.prepare("SELECT count(*) AS n FROM effects").get()).toMatchObject({ n: 0 });
  // What was given up is not done later.
  const inner = { kind: "once", scope: GLOBAL, key: "inner" };
  expect(await ledger.entries.find(inner)).toBeUndefined();
  const again = await processOnce(ledger, { scope: GLOBAL, key: "outer" }, () => 2);
  expect(again).toMatchObject({ result: 2, isDuplicate: false });
  expect(vi.getTimerCount()).toBe(0);
});

test("a long line in which each turn ends is waited for", async () => {
  const { ledger } = await opened();
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const slow = () =>
    ledger.transaction(() => new Promise<number>((done) => setTimeout(done, 50_000, 1)));
  const all = Promise.all([slow(), slow(), slow(), slow()]);
  await vi.advanceTimersByTimeAsync(200_000);
  expect(await all).toEqual([1, 1, 1, 1]);
  expect(vi.getTimerCount()).toBe(0);
});
