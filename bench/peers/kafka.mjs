/** Kafka: one broker that flushes each batch, and its own producer's benchmark. */

import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort, startProgram } from "./contenders.mjs";
import { findKafka } from "./programs.mjs";
import { median } from "../statistics.mjs";

const TITLE = "Kafka 4.1, one broker, flush per batch, acks=all";
const STORE_ID = "AAAAAAAAQACAAAAAAAAAAA";
const WAYS = [
  { kind: "kafka", title: `${TITLE}, its producer's defaults`, props: [] },
  {
    kind: "kafka, batches of 1 MiB",
    title: `${TITLE}, batches of 1 MiB`,
    props: ["batch.size=1048576", "linger.ms=5", "max.request.size=2097152"],
  },
];
const RUN_MS = 90_000;

function java(libs, ...args) {
  return ["-cp", join(libs, "libs", "*"), ...args];
}

export async function produceToKafka(records, rounds) {
  const { path, missing } = findKafka();
  if (path === undefined) throw new Error(missing);
  const folder = mkdtempSync(join(tmpdir(), "hapax-kafka-"));
  const [port, controller] = [await freePort(), await freePort()];
  const config = join(folder, "server.properties");
  mkdirSync(join(folder, "data"));
  writeFileSync(config, properties(port, controller, join(folder, "data")));
  const format = java(path, "kafka.tools.StorageTool", "format", "-t", STORE_ID, "-c", config);
  const made = spawnSync("java", format, { cwd: folder, encoding: "utf8", timeout: RUN_MS });
  if (made.status !== 0)
    throw new Error(`Kafka: ${(made.stderr || made.stdout).trim().slice(-300)}`);
  const broker = await startProgram("java", java(path, "-Xmx1g", "kafka.Kafka", config), port, {
    cwd: folder,
  });
  try {
    const all = new Map(WAYS.map(({ kind }) => [kind, []]));
    await produce(path, port, "warm", records / 4, []);
    for (let round = 0; round < rounds; round += 1) {
      for (const { kind, props } of WAYS) {
        all.get(kind).push(await produce(path, port, `${round}-${props.length}`, records, props));
      }
    }
    return WAYS.map(({ kind, title }) => ({ kind, title, perSecond: median(all.get(kind)) }));
  } finally {
    await broker.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

function properties(port, controller, data) {
  return [
    "process.roles=broker,controller",
    "node.id=1",
    `controller.quorum.voters=1@127.0.0.1:${controller}`,
    `listeners=PLAINTEXT://127.0.0.1:${port},CONTROLLER://127.0.0.1:${controller}`,
    `advertised.listeners=PLAINTEXT://127.0.0.1:${port}`,
    "controller.listener.names=CONTROLLER",
    `log.dirs=${data}`,
    "num.partitions=1",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
    "message.max.bytes=4194304",
    // The page cache is not durable: each batch is synced before it is answered.
    "log.flush.interval.messages=1",
    "",
  ].join("\n");
}

/** Records a second, as the producer itself says at its end. */
async function produce(path, port, topic, records, props) {
  const args = ["--topic", topic, "--num-records", String(Math.round(records))];
  const rest = ["--record-size", "100", "--throughput", "-1", "--producer-props"];
  const settings = [`bootstrap.servers=127.0.0.1:${port}`, "acks=all", ...props];
  const main = "org.apache.kafka.tools.ProducerPerformance";
  const child = spawn("java", java(path, main, ...args, ...rest, ...settings), {
    stdio: ["ignore", "pipe", "pipe"],
    timeout: RUN_MS,
  });
  let words = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (words += chunk));
  await new Promise((resolve, reject) => child.once("close", resolve).once("error", reject));
  const rates = [...words.matchAll(/records sent, ([\d.]+) records\/sec/g)];
  const last = rates.at(-1)?.[1];
  if (last === undefined) throw new Error(`Kafka's producer failed: ${words.trim().slice(-300)}`);
  return Number(last);
}
