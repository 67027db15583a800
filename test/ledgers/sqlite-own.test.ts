// A ledger in SQLite has a connection of its own, and lends it for one transaction at a time.
import { afterEach, describe, expect, test, vi } from "vitest";
import { setFailpoint } from "../../src/base/failpoint.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { acquireLease, GLOBAL, ledgerSink, processOnce } from "../../src/toolkit/ledger.ts";
import { ABSENT, CLAIM, connect, type Connection, newFile, placeOf } from "./kit.ts";

afterEach(() => {
  vi.useRealTimers();
  setFailpoint(undefined);
});

const turn = () => new Promise((resolve) => setImmediate(resolve));

async function opened(file = newFile()) {
  const connection = connect(file);
  const ledger = sqliteLedger(() => connection);
  await ledger.migrate();
  connection.exec("CREATE TABLE IF NOT EXISTS effects (text TEXT)");
  return { file, connection, ledger };
}

function effectsIn(file: string): readonly string[] {
  const rows = connect(file).prepare("SELECT text FROM effects ORDER BY rowid").all();
  return (rows as readonly { readonly text: string }[]).map(({ text }) => text);
}

describe("the connection", () => {
  test("that another part of the program made is refused, with what to write instead", () => {
    const connection = connect(newFile());
    // As a caller without types.
    const plain = () => sqliteLedger(connection as never);
    expect(plain).toThrow(expect.objectContaining({ code: "invalid_options" }));
    expect(plain).toThrow("(() => new Database(path))");
    expect(() => sqliteLedger((async () => connection) as never)).toThrow(
      "must return the connection",
    );
  });

  test("has one owner: a second ledger is refused until the first has closed it", () => {
    const file = newFile();
    const connection = connect(file);
    const ledger = sqliteLedger(() => connection);
    expect(() => sqliteLedger(() => connection)).toThrow("belongs to another ledger");
    ledger.close();
    expect(connection.open).toBe(false);
    sqliteLedger(() => connect(file)).close();
  });

  test("of a neighbour keeps its write when the work of the ledger fails", async () => {
    const { file, ledger } = await opened();
    const neighbour = connect(file);
    const insert = () => neighbour.exec("INSERT INTO effects VALUES ('neighbour')");
    const failed = processOnce(ledger, { scope: GLOBAL, key: "a" }, async ({ tx }) => {
      tx.prepare("INSERT INTO effects VALUES ('mine')").run();
      // Told at once that it cannot be done now: not accepted and then undone.
      expect(insert).toThrow(/locked/);
      await turn();
      throw new Error("no");
    });
    await expect(failed).rejects.toThrow("no");
    insert();
    expect(effectsIn(file)).toEqual(["neighbour"]);
  });

  test("with which others write is not used again, and what succeeded is kept", async () => {
    const { file, connection, ledger } = await opened();
    const held = connection.prepare("INSERT INTO effects VALUES ('neighbour')");
    const done = await processOnce(ledger, { scope: GLOBAL, key: "a" }, async ({ tx }) => {
      tx.prepare("INSERT INTO effects VALUES ('mine')").run();
      await turn();
      held.run();
      return 1;
    });
    expect(done.result).toBe(1);
    const next = processOnce(ledger, { scope: GLOBAL, key: "b" }, () => 2);
    await expect(next).rejects.toMatchObject({ code: "invalid_options" });
    await expect(ledger.entries.find(placeOf("a"))).rejects.toThrow("others wrote");
    expect(effectsIn(file)).toEqual(["mine", "neighbour"]);
  });

  test("with which others write tells of the write that failing work took along", async () => {
    const { connection, ledger } = await opened();
    const failed = ledger.transaction(async () => {
      await turn();
      connection.exec("INSERT INTO effects VALUES ('neighbour')");
      throw new Error("no");
    });
    await expect(failed).rejects.toMatchObject({
      code: "invalid_options",
      message: expect.stringContaining("rolled back"),
      cause: { message: "no" },
    });
  });

  test("never stops the process to wait, and a database that stays busy is given up in time", async () => {
    const { file } = await opened();
    // What better-sqlite3 and libsql have as their default.
    const patient = connect(file);
    patient.exec("PRAGMA busy_timeout = 5000");
    const ledger = sqliteLedger(() => patient);
    const timeout = await ledger.transaction(async (tx) => tx.prepare("PRAGMA busy_timeout").get());
    expect(Object.values(timeout as object)).toContain(0);
    const other = connect(file);
    other.exec("BEGIN IMMEDIATE");
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    const put = ledger.entries.put(placeOf("a"), ABSENT, CLAIM).catch((error) => error);
    await vi.advanceTimersByTimeAsync(10_100);
    expect(await put).toMatchObject({ message: expect.stringMatching(/locked|busy/) });
  });
});

