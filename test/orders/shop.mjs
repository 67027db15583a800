/**
 * One of the processes of orders-run.ts, so that it can be killed: `node shop.mjs <role> <options as JSON>`.
 *
 *   sells    puts orders and their events into PostgreSQL, in one transaction each
 *   relays   publishes the events into a stream of Hapax
 *   books    reads the stream, and books each order once in SQLite
 */

import Database from "libsql";
import pg from "pg";
import { postgresLedger } from "../../dist/toolkit/ledgers/postgres.js";
import { sqliteLedger } from "../../dist/toolkit/ledgers/sqlite.js";
import { createInbox } from "../../dist/toolkit/ledger.js";
import { createOutbox, createRelay } from "../../dist/toolkit/outbox.js";
import { hapaxPublisher } from "../../dist/toolkit/outbox/hapax-publisher.js";
import { connectServer } from "../../dist/client/processing.js";
import { openHistoryFile } from "../../dist/testing/testing.js";

const [, , role, text] = process.argv;
const { url, host, database, history: path, way, customers, orders, leaseMs } = JSON.parse(text);
const history = openHistoryFile(path);
const STREAM = "/v1/stream/orders";

function openPool() {
  const pool = new pg.Pool({ host, user: "postgres", database: "postgres", max: 8 });
  pool.on("error", () => undefined);
  return pool;
}

function openHapax() {
  const retry = { pauseMs: 10, pauseMsMax: 200, totalMs: 60_000 };
  return connectServer(url, { timeoutMs: 5000, retry });
}

/** Each customer orders until it has ordered enough; the row of the customer keeps its orders in order. */
async function sell() {
  const ledger = postgresLedger(openPool(), { outbox: { way } });
  const outbox = createOutbox(ledger);
  const sellTo = async (customer) => {
    for (;;) {
      let call;
      const isOver = await ledger.transaction(async (tx) => {
        const { rows } = await tx.query(
          "UPDATE customers SET orders = orders + 1 WHERE id = $1 AND orders < $2 RETURNING orders",
          [customer, orders],
        );
        if (rows.length === 0) return true;
        const number = Number(rows[0].orders);
        const order = { id: `${customer}/${number}`, customer, number, cents: 100 + number };
        call = history.invoke({
          process: `shop ${process.pid} ${customer}`,
          kind: "append",
          stream: "orders",
          records: [{ id: order.id, key: String(customer) }],
        });
        await tx.query("INSERT INTO orders (id, customer, cents) VALUES ($1, $2, $3)", [
          order.id,
          customer,
          order.cents,
        ]);
        await outbox.add(tx, { topic: "orders", key: String(customer), payload: order });
        return false;
      });
      call?.ok();
      if (isOver) return;
    }
  };
  const queue = Array.from({ length: customers }, (_, index) => index);
  const lane = async () => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) await sellTo(next);
  };
  await Promise.all(Array.from({ length: 4 }, lane));
}

async function relay() {
  const ledger = postgresLedger(openPool(), { outbox: { way } });
  const inner = hapaxPublisher({ connection: openHapax(), streamOf: () => STREAM });
  const publisher = {
    async publish(batch) {
      const records = batch.events.map(({ payload, key }) => {
        const { id } = JSON.parse(Buffer.from(payload).toString("utf8"));
        return { id, key, of: id };
      });
      // By rows the order of each key is kept. Two relays that compete have no order between them.
      const producer = way === "rows" ? `relay ${process.pid}` : "relay";
      const append = {
        process: `relay ${process.pid}`,
        kind: "append",
        stream: "stream",
        producer,
      };
      const call = history.invoke({ ...append, records });
      const outcomes = await inner.publish(batch);
      if (outcomes.every(({ kind }) => kind === "published")) call.ok();
      return outcomes;
    },
  };
  const options = { leaseMs, pollMs: 20, batchMax: 200, retry: { pauseMs: 20, pauseMsMax: 200 } };
  await createRelay(ledger, publisher, options).run();
}

async function book() {
  const connection = new Database(database, { timeout: 100 });
  const ledger = sqliteLedger(() => connection);
  const inbox = createInbox(ledger, { consumer: "books", retainMs: 86_400_000 });
  const hapax = openHapax();
  const consumer = hapax.consumer({ group: "books", streams: [STREAM], leaseMs, pollMs: 50 });
  await consumer.run(async (batch) => {
    for (const { id: eventId, payload } of batch.records) {
      const { id, customer, number, cents } = payload;
      const call = history.invoke({
        process: `books ${process.pid}`,
        kind: "append",
        stream: "books",
        records: [{ id, key: String(customer), of: id }],
      });
      const { isDuplicate } = await inbox.handle({ scope: "shop", key: eventId }, (tx) => {
        tx.prepare("INSERT INTO booked (id, customer, number, cents) VALUES (?, ?, ?, ?)").run(
          id,
          customer,
          number,
          cents,
        );
      });
      // A duplicate is acknowledged too: it is there, by whomever.
      call.ok();
      if (isDuplicate) process.send?.({ kind: "duplicate" });
    }
    await batch.commit();
  });
}

process.on("disconnect", () => process.exit(0));
await { sells: sell, relays: relay, books: book }[role]();
process.exit(0);
