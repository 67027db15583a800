/**
 * `npm run bench:once [-- --quick]`: what "once" costs, side by side in one run, each call one insert of business:
 *
 *   bare          the client's own BEGIN, INSERT, COMMIT
 *   by hand       the least that a program can do for itself: a table of keys, INSERT … ON CONFLICT, work, result
 *   processOnce   the toolkit
 *
 * on SQLite and PostgreSQL, with 1 and 16 callers, everything durable; and a route of node:http with and without keys. The ways
 * take turns, round after round. Statements, round trips and commits are counted in a run of their own.
 *
 * The rates are those of a program that has run for a while: before the rounds each way is called some thousand times, until V8 has
 * compiled it. Rounds are short and many: what else the machine does then meets all ways alike (decision 0131).
 */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildIfNeeded, main } from "../scripts/prepare.mjs";
import { startPostgresServer } from "../test/databases/postgres-server.mjs";
import { Counter, noting } from "./counting.mjs";
import { compare, rateOf } from "./ledger-once.mjs";
import { formatMachine, machineOf } from "./machine.mjs";

const resultsFolder = fileURLToPath(new URL("results/", import.meta.url));

/** The aims: of the bare transaction, and of the table by hand. */
const AIMS = { sqlite: 0.75, postgres: 0.6, http: 0.6, byHand: 0.85 };

const BY_HAND = `CREATE TABLE keys (key TEXT PRIMARY KEY, result TEXT)`;
const EFFECTS = "CREATE TABLE effects (id INTEGER PRIMARY KEY, number INTEGER)";

/** Runs each way once more, alone, and counts. */
async function counted(ways, counter) {
  const counts = {};
  for (const [name, call] of Object.entries(ways)) {
    await call("warm"); // Statements are prepared once.
    const calls = 20;
    counter.reset();
    for (let number = 0; number < calls; number += 1) await call(`counted-${number}`);
    counts[name] = counter.per(calls);
  }
  return counts;
}

/** Calls each way until V8 has compiled it. */
async function warmUp(ways, { warmUpCalls }) {
  for (const [name, call] of Object.entries(ways))
    await rateOf(warmUpCalls, 16, (number) => call(`${name}/warm/${number}`));
}

/** `calls`: each does its work once under a key. */
async function measure(ways, { calls, rounds }, width) {
  const timed = Object.fromEntries(
    Object.entries(ways).map(([name, call]) => [
      name,
      (round) => rateOf(calls, width, (number) => call(`${name}/${width}/${round}/${number}`)),
    ]),
  );
  return compare(timed, rounds);
}

async function sqliteWays(folder, name, counter) {
  const { default: Database } = await import("libsql");
  const { sqliteLedger } = await import("../dist/toolkit/ledgers/sqlite.js");
  const { processOnce } = await import("../dist/toolkit/ledger.js");
  const open = () => {
    const connection = new Database(join(folder, `${name}.db`));
    connection.exec("PRAGMA journal_mode = WAL");
    connection.exec("PRAGMA synchronous = FULL");
    return counter === undefined ? connection : noting(connection, counter);
  };
  const connection = open();
  connection.exec(EFFECTS);
  connection.exec(BY_HAND);
  // The same work in all ways, as a program writes it.
  const insert = (tx) => tx.prepare("INSERT INTO effects (number) VALUES (?)").run(1);
  const claim = connection.prepare("INSERT INTO keys (key) VALUES (?) ON CONFLICT DO NOTHING");
  const record = connection.prepare("UPDATE keys SET result = ? WHERE key = ?");
  const ledger = sqliteLedger(open);
  await ledger.migrate();
  return {
    // A transaction of SQLite runs in one turn, so callers follow each other by themselves.
    bare: async () => {
      connection.exec("BEGIN IMMEDIATE");
      insert(connection);
      connection.exec("COMMIT");
    },
    "by hand": async (key) => {
      connection.exec("BEGIN IMMEDIATE");
      if (claim.run(key).changes === 0) throw new Error("the key was used");
      insert(connection);
      record.run('{"number":1}', key);
      connection.exec("COMMIT");
    },
    processOnce: (key) =>
      processOnce(ledger, { scope: "bench", key }, ({ tx }) => {
        insert(tx);
        return { number: 1 };
      }),
  };
}

async function postgresWays(pool) {
  const { postgresLedger } = await import("../dist/toolkit/ledgers/postgres.js");
  const { processOnce } = await import("../dist/toolkit/ledger.js");
  const ledger = postgresLedger(pool);
  await ledger.migrate();
  const inTransaction = async (work) => {
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      await work(client);
      await client.query("COMMIT");
    } finally {
      client.release();
    }
  };
  const insert = (client) => client.query("INSERT INTO effects (number) VALUES ($1)", [1]);
  return {
    bare: () => inTransaction(insert),
    "by hand": (key) =>
      inTransaction(async (client) => {
        const claim = "INSERT INTO keys (key) VALUES ($1) ON CONFLICT DO NOTHING";
        const { rowCount } = await client.query(claim, [key]);
        if (rowCount === 0) throw new Error("the key was used");
        await insert(client);
        const record = "UPDATE keys SET result = $1 WHERE key = $2";
        await client.query(record, ['{"number":1}', key]);
      }),
    processOnce: (key) =>
      processOnce(ledger, { scope: "bench", key }, async ({ tx }) => {
        await insert(tx);
        return { number: 1 };
      }),
  };
}

