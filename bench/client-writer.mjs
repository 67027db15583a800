/**
 * One writer of a benchmark in a process of its own: tasks come from the parent as messages, results go back the
 * same way. `write` counts records per second until all are confirmed; `wait` what records cost that cannot be sent.
 */

import { DurableStream, IdempotentProducer } from "@durable-streams/client";
import { connect } from "../dist/client/client.js";
import { nodeTransport } from "../dist/client/node.js";
import { socketTransport } from "./client-socket.mjs";

const TEXT = "x".repeat(60);

/** 100 bytes as JSON, a new object each time, as programs have them. */
function recordOf(id) {
  return { id: 1_000_000 + id, kind: "order", text: TEXT, n: 10 + (id % 90) };
}

const TRANSPORTS = { fetch: undefined, node: nodeTransport(), socket: socketTransport() };

async function oursOf({ url, transport = "fetch", options = {} }) {
  const chosen = TRANSPORTS[transport];
  const carrier = chosen === undefined ? {} : { transport: chosen };
  const stream = connect(url, { contentType: "application/json", ...carrier });
  return stream.producer(options);
}

const WRITERS = {
  async hapax(task, count) {
    const producer = await oursOf(task);
    for (let id = 0; id < count; id += 1) {
      await producer.ready;
      producer.append(recordOf(id));
    }
    await producer.flush();
  },
  async reference({ url }, count) {
    const failures = [];
    const stream = new DurableStream({ url, contentType: "application/json" });
    const onError = (error) => failures.push(error);
    const producer = new IdempotentProducer(stream, `writer-${count}`, { onError });
    for (let id = 0; id < count; id += 1) producer.append(JSON.stringify(recordOf(id)));
    await producer.flush();
    await producer.detach();
    if (failures.length > 0) throw failures[0];
  },
};

async function write(task) {
  const { writer, url, warmRecords, records } = task;
  const stream = connect(`${url}-warm`, { retry: { totalMs: 5_000 } });
  await stream.create();
  await WRITERS[writer]({ ...task, url: `${url}-warm` }, warmRecords);
  await connect(url).create();
  const cpu = process.cpuUsage();
  const startMs = performance.now();
  await WRITERS[writer](task, records);
  const tookMs = performance.now() - startMs;
  const { user, system } = process.cpuUsage(cpu);
  return { rate: (records * 1000) / tookMs, cpuMicros: (user + system) / records };
}

/** The server takes the connection and never answers. */
async function wait({ writer, url, records, options }) {
  const held = [];
  const append = await (async () => {
    if (writer === "hapax") {
      const producer = await oursOf({ url, options: { ...options, highWaterBytes: 4e9 } });
      held.push(producer);
      return (record) => producer.append(record);
    }
    const stream = new DurableStream({ url, contentType: "application/json" });
    const producer = new IdempotentProducer(stream, "waiting", {});
    held.push(producer);
    return (record) => producer.append(JSON.stringify(record));
  })();
  const before = await memory();
  const startMs = performance.now();
  for (let id = 0; id < records; id += 1) {
    append(recordOf(id));
    // So that requests begin, as they would in a program.
    if (id % 10_000 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  const rate = (records * 1000) / (performance.now() - startMs);
  const after = await memory();
  return {
    rate,
    heapMB: (after.heapUsed + after.external - before.heapUsed - before.external) / 1e6,
    rssMB: (after.rss - before.rss) / 1e6,
    bytesEach: (after.heapUsed + after.external - before.heapUsed - before.external) / records,
  };
}

async function memory() {
  for (let round = 0; round < 3; round += 1) {
    globalThis.gc();
    await new Promise((resolve) => setImmediate(resolve));
  }
  return process.memoryUsage();
}

const TASKS = { write, wait };

process.on("message", (task) => {
  TASKS[task.task](task).then(
    (result) => process.send({ kind: "result", result }),
    (error) => process.send({ kind: "failure", message: String(error?.stack ?? error) }),
  );
});
process.on("disconnect", () => process.exit(0));
process.send({ kind: "ready" });
