// What SQLite keeps by days: entries that were done when they were made, and are kept for an hour or longer.
import { afterEach, describe, expect, test, vi } from "vitest";
import { GLOBAL, processOnce } from "../../src/toolkit/ledger.ts";
import type { EntryWrite } from "../../src/toolkit/ledgers/ledger.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { ABSENT, CLAIM, type Connection, connect, newFile, placeOf } from "./kit.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const DONE: EntryWrite = {
  ...CLAIM,
  state: "done",
  leaseMs: undefined,
  keepMs: DAY_MS,
  fingerprint: { value: "print" },
  data: { value: new Uint8Array([1, 2]) },
};

afterEach(() => {
  vi.useRealTimers();
});

async function opened() {
  const file = newFile();
  const ledger = sqliteLedger(() => connect(file));
  await ledger.migrate();
  const connection = connect(file);
  const countOf = (table: string): number => {
    const row = connection.prepare(`SELECT count(*) AS count FROM ${table}`).get();
    return (row as { readonly count: number }).count;
  };
  return { file, connection, ledger, entries: ledger.entries, countOf };
}

/** Moves the clock of the program, which is that of days. */
function pass(ms: number): void {
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + ms });
}

describe("what is done at once, and kept for long", () => {
  test("is one row without an index, and an entry as any other", async () => {
    const { entries, countOf } = await opened();
    const put = await entries.put(placeOf("a"), ABSENT, DONE);
    expect([countOf("hapax_done"), countOf("hapax_entries")]).toEqual([1, 0]);
    const { data, ...entry } = (await entries.find(placeOf("a"))) ?? {};
    expect(entry).toEqual({
      ...{ token: put?.token, revision: 1, state: "done", attempts: 1, fingerprint: "print" },
      ...{ leaseLeftMs: undefined, leaseMs: undefined },
      keepLeftMs: expect.closeTo(DAY_MS, -4),
      ageMs: expect.closeTo(0, -4),
    });
    expect(data).toEqual(new Uint8Array([1, 2]));
    for (const filter of [{ kind: "once" }, { kind: "once", state: "done", scope: "" }] as const)
      expect(await entries.scan({ ...filter, max: 5 })).toMatchObject([{ place: placeOf("a") }]);
    for (const state of ["running", "failed", "released"] as const)
      expect(await entries.scan({ kind: "once", state, max: 5 })).toEqual([]);
    expect(await entries.remove(placeOf("a"), { kind: "owned", token: put?.token ?? 0 })).toBe(
      false,
    );
    const unchanged = { kind: "unchanged", token: put?.token ?? 0, revision: 1 } as const;
    expect(await entries.remove(placeOf("a"), unchanged)).toBe(true);
    expect(await entries.find(placeOf("a"))).toBeUndefined();
  });

  test("leaves no room for another entry, and none is made beside one that runs", async () => {
    const { entries, countOf } = await opened();
    await entries.put(placeOf("done"), ABSENT, DONE);
    await entries.put(placeOf("runs"), ABSENT, CLAIM);
    const drawn = { token: { drawn: 7 } } as const;
    const others = [DONE, CLAIM, { ...DONE, ...drawn }, { ...CLAIM, ...drawn }];
    // Days of other widths too.
    others.push({ ...DONE, keepMs: 30 * DAY_MS }, { ...DONE, keepMs: HOUR_MS });
    for (const write of others)
      for (const key of ["done", "runs"])
        expect(await entries.put(placeOf(key), ABSENT, write)).toBeUndefined();
    expect([countOf("hapax_done"), countOf("hapax_entries")]).toEqual([1, 1]);
  });

  test("moves when it is written again, once", async () => {
    const { entries, countOf } = await opened();
    const put = await entries.put(placeOf("a"), ABSENT, DONE);
    const expected = { kind: "unchanged", token: put?.token ?? 0, revision: 1 } as const;
    const other = { ...expected, token: expected.token - 1 };
    expect(await entries.put(placeOf("a"), other, CLAIM)).toBeUndefined();
    const next = await entries.put(placeOf("a"), expected, { ...CLAIM, data: "same" });
    expect(next).toEqual({ token: expect.any(Number), revision: 2 });
    expect(next?.token).toBeGreaterThan(put?.token ?? Infinity);
    expect(await entries.find(placeOf("a"))).toMatchObject({
      ...{ state: "running", revision: 2, data: new Uint8Array([1, 2]) },
    });
    expect([countOf("hapax_done"), countOf("hapax_entries")]).toEqual([0, 1]);
    expect(await entries.put(placeOf("a"), expected, CLAIM)).toBeUndefined();
  });

  test("LG8 goes by days, so many at once, and never before its retention is over", async () => {
    const { entries, countOf } = await opened();
    for (const key of ["a", "b", "c"]) await entries.put(placeOf(key), ABSENT, DONE);
    await entries.put(placeOf("later"), ABSENT, { ...DONE, keepMs: 3 * DAY_MS });
    pass(DAY_MS - 1_000);
    expect(await entries.sweep(10)).toBe(0);
    pass(DAY_MS + 1_000);
    expect(await entries.sweep(2)).toBe(2);
    expect(await entries.sweep(2)).toBe(1);
    expect(await entries.sweep(2)).toBe(0);
    expect([countOf("hapax_done"), countOf("hapax_days")]).toEqual([1, 1]);
    expect(await entries.find(placeOf("later"))).toBeDefined();
  });

  test("is made on a day that another process has swept meanwhile", async () => {
    const { file, entries, countOf } = await opened();
    await entries.put(placeOf("a"), ABSENT, DONE);
    const other = sqliteLedger(() => connect(file)).entries;
    // A clock that was ahead, and is set back.
    pass(9 * DAY_MS);
    expect(await other.sweep(10)).toBe(1);
    pass(-9 * DAY_MS);
    expect(countOf("hapax_days")).toBe(0);
    expect(await entries.put(placeOf("b"), ABSENT, DONE)).toBeDefined();
    expect(await other.find(placeOf("b"))).toBeDefined();
  });

  test("is claimed again after its retention, before it is swept", async () => {
    const { ledger, connection, countOf } = await opened();
    const once = (result: number) =>
      processOnce(ledger, { scope: GLOBAL, key: "a" }, () => result, { retainMs: DAY_MS });
    expect(await once(1)).toMatchObject({ result: 1, isDuplicate: false });
    expect(countOf("hapax_done")).toBe(1);
    connection.exec(`UPDATE hapax_done SET expires_at = expires_at - ${2 * DAY_MS}`);
    expect(await once(2)).toMatchObject({ result: 2, isDuplicate: false });
    expect(await once(3)).toMatchObject({ result: 2, isDuplicate: true });
    expect([countOf("hapax_done"), countOf("hapax_entries")]).toEqual([0, 1]);
  });

  test("work that used its own key inside leaves neither", async () => {
    const { ledger, connection, countOf } = await opened();
    connection.exec("CREATE TABLE effects (text TEXT)");
    // Takes a block of tokens.
    await processOnce(ledger, { scope: GLOBAL, key: "first" }, () => 1);
    for (const write of [DONE, CLAIM]) {
      const identity = { scope: GLOBAL, key: write.state };
      const own = processOnce(ledger, identity, async ({ tx }) => {
        tx.prepare("INSERT INTO effects VALUES ('a')").run();
        const place = { kind: "once", ...identity };
        await ledger.in(tx).entries.put(place, ABSENT, { ...write, keepMs: 5 * DAY_MS });
      });
      await expect(own).rejects.toThrow("the work used its own key");
    }
    const left = ["effects", "hapax_done"].map(countOf);
    expect(left).toEqual([0, 1]);
  });
});