/** A pool whose statements are counted. */
function notingPool(pool, counter) {
  return {
    query(text, values) {
      counter.note(text);
      return pool.query(text, values);
    },
    async connect() {
      const client = await pool.connect();
      return {
        query(text, values) {
          counter.note(text);
          return client.query(text, values);
        },
        release: (error) => client.release(error),
      };
    },
  };
}

async function openPostgres() {
  const { default: pg } = await import("pg");
  const server = startPostgresServer({ fsync: true });
  const pool = new pg.Pool({ host: server.host, user: "postgres", database: "postgres", max: 16 });
  pool.on("error", () => undefined);
  for (let attempt = 0; ; attempt += 1) {
    try {
      await pool.query("CREATE TABLE effects (id SERIAL PRIMARY KEY, number INT)");
      await pool.query("CREATE TABLE keys (key TEXT PRIMARY KEY, result TEXT)");
      return { server, pool };
    } catch (error) {
      if (attempt === 100) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

function show(title, results, counts, aim) {
  console.log(`\n${title}`);
  const byHand = results["by hand"]?.ofFirst;
  for (const [name, { perSecond, ofFirst }] of Object.entries(results)) {
    const rate = `${perSecond.toLocaleString("en-US").padStart(9)}/s   ${ofFirst.toFixed(2)}`;
    const { statements, trips, commits } = counts?.[name] ?? {};
    const counted =
      statements === undefined
        ? ""
        : `   ${statements} statements, ${trips} round trips, ${commits} commits a call`;
    console.log(`  ${name.padEnd(16)} ${rate}${counted}`);
  }
  const own = results.processOnce ?? results["with keys"];
  const notes = [`${own.ofFirst.toFixed(2)} of bare, aim ${aim}: ${verdict(own.ofFirst, aim)}`];
  if (byHand !== undefined) {
    const ratio = own.ofFirst / byHand;
    notes.push(
      `${ratio.toFixed(2)} of by hand, aim ${AIMS.byHand}: ${verdict(ratio, AIMS.byHand)}`,
    );
  }
  console.log(`  ${notes.join("; ")}`);
}

function verdict(value, aim) {
  return value >= aim ? "met" : "NOT MET";
}

await main(async () => {
  const isQuick = process.argv.includes("--quick");
  const size = isQuick ? { calls: 250, rounds: 15 } : { calls: 500, rounds: 45 };
  const plan = { ...size, warmUpCalls: 8000 };
  await buildIfNeeded();
  const folder = mkdtempSync(join(tmpdir(), "hapax-bench-"));
  const machine = machineOf(folder);
  console.log(formatMachine(machine));
  console.log("durability  SQLite: write-ahead log, synchronous = FULL. PostgreSQL: fsync on");
  const results = {};
  const { server, pool } = await openPostgres();
  try {
    const counter = new Counter();
    const sqliteCounts = await counted(await sqliteWays(folder, "counted", counter), counter);
    const sqlite = await sqliteWays(folder, "timed", undefined);
    const postgres = await postgresWays(pool);
    const postgresCounts = await counted(await postgresWays(notingPool(pool, counter)), counter);
    await warmUp(sqlite, plan);
    await warmUp(postgres, plan);
    for (const width of [1, 16]) {
      const one = await measure(sqlite, plan, width);
      results[`sqlite-${width}`] = { rates: one, counts: sqliteCounts };
      show(`SQLite, ${width} at a time`, one, sqliteCounts, AIMS.sqlite);
      const other = await measure(postgres, plan, width);
      results[`postgres-${width}`] = { rates: other, counts: postgresCounts };
      show(`PostgreSQL, ${width} at a time`, other, postgresCounts, AIMS.postgres);
    }
    const { countHttp, measureHttp } = await import("./ledger-http.mjs");
    const http = await measureHttp(folder, { ...plan, width: 16 });
    const httpCounts = await countHttp(folder);
    results.http = { rates: http, counts: httpCounts };
    show("a route of node:http, SQLite, 16 connections", http, httpCounts, AIMS.http);
  } finally {
    await pool.end();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
  mkdirSync(resultsFolder, { recursive: true });
  const file = `once-${new Date().toISOString().replace(/[:.]/g, "-")}.json`;
  const report = { machine, plan, results };
  writeFileSync(join(resultsFolder, file), `${JSON.stringify(report, undefined, 2)}\n`);
  console.log(`\nwritten to bench/results/${file}`);
});
