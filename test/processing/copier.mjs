/**
 * One member of a pipeline that copies records, in a process of its own, so that it can be killed and stopped:
 * `node copier.mjs <options as JSON>`. See copy-run.ts.
 */

import { connectServer, streamSink } from "../../dist/client/processing.js";
import { ledgerSink } from "../../dist/toolkit/ledger.js";
import { postgresLedger } from "../../dist/toolkit/ledgers/postgres.js";
import { sqliteLedger } from "../../dist/toolkit/ledgers/sqlite.js";

const { url, strategy, database, leaseMs, isCareless } = JSON.parse(process.argv[2] ?? "{}");
const hapax = connectServer(url, {
  timeoutMs: Math.max(1000, leaseMs),
  retry: { pauseMs: 10, pauseMsMax: 200, totalMs: 30_000 },
});
const out = "/v1/stream/out";
const from = { pattern: "/v1/stream/in/*", leaseMs };

async function openSqlite() {
  const { default: Database } = await import("libsql");
  const connection = new Database(database, { timeout: 100 });
  return {
    sink: ledgerSink(sqliteLedger(() => connection)),
    each({ stream, record }, { tx }) {
      tx.prepare("INSERT INTO copies (stream, record) VALUES (?, ?)").run(stream, record);
    },
  };
}

async function openPostgres() {
  const { default: pg } = await import("pg");
  const pool = new pg.Pool({ host: database, user: "postgres", database: "postgres", max: 10 });
  pool.on("error", () => undefined);
  return {
    sink: ledgerSink(postgresLedger(pool)),
    async each({ stream, record }, { tx }) {
      await tx.query("INSERT INTO copies (stream, record) VALUES ($1, $2)", [stream, record]);
    },
  };
}

const STRATEGIES = {
  transaction: async () => ({ to: out, each: (record) => record }),
  sqlite: openSqlite,
  postgres: openPostgres,
  identity: async () => ({ sink: streamSink(hapax.stream(out)), each: (record) => record }),
};

/** What must not be done: output and offset apart. */
async function copyCarelessly() {
  const consumer = hapax.consumer({ ...from, group: "copy" });
  await consumer.run(async (batch) => {
    for (const record of batch.records) await hapax.stream(out).append(record);
    await batch.commit();
  });
}

process.on("disconnect", () => process.exit(0));
if (isCareless) {
  await copyCarelessly();
} else {
  const options = await STRATEGIES[strategy]();
  await hapax.pipeline({ from, group: "copy", batchMax: 100, ...options }).run();
}
