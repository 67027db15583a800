// Outages of sinks are waited for, and count against no record. PROTOCOL.md §20.3
import Database from "libsql";
import type pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { isHapaxError } from "../../src/base/errors.ts";
import type { DeduplicatingSink } from "../../src/client/processing/pipeline-options.ts";
import type { Sink } from "../../src/client/processing/sink.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { ledgerSink } from "../../src/toolkit/once/ledger-sink.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { DEAD, fill, INPUT, type Numbered, numbers, untilDone, valuesOf } from "./pipeline-kit.ts";
import { openStage, type ProcessingStage } from "./stage.ts";

let stage: ProcessingStage;
beforeEach(async () => {
  stage = await openStage();
});
afterEach(() => stage.close());

const ONCE = { attemptsMax: 1, pauseMs: 1, pauseMsMax: 5 };

/** Fails the first calls, as a driver does whose server is not there: with an error of its own. */
function absent(calls: number): () => Promise<void> {
  let left = calls;
  return () => {
    left -= 1;
    return left >= 0 ? Promise.reject(new Error("connect ECONNREFUSED")) : Promise.resolve();
  };
}

type Connection = InstanceType<typeof Database>;

function openSqlite(): { readonly sink: Sink<Connection>; readonly rows: () => number[] } {
  const connection = new Database(":memory:");
  connection.exec("CREATE TABLE effects (id INTEGER PRIMARY KEY, n INTEGER)");
  const rows = (): number[] => {
    const all = connection.prepare("SELECT n FROM effects ORDER BY id").all();
    return (all as readonly Numbered[]).map(({ n }) => n);
  };
  return { sink: ledgerSink(sqliteLedger(() => connection)), rows };
}

function insert(tx: Connection, n: number): void {
  tx.prepare("INSERT INTO effects (n) VALUES (?)").run(n);
}

test("a database that is away at the start is waited for", async () => {
  await fill(stage.direct, INPUT, 5);
  const { sink, rows } = openSqlite();
  const arrive = absent(3);
  const heard: unknown[] = [];
  const pipeline = untilDone<Numbered, Connection>(stage.direct, 5, {
    from: { streams: [INPUT] },
    group: "rows",
    sink: { ...sink, prepare: () => arrive().then(() => sink.prepare()) },
    each: ({ n }, { tx }) => {
      insert(tx, n);
    },
    onRetry: (error) => heard.push(error),
  });
  await pipeline.run();
  expect(rows()).toEqual(numbers(5));
  expect(heard).toHaveLength(3);
});

test("a sink with ids that is away at the start is waited for", async () => {
  await fill(stage.direct, INPUT, 5);
  const kept = new Map<string, unknown>();
  const sink: DeduplicatingSink = {
    deduplicates: true,
    prepare: absent(3),
    write(outputs) {
      for (const { id, data } of outputs) kept.set(id, data);
      return Promise.resolve();
    },
  };
  const each = (record: Numbered): Numbered => record;
  await untilDone<Numbered>(stage.direct, 5, {
    from: { streams: [INPUT] },
    group: "ids",
    sink,
    each,
  }).run();
  expect(kept.size).toBe(5);
});

test("a sink that is away for longer than patienceMs ends the pipeline with the sink's own error", async () => {
  await fill(stage.direct, INPUT, 5);
  const { sink } = openSqlite();
  const pipeline = untilDone<Numbered, Connection>(stage.direct, 5, {
    from: { streams: [INPUT] },
    group: "rows",
    sink: { ...sink, prepare: absent(Infinity) },
    each: () => undefined,
    patienceMs: 100,
  });
  await expect(pipeline.run()).rejects.toThrow("connect ECONNREFUSED");
});

