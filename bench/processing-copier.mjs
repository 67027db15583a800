/** Copies the records of 16 streams into one with some members of a group, and says how fast: see processing.mjs. */

import { connectServer } from "../dist/client/processing.js";

const STREAMS = 16;

process.once("message", ({ port, name, members, records, way }) => {
  run(`http://127.0.0.1:${port}`, name, members, records, way).then(
    (answer) => process.send(answer),
    (error) => process.send({ error: String(error?.stack ?? error) }),
  );
});

async function fill(hapax, base, records) {
  const each = records / STREAMS;
  await Promise.all(
    Array.from({ length: STREAMS }, async (_, index) => {
      const stream = hapax.stream(`${base}/in/${index}`);
      await stream.create();
      const producer = stream.producer();
      for (let record = 0; record < each; record += 1) {
        await producer.ready;
        producer.append({ index, record, text: "x".repeat(64) });
      }
      await producer.close();
    }),
  );
}

async function run(url, name, members, records, way) {
  const base = `/v1/stream/bench/${name}`;
  const hapax = connectServer(url);
  await fill(hapax, base, records);
  const out = hapax.stream(`${base}/out`);
  await out.create();
  // One for each member: a signal with many listeners makes Node warn.
  const stops = Array.from({ length: members }, () => new AbortController());
  let copied = 0;
  const count = (batch) => {
    copied += batch.records.length;
    if (copied >= records) for (const stop of stops) stop.abort();
  };
  const handlers = {
    async plain(batch, producer) {
      for (const record of batch.records) producer.append(record);
      await producer.flush();
      await batch.commit();
      count(batch);
    },
    async loose(batch, producer) {
      for (const record of batch.records) producer.append(record);
      await producer.ready;
      batch.done();
      count(batch);
    },
    async transaction(batch) {
      await hapax.transaction((tx) => {
        for (const record of batch.records) tx.append(out, record);
        tx.commit(batch);
      });
      count(batch);
    },
  };
  const startMs = performance.now();
  await Promise.all(
    Array.from({ length: members }, async (_, member) => {
      const consumer = hapax.consumer({ group: name, pattern: `${base}/in/*`, name: `m${member}` });
      const producer = out.producer();
      await consumer.run((batch) => handlers[way](batch, producer), {
        signal: stops[member].signal,
      });
      await producer.close();
    }),
  );
  const seconds = (performance.now() - startMs) / 1000;
  const found = (await out.read().values()).length;
  if (found !== records) throw new Error(`${found} of ${records} records were copied`);
  return { perSecond: records / seconds };
}
