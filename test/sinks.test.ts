// The contract of sinks against real databases: SQLite in a file, and PostgreSQL. PROTOCOL.md §20.3
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type PgClient, postgresSink } from "../src/toolkit/sinks/postgres.ts";
import { sqliteSink } from "../src/toolkit/sinks/sqlite.ts";
import { sinkConformance, type SinkTarget } from "../src/testing/sink-conformance.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "./databases/postgres.ts";

type Connection = InstanceType<typeof Database>;

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
      const sink = sqliteSink(() => connect());
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
      const sink = postgresSink<pg.PoolClient>(server.openPool());
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
});

describe("a SQLite sink", () => {
  const place = { pipeline: "p", stream: "/v1/stream/in" };

  test("SQ1 has one transaction at a time, whoever asks, and their effects are not mixed", async () => {
    const connection = new Database(":memory:");
    const sink = sqliteSink(() => connection);
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

  test("SQ2 waits for another connection that writes, while this process goes on", async () => {
    const file = join(mkdtempSync(join(tmpdir(), "hapax-sink-")), "busy.db");
    const [one, other] = [new Database(file, { timeout: 0 }), new Database(file, { timeout: 0 })];
    const [first, second] = [sqliteSink(() => one), sqliteSink(() => other)];
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

describe.skipIf(reason !== undefined)("a PostgreSQL sink", () => {
  const place = { pipeline: "p", stream: "/v1/stream/in" };

  test("PS1 lets the next holder wait until the transaction of the last one has ended", async () => {
    const server = await startPostgres();
    const [old, heir] = [postgresSink(server.openPool()), postgresSink(server.openPool())];
    await old.prepare();
    await old.take(place, 1);
    const order: string[] = [];
    let taking: Promise<unknown> = Promise.resolve();
    await old.move(place, 1, undefined, async () => {
      taking = heir.take(place, 2).then((at) => order.push(`taken at ${at}`));
      // Somebody waits for the lock now: the database says so.
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

  test("PS2 throws a connection away that cannot even roll back", async () => {
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
    const sink = postgresSink({ connect: async () => client });
    await expect(sink.take(place, 1)).rejects.toThrow("it broke");
    expect(released).toMatchObject([{ message: "the connection is gone" }]);
  });
});
