/**
 * `npm run bench:client [-- --quick] [-- --only <scenario>]`: the client's producer. What pipelining is worth on ways
 * that take time, what a request costs by transport, how it compares with the published client on the same server,
 * and what records cost that wait. Contenders take turns round after round, each in a new process; of the rounds the
 * median counts. Results go to bench/results/ as JSON.
 */

import { fork } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildIfNeeded, Failure, main } from "../scripts/prepare.mjs";
import { formatMachine, machineOf } from "./machine.mjs";
import { startServer } from "./processes.mjs";
import { optionOf, saveResults, stampOf } from "./results.mjs";

const PEER = "@durable-streams/client 0.2.7, its producer";

const DEFAULTS = { title: "hapax/client, defaults", writer: "hapax" };
const ONE_BY_ONE = {
  title: "hapax/client, inFlightMax 1",
  writer: "hapax",
  options: { inFlightMax: 1 },
};
const ON_NODE = { title: "hapax/client, nodeTransport", writer: "hapax", transport: "node" };
const REFERENCE = { title: PEER, writer: "reference" };
/** A request for each record, 16 at once. */
const SMALL = { batchRecordsMax: 1, inFlightMax: 16 };

function scenariosOf({ records, requests, waiting }) {
  const ways = [0, 1, 20].map((delayMs) => ({
    name: `latency-${delayMs}`,
    title: `records of 100 B on a way that takes ${delayMs} ms more`,
    server: "hapax-memory",
    delayMs,
    records,
    contenders: [DEFAULTS, ONE_BY_ONE],
  }));
  const peers = ["hapax-memory", "hapax-fsync"].map((server) => ({
    name: `peer-${server}`,
    title: `records of 100 B, the same server (${server})`,
    server,
    records,
    contenders: [DEFAULTS, ON_NODE, REFERENCE],
  }));
  const transports = {
    name: "transports",
    title: "one record a request, 16 at once",
    server: "hapax-memory",
    records: requests,
    contenders: [
      { title: "fetch", writer: "hapax", options: SMALL },
      { title: "nodeTransport", writer: "hapax", options: SMALL, transport: "node" },
      { title: "limit: raw socket", writer: "hapax", options: SMALL, transport: "socket" },
    ],
  };
  const memory = {
    name: "waiting",
    title: "records of 100 B that wait for a server that does not answer",
    waiting,
    contenders: [DEFAULTS, REFERENCE],
  };
  return [...ways, transports, ...peers, memory];
}

/** A script of this folder in a process of its own, and its next message. */
async function start(file, args = [], execArgv = []) {
  const path = fileURLToPath(new URL(file, import.meta.url));
  const child = fork(path, args, { execArgv });
  const next = () =>
    new Promise((resolve, reject) => {
      child.once("message", resolve);
      child.once("exit", (code) => reject(new Error(`${file} ended with code ${code}`)));
    });
  const ready = await next();
  return { child, next, ready };
}

/** One task in a new process: nothing is warm from the one before, and no memory is left of it. */
async function runTask(task) {
  const { child, next } = await start("client-writer.mjs", [], ["--expose-gc"]);
  try {
    child.send(task);
    const message = await next();
    if (message.kind === "failure") throw new Error(message.message);
    return message.result;
  } finally {
    child.disconnect();
  }
}

async function runWrites(scenario, rounds, folder) {
  mkdirSync(folder, { recursive: true });
  const server = await startServer(scenario.server, folder);
  const { delayMs, name, records } = scenario;
  const proxy =
    delayMs === undefined
      ? undefined
      : await start("client-proxy.mjs", [String(server.port), String(delayMs)]);
  const port = proxy?.ready.port ?? server.port;
  try {
    return await inRounds(scenario.contenders, rounds, (contender, at, round) => {
      const url = `http://127.0.0.1:${port}/v1/stream/${name}-${at}-${round}`;
      return runTask({ task: "write", url, records, warmRecords: records / 4, ...contender });
    });
  } finally {
    proxy?.child.disconnect();
    await server.stop();
  }
}

