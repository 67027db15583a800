// What the ledger in SQLite promises beside the contract, over libsql; the contract itself over other clients.
import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { ledgerConformance } from "../../src/testing/ledger-conformance.ts";
import { programOf, requirePart } from "../client/runtimes-kit.ts";
import { conform } from "./conform.ts";
import { ABSENT, CLAIM, connect, newFile, placeOf, tablesOf } from "./kit.ts";

describe("a ledger in SQLite", () => {
  test("a call of its own is not a part of an open transaction, and does not go with it", async () => {
    const ledger = sqliteLedger(() => connect(newFile()));
    await ledger.migrate();
    let put: Promise<unknown> = Promise.resolve();
    const failed = ledger.transaction(async (tx) => {
      await ledger.in(tx).entries.put(placeOf("inside"), ABSENT, CLAIM);
      put = ledger.entries.put(placeOf("outside"), ABSENT, CLAIM);
      await new Promise((resolve) => setImmediate(resolve));
      throw new Error("undo");
    });
    await expect(failed).rejects.toThrow("undo");
    expect(await put).toBeDefined();
    expect(await ledger.entries.find(placeOf("inside"))).toBeUndefined();
    expect(await ledger.entries.find(placeOf("outside"))).toBeDefined();
  });

  test("a token of a transaction that the user rolled back is not given again", async () => {
    const connection = connect(newFile());
    const ledger = sqliteLedger(() => connection);
    await ledger.migrate();
    connection.exec("BEGIN IMMEDIATE");
    const inside = await ledger.in(connection).entries.put(placeOf("a"), ABSENT, CLAIM);
    connection.exec("ROLLBACK");
    const next = await ledger.entries.put(placeOf("a"), ABSENT, CLAIM);
    expect(next?.token).toBeGreaterThan(inside?.token ?? Infinity);
  });

  test("a transaction that fails leaves its tokens behind, and nothing else", async () => {
    const file = newFile();
    const [ledger, other] = [sqliteLedger(() => connect(file)), sqliteLedger(() => connect(file))];
    await ledger.migrate();
    // Ahead of the clock, which would hide that the counter went back.
    const ahead = (Date.now() + 3_600_000) * 1000;
    connect(file).prepare("UPDATE hapax_tokens SET last = ?").run(ahead);
    const before = tablesOf(connect(file));
    let given = 0;
    const failed = ledger.transaction(async (tx) => {
      tx.exec("CREATE TABLE effects (text TEXT)");
      const put = await ledger.in(tx).entries.put(placeOf("a"), ABSENT, CLAIM);
      given = put?.token ?? 0;
      throw new Error("undo");
    });
    await expect(failed).rejects.toThrow("undo");
    expect(tablesOf(connect(file))).toEqual(before);
    expect(await other.entries.find(placeOf("a"))).toBeUndefined();
    const next = await other.entries.put(placeOf("a"), ABSENT, CLAIM);
    expect([given > 0, (next?.token ?? 0) > given]).toEqual([true, true]);
  });

  test("what was found in a transaction that began for reading is locked all the same", async () => {
    const file = newFile();
    const [mine, theirs] = [connect(file), connect(file)];
    const ledger = sqliteLedger(() => mine);
    await ledger.migrate();
    await ledger.entries.put(placeOf("a"), ABSENT, CLAIM);
    mine.exec("BEGIN");
    expect(await ledger.in(mine).entries.find(placeOf("a"))).toBeDefined();
    expect(() => theirs.exec("BEGIN IMMEDIATE")).toThrow(/locked/);
    mine.exec("COMMIT");
    theirs.exec("BEGIN IMMEDIATE");
    theirs.exec("ROLLBACK");
  });

  test("a connection without a transaction cannot be joined, any with one can", async () => {
    const file = newFile();
    const [mine, theirs] = [connect(file), connect(file)];
    const ledger = sqliteLedger(() => mine);
    await ledger.migrate();
    expect(() => ledger.in(mine)).toThrow(expect.objectContaining({ code: "invalid_request" }));
    theirs.exec("BEGIN IMMEDIATE");
    await ledger.in(theirs).entries.put(placeOf("a"), ABSENT, CLAIM);
    expect(await ledger.entries.find(placeOf("a"))).toBeUndefined();
    theirs.exec("COMMIT");
    expect(await ledger.entries.find(placeOf("a"))).toBeDefined();
  });

  test("a commit that a reader holds up is not lost", async () => {
    const file = newFile();
    const reader = connect(file);
    const ledger = sqliteLedger(() => connect(file));
    await ledger.migrate();
    reader.exec("BEGIN");
    reader.prepare("SELECT count(*) FROM hapax_entries").get();
    let isOver = false;
    const put = ledger.entries.put(placeOf("a"), ABSENT, CLAIM).finally(() => {
      isOver = true;
    });
    // The commit has met the reader when others are not let in any more.
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve));
      try {
        connect(file).prepare("SELECT count(*) FROM hapax_entries").get();
      } catch {
        break;
      }
    }
    expect(isOver).toBe(false);
    reader.exec("COMMIT");
    expect(await put).toBeDefined();
    expect(await ledger.entries.find(placeOf("a"))).toBeDefined();
  });

  test("LG8 a sweep finds nothing while another connection writes, and does not wait", async () => {
    const file = newFile();
    const other = connect(file);
    const ledger = sqliteLedger(() => connect(file));
    await ledger.migrate();
    await ledger.entries.put(placeOf("a"), ABSENT, { ...CLAIM, leaseMs: 0, keepMs: 0 });
    other.exec("BEGIN IMMEDIATE");
    expect(await ledger.entries.sweep(10)).toBe(0);
    other.exec("COMMIT");
    expect(await ledger.entries.sweep(10)).toBe(1);
  });

  test("statements that were prepared survive a change of the schema by others", async () => {
    const file = newFile();
    const ledger = sqliteLedger(() => connect(file));
    await ledger.migrate();
    await ledger.entries.put(placeOf("a"), ABSENT, CLAIM);
    await ledger.entries.find(placeOf("a"));
    const other = connect(file);
    other.exec("ALTER TABLE hapax_entries ADD COLUMN note TEXT");
    other.exec("CREATE INDEX notes ON hapax_entries (note)");
    expect(await ledger.entries.find(placeOf("a"))).toBeDefined();
    expect(await ledger.entries.put(placeOf("b"), ABSENT, CLAIM)).toBeDefined();
    expect(await ledger.entries.scan({ kind: "once", max: 5 })).toHaveLength(2);
  });

  test("LG8 LG10 a sweep, a scan of what is not over and a scan of what is due go by an index", async () => {
    const connection = connect(newFile());
    await sqliteLedger(() => connection).migrate();
    const texts: string[] = [];
    const spy = {
      exec: (sql: string) => connection.exec(sql),
      prepare(sql: string) {
        if (sql !== "BEGIN IMMEDIATE" && sql !== "COMMIT") texts.push(sql);
        return connection.prepare(sql);
      },
    };
    const { entries } = sqliteLedger(() => spy);
    await entries.sweep(1);
    await entries.scan({ kind: "once", state: "released", max: 1 });
    expect(texts.splice(1, 1)).toEqual(["SELECT min(day) AS day FROM hapax_days"]);
    const searches = texts.length;
    await entries.scan({ kind: "once", state: "running", isAbandoned: true, order: "due", max: 1 });
    await entries.scan({ kind: "once", state: "running", order: "due", max: 1 });
    await entries.nextDue(["once", "http"]);
    const dueSearches = texts.length;
    await entries.put(placeOf("a"), { kind: "owned", token: 1 }, CLAIM);
    const pages = texts.filter((sql) => !sql.startsWith("SELECT day"));
    const plans = pages.map((sql) => {
      const count = sql.split("?").length - 1;
      const values = Array.from({ length: count }, () => 1);
      return JSON.stringify(connection.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...values));
    });
    expect(plans[0]).toContain("hapax_entries_expiry (expires_at<?)");
    for (const plan of plans.slice(searches, dueSearches)) {
      expect(plan).toMatch(/SEARCH hapax_entries USING (COVERING )?INDEX hapax_entries_due/);
      expect(plan).not.toContain("SCAN hapax_entries");
      expect(plan).not.toContain("USE TEMP B-TREE FOR ORDER BY");
    }
    for (const plan of plans.slice(dueSearches)) {
      expect(plan).not.toContain("hapax_entries_open");
      expect(plan).not.toContain("hapax_entries_due");
    }
    for (const plan of plans.slice(1, searches)) {
      expect(plan).toContain("hapax_entries_open (kind=? AND state=?)");
      expect(plan).not.toContain("USE TEMP B-TREE FOR ORDER BY");
    }
  });

  test("LG13 a page goes by an index, from the place on where the page before has ended", async () => {
    const connection = connect(newFile());
    await sqliteLedger(() => connection).migrate();
    const texts: string[] = [];
    const spy = {
      exec: (sql: string) => connection.exec(sql),
      prepare(sql: string) {
        texts.push(sql);
        return connection.prepare(sql);
      },
    };
    const { entries } = sqliteLedger(() => spy);
    const from = JSON.stringify(["1", "1"]);
    connection.exec("INSERT INTO hapax_days (day) VALUES (1)");
    await entries.page({ kind: "once", from, max: 5 });
    await entries.page({ kind: "once", scope: "s", from, max: 5 });
    await entries.page({ kind: "once", state: "failed", from, max: 5 });
    await entries.page({ kind: "once", state: "running", from, max: 5 });
    const pages = texts.filter((sql) => !sql.startsWith("SELECT day"));
    const plans = pages.map((sql) => {
      const values = Array.from({ length: sql.split("?").length - 1 }, () => 1);
      return JSON.stringify(connection.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...values));
    });
    expect(plans[0]).toContain("PRIMARY KEY (kind=? AND (scope,key)>(?,?))");
    expect(plans[1]).toContain("PRIMARY KEY (day=? AND kind=? AND (scope,key)>(?,?))");
    expect(plans[2]).toContain("PRIMARY KEY (kind=? AND scope=? AND key>?)");
    expect(plans[3]).toContain("PRIMARY KEY (day=? AND kind=? AND scope=? AND key>?)");
    expect(plans[4]).toContain("hapax_entries_failed (kind=? AND state=? AND made_at>?)");
    expect(plans[5]).toContain("hapax_entries_open (kind=? AND state=? AND made_at>?)");
    for (const plan of plans) expect(plan).not.toContain("USE TEMP B-TREE FOR ORDER BY");
    await expect(entries.page({ kind: "once", from: "[1]", max: 5 })).rejects.toMatchObject({
      code: "invalid_request",
    });
  });
});

describe("the contract of ledgers", () => {
  const require = createRequire(import.meta.url);
  // SQLite has no synchronous transactions, and many holders: it has no recovery.
  const all = { held: ledgerConformance.length - 2, skipped: 2, wrong: [] };

  test.for(["bun:sqlite", "node:sqlite"])("LG1 to LG9 hold in Bun over %s", (name, context) => {
    const program = programOf(require.resolve("bun/package.json"), "bin/bun.exe", "bin/bun");
    const bun = requirePart(context, program, "no bun of this platform is installed: not tested");
    const script = fileURLToPath(new URL("./conform.ts", import.meta.url));
    const run = spawnSync(bun, ["run", script, name, newFile()], { encoding: "utf8" });
    expect(run.stderr).toBe("");
    expect(JSON.parse(run.stdout)).toEqual(all);
  });

  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  const hasSqlite = major > 22 || (major === 22 && minor >= 5);
  test("LG1 to LG9 hold in Node over node:sqlite", async (context) => {
    context.skip(!hasSqlite, `Node ${process.versions.node} has no node:sqlite: not tested`);
    expect(await conform("node:sqlite", newFile())).toEqual(all);
  });
});
