/**
 * One member of a pipeline whose function never waits, in a process of its own: `node worker.mjs <options as JSON>`. It reports
 * each call and each event as a line, and ends in order at SIGTERM. See pipeline-signals.test.ts.
 */

import { writeSync } from "node:fs";
import { connectServer, streamSink } from "../../dist/client/processing.js";
import { ledgerSink } from "../../dist/toolkit/ledger.js";
import { sqliteLedger } from "../../dist/toolkit/ledgers/sqlite.js";

const { url, kind, database, from, out, workMs } = JSON.parse(process.argv[2] ?? "{}");
const hapax = connectServer(url);
const tell = (line) => writeSync(1, `${JSON.stringify(line)}\n`);
const stop = new AbortController();
process.on("SIGTERM", () => {
  tell({ told: true });
  stop.abort();
});
process.on("disconnect", () => process.exit(3));

/** Keeps the process busy, as a long computation does. */
function work(record) {
  tell({ begun: record.n });
  const endMs = performance.now() + workMs;
  while (performance.now() < endMs);
}

async function optionsOf() {
  if (kind === "a database") {
    const { default: Database } = await import("libsql");
    const connection = new Database(database, { timeout: 1000 });
    const each = (record, { tx }) => {
      work(record);
      tx.prepare("INSERT INTO effects (n) VALUES (?)").run(record.n);
    };
    return { sink: ledgerSink(sqliteLedger(() => connection)), each };
  }
  const each = (record) => {
    work(record);
    return record;
  };
  return kind === "ids" ? { sink: streamSink(hapax.stream(out)), each } : { to: out, each };
}

const pipeline = hapax.pipeline({
  from,
  group: "work",
  // No transaction ends by its size or its time.
  batchMax: 10_000,
  batchMs: 600_000,
  closeMs: 60_000,
  signal: stop.signal,
  onEvent: ({ kind: event, stream }) => tell({ event, stream }),
  ...(await optionsOf()),
});
await pipeline.run();
tell({ ended: pipeline.counters.records });
process.exit(0);
