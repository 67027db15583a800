/**
 * `npm run bench:ledger [-- --quick]`: what the toolkit costs. processOnce beside the bare transaction (SQLite,
 * PostgreSQL), idempotency keys beside the bare request, the outbox beside pg-boss on the same PostgreSQL. All of a row
 * ran in turns in one run. Results go to bench/results/ as JSON.
 */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildIfNeeded, main } from "../scripts/prepare.mjs";
import { startPostgresServer } from "../test/databases/postgres-server.mjs";
import { formatMachine, machineOf } from "./machine.mjs";

const resultsFolder = fileURLToPath(new URL("results/", import.meta.url));

function show(title, results, isRatio) {
  console.log(`\n${title}`);
  for (const [name, values] of Object.entries(results)) {
    const figures = isRatio
      ? `${values.perSecond.toLocaleString("en-US").padStart(9)}/s   ${values.ofFirst.toFixed(2)}`
      : `${values.added.toLocaleString("en-US").padStart(9)}/s in   ${values.relayed.toLocaleString("en-US").padStart(9)}/s out`;
    console.log(`  ${name.padEnd(24)} ${figures}`);
  }
}

async function measureSqlite(folder, plan) {
  const { default: Database } = await import("libsql");
  const { sqliteLedger } = await import("../dist/toolkit/ledgers/sqlite.js");
  const { measureOnce } = await import("./ledger-once.mjs");
  const connection = new Database(join(folder, "once.db"));
  connection.exec("PRAGMA journal_mode = WAL");
  connection.exec("PRAGMA synchronous = FULL");
  connection.exec("CREATE TABLE effects (id INTEGER PRIMARY KEY, number INTEGER)");
  const ledger = sqliteLedger(() => connection);
  await ledger.migrate();
  const insert = async (tx, number) => {
    tx.prepare("INSERT INTO effects (number) VALUES (?)").run(number);
  };
  const results = await measureOnce(ledger, insert, { ...plan, width: 1 });
  ledger.close();
  return results;
}

async function openPostgres() {
  const { default: pg } = await import("pg");
  const server = startPostgresServer({ fsync: true });
  const pool = new pg.Pool({ host: server.host, user: "postgres", database: "postgres", max: 16 });
  pool.on("error", () => undefined);
  for (let attempt = 0; ; attempt += 1) {
    try {
      await pool.query("CREATE TABLE effects (id SERIAL PRIMARY KEY, number INT)");
      return { server, pool };
    } catch (error) {
      if (attempt === 100) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

await main(async () => {
  const isQuick = process.argv.includes("--quick");
  const plan = isQuick ? { calls: 1000, rounds: 3 } : { calls: 5000, rounds: 7 };
  await buildIfNeeded();
  const folder = mkdtempSync(join(tmpdir(), "hapax-bench-"));
  const machine = machineOf(folder);
  console.log(formatMachine(machine));
  const results = {};
  const { server, pool } = await openPostgres();
  try {
    const { postgresLedger } = await import("../dist/toolkit/ledgers/postgres.js");
    const { measureOnce } = await import("./ledger-once.mjs");
    const { measureHttp } = await import("./ledger-http.mjs");
    const { measureOutbox } = await import("./ledger-outbox.mjs");
    results.sqlite = await measureSqlite(folder, plan);
    show("processOnce on SQLite, write-ahead log, synchronous = FULL", results.sqlite, true);
    const ledger = postgresLedger(pool);
    await ledger.migrate();
    const insert = async (tx, number) => {
      await tx.query("INSERT INTO effects (number) VALUES ($1)", [number]);
    };
    for (const width of [1, 16]) {
      const name = `postgres-${width}`;
      results[name] = await measureOnce(ledger, insert, { ...plan, width });
      show(`processOnce on PostgreSQL, fsync, ${width} at a time`, results[name], true);
    }
    results.http = await measureHttp(folder, { ...plan, width: 32 });
    show("idempotency keys, node:http, SQLite, 32 connections", results.http, true);
    const outboxPlan = isQuick ? { events: 10_000, rounds: 1 } : { events: 50_000, rounds: 3 };
    results.outbox = await measureOutbox(server.host, pool, outboxPlan);
    show("an outbox on PostgreSQL, fsync, ten events a transaction", results.outbox, false);
  } finally {
    await pool.end();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
  mkdirSync(resultsFolder, { recursive: true });
  const file = `ledger-${new Date().toISOString().replace(/[:.]/g, "-")}.json`;
  writeFileSync(
    join(resultsFolder, file),
    `${JSON.stringify({ machine, plan, results }, undefined, 2)}\n`,
  );
  console.log(`\nwritten to bench/results/${file}`);
});
