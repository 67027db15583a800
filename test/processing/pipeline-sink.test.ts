// Pipelines whose effects and positions are in a ledger: memory, SQLite in a file, PostgreSQL. PROTOCOL.md §20.3
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import type pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { connectServer } from "../../src/client/processing.ts";
import type { PipelineContext } from "../../src/client/processing/pipeline-options.ts";
import type { Sink } from "../../src/client/processing/sink.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { ledgerSink } from "../../src/toolkit/once/ledger-sink.ts";
import { memoryLedger, type MemoryTransaction } from "../../src/toolkit/ledgers/memory.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import {
  DEAD,
  fill,
  gate,
  INPUT,
  lagOf,
  lossy,
  type Numbered,
  numbers,
  untilDone,
  valuesOf,
} from "./pipeline-kit.ts";
import { Events, openStage, pausable, type ProcessingStage } from "./stage.ts";

const stages: ProcessingStage[] = [];
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()));
});

async function onStage(...args: Parameters<typeof openStage>): Promise<ProcessingStage> {
  const stage = await openStage(...args);
  stages.push(stage);
  return stage;
}

/** One database, as the tests use it. */
interface Bench<Tx> {
  /** As another process would have it. */
  open(): Sink<Tx>;
  insert(tx: Tx, n: number): void | Promise<void>;
  /** Every number that was inserted, in the order of the insertions. */
  rows(): Promise<readonly number[]>;
  clear(): Promise<void>;
}

/** A sink whose moves can be held up, answered with an error, or not done at all. */
function between<Tx>(
  sink: Sink<Tx>,
  onMove: (move: () => Promise<void>, count: number) => Promise<void>,
): Sink<Tx> {
  let count = 0;
  return {
    prepare: () => sink.prepare(),
    take: (place, token) => sink.take(place, token),
    move: (...args) => onMove(() => sink.move(...args), (count += 1)),
  };
}

