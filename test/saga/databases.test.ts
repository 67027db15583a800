// Sagas over every ledger: the same stories, lost answers, acts that race, and 10,000 that sleep.
import Database from "libsql";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { memoryLedger } from "../../src/toolkit/ledgers/memory.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { type SqliteConnection, sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { createSagas, defineSaga, type Sagas } from "../../src/toolkit/saga.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";

interface Shop<Tx> {
  readonly ledger: Ledger<Tx>;
  write(tx: Tx, text: string): Promise<void>;
  rows(): Promise<readonly string[]>;
  /** How many statements were sent so far. */
  statements(): number;
  /** Adds copies of the one entry that is there, under other keys. */
  copy(count: number): Promise<void>;
}

const reason = whyNoPostgres();
if (reason !== undefined) console.log(`skipped: sagas over PostgreSQL: ${reason}`);

let postgres: TestPostgres | undefined;
beforeAll(async () => {
  if (reason === undefined) postgres = await startPostgres();
}, 60_000);
afterAll(async () => {
  await postgres?.stop();
}, 60_000);

function openMemory() {
  const rows: string[] = [];
  const ledger = memoryLedger();
  return {
    ledger,
    write: async (tx: Parameters<Parameters<typeof ledger.transaction>[0]>[0], text: string) => {
      rows.push(text);
      tx.undo(() => void rows.splice(rows.lastIndexOf(text), 1));
    },
    rows: async () => [...rows],
    statements: () => 0,
    copy: () => Promise.reject(new Error("there are no statements to count")),
  };
}