describe("what is lent", () => {
  const place = { pipeline: "p", stream: "/v1/stream/in" };

  test("refuses every write after the end, and so does all that it handed out", async () => {
    const { file, ledger } = await opened();
    const sink = ledgerSink(sqliteLedger(() => connect(file)));
    await sink.prepare();
    await sink.take(place, 1);
    const late: (() => unknown)[] = [];
    const keep = (tx: Connection): void => {
      const insert = tx.prepare("INSERT INTO effects VALUES ('late')");
      const chained = tx.prepare("INSERT INTO effects VALUES ('late') RETURNING text").raw();
      const nested = tx.transaction(() => insert.run());
      late.push(
        () => insert.run(),
        () => chained.get(),
        () => nested(),
        () => tx.exec("INSERT INTO effects VALUES ('late')"),
        () => tx.prepare("INSERT INTO effects VALUES ('late')"),
      );
    };
    await processOnce(ledger, { scope: GLOBAL, key: "a" }, ({ tx }) => keep(tx));
    await expect(
      ledger.transaction(async (tx) => {
        keep(tx);
        throw new Error("no");
      }),
    ).rejects.toThrow("no");
    await sink.move(place, 1, undefined, (tx) => {
      keep(tx);
      return "1";
    });
    expect(late).toHaveLength(15);
    for (const write of late) expect(write).toThrow("the transaction has ended");
    expect(effectsIn(file)).toEqual([]);
  });

  test("rows that are written one by one are the work's own, and end with it", async () => {
    const { file, ledger } = await opened();
    const write = (tx: Connection, text: string) =>
      tx.prepare("INSERT INTO effects VALUES (?) RETURNING text").iterate(text);
    const late: IterableIterator<unknown>[] = [];
    for (const key of ["a", "b"]) {
      const done = await processOnce(ledger, { scope: GLOBAL, key }, ({ tx }) => {
        const rows = write(tx, key);
        late.push(rows);
        return [...rows].length;
      });
      expect(done.result).toBe(1);
    }
    for (const rows of late) expect(() => rows.next()).toThrow("the transaction has ended");
    expect(effectsIn(file)).toEqual(["a", "b"]);
  });

  test("what the work gets from its own functions is its own, and does not end", async () => {
    const connection = connect(newFile());
    // As better-sqlite3 and Bun have it, inside a transaction too.
    const transaction =
      <T>(work: () => T) =>
      () =>
        work();
    const ledger = sqliteLedger(() => ({
      exec: (sql: string) => connection.exec(sql),
      prepare: (sql: string) => connection.prepare(sql),
      transaction,
    }));
    await ledger.migrate();
    class Order {
      total(): number {
        return 5;
      }
    }
    const order = await ledger.transaction(async (tx) => tx.transaction(() => new Order())());
    const count = await ledger.transaction(async (tx) => tx.transaction(() => () => 7)());
    expect([order.total(), count()]).toEqual([5, 7]);
  });

  test("a joined ledger ends with its transaction", async () => {
    const { ledger } = await opened();
    const joined = await ledger.transaction(async (tx) => ledger.in(tx));
    const put = joined.entries.put(placeOf("late"), ABSENT, CLAIM);
    await expect(put).rejects.toThrow("the transaction has ended");
    expect(await ledger.entries.find(placeOf("late"))).toBeUndefined();
  });

  test("work that ends the transaction itself fails, and leaves nothing", async () => {
    const { file, ledger } = await opened();
    const texts = ["COMMIT", "ROLLBACK", "/* done */ end", "SELECT 1; rollback", "BEGIN"];
    for (const text of texts) {
      const call = processOnce(ledger, { scope: GLOBAL, key: text }, ({ tx }) => {
        tx.exec("INSERT INTO effects VALUES ('half')");
        tx.exec(text);
      });
      await expect(call).rejects.toMatchObject({ code: "invalid_request" });
      const entry = await ledger.entries.find({ kind: "once", scope: GLOBAL, key: text });
      expect(entry?.state).toBe("released");
    }
    expect(effectsIn(file)).toEqual([]);
  });

  test("savepoints, triggers and words in strings are the user's", async () => {
    const { file, ledger } = await opened();
    await ledger.transaction(async (tx) => {
      tx.exec("SAVEPOINT part; INSERT INTO effects VALUES ('undone'); ROLLBACK TO part");
      tx.exec("CREATE TRIGGER t AFTER DELETE ON effects BEGIN DELETE FROM effects; SELECT 1; END;");
      tx.prepare("INSERT INTO effects VALUES (?)").run("COMMIT");
      tx.exec("INSERT INTO effects VALUES ('; ROLLBACK;')");
      tx.exec("INSERT INTO effects SELECT CASE WHEN 1 THEN 'case' END");
    });
    expect(effectsIn(file)).toEqual(["COMMIT", "; ROLLBACK;", "case"]);
  });
});

