// The contract of ledgers against real databases: memory, SQLite in a file, PostgreSQL with both of its clients.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, test } from "vitest";
import { type MemoryTransaction, memoryLedger } from "../src/toolkit/ledgers/memory.ts";
import { postgresLedger } from "../src/toolkit/ledgers/postgres.ts";
import { sqliteLedger } from "../src/toolkit/ledgers/sqlite.ts";
import {
  ledgerConformance,
  type LedgerTarget,
  whySkipped,
} from "../src/testing/ledger-conformance.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "./databases/postgres.ts";

type Connection = InstanceType<typeof Database>;

function runAll<Tx>(target: LedgerTarget<Tx>): void {
  for (const one of ledgerConformance)
    test(one.title, async (context) => {
      const reason = whySkipped(one, await target.open());
      context.skip(reason !== undefined, reason);
      await one.run(target);
    });
}

/** Eight of them, one after the other: a server has only so many connections. */
function inTurns<Client>(open: () => Client): () => Client {
  const all: Client[] = [];
  let next = 0;
  return () => {
    const client = (all[next] ??= open());
    next = (next + 1) % 8;
    return client;
  };
}

describe("memory", () => {
  const ledger = memoryLedger();
  const effects: string[] = [];
  const target: LedgerTarget<MemoryTransaction> = {
    open: async () => ledger,
    async write(tx, text) {
      effects.push(text);
      tx.undo(() => effects.pop());
    },
    read: async () => effects,
  };
  runAll(target);
});

for (const journal of ["delete", "wal"]) {
  describe(`SQLite with journal_mode ${journal}`, () => {
    const folder = mkdtempSync(join(tmpdir(), "hapax-ledger-"));
    const connections: Connection[] = [];
    const connect = (): Connection => {
      const connection = new Database(join(folder, "ledger.db"), { timeout: 0 });
      connection.exec("PRAGMA synchronous = off");
      connections.push(connection);
      return connection;
    };
    beforeAll(() => {
      const connection = connect();
      connection.exec(`PRAGMA journal_mode = ${journal}`);
      connection.exec("CREATE TABLE effects (id INTEGER PRIMARY KEY, text TEXT)");
    });
    afterAll(() => {
      for (const connection of connections) connection.close();
      rmSync(folder, { recursive: true });
    });
    runAll<Connection>({
      async open() {
        const ledger = sqliteLedger(() => connect());
        await ledger.migrate();
        return ledger;
      },
      async write(tx, text) {
        tx.prepare("INSERT INTO effects (text) VALUES (?)").run(text);
      },
      async read() {
        const rows = connect().prepare("SELECT text FROM effects ORDER BY id").all();
        return (rows as readonly { readonly text: string }[]).map(({ text }) => text);
      },
    });
  });
}

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: ledgers on PostgreSQL: ${reason}`);

describe.skipIf(reason !== undefined)("PostgreSQL", () => {
  let server: TestPostgres;
  const options = () => ({ host: server.host, user: "postgres", database: "postgres", max: 3 });
  const ends: (() => Promise<void>)[] = [];
  beforeAll(async () => {
    server = await startPostgres();
    await server.pool.query("CREATE TABLE effects (id SERIAL PRIMARY KEY, text TEXT)");
  }, 60_000);
  afterAll(async () => {
    await Promise.all(ends.map((end) => end()));
    await server.stop();
  });
  const read = async (): Promise<readonly string[]> => {
    const { rows } = await server.pool.query<{ text: string }>(
      "SELECT text FROM effects ORDER BY id",
    );
    return rows.map(({ text }) => text);
  };

  describe("with pg", () => {
    const nextPool = inTurns(() => {
      const pool = new pg.Pool(options());
      pool.on("error", () => undefined);
      ends.push(() => pool.end());
      return pool;
    });
    runAll<pg.PoolClient>({
      async open() {
        const ledger = postgresLedger(nextPool());
        await ledger.migrate();
        return ledger;
      },
      async write(tx, text) {
        await tx.query("INSERT INTO effects (text) VALUES ($1)", [text]);
      },
      read,
    });
  });

  describe("with postgres, in a schema of an odd name", () => {
    const nextSql = inTurns(() => {
      const sql = postgres({ ...options(), onnotice: () => undefined });
      ends.push(() => sql.end());
      return sql;
    });
    runAll<postgres.TransactionSql>({
      async open() {
        const ledger = postgresLedger(nextSql(), {
          schema: `odd "name's`,
        });
        await ledger.migrate();
        return ledger;
      },
      async write(tx, text) {
        await tx`INSERT INTO effects (text) VALUES (${text})`;
      },
      read,
    });
  });
});
