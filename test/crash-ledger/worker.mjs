/**
 * One process of the crash suite: `node worker.mjs <options as JSON>`. Over SQLite in a file, PostgreSQL behind a
 * socket, or Redis. See run.ts.
 */

import { postgresLedger } from "../../dist/toolkit/ledgers/postgres.js";
import { redisLedger } from "../../dist/toolkit/ledgers/redis.js";
import { sqliteLedger } from "../../dist/toolkit/ledgers/sqlite.js";
import { runCrashTask } from "../../dist/testing/ledger-crashes.js";

const { database, file, host, url, outbox, isCareless, task } = JSON.parse(process.argv[2] ?? "{}");

async function openSqlite() {
  const { default: Database } = await import("libsql");
  const connection = new Database(file, { timeout: 100 });
  // The receiver is another system: it has a connection of its own.
  const receiver = new Database(file, { timeout: 5000 });
  return {
    ledger: sqliteLedger(() => connection),
    effects: {
      async write(tx, text) {
        tx.prepare("INSERT INTO effects (text) VALUES (?)").run(text);
      },
      async has(tx, text) {
        return tx.prepare("SELECT 1 FROM effects WHERE text = ?").all(text).length > 0;
      },
      async deliver(key, text) {
        receiver.prepare("INSERT OR IGNORE INTO letters (key, text) VALUES (?, ?)").run(key, text);
      },
      async isDelivered(text) {
        return receiver.prepare("SELECT 1 FROM letters WHERE text = ?").all(text).length > 0;
      },
    },
    async close() {
      connection.close();
      receiver.close();
    },
  };
}

async function openPostgres() {
  const { default: pg } = await import("pg");
  const pool = new pg.Pool({ host, user: "postgres", database: "postgres", max: 4 });
  pool.on("error", () => undefined);
  return {
    ledger: postgresLedger(pool, outbox === undefined ? {} : { outbox }),
    effects: {
      async write(tx, text) {
        // What must not be done: the row apart from the transaction.
        const client = isCareless === true ? pool : tx;
        await client.query("INSERT INTO effects (text) VALUES ($1)", [text]);
      },
      async has(tx, text) {
        return (await tx.query("SELECT 1 FROM effects WHERE text = $1", [text])).rows.length > 0;
      },
      async deliver(key, text) {
        const insert = "INSERT INTO letters (key, text) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        await pool.query(insert, [key, text]);
      },
      async isDelivered(text) {
        return (await pool.query("SELECT 1 FROM letters WHERE text = $1", [text])).rows.length > 0;
      },
    },
    close: () => pool.end(),
  };
}

async function openRedis() {
  const { Redis } = await import("ioredis");
  const client = new Redis(url);
  const refuse = () => Promise.reject(new Error("there is no transaction"));
  return {
    ledger: redisLedger(client),
    effects: {
      write: refuse,
      has: refuse,
      deliver: (key, text) => client.hsetnx("letters", key, text),
      isDelivered: async (text) => (await client.hvals("letters")).includes(text),
    },
    close: () => client.quit(),
  };
}

const OPEN = { sqlite: openSqlite, postgres: openPostgres, redis: openRedis };
const opened = await OPEN[database]();
await runCrashTask(opened.ledger, opened.effects, task);
await opened.close();