describe("what changes while work awaits", () => {
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  const insert = (tx: Connection, text: string) =>
    tx.prepare("INSERT INTO effects VALUES (?)").run(text);

  test("by others is found at its end", async () => {
    const file = newFile();
    const own = connect(file);
    const ledger = sqliteLedger(() => own);
    await ledger.migrate();
    own.exec("CREATE TABLE effects (text TEXT)");
    const once = (key: string, other: () => unknown) =>
      processOnce(ledger, { scope: GLOBAL, key }, async ({ tx }) => {
        await turn();
        insert(tx as Connection, key);
        other();
      });
    for (const key of ["tokens", "day"]) await once(key, () => undefined);
    await once("others", () => own.exec("INSERT INTO effects VALUES ('neighbour')"));
    await expect(once("next", () => undefined)).rejects.toThrow("others wrote");
  });

  test("is not guessed from a statement that changes nothing", async () => {
    const own = connect(newFile());
    own.exec("CREATE TABLE effects (text TEXT)");
    // As some clients do it: such a statement answers what the one before it has changed.
    const stale = new (class {
      run = () => ({ changes: 1 });
      get = () => undefined;
    })();
    const ledger = sqliteLedger(() => ({
      exec: (text: string) => own.exec(text),
      prepare: (text: string) => (text === "SELECT 1" ? stale : own.prepare(text)),
    }));
    await ledger.migrate();
    for (let number = 0; number < 3; number += 1) {
      const done = await processOnce(
        ledger,
        { scope: GLOBAL, key: `${number}` },
        async ({ tx }) => {
          await turn();
          insert(tx as Connection, "one");
          tx.prepare("SELECT 1").run();
          return number;
        },
      );
      expect(done.result).toBe(number);
    }
  });

  test.each(["with", "without"])("is the work's own, %s triggers", async (word) => {
    const { ledger, connection } = await opened();
    connection.exec("CREATE TABLE effects (text TEXT); CREATE TABLE log (text TEXT)");
    const trigger = `CREATE TRIGGER noted AFTER INSERT ON effects
      BEGIN INSERT INTO log VALUES (new.text); END`;
    if (word === "with") connection.exec(trigger);
    for (let number = 0; number < 3; number += 1) {
      const done = await processOnce(
        ledger,
        { scope: GLOBAL, key: `${number}` },
        async ({ tx }) => {
          await turn();
          insert(tx, "one");
          await turn();
          // It has changed nothing; some clients answer what the statement before it has changed.
          tx.prepare("SELECT 1").run();
          tx.exec("INSERT INTO effects VALUES ('two')");
          await turn();
          insert(tx, "three");
          return number;
        },
      );
      expect(done.result).toBe(number);
    }
    const [rows, log] = ["effects", "log"].map((name) =>
      connection.prepare(`SELECT text FROM ${name}`).all(),
    );
    expect([rows?.length, log?.length]).toEqual([9, word === "with" ? 9 : 0]);
  });

  test("costs no statement of its own where the work changes rows one by one", async () => {
    const file = newFile();
    const texts: string[] = [];
    const own = connect(file);
    own.exec("CREATE TABLE effects (text TEXT)");
    const ledger = sqliteLedger(() => ({
      exec: (text: string) => {
        texts.push(text);
        return own.exec(text);
      },
      prepare(text: string) {
        const statement = own.prepare(text);
        const noted =
          (name: "run" | "get" | "all") =>
          (...values: unknown[]) => {
            texts.push(text);
            return statement[name](...values);
          };
        // A class, as clients have it.
        return new (class {
          run = noted("run");
          get = noted("get");
          all = noted("all");
        })();
      },
    }));
    await ledger.migrate();
    const once = (key: string) =>
      processOnce(ledger, { scope: GLOBAL, key }, async ({ tx }) => {
        await turn();
        insert(tx as Connection, key);
        await turn();
      });
    for (const key of ["tokens", "day"]) await once(key);
    texts.length = 0;
    await once("a");
    const verbs = texts.map((text) => text.split(/\s/, 1)[0]);
    expect(verbs).toEqual(["BEGIN", "SELECT", "INSERT", "INSERT", "COMMIT"]);
  });
});