function pipelinesOn<Tx>(bench: () => Bench<Tx>): void {
  const insert = ({ n }: Numbered, { tx }: PipelineContext<Tx>): void | Promise<void> =>
    bench().insert(tx, n);

  afterEach(() => bench().clear());

  test("thousands of records over a bad network are each there once and in order", async () => {
    const stage = await onStage(lossy(3));
    await fill(stage.direct, INPUT, 0);
    const pipeline = untilDone<Numbered, Tx>(stage.connect(), 2000, {
      from: { streams: [INPUT] },
      group: "rows",
      sink: bench().open(),
      batchMax: 100,
      each: insert,
    });
    const running = pipeline.run();
    for (let first = 0; first < 2000; first += 100) {
      await stage.direct.transaction((tx) => {
        for (let n = first; n < first + 100; n += 1) tx.append(INPUT, { n });
      });
    }
    await running;
    expect(await bench().rows()).toEqual(numbers(2000));
  });

  test("a crash after the sink's commit and before the server's leaves nothing to be done twice", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 20);
    const line = pausable();
    const committed = gate();
    const options = { from: { streams: [INPUT], leaseMs: 1000 }, group: "rows", each: insert };
    const first = connectServer(stage.server.url, { transport: line.transport }).pipeline<
      Numbered,
      Tx
    >({
      ...options,
      sink: bench().open(),
      onProgress: () => {
        line.pause();
        committed.open();
      },
    });
    const running = first.run();
    await committed.opened;
    await stage.direct.transaction((tx) => {
      for (let n = 20; n < 30; n += 1) tx.append(INPUT, { n });
    });
    const second = untilDone<Numbered, Tx>(stage.direct, 10, { ...options, sink: bench().open() });
    await second.run();
    expect(await bench().rows()).toEqual(numbers(30));
    expect(await lagOf(stage.direct, "rows")).toBe(0);
    const closing = first.close();
    line.resume();
    await Promise.all([closing, running]);
  });

  test("a holder that sleeps in the middle of a page moves nothing when it wakes up", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 30);
    const line = pausable();
    const [asleep, awake] = [gate(), gate()];
    const events = new Events();
    const options = {
      from: { streams: [INPUT], leaseMs: 1000 },
      group: "rows",
      batchMax: 10,
      each: insert,
    };
    const first = connectServer(stage.server.url, { transport: line.transport }).pipeline<
      Numbered,
      Tx
    >({
      ...options,
      onEvent: events.take,
      sink: between(bench().open(), async (move, count) => {
        if (count === 2) {
          line.pause();
          asleep.open();
          await awake.opened;
        }
        await move();
      }),
    });
    const running = first.run();
    await asleep.opened;
    const second = untilDone<Numbered, Tx>(stage.direct, 20, { ...options, sink: bench().open() });
    await second.run();
    expect(await bench().rows()).toEqual(numbers(30));
    awake.open();
    line.resume();
    await events.until("joined", 2);
    await first.close();
    await running;
    expect(await bench().rows()).toEqual(numbers(30));
  });

  test("a record that keeps failing is put aside once, with no trace of it in the database", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 30);
    const tries = new Map<number, number>();
    const pipeline = untilDone<Numbered, Tx>(stage.direct, 30, {
      from: { streams: [INPUT] },
      group: "rows",
      sink: bench().open(),
      deadLetter: DEAD,
      retry: { attemptsMax: 4, pauseMs: 1 },
      batchMax: 20,
      each: async (record, context) => {
        tries.set(record.n, (tries.get(record.n) ?? 0) + 1);
        await bench().insert(context.tx, record.n);
        if (record.n === 13) throw new Error("unlucky");
        if (record.n === 17 && context.attempt < 3) throw new Error("not yet");
      },
    });
    await pipeline.run();
    expect(await bench().rows()).toEqual(numbers(30).filter((n) => n !== 13));
    const letters = await valuesOf<unknown>(stage.direct, DEAD);
    expect(letters).toMatchObject([
      { record: { n: 13 }, attempts: 4, reason: { message: "Error: unlucky" } },
    ]);
    expect(letters).toHaveLength(1);
    expect(tries.get(13)).toBe(4);
    expect(tries.get(17)).toBe(3);
    expect(pipeline.counters).toMatchObject({ records: 30, deadLetters: 1 });
  });

  test("an outage of the sink counts as no attempt, and a commit without an answer is looked up", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 30);
    const sink = bench().open();
    let awayFor = 0;
    const away = new Error("the database is away");
    const pipeline = untilDone<Numbered, Tx>(stage.direct, 30, {
      from: { streams: [INPUT] },
      group: "rows",
      deadLetter: DEAD,
      retry: { attemptsMax: 2, pauseMs: 1, pauseMsMax: 1 },
      batchMax: 10,
      sink: {
        ...between(sink, async (move, count) => {
          await move();
          // Stored, but its answer is lost.
          if (count === 1) throw away;
        }),
        take: async (place, token) => {
          if (awayFor === 0) return sink.take(place, token);
          awayFor -= 1;
          throw away;
        },
      },
      each: async (record, context) => {
        await bench().insert(context.tx, record.n);
        if (record.n !== 15 || pipeline.counters.failures >= 3) return;
        awayFor = 2;
        throw away;
      },
    });
    await pipeline.run();
    expect(await bench().rows()).toEqual(numbers(30));
    expect(await valuesOf(stage.direct, DEAD)).toEqual([]);
  });

  test("a batch is one transaction, and the record that it fails for is found", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 30);
    const pipeline = untilDone<Numbered, Tx>(stage.direct, 30, {
      from: { streams: [INPUT] },
      group: "rows",
      sink: bench().open(),
      deadLetter: DEAD,
      retry: { attemptsMax: 2, pauseMs: 1 },
      batchMax: 20,
      batch: async (records, { tx }) => {
        for (const { n } of records) await bench().insert(tx, n);
        if (records.some(({ n }) => n === 5)) throw new Error("five");
      },
    });
    await pipeline.run();
    expect(await bench().rows()).toEqual(numbers(30).filter((n) => n !== 5));
    expect(await valuesOf<unknown>(stage.direct, DEAD)).toMatchObject([{ record: { n: 5 } }]);
    expect(pipeline.counters.commits).toBe(21);
  });

  test("a sink that is behind the server is brought up from its own position", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 10);
    const options = { from: { streams: [INPUT] }, group: "rows", each: insert };
    const sink = bench().open();
    await untilDone<Numbered, Tx>(stage.direct, 10, { ...options, sink }).run();
    // Processed by a consumer that does not know the sink.
    await stage.direct.transaction((tx) => {
      for (let n = 10; n < 20; n += 1) tx.append(INPUT, { n });
    });
    await stage.direct.group("rows").reset({ to: "tail" });
    await stage.direct.stream(INPUT).append({ n: 20 });
    await untilDone<Numbered, Tx>(stage.direct, 11, { ...options, sink }).run();
    expect(await bench().rows()).toEqual(numbers(21));
  });
}

