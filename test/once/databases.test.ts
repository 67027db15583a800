// processOnce, the inbox, leases and versions on real databases: SQLite in a file, and PostgreSQL.
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import {
  acquireLease,
  createInbox,
  fenced,
  GLOBAL,
  processOnce,
} from "../../src/toolkit/ledger.ts";
import { databaseSuite, fresh, type Target } from "./database-suite.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";

type Connection = InstanceType<typeof Database>;

describe("on SQLite", () => {
  const file = join(mkdtempSync(join(tmpdir(), "hapax-once-")), "once.db");
  const connections: Connection[] = [];
  const connect = (): Connection => {
    const connection = new Database(file, { timeout: 10 });
    connections.push(connection);
    return connection;
  };
  connect().exec("CREATE TABLE effects (text TEXT)");
  afterAll(() => {
    for (const connection of connections) connection.close();
  });
  const target: Target<Connection> = {
    async open() {
      const ledger = sqliteLedger(() => connect());
      await ledger.migrate();
      return ledger;
    },
    async write(tx, text) {
      tx.prepare("INSERT INTO effects VALUES (?)").run(text);
    },
    async count(text) {
      const row = connect().prepare("SELECT count(*) AS n FROM effects WHERE text = ?").get(text);
      return (row as { readonly n: number }).n;
    },
  };
  databaseSuite(target);
});

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: processOnce on PostgreSQL: ${reason}`);

describe.skipIf(reason !== undefined)("on PostgreSQL", () => {
  let server: TestPostgres;
  beforeAll(async () => {
    server = await startPostgres();
    await server.pool.query("CREATE TABLE effects (text TEXT)");
    await postgresLedger(server.pool).migrate();
  });
  afterAll(async () => {
    await server.stop();
  });
  const target: Target<pg.PoolClient> = {
    async open() {
      return postgresLedger<pg.PoolClient>(server.openPool());
    },
    async write(tx, text) {
      await tx.query("INSERT INTO effects VALUES ($1)", [text]);
    },
    async count(text) {
      const sql = "SELECT count(*)::int AS n FROM effects WHERE text = $1";
      const { rows } = await server.pool.query<{ n: number }>(sql, [text]);
      return rows[0]?.n ?? 0;
    },
  };
  databaseSuite(target);

  /** A ledger whose next COMMIT loses its connection: before it is sent, or after it was done. */
  const losing = (when: "before" | "after"): Ledger<pg.PoolClient> => {
    const pool = server.openPool();
    let isLost = false;
    const connect = async (): Promise<pg.PoolClient> => {
      const client = await pool.connect();
      client.on("error", () => undefined);
      const query = client.query.bind(client) as (
        text: string,
        values?: unknown[],
      ) => Promise<never>;
      const end = async (): Promise<void> => {
        isLost = true;
        const { processID } = client as unknown as { readonly processID: number };
        const ended = new Promise<void>((resolve) => void client.once("end", resolve));
        await server.pool.query("SELECT pg_terminate_backend($1)", [processID]);
        await ended;
      };
      const lossy = async (text: string, values?: unknown[]): Promise<never> => {
        if (!text.endsWith("COMMIT") || isLost) return await query(text, values);
        if (when === "before") await end();
        const answer = await query(text, values);
        await end();
        void answer;
        throw new Error("the connection was lost in COMMIT");
      };
      return new Proxy(client, {
        get: (whole, name) =>
          name === "query"
            ? lossy
            : name === "release"
              ? client.release.bind(client)
              : (Reflect.get(whole, name) as unknown),
      });
    };
    return postgresLedger<pg.PoolClient>({ connect, query: pool.query.bind(pool) });
  };

  test("a connection that is lost after its COMMIT was done is resolved as done", async () => {
    const key = fresh();
    const call = (ledger: Ledger<pg.PoolClient>) =>
      processOnce(ledger, { scope: GLOBAL, key }, async ({ tx }) => {
        await target.write(tx, key);
        return "paid";
      });
    expect(await call(losing("after"))).toMatchObject({ result: "paid", isDuplicate: false });
    expect(await call(await target.open())).toMatchObject({ result: "paid", isDuplicate: true });
    expect(await target.count(key)).toBe(1);
  });

  test("a connection that is lost before its COMMIT arrives is resolved as undone", async () => {
    const key = fresh();
    const ledger = losing("before");
    const call = () =>
      processOnce(ledger, { scope: GLOBAL, key }, async ({ tx, attempt }) => {
        await target.write(tx, key);
        return attempt;
      });
    await expect(call()).rejects.toThrow();
    expect(await target.count(key)).toBe(0);
    // The key is free at once: no caller waits for the lease.
    expect(await call()).toMatchObject({ result: 2, isDuplicate: false });
    expect(await target.count(key)).toBe(1);
  });

  test("a COMMIT that is still running is waited for before its outcome is decided", async () => {
    const key = fresh();
    const pool = server.openPool();
    let lost: pg.PoolClient | undefined;
    // The answer is lost while the transaction is open: it ends only when another session has looked for its end.
    let looks = 0;
    const connect = async (): Promise<pg.PoolClient> => {
      const client = await pool.connect();
      const query = client.query.bind(client) as (
        text: string,
        values?: unknown[],
      ) => Promise<never>;
      const lossy = async (text: string, values?: unknown[]): Promise<never> => {
        if (lost === client) throw new Error("the connection was lost in COMMIT");
        if (lost !== undefined && text.includes("pg_try_advisory_xact_lock")) looks += 1;
        if (!text.endsWith("COMMIT") || lost !== undefined) return await query(text, values);
        // What is sent with COMMIT arrives, and COMMIT does not.
        await query(text.slice(0, -"COMMIT".length), values);
        lost = client;
        throw new Error("the connection was lost in COMMIT");
      };
      const release = (): void => {
        if (lost !== client) client.release();
      };
      return new Proxy(client, {
        get: (whole, name) =>
          name === "query"
            ? lossy
            : name === "release"
              ? release
              : (Reflect.get(whole, name) as unknown),
      });
    };
    const ledger = postgresLedger<pg.PoolClient>({ connect, query: pool.query.bind(pool) });
    const call = processOnce(ledger, { scope: GLOBAL, key }, async ({ tx }) => {
      await target.write(tx, key);
      return "paid";
    });
    while (looks < 2) await new Promise((resolve) => setImmediate(resolve));
    await lost?.query("COMMIT");
    lost?.release();
    expect(await call).toMatchObject({ result: "paid", isDuplicate: false });
    expect(await target.count(key)).toBe(1);
  });

  test("a message is not told as handled if a statement of its work had failed", async () => {
    const id = fresh();
    const inbox = createInbox(await target.open(), { consumer: "billing", retainMs: 60_000 });
    const careless = inbox.handle({ scope: "shop", key: id }, async (tx) => {
      await tx.query("SELECT 1 / 0").catch(() => undefined);
    });
    await expect(careless).rejects.toThrow();
    const again = await inbox.handle({ scope: "shop", key: id }, (tx) => target.write(tx, id));
    expect(again.isDuplicate).toBe(false);
    expect(await target.count(id)).toBe(1);
  });

  test("a lease that was looked at cannot be taken before that transaction has ended", async () => {
    const name = fresh();
    const [one, other] = [await target.open(), await target.open()];
    // Time stands still in it: nothing is renewed.
    const clock = { nowMs: () => 0, steadyMs: () => 0, after: () => () => undefined };
    const held = await acquireLease(one, { scope: GLOBAL, key: name }, { leaseMs: 100, clock });
    if (held === undefined) throw new Error("another process holds it");
    const order: string[] = [];
    let taking: Promise<unknown> = Promise.resolve();
    await one.transaction(async (tx) => {
      await fenced(one.in(tx), held, held.token);
      taking = acquireLease(
        other,
        { scope: GLOBAL, key: name },
        { leaseMs: 60_000, waitMs: 10_000 },
      ).then(async (next) => {
        order.push("taken");
        await next?.release();
      });
      // Its lease is over, and another session waits for its row now: the database says so.
      for (;;) {
        const { rows } = await server.pool.query("SELECT 1 FROM pg_locks WHERE NOT granted");
        if (rows.length > 0) break;
      }
      order.push("worked");
    });
    await taking;
    expect(order).toEqual(["worked", "taken"]);
    await expect(held.transaction(() => 1)).rejects.toMatchObject({ code: "lease_lost" });
  });

  const standStill = async (claimsFirst: boolean): Promise<unknown> => {
    const key = fresh();
    const [one, other] = [await target.open(), await target.open()];
    // The heir has time: it must not lose its own claim on a machine that is busy.
    const patient = { leaseMs: 60_000, claimsFirst, waitMs: 40_000 };
    // Time stands still in it: nothing is renewed, and no signal aborts.
    const stopped = { nowMs: () => 0, steadyMs: () => 0, after: () => () => undefined };
    let heir: Promise<unknown> = Promise.resolve();
    const zombie = processOnce(
      one,
      { scope: GLOBAL, key },
      async ({ tx }) => {
        await target.write(tx, key);
        heir = processOnce(
          other,
          { scope: GLOBAL, key },
          async (context) => {
            await target.write(context.tx, key);
            return "heir";
          },
          patient,
        );
        await heir;
        return "zombie";
      },
      { leaseMs: 200, claimsFirst, clock: stopped },
    );
    const end: unknown = await zombie.catch((error: unknown) => error);
    expect(await heir).toMatchObject({ result: "heir", isDuplicate: false });
    expect(await target.count(key)).toBe(1);
    return end;
  };

  test("OC2 CK3 a process that stands still loses its claim, and its transaction with it", async () => {
    expect(await standStill(true)).toMatchObject({ code: "lease_lost" });
  });

  test("OC2 CK7 a process that stands still loses its lock, and its transaction with it", async () => {
    // It does not know that time has passed. It looks again, and gets the result of the other one.
    expect(await standStill(false)).toMatchObject({ result: "heir", isDuplicate: true });
  });
});
