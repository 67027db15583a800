/**
 * Events a second through an outbox on PostgreSQL, against pg-boss on the same server: the time to put them in, in
 * transactions of ten, and the time to get all of them out to a handler that does nothing.
 */

import PgBoss from "pg-boss";
import { createOutbox, createRelay, functionPublisher } from "../dist/toolkit/outbox.js";
import { postgresLedger } from "../dist/toolkit/ledgers/postgres.js";
import { median, rateOf } from "./ledger-once.mjs";

const PER_TRANSACTION = 10;
const KEYS = 1000;

async function measureHapax(pool, way, count) {
  const ledger = postgresLedger(pool, { outbox: { way } });
  await ledger.migrate();
  const outbox = createOutbox(ledger);
  let published = 0;
  const publisher = functionPublisher(async () => {
    published += 1;
  });
  const relay = createRelay(ledger, publisher, { name: `bench-${way}`, batchMax: 500 });
  await relay.runOnce(); // Where there is a slot, it begins here.
  const added = await rateOf(count / PER_TRANSACTION, 8, (number) =>
    ledger.transaction(async (tx) => {
      for (let index = 0; index < PER_TRANSACTION; index += 1) {
        const key = String((number * PER_TRANSACTION + index) % KEYS);
        await outbox.add(tx, { topic: "bench", key, payload: { number, index } });
      }
    }),
  );
  const startMs = performance.now();
  await relay.runOnce();
  if (published !== count) throw new Error(`${published} events of ${count} were published`);
  const relayed = (count * 1000) / (performance.now() - startMs);
  return { added: Math.round(added * PER_TRANSACTION), relayed: Math.round(relayed) };
}

async function measureBoss(host, pool, count) {
  const boss = new PgBoss({ host, user: "postgres", database: "postgres", max: 8 });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  const queue = `bench-${count}-${performance.now().toFixed(0)}`;
  await boss.createQueue(queue);
  const added = await rateOf(count / PER_TRANSACTION, 8, async (number) => {
    const client = await pool.connect();
    const db = { executeSql: (text, values) => client.query(text, values) };
    try {
      await client.query("BEGIN");
      for (let index = 0; index < PER_TRANSACTION; index += 1) {
        await boss.send(queue, { number, index }, { db });
      }
      await client.query("COMMIT");
    } finally {
      client.release();
    }
  });
  const startMs = performance.now();
  let handled = 0;
  // What a worker does, without the pause between two batches.
  const drain = async () => {
    for (;;) {
      const jobs = await boss.fetch(queue, { batchSize: 500 });
      if (jobs.length === 0) return;
      handled += jobs.length;
      await boss.complete(
        queue,
        jobs.map(({ id }) => id),
      );
    }
  };
  await Promise.all(Array.from({ length: 4 }, drain));
  if (handled !== count) throw new Error(`${handled} jobs of ${count} were handled`);
  const relayed = (count * 1000) / (performance.now() - startMs);
  await boss.stop({ graceful: false });
  return { added: Math.round(added * PER_TRANSACTION), relayed: Math.round(relayed) };
}

/** Each in a round of its own, one after the other; medians. */
export async function measureOutbox(host, pool, { events, rounds }) {
  const ways = {
    "outbox, snapshots": () => measureHapax(pool, "log", events),
    "pg-boss 10": () => measureBoss(host, pool, events),
  };
  const results = Object.fromEntries(Object.keys(ways).map((name) => [name, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (const [name, run] of Object.entries(ways)) results[name].push(await run());
  }
  return Object.fromEntries(
    Object.entries(results).map(([name, all]) => [
      name,
      {
        added: median(all.map(({ added }) => added)),
        relayed: median(all.map(({ relayed }) => relayed)),
      },
    ]),
  );
}