describe("CK4 a line of works on one connection", () => {
  test("CK4 loses no claim, however long it is", async () => {
    const { file, ledger } = await opened();
    // Claims that come first wait for their turn beyond their lease. Locks begin with it.
    for (const claimsFirst of [true, false]) {
      const calls = Array.from({ length: 16 }, (_, index) =>
        processOnce(
          ledger,
          { scope: GLOBAL, key: `key ${index} ${claimsFirst}` },
          async ({ tx }) => {
            await new Promise((resolve) => setTimeout(resolve, 20));
            tx.prepare("INSERT INTO effects VALUES (?)").run(`${index} ${claimsFirst}`);
            return index;
          },
          { leaseMs: 100, claimsFirst },
        ),
      );
      const results = await Promise.all(calls);
      expect(results.map(({ isDuplicate }) => isDuplicate)).not.toContain(true);
    }
    expect(effectsIn(file)).toHaveLength(32);
  });

  test("CK4 does not begin what another process has done meanwhile", async () => {
    const { file, ledger } = await opened();
    const { ledger: other } = await opened(file);
    const runs: string[] = [];
    const call = (by: typeof ledger, text: string) =>
      processOnce(
        by,
        { scope: GLOBAL, key: "a" },
        async ({ tx }) => {
          runs.push(text);
          tx.prepare("INSERT INTO effects VALUES (?)").run(text);
          return text;
        },
        { leaseMs: 100, waitMs: 5_000, claimsFirst: true },
      );
    // Its claim is committed, and another work is in front of it, which lets the other process in.
    let isIn = false;
    setFailpoint(async (name) => {
      if (name !== "once.claimed" || isIn) return;
      isIn = true;
      await new Promise((resolve) => setTimeout(resolve, 150));
      await call(other, "theirs");
    });
    const mine = await call(ledger, "mine");
    expect([mine.result, mine.isDuplicate, runs]).toEqual(["theirs", true, ["theirs"]]);
    expect(effectsIn(file)).toEqual(["theirs"]);
  });

  test("CK4 a lease that waits for its transaction is not lost by waiting", async () => {
    const { ledger } = await opened();
    const lease = await acquireLease(ledger, { scope: GLOBAL, key: "report" }, { leaseMs: 100 });
    const front = ledger.transaction(() => new Promise((resolve) => setTimeout(resolve, 300)));
    expect(await lease?.transaction(() => "written")).toBe("written");
    await front;
    await lease?.release();
  });
});
