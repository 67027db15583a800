// The contract of sinks for ledgers in memory, in SQLite and in PostgreSQL with both clients. PROTOCOL.md §20.3
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ledgerSink } from "../src/toolkit/ledger.ts";
import { memoryLedger, type MemoryTransaction } from "../src/toolkit/ledgers/memory.ts";
import { postgresLedger } from "../src/toolkit/ledgers/postgres.ts";
import type { PgClient } from "../src/toolkit/databases/postgres.ts";
import { sqliteLedger } from "../src/toolkit/ledgers/sqlite.ts";
import { createOutbox } from "../src/toolkit/outbox.ts";
import { sinkConformance, type SinkTarget } from "../src/testing/sink-conformance.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "./databases/postgres.ts";

type Connection = InstanceType<typeof Database>;

describe("memory", () => {
  const ledger = memoryLedger();
  const effects: string[] = [];
  const target: SinkTarget<MemoryTransaction> = {
    open: async () => ledgerSink(ledger),
    async write(tx, text) {
      effects.push(text);
      tx.undo(() => effects.splice(effects.indexOf(text), 1));
    },
    read: async () => effects,
  };
  for (const { title, run } of sinkConformance) test(title, () => run(target));
});

describe("SQLite", () => {
  const file = join(mkdtempSync(join(tmpdir(), "hapax-sink-")), "effects.db");
  const connections: Connection[] = [];
  const connect = (): Connection => {
    const connection = new Database(file, { timeout: 10 });
    connections.push(connection);
    return connection;
  };
  connect().exec("CREATE TABLE effects (id INTEGER PRIMARY KEY, text TEXT)");
  const target: SinkTarget<Connection> = {
    async open() {
      const sink = ledgerSink(sqliteLedger(() => connect()));
      await sink.prepare();
      return sink;
    },
    async write(tx, text) {
      tx.prepare("INSERT INTO effects (text) VALUES (?)").run(text);
    },
    async read() {
      const rows = connect().prepare("SELECT text FROM effects ORDER BY id").all();
      return (rows as readonly { readonly text: string }[]).map(({ text }) => text);
    },
  };
  afterAll(() => {
    for (const connection of connections) connection.close();
  });
  for (const { title, run } of sinkConformance) test(title, () => run(target));
});

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: sinks on PostgreSQL: ${reason}`);

describe.skipIf(reason !== undefined)("PostgreSQL", () => {
  let server: TestPostgres;
  beforeAll(async () => {
    server = await startPostgres();
    await server.pool.query("CREATE TABLE effects (id SERIAL PRIMARY KEY, text TEXT)");
  });
  afterAll(async () => {
    await server.stop();
  });
  const target: SinkTarget<pg.PoolClient> = {
    async open() {
      const sink = ledgerSink(postgresLedger<pg.PoolClient>(server.openPool()));
      await sink.prepare();
      return sink;
    },
    async write(tx, text) {
      await tx.query("INSERT INTO effects (text) VALUES ($1)", [text]);
    },
    async read() {
      const { rows } = await server.pool.query<{ text: string }>(
        "SELECT text FROM effects ORDER BY id",
      );
      return rows.map(({ text }) => text);
    },
  };
  for (const { title, run } of sinkConformance) test(title, () => run(target));

  describe("with postgres.js", () => {
    const clients: postgres.Sql[] = [];
    afterAll(() => Promise.all(clients.map((client) => client.end())));
    const other: SinkTarget<postgres.TransactionSql> = {
      ...target,
      async open() {
        const sql = postgres({ host: server.host, user: "postgres", onnotice: () => undefined });
        clients.push(sql);
        const sink = ledgerSink(postgresLedger(sql));
        await sink.prepare();
        return sink;
      },
      async write(tx, text) {
        await tx`INSERT INTO effects (text) VALUES (${text})`;
      },
    };
    for (const { title, run } of sinkConformance) test(title, () => run(other));
  });
});

describe("a ledger as a sink", () => {
  const place = { pipeline: "p", stream: "/v1/stream/in" };

  test("keeps a position as an entry that no sweep deletes, under the longest path of a stream", async () => {
    const ledger = memoryLedger();
    const sink = ledgerSink(ledger);
    const long = { pipeline: "p", stream: `/${"x".repeat(1023)}` };
    await sink.take(long, 7);
    await sink.move(long, 7, undefined, () => "a/1");
    expect(await ledger.entries.sweep(100)).toBe(0);
    const [entry] = await ledger.entries.scan({ kind: "pipeline", scope: "p", max: 2 });
    expect(entry).toMatchObject({ place: { key: long.stream }, state: "done" });
    expect(JSON.parse(new TextDecoder().decode(entry?.data))).toEqual({
      version: 1,
      token: 7,
      position: "a/1",
    });
  });

  test("an event that the work adds goes with the position, or neither does", async () => {
    const ledger = memoryLedger();
    const sink = ledgerSink(ledger);
    const outbox = createOutbox(ledger);
    await sink.take(place, 1);
    const failed = sink.move(place, 1, undefined, async (tx) => {
      await outbox.add(tx, { topic: "t", payload: 1 });
      throw new Error("no");
    });
    await expect(failed).rejects.toThrow("no");
    await sink.move(place, 1, undefined, async (tx) => {
      await outbox.add(tx, { topic: "t", payload: 2 });
      return "a";
    });
    const { outbox: log } = ledger;
    if (log.way === "rows") throw new Error("memory has spans");
    const span = await log.spans.plan(await log.spans.start("beginning", "r"), 10);
    const events = span === undefined ? [] : await log.spans.read(span);
    expect(events.map(({ payload }) => new TextDecoder().decode(payload))).toEqual(["2"]);
  });

  test("is refused inside a transaction, and without transactions", async () => {
    const ledger = memoryLedger();
    await ledger.transaction(async (tx) => {
      expect(() => ledgerSink(ledger.in(tx))).toThrow("pass the ledger itself");
    });
    const supports = { ...ledger.supports, transactions: false };
    expect(() => ledgerSink({ ...ledger, supports })).toThrow("has no transactions");
  });

  test("a position of a newer version is refused, and left as it is", async () => {
    const ledger = memoryLedger();
    const sink = ledgerSink(ledger);
    await sink.take(place, 1);
    const at = { kind: "pipeline", scope: place.pipeline, key: place.stream };
    const entry = await ledger.entries.find(at);
    if (entry === undefined) throw new Error("there is an entry");
    const value = new TextEncoder().encode('{"version":2}');
    const expected = { ...entry, kind: "unchanged" } as const;
    await ledger.entries.put(at, expected, {
      ...{ state: "done", token: "same", attempts: 1, leaseMs: undefined, keepMs: undefined },
      ...{ fingerprint: "same", data: { value } },
    });
    await expect(sink.take(place, 2)).rejects.toMatchObject({ code: "schema_newer" });
    expect((await ledger.entries.find(at))?.data).toEqual(value);
  });
});

describe("a ledger in SQLite as a sink", () => {
  const place = { pipeline: "p", stream: "/v1/stream/in" };

  test("has one transaction at a time, and the effects of concurrent calls are not mixed", async () => {
    const connection = new Database(":memory:");
    const sink = ledgerSink(sqliteLedger(() => connection));
    await sink.prepare();
    await sink.take(place, 1);
    const log: string[] = [];
    const work = (name: string, to: string) => async () => {
      log.push(`${name} begins`);
      await new Promise((resolve) => setImmediate(resolve));
      log.push(`${name} ends`);
      if (name === "b") throw new Error("b fails");
      return to;
    };
    const moves = [
      sink.move(place, 1, undefined, work("a", "1")),
      sink.move(place, 1, "1", work("b", "2")),
      sink.move(place, 1, "1", work("c", "3")),
    ];
    const outcomes = await Promise.allSettled(moves);
    expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
    expect(log).toEqual(["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]);
    expect(await sink.take(place, 1)).toBe("3");
    connection.close();
  });

  test("waits for another connection that writes, while this process goes on", async () => {
    const file = join(mkdtempSync(join(tmpdir(), "hapax-sink-")), "busy.db");
    const [one, other] = [new Database(file, { timeout: 0 }), new Database(file, { timeout: 0 })];
    const first = ledgerSink(sqliteLedger(() => one));
    const second = ledgerSink(sqliteLedger(() => other));
    await first.prepare();
    await first.take(place, 1);
    let finish: () => void = () => undefined;
    const held = first.move(place, 1, undefined, () => {
      return new Promise<string>((resolve) => {
        finish = () => {
          resolve("1");
        };
      });
    });
    await new Promise((resolve) => setImmediate(resolve));
    const taken = second.take({ ...place, stream: "/v1/stream/other" }, 1);
    await new Promise((resolve) => setTimeout(resolve, 30)); // It has met the lock by now, and tries on.
    finish();
    await held;
    expect(await taken).toBeUndefined();
    one.close();
    other.close();
  });
});

describe.skipIf(reason !== undefined)("a ledger in PostgreSQL as a sink", () => {
  const place = { pipeline: "p", stream: "/v1/stream/in" };

  test("lets the next holder wait until the transaction of the last one has ended", async () => {
    const server = await startPostgres();
    const old = ledgerSink(postgresLedger(server.openPool()));
    const heir = ledgerSink(postgresLedger(server.openPool()));
    await old.prepare();
    await old.take(place, 1);
    const order: string[] = [];
    let taking: Promise<unknown> = Promise.resolve();
    await old.move(place, 1, undefined, async () => {
      taking = heir.take(place, 2).then((at) => order.push(`taken at ${at}`));
      // Another session waits for the lock now: the database says so.
      for (;;) {
        const { rows } = await server.pool.query("SELECT 1 FROM pg_locks WHERE NOT granted");
        if (rows.length > 0) break;
      }
      order.push("worked");
      return "1";
    });
    await taking;
    expect(order).toEqual(["worked", "taken at 1"]);
    await server.stop();
  });

  test("a database that is away is unreachable, with both clients", async () => {
    const host = mkdtempSync(join(tmpdir(), "hapax-away-"));
    const pool = new pg.Pool({ host, user: "postgres" });
    const sql = postgres({ host, user: "postgres", connect_timeout: 1, backoff: false });
    const sinks = [ledgerSink(postgresLedger(pool)), ledgerSink(postgresLedger(sql))];
    for (const sink of sinks) {
      await expect(sink.take(place, 1)).rejects.toMatchObject({ code: "unreachable" });
      await expect(sink.prepare()).rejects.toMatchObject({ code: "unreachable" });
    }
    await Promise.all([pool.end(), sql.end()]);
  });

  test("throws a connection away that cannot even roll back", async () => {
    const released: unknown[] = [];
    const client: PgClient = {
      query: async (text) => {
        if (text === "BEGIN") return { rows: [] };
        throw new Error(text === "ROLLBACK" ? "the connection is gone" : "it broke");
      },
      release: (error) => {
        released.push(error);
      },
    };
    const sink = ledgerSink(postgresLedger({ ...client, connect: async () => client }));
    await expect(sink.take(place, 1)).rejects.toThrow("it broke");
    expect(released).toMatchObject([{ message: "the connection is gone" }]);
  });
});