test("a connection that is lost while the position of a dead letter moves is waited for", async () => {
  await fill(stage.direct, INPUT, 5);
  const { sink, rows } = openSqlite();
  let calls = 0;
  let lost = 0;
  const pipeline = untilDone<Numbered, Connection>(stage.direct, 5, {
    from: { streams: [INPUT] },
    group: "rows",
    deadLetter: DEAD,
    retry: ONCE,
    sink: {
      ...sink,
      move: (place, token, from, work) =>
        sink.move(place, token, from, async (tx) => {
          const before = calls;
          const to = await work(tx);
          // Only the position of a letter moves without a call of `each`.
          if (calls > before || lost === 2) return to;
          lost += 1;
          throw new Error("read ECONNRESET");
        }),
    },
    each: ({ n }, { tx }) => {
      calls += 1;
      insert(tx, n);
      if (n === 2) throw new Error("two");
    },
  });
  await pipeline.run();
  expect(lost).toBe(2);
  expect(rows()).toEqual([0, 1, 3, 4]);
  expect(await valuesOf<unknown>(stage.direct, DEAD)).toMatchObject([{ record: { n: 2 } }]);
});

test("a database without room is waited for, and puts no record aside", async () => {
  await fill(stage.direct, INPUT, 5);
  const connection = new Database(":memory:");
  connection.exec("CREATE TABLE effects (id INTEGER PRIMARY KEY, n INTEGER, text TEXT)");
  const sink = ledgerSink(sqliteLedger(() => connection));
  await sink.prepare();
  const { page_count: pages } = connection.prepare("PRAGMA page_count").get() as {
    readonly page_count: number;
  };
  connection.exec(`PRAGMA max_page_count = ${pages + 6}`);
  const text = "x".repeat(20_000); // Five pages.
  let refusals = 0;
  const pipeline = untilDone<Numbered, Connection>(stage.direct, 5, {
    from: { streams: [INPUT] },
    group: "rows",
    sink,
    deadLetter: DEAD,
    retry: ONCE,
    each: ({ n }, { tx }) => {
      tx.prepare("INSERT INTO effects (n, text) VALUES (?, ?)").run(n, text);
    },
    onRetry: (error) => {
      if (!isHapaxError(error, "store_full")) return;
      refusals += 1;
      // More often than a lost connection is retried; then the disk has room again.
      if (refusals === 15) connection.exec("PRAGMA max_page_count = 1000");
    },
  });
  await pipeline.run();
  expect(refusals).toBe(15);
  expect(await valuesOf<unknown>(stage.direct, DEAD)).toEqual([]);
  const rows = connection.prepare("SELECT n FROM effects ORDER BY id").all();
  expect((rows as readonly Numbered[]).map(({ n }) => n)).toEqual(numbers(5));
});

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: outages of PostgreSQL: ${reason}`);

describe.skipIf(reason !== undefined)("PostgreSQL", () => {
  let server: TestPostgres;
  beforeAll(async () => {
    server = await startPostgres();
    await server.pool.query("CREATE TABLE effects (id SERIAL PRIMARY KEY, n INT)");
    await server.pool.query("CREATE TABLE gates (id INT PRIMARY KEY)");
    await server.pool.query("INSERT INTO gates VALUES (1), (2)");
  });
  afterAll(() => server.stop());
  beforeEach(async () => {
    await server.pool.query("TRUNCATE effects");
    await postgresLedger(server.pool).migrate();
    await server.pool.query("DELETE FROM hapax_entries");
  });

  const rows = async (): Promise<number[]> => {
    const { rows: found } = await server.pool.query<Numbered>("SELECT n FROM effects ORDER BY id");
    return found.map(({ n }) => n);
  };

  test("one dropped connection puts no record aside, with one attempt for each", async () => {
    await fill(stage.direct, INPUT, 10);
    let drops = 0;
    const pipeline = untilDone<Numbered, pg.PoolClient>(stage.direct, 10, {
      from: { streams: [INPUT] },
      group: "rows",
      sink: ledgerSink(postgresLedger<pg.PoolClient>(server.openPool())),
      deadLetter: DEAD,
      retry: ONCE,
      each: async ({ n }, { tx }) => {
        if (n === 5 && drops < 2) {
          drops += 1;
          const { rows: own } = await tx.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
          await server.pool.query("SELECT pg_terminate_backend($1)", [own[0]?.pid]);
          // The client learns of it before the next statement, which then has no code of the database to be known by.
          await new Promise((resolve) => setTimeout(resolve, 100));
        }
        await tx.query("INSERT INTO effects (n) VALUES ($1)", [n]);
      },
    });
    await pipeline.run();
    expect(drops).toBe(2);
    expect(await valuesOf<unknown>(stage.direct, DEAD)).toEqual([]);
    expect(await rows()).toEqual(numbers(10));
  });

  test("the victim of a deadlock is no poison", async () => {
    await fill(stage.direct, INPUT, 3);
    let deadlocks = 0;
    let ending: Promise<void> | undefined;
    const lock = "SELECT 1 FROM gates WHERE id = $1 FOR UPDATE";
    const pipeline = untilDone<Numbered, pg.PoolClient>(stage.direct, 3, {
      from: { streams: [INPUT] },
      group: "rows",
      sink: ledgerSink(postgresLedger<pg.PoolClient>(server.openPool())),
      deadLetter: DEAD,
      retry: ONCE,
      each: async ({ n }, { tx }) => {
        await tx.query("INSERT INTO effects (n) VALUES ($1)", [n]);
        if (n !== 1 || deadlocks > 0) return;
        deadlocks += 1;
        const other = await server.pool.connect();
        await other.query("BEGIN");
        await other.query("SET LOCAL deadlock_timeout = '1h'"); // The pipeline is the victim.
        await other.query(lock, [2]);
        await tx.query("SET LOCAL deadlock_timeout = '10ms'");
        await tx.query(lock, [1]);
        const theirs = other.query(lock, [1]);
        try {
          await tx.query(lock, [2]);
        } finally {
          ending = theirs.then(async () => {
            await other.query("ROLLBACK");
            other.release();
          });
        }
      },
    });
    await pipeline.run();
    await ending;
    expect(deadlocks).toBe(1);
    expect(await valuesOf<unknown>(stage.direct, DEAD)).toEqual([]);
    expect(await rows()).toEqual(numbers(3));
  });

  test("a record that loses its connection every time is put aside in the end", async () => {
    await fill(stage.direct, INPUT, 3);
    const pipeline = untilDone<Numbered, pg.PoolClient>(stage.direct, 3, {
      from: { streams: [INPUT] },
      group: "rows",
      sink: ledgerSink(postgresLedger<pg.PoolClient>(server.openPool())),
      deadLetter: DEAD,
      retry: ONCE,
      each: async ({ n }, { tx }) => {
        await tx.query("INSERT INTO effects (n) VALUES ($1)", [n]);
        if (n === 1) await tx.query("SELECT pg_terminate_backend(pg_backend_pid())");
      },
    });
    await pipeline.run();
    expect(await valuesOf<unknown>(stage.direct, DEAD)).toMatchObject([{ record: { n: 1 } }]);
    expect(await rows()).toEqual([0, 2]);
  });

  test("a database that does not exist ends the pipeline instead of being waited for", async () => {
    await fill(stage.direct, INPUT, 1);
    const { Pool } = (await import("pg")).default;
    const { options } = server.pool as unknown as { readonly options: Record<string, unknown> };
    const stranger = new Pool({ ...options, database: "no_such_database" });
    const pipeline = untilDone<Numbered, pg.PoolClient>(stage.direct, 1, {
      from: { streams: [INPUT] },
      group: "rows",
      sink: ledgerSink(postgresLedger<pg.PoolClient>(stranger)),
      each: () => undefined,
    });
    await expect(pipeline.run()).rejects.toMatchObject({ code: "invalid_options" });
    await stranger.end();
  });
});