describe("the statements that works prepare", () => {
  const TEXT = "INSERT INTO effects VALUES (?)";
  type Tx = { prepare(text: string): ReturnType<Connection["prepare"]> };

  /** A ledger over one connection that says how often `TEXT` was prepared. */
  const counted = async () => {
    const own = connect(newFile());
    own.exec("CREATE TABLE effects (text TEXT)");
    let prepared = 0;
    const ledger = sqliteLedger(() => ({
      exec: (text: string) => own.exec(text),
      prepare(text: string) {
        if (text === TEXT) prepared += 1;
        return own.prepare(text);
      },
    }));
    await ledger.migrate();
    const work = (use: (tx: Tx) => void) =>
      ledger.transaction(async (tx) => {
        use(tx as Connection);
      });
    const rows = () => own.prepare("SELECT count(*) AS count FROM effects").get();
    return { work, rows, prepared: () => prepared };
  };

  test("are kept, and each is lent to one work at a time", async () => {
    const { work, rows, prepared } = await counted();
    for (let number = 0; number < 3; number += 1)
      await work((tx) => {
        expect(tx.prepare(TEXT).run("a").changes).toBe(1);
      });
    expect(prepared()).toBe(1);
    await work((tx) => {
      const [one, two] = [tx.prepare(TEXT), tx.prepare(TEXT)];
      expect([one.run("b").changes, two.run("c").changes]).toEqual([1, 1]);
    });
    expect(prepared()).toBe(2);
    expect(rows()).toMatchObject({ count: 5 });
  });

  test("are not kept once a work has set how they answer", async () => {
    const { work, rows, prepared } = await counted();
    for (let number = 1; number < 4; number += 1) {
      await work((tx) => {
        const statement = tx.prepare(TEXT);
        statement.safeIntegers();
        statement.run("a");
      });
      expect(prepared()).toBe(number);
    }
    expect(rows()).toMatchObject({ count: 3 });
  });
});
