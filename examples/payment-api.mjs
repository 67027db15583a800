/**
 * A payment API with idempotency keys, and a client that repeats until it gets an answer. The example kills the API with
 * SIGKILL three times while it works. Every payment is in the table once.
 *
 *   npm run build && node examples/payment-api.mjs
 *
 * Every SQLite driver works: node:sqlite, better-sqlite3, bun:sqlite. This example uses libsql.
 */

import { fork } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createIdempotency } from "hapax/idempotency";
import { createIdempotentFetch } from "hapax/idempotency/fetch";
import { fileKeyStore } from "hapax/idempotency/node";
import { withIdempotency } from "hapax/idempotency/node";
import { sqliteLedger } from "hapax/ledgers/sqlite";
import Database from "libsql";

function openDatabase(file) {
  const connection = new Database(file);
  connection.exec("PRAGMA journal_mode = WAL");
  connection.exec("CREATE TABLE IF NOT EXISTS payments (orderId TEXT, cents INTEGER)");
  return connection;
}

async function readJson(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return JSON.parse(Buffer.concat(chunks).toString("utf8"));
}

/** The API. It commits the payment and the answer together. */
async function serve(file, port) {
  const ledger = sqliteLedger(() => openDatabase(file));
  await ledger.migrate();
  const engine = createIdempotency(ledger, {
    scope: ({ headers }) => headers.get("x-tenant") ?? "none",
    leaseMs: 500, // A key is free again half a second after a crash.
  });
  const listener = withIdempotency(engine, async (request, response) => {
    const { order, cents } = await readJson(request);
    const { tx } = engine.contextOf(request);
    tx.prepare("INSERT INTO payments (orderId, cents) VALUES (?, ?)").run(order, cents);
    await new Promise((resolve) => setTimeout(resolve, 20)); // It may be killed here.
    response.writeHead(201, { "Content-Type": "application/json" });
    response.end(JSON.stringify({ receipt: `receipt of ${order}` }));
  });
  const server = createServer(listener);
  server.listen(port, "127.0.0.1", () => process.send(server.address().port));
}

function start(file, port = 0) {
  const child = fork(fileURLToPath(import.meta.url), ["serve", file, String(port)]);
  const ready = new Promise((resolve) => child.once("message", resolve));
  return { child, ready };
}

async function pay() {
  const folder = mkdtempSync(join(tmpdir(), "payments-"));
  const file = join(folder, "payments.db");
  let api = start(file);
  const port = await api.ready;
  const call = createIdempotentFetch({
    store: fileKeyStore(join(folder, "keys")),
    windowMs: 24 * 3_600_000,
    retry: { pauseMs: 20, pauseMsMax: 500, totalMs: 60_000 },
  });
  const url = `http://127.0.0.1:${port}/payments`;
  const headers = { "x-tenant": "acme" };
  for (let order = 1; order <= 30; order += 1) {
    const json = { order: `order ${order}`, cents: 100 };
    const paid = call(`pay order ${order}`, url, { headers, json });
    if (order % 10 === 5) {
      await new Promise((resolve) => setTimeout(resolve, 10));
      api.child.kill("SIGKILL");
      await new Promise((resolve) => api.child.once("exit", resolve));
      api = start(file, port);
      await api.ready;
      console.log(`killed while it worked on order ${order}`);
    }
    const answer = await paid;
    if (answer.status !== 201) throw new Error(`the API answered ${answer.status}`);
    await call.done(`pay order ${order}`);
  }
  api.child.kill("SIGKILL");
  const count = "SELECT COUNT(*) AS rows, COUNT(DISTINCT orderId) AS orders FROM payments";
  const { rows, orders } = openDatabase(file).prepare(count).get();
  console.log(`30 payments asked for, ${rows} in the table, of ${orders} orders`);
  if (rows !== 30 || orders !== 30) process.exitCode = 1;
}

const [, , role, file, port] = process.argv;
if (role === "serve") await serve(file, Number(port));
else await pay();