async function runWaiting({ contenders, waiting }, rounds) {
  const sockets = new Set();
  const server = createServer((socket) => sockets.add(socket.on("error", () => undefined)));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${server.address().port}/v1/stream/waiting`;
  try {
    return await inRounds(contenders, rounds, ({ writer, options }) =>
      runTask({ task: "wait", url, records: waiting, writer, options }),
    );
  } finally {
    for (const socket of sockets) socket.destroy();
    server.close();
  }
}

/** A B C, A B C, …: what each contender measured, as medians over the rounds. */
async function inRounds(contenders, rounds, run) {
  const measured = contenders.map(() => []);
  for (let round = 0; round < rounds; round += 1) {
    for (const [at, contender] of contenders.entries()) {
      measured[at].push(await run(contender, at, round));
    }
  }
  return contenders.map(({ title }, at) => ({
    title,
    ...mediansOf(measured[at]),
    all: measured[at],
  }));
}

function mediansOf(all) {
  const median = (values) => values.toSorted((one, other) => one - other)[values.length >> 1];
  const names = Object.keys(all[0] ?? {});
  return Object.fromEntries(names.map((name) => [name, median(all.map((one) => one[name]))]));
}

const COLUMNS = [
  ["rate", "records/s", 0],
  ["ratio", "of the last", 2],
  ["cpuMicros", "CPU µs each", 2],
  ["heapMB", "heap MB", 0],
  ["rssMB", "RSS MB", 0],
  ["bytesEach", "B each", 0],
];

function format({ name, title, contenders }) {
  const last = contenders.at(-1).rate;
  const rows = contenders.map((one) => ({ ...one, ratio: one.rate / last }));
  const columns = COLUMNS.filter(([field]) => rows[0][field] !== undefined);
  const cells = [
    ["", ...columns.map(([, heading]) => heading)],
    ...rows.map((row) => [
      row.title,
      ...columns.map(([field, , digits]) =>
        row[field].toLocaleString("en-US", {
          minimumFractionDigits: digits,
          maximumFractionDigits: digits,
        }),
      ),
    ]),
  ];
  const widths = cells[0].map((_, at) => Math.max(...cells.map((row) => row[at].length)));
  const lines = cells.map((row) =>
    row.map((cell, at) => (at === 0 ? cell.padEnd(widths[0]) : cell.padStart(widths[at]))),
  );
  return `\n${name}: ${title}\n${lines.map((line) => `  ${line.join("  ")}`).join("\n")}`;
}

await main(async () => {
  const isQuick = process.argv.includes("--quick");
  const only = optionOf("--only", "");
  const plan = isQuick
    ? { rounds: 3, records: 100_000, requests: 2_000, waiting: 200_000 }
    : { rounds: 5, records: 400_000, requests: 10_000, waiting: 1_000_000 };
  const all = scenariosOf(plan);
  const scenarios = all.filter(({ name }) => name.startsWith(only));
  if (scenarios.length === 0) {
    throw new Failure(`there are these scenarios: ${all.map(({ name }) => name).join(", ")}`);
  }
  await buildIfNeeded();
  const machine = machineOf(tmpdir());
  const startedAt = new Date().toISOString();
  console.log(formatMachine(machine));
  console.log("durability  fsync before the answer for hapax-fsync, none for hapax-memory");
  const folder = mkdtempSync(join(tmpdir(), "hapax-bench-client-"));
  const results = [];
  try {
    for (const scenario of scenarios) {
      const contenders = await (scenario.waiting === undefined
        ? runWrites(scenario, plan.rounds, join(folder, scenario.name))
        : runWaiting(scenario, plan.rounds));
      const { name, title } = scenario;
      results.push({ name, title, contenders });
      console.log(format(results.at(-1)));
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  const report = { startedAt, machine, durability: "fsync", plan, results };
  saveResults(`client-${stampOf(startedAt)}`, report);
});