describe("memory", () => {
  let ledger = memoryLedger();
  let effects: number[] = [];
  const bench: Bench<MemoryTransaction> = {
    open: () => ledgerSink(ledger),
    insert: (tx, n) => {
      const before = effects;
      effects = [...effects, n];
      tx.undo(() => (effects = before));
    },
    rows: () => Promise.resolve(effects),
    clear: () => {
      ledger = memoryLedger();
      effects = [];
      return Promise.resolve();
    },
  };
  pipelinesOn(() => bench);
});

describe("SQLite", () => {
  type Connection = InstanceType<typeof Database>;
  const file = join(mkdtempSync(join(tmpdir(), "hapax-pipeline-")), "effects.db");
  const connections: Connection[] = [];
  const connect = (): Connection => {
    const connection = new Database(file, { timeout: 10 });
    connections.push(connection);
    return connection;
  };
  const own = connect();
  own.exec("CREATE TABLE effects (id INTEGER PRIMARY KEY, n INTEGER)");
  afterAll(() => {
    for (const connection of connections) connection.close();
  });
  const bench: Bench<Connection> = {
    open: () => ledgerSink(sqliteLedger(() => connect())),
    insert: (tx, n) => void tx.prepare("INSERT INTO effects (n) VALUES (?)").run(n),
    rows: () => {
      const rows = own.prepare("SELECT n FROM effects ORDER BY id").all();
      return Promise.resolve((rows as readonly Numbered[]).map(({ n }) => n));
    },
    clear: () => {
      own.exec("DELETE FROM effects; DELETE FROM hapax_entries");
      return Promise.resolve();
    },
  };
  pipelinesOn(() => bench);
});

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: pipelines on PostgreSQL: ${reason}`);

describe.skipIf(reason !== undefined)("PostgreSQL", () => {
  let server: TestPostgres;
  beforeAll(async () => {
    server = await startPostgres();
    await server.pool.query(
      "CREATE TABLE effects (id SERIAL PRIMARY KEY, n INT UNIQUE DEFERRABLE INITIALLY DEFERRED)",
    );
  });
  afterAll(() => server.stop());
  const bench = (): Bench<pg.PoolClient> => ({
    open: () => ledgerSink(postgresLedger<pg.PoolClient>(server.openPool())),
    insert: async (tx, n) => {
      await tx.query("INSERT INTO effects (n) VALUES ($1)", [n]);
    },
    rows: async () => {
      const { rows } = await server.pool.query<Numbered>("SELECT n FROM effects ORDER BY id");
      return rows.map(({ n }) => n);
    },
    clear: async () => {
      await server.pool.query("TRUNCATE effects");
      await server.pool.query("DELETE FROM hapax_entries");
    },
  });
  pipelinesOn(bench);

  test("a record that the database refuses when it commits is found and put aside", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 10);
    const pipeline = untilDone<Numbered, pg.PoolClient>(stage.direct, 10, {
      from: { streams: [INPUT] },
      group: "rows",
      sink: bench().open(),
      deadLetter: DEAD,
      retry: { attemptsMax: 2, pauseMs: 1 },
      each: ({ n }, { tx }) => bench().insert(tx, n === 6 ? 2 : n),
    });
    await pipeline.run();
    expect(await bench().rows()).toEqual(numbers(10).filter((n) => n !== 6));
    expect(await valuesOf<unknown>(stage.direct, DEAD)).toMatchObject([{ record: { n: 6 } }]);
  });
});