/** `isCounted`: through a wrapper that counts, which is not for transactions of the caller. */
async function openSqlite(isCounted = false) {
  const connection = new Database(":memory:");
  connection.exec("CREATE TABLE rows (text TEXT)");
  let count = 0;
  const counting = <Values extends readonly unknown[], T>(run: (...values: Values) => T) => {
    return (...values: Values): T => {
      count += 1;
      return run(...values);
    };
  };
  const counted: SqliteConnection = {
    exec: counting((text: string) => connection.exec(text)),
    prepare: (text) => {
      const statement = connection.prepare(text);
      return {
        all: counting((...values: unknown[]) => statement.all(...values)),
        run: counting((...values: unknown[]) => statement.run(...values)),
        get: counting((...values: unknown[]) => statement.get(...values)),
      };
    },
  };
  const ledger = sqliteLedger((): SqliteConnection => (isCounted ? counted : connection));
  await ledger.migrate();
  return {
    ledger,
    write: async (tx: SqliteConnection, text: string) => {
      tx.prepare("INSERT INTO rows VALUES (?)").run(text);
    },
    rows: async () =>
      (connection.prepare("SELECT text FROM rows").all() as readonly { text: string }[]).map(
        ({ text }) => text,
      ),
    statements: () => count,
    copy: async (copies: number) => {
      connection.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${copies})
        INSERT INTO hapax_entries SELECT ${COPIED.replace("key", "key || '-' || i")} FROM hapax_entries, n`);
    },
  };
}

/** All columns, in the order of both schemas. */
const COPIED =
  "kind, scope, key, token, revision, state, attempts, lease_until, lease_ms, expires_at, made_at, fingerprint, data";

async function openPostgres() {
  const pool = postgres?.openPool();
  if (pool === undefined) throw new Error("there is none");
  let count = 0;
  pool.on("connect", (client) => {
    const query = client.query.bind(client) as (...values: unknown[]) => unknown;
    client.query = ((...values: unknown[]) => {
      count += 1;
      return query(...values);
    }) as never;
  });
  await pool.query("DROP TABLE IF EXISTS rows; CREATE TABLE rows (text TEXT)");
  const ledger = postgresLedger(pool);
  await ledger.migrate();
  return {
    ledger,
    write: async (tx: pg.PoolClient, text: string) => {
      await tx.query("INSERT INTO rows VALUES ($1)", [text]);
    },
    rows: async () =>
      (await pool.query<{ text: string }>("SELECT text FROM rows")).rows.map(({ text }) => text),
    statements: () => count,
    copy: async (copies: number) => {
      await pool.query(`INSERT INTO hapax_entries SELECT ${COPIED.replace("key", "key || '-' || i")}
        FROM hapax_entries, generate_series(1, ${copies}) AS n(i)`);
    },
  };
}

type Story = <Tx>(shop: Shop<Tx>) => Promise<void>;

const pauseMs = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const retry = { attemptsMax: 3, pauseMs: 1, pauseMsMax: 1 };

/** Reserves in a transaction, and charges elsewhere. */
function orderOf<Tx>(shop: Shop<Tx>, remote: string[]) {
  return defineSaga<{ readonly fails: boolean }, Tx>("order")
    .tx("reserve", {
      run: async ({ tx, identity }) => {
        await shop.write(tx, `reserve ${identity.key}`);
        return identity.key;
      },
      undo: ({ tx, result }) => shop.write(tx, `release ${result}`),
      retry,
    })
    .call("charge", {
      run: ({ identity }) => void remote.push(`charge ${identity.key}`),
      undo: ({ identity }) => void remote.push(`refund ${identity.key}`),
      retry,
    })
    .tx("confirm", {
      run: async ({ tx, input, identity }) => {
        await shop.write(tx, `confirm ${identity.key}`);
        if (input.fails) throw new RangeError("no");
      },
      isFinal: (error) => error instanceof RangeError,
      retry,
    });
}

const wholeStory: Story = async (shop) => {
  const remote: string[] = [];
  const order = orderOf(shop, remote);
  const sagas = createSagas(shop.ledger, [order]);
  const start = (key: string, fails: boolean) =>
    sagas.start(order, { scope: "s", key }, { fails }, { waitMs: 10_000 });
  expect((await start("a", false)).state).toBe("completed");
  expect(await start("b", true)).toMatchObject({ state: "undone", cause: { step: "confirm" } });
  expect(await start("a", false)).toMatchObject({ state: "completed", isDuplicate: true });
  await expect(start("a", true)).rejects.toMatchObject({ code: "key_reused" });
  expect(await shop.rows()).toEqual(["reserve a", "confirm a", "reserve b", "release b"]);
  expect(remote).toEqual(["charge a", "charge b", "refund b"]);
  await shop.ledger
    .transaction(async (tx) => {
      await sagas.in(tx).start(order, { scope: "s", key: "c" }, { fails: false });
      throw new Error("rolled back");
    })
    .catch(() => undefined);
  expect((await sagas.runDue()).ran).toBe(0);
  await shop.ledger.transaction((tx) =>
    sagas.in(tx).start(order, { scope: "s", key: "c" }, { fails: false }),
  );
  expect((await sagas.runDue()).ran).toBe(1);
  expect((await sagas.find({ saga: "order", scope: "s", key: "c" }))?.state).toBe("completed");
  await sagas.stop();
};

/** The commit of a step is done, or not done, and its answer is lost; perhaps a signal comes before it is looked up. */
const lostCommits: Story = async (shop) => {
  const runs = [true, false].flatMap((isStored) => [
    { isStored, isSignalled: false },
    { isStored, isSignalled: true },
  ]);
  for (const { isStored, isSignalled } of runs) {
    const key = `lost ${isStored} ${isSignalled}`;
    const others = createSagas(shop.ledger, []);
    const remote: string[] = [];
    let left = 1;
    const lossy: typeof shop.ledger = {
      ...shop.ledger,
      get outbox() {
        return shop.ledger.outbox;
      },
      in: (tx) => shop.ledger.in(tx),
      transaction: async (work, signal) => {
        const result = await shop.ledger.transaction(async (tx) => {
          const done = await work(tx);
          if (left > 0 && !isStored) {
            left -= 1;
            throw new Error("the connection was lost in COMMIT");
          }
          return done;
        }, signal);
        if (left > 0 && isStored) {
          left -= 1;
          if (isSignalled) await others.signal({ saga: "order", scope: "s", key }, "paid", 1);
          throw new Error("the connection was lost in COMMIT");
        }
        return result;
      },
    };
    const order = orderOf(shop, remote);
    const sagas = createSagas(lossy, [order]);
    const ended = await sagas.start(
      order,
      { scope: "s", key },
      { fails: false },
      { waitMs: 10_000 },
    );
    expect(ended.state).toBe("completed");
    expect((await shop.rows()).filter((row) => row === `reserve ${key}`)).toHaveLength(1);
    const failed = ended.history.filter(({ what }) => what === "failed");
    expect(failed).toHaveLength(isStored ? 0 : 1);
    await sagas.stop();
  }
};

/** The answer to a record is lost, and a renewal comes in between. */
const lostRecords: Story = async (shop) => {
  const remote: string[] = [];
  let losses = 0;
  const { entries } = shop.ledger;
  const lossy: typeof shop.ledger = {
    ...shop.ledger,
    get outbox() {
      return shop.ledger.outbox;
    },
    in: (tx) => shop.ledger.in(tx),
    entries: {
      ...entries,
      async put(place, expected, write) {
        const written = await entries.put(place, expected, write);
        const text = write.data === "same" ? "" : new TextDecoder().decode(write.data.value);
        if (losses < 3 && text.includes('"what":"done","step":"charge"')) {
          losses += 1;
          throw new Error("no connection");
        }
        return written;
      },
    },
  };
  const order = orderOf(shop, remote);
  const sagas = createSagas(lossy, [order]);
  const identity = { scope: "s", key: "recorded" };
  const ended = await sagas.start(order, identity, { fails: false }, { waitMs: 20_000 });
  expect(ended.state).toBe("completed");
  expect(losses).toBeGreaterThan(0);
  expect(remote).toEqual(["charge recorded"]);
  expect(
    ended.history.filter(({ what, step }) => what === "done" && step === "charge"),
  ).toHaveLength(1);
  await sagas.stop();
};

/** Two runners, and an operator whose act comes while a step runs. */
const races: Story = async (shop) => {
  const remote: string[] = [];
  const order = orderOf(shop, remote);
  const [one, other] = [createSagas(shop.ledger, [order]), createSagas(shop.ledger, [order])];
  const keys = Array.from({ length: 12 }, (_, at) => `race ${at}`);
  await shop.ledger.transaction(async (tx) => {
    for (const key of keys) await one.in(tx).start(order, { scope: "s", key }, { fails: false });
  });
  const refOf = (key: string) => ({ saga: "order", scope: "s", key });
  const operators = keys
    .filter((_, at) => at % 2 === 0)
    .map(async (key) => {
      try {
        await one.abort(refOf(key), { by: "operator" });
        return key;
      } catch (error) {
        expect(error).toMatchObject({ code: "act_refused" });
        return undefined;
      }
    });
  await Promise.all([one.runDue(), other.runDue(), ...operators]);
  const aborted = new Set(await Promise.all(operators));
  for (let round = 0; round < 100; round += 1) {
    const views = await Promise.all(keys.map((key) => one.find(refOf(key))));
    if (views.every((view) => view?.state === "completed" || view?.state === "undone")) break;
    await one.runDue();
    await pauseMs(20);
  }
  const rows = await shop.rows();
  for (const key of keys) {
    const state = (await one.find(refOf(key)))?.state;
    expect(state, key).toBe(aborted.has(key) ? "undone" : "completed");
    const count = (what: string): number =>
      [...rows, ...remote].filter((row) => row === `${what} ${key}`).length;
    const isUndone = state === "undone";
    if (!isUndone) expect(["reserve", "charge", "confirm"].map(count), key).toEqual([1, 1, 1]);
    expect(count("release"), key).toBe(isUndone ? count("reserve") : 0);
    expect(count("refund"), key).toBe(isUndone ? count("charge") : 0);
    if (isUndone) expect(count("confirm"), key).toBeLessThanOrEqual(1);
  }
  await Promise.all([one.stop(), other.stop()]);
};

/** Operators and runners, all at once, at sagas that are stuck. */
const acts: Story = async (shop) => {
  let isDown = true;
  const sent: string[] = [];
  const ship = defineSaga<string>("ship")
    .pivot("pay", { kind: "call", run: () => "paid" })
    .call("parcel", {
      run: ({ identity }) => {
        if (isDown) throw new Error("the carrier is away");
        sent.push(identity.key);
        return "sent";
      },
      retry: { attemptsMax: 1 },
    });
  const sagas = createSagas(shop.ledger, [ship]);
  const keys = Array.from({ length: 6 }, (_, at) => `act ${at}`);
  for (const key of keys)
    expect((await sagas.start(ship, { scope: "s", key }, "", { waitMs: 10_000 })).state).toBe(
      "stuck",
    );
  const taken = new Map<string, string[]>(keys.map((key) => [key, []]));
  const act = async (key: string, what: string, run: () => Promise<unknown>): Promise<void> => {
    try {
      await run();
      taken.get(key)?.push(what);
    } catch (error) {
      // Another act was faster.
      expect(error).toMatchObject({ code: "act_refused" });
    }
  };
  await Promise.all([
    ...keys.flatMap((key) => {
      const ref = { saga: "ship", scope: "s", key };
      return [
        act(key, "retry", () => sagas.retry(ref, { by: "ann" })),
        act(key, "skip", () => sagas.skip(ref, "parcel", { by: "bob", result: "by hand" })),
        act(key, "finish", () => sagas.finish(ref, { by: "eve" })),
        act(key, "abort", () => sagas.abort(ref, { by: "joe" })),
      ];
    }),
    sagas.runDue(),
    sagas.runDue(),
  ]);
  isDown = false;
  for (const key of keys) {
    const ref = { saga: "ship", scope: "s", key };
    await sagas.runDue();
    if ((await sagas.find(ref))?.state === "stuck")
      await act(key, "retry", () => sagas.retry(ref, { by: "ann" }));
    await sagas.runDue();
    const { state, history } = (await sagas.find(ref)) ?? {};
    const done = taken.get(key) ?? [];
    expect(history?.flatMap(({ what, by }) => (by === undefined ? [] : [what])).toSorted()).toEqual(
      done.toSorted(),
    );
    expect(done).not.toContain("abort");
    expect(done.length, key).toBeGreaterThan(0);
    expect(state, key).toBe(done.includes("finish") ? "finished" : "completed");
    const isSent = state === "completed" && !done.includes("skip");
    expect(sent.filter((one) => one === key)).toHaveLength(isSent ? 1 : 0);
  }
  await sagas.stop();
};

/** One whose steps have changed, and one that cannot be read, beside one that can go on. */
const strangers: Story = async (shop) => {
  const old = defineSaga<string>("mail").call("write", { run: () => "written" });
  const next = defineSaga<string>("mail", { version: 2 }).call("print", { run: () => "printed" });
  const newer = createSagas(shop.ledger, [next], { concurrency: 1 });
  const identityOf = (key: string) => ({ scope: "s", key });
  const torn = { kind: "saga", scope: "mail/s", key: "torn" };
  await shop.ledger.entries.put(
    torn,
    { kind: "absent" },
    {
      state: "running",
      token: "next",
      attempts: 1,
      leaseMs: 0,
      keepMs: undefined,
      fingerprint: { value: undefined },
      data: { value: Uint8Array.of(1, 123) },
    },
  );
  const older = createSagas(shop.ledger, [old]);
  await shop.ledger.transaction((tx) => older.in(tx).start(old, identityOf("changed"), ""));
  await shop.ledger.transaction((tx) => newer.in(tx).start(next, identityOf("fits"), ""));
  expect((await newer.runDue()).ran).toBe(1);
  const stateOf = async (key: string) =>
    (await newer.find({ saga: "mail", ...identityOf(key) }))?.state;
  expect([await stateOf("changed"), await stateOf("fits")]).toEqual(["stuck", "completed"]);
  await older.retry({ saga: "mail", ...identityOf("changed") }, { by: "ann" });
  expect((await older.runDue()).ran).toBe(1);
  expect(await stateOf("changed")).toBe("completed");
};

/** How many statements a search costs while so many sleep. */
async function searchCost<Tx>(shop: Shop<Tx>, sagas: Sagas<Tx>): Promise<number> {
  const before = shop.statements();
  for (let round = 0; round < 10; round += 1) expect((await sagas.runDue()).ran).toBe(0);
  return (shop.statements() - before) / 10;
}

const sleepers: Story = async (shop) => {
  const nap = defineSaga<number, never>("nap").sleep("rest", 3_600_000);
  // No step of it needs a transaction: it fits every ledger.
  const sagas = createSagas(shop.ledger, [nap as never]);
  const first = await sagas.start(nap as never, { scope: "s", key: "0" }, 0 as never);
  expect(first.isDuplicate).toBe(false);
  for (let round = 0; round < 100; round += 1) {
    if ((await sagas.find({ saga: "nap", scope: "s", key: "0" }))?.state === "sleeping") break;
    await pauseMs(10);
  }
  const few = await searchCost(shop, sagas);
  await shop.copy(9_999);
  const startedMs = performance.now();
  expect(await searchCost(shop, sagas)).toBe(few);
  const tookMs = (performance.now() - startedMs) / 10;
  // One search and one question for the next: far from 10,000.
  expect(few).toBeGreaterThan(0);
  expect(few).toBeLessThanOrEqual(3);
  console.log(`10,000 sleeping sagas: ${few} statements and ${tookMs.toFixed(1)} ms a search`);
  expect((await sagas.runDue()).nextDueMs).toBeGreaterThan(3_000_000);
  await sagas.stop();
};

const STORIES: readonly (readonly [string, Story])[] = [
  ["G53 a saga runs to its end, or is undone, and is started once", wholeStory],
  ["SA2 a commit without an answer is looked up: the step counts once", lostCommits],
  ["SA2 a record without an answer is written again, and counts once", lostRecords],
  [
    "SA1 SA6 two runners and an operator: each saga is whole, and an act that was taken counts",
    races,
  ],
  ["SA6 acts of several operators and a runner: each one that was taken counts, once", acts],
  [
    "SA8 SA9 a changed definition is stuck until the old one is there, and stops no other",
    strangers,
  ],
];

test("10,000 sleeping sagas cost a search no more statements than one", async () => {
  const shop = await openSqlite(true);
  await sleepers(shop);
  shop.ledger.close();
  if (reason !== undefined) return;
  await postgres?.pool.query(
    "DROP TABLE IF EXISTS hapax_entries; DROP TABLE IF EXISTS hapax_migrations",
  );
  await sleepers(await openPostgres());
});

describe.each(STORIES)("%s", (_, story) => {
  test("in memory", () => story(openMemory()));
  test("over SQLite", async () => {
    const shop = await openSqlite();
    await story(shop);
    shop.ledger.close();
  });
  test.skipIf(reason !== undefined)("over PostgreSQL", async () => {
    await story(await openPostgres());
    await postgres?.pool.query("TRUNCATE hapax_entries");
  });
});
