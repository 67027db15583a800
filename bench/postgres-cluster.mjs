/**
 * The part of `bench/postgres.mjs` about nodes of a cluster, all on this machine over one PostgreSQL:
 *
 *   Q4  main thread of the owner for a forwarded append / for one that it gets itself: at most 0.45
 *   Q5  CPU of all nodes for an append: four nodes, each with one of four shards / one node with one shard: at most 1.2
 *   Q7  the longest wait of a client: drain 0.2 s, kill -9 with warm copies 1 s, without them and with 100,000 streams 2.5 s, SIGSTOP the
 *       lease and 1 s
 */

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { startLoad } from "./processes.mjs";
import { median } from "./statistics.mjs";

const NODE = fileURLToPath(new URL("../test/cluster/node.mjs", import.meta.url));
/** Linux counts the time of threads in hundredths of a second. */
const TICK_US = 10_000;
const APPEND_BYTES = 100;
const CONNECTIONS = 64;
/** Until then the programs are being compiled: four nodes need four times the appends of one. */
const WARM_ROUNDS = 4;
const LEASE_MS = 3000;
const COLD_STREAMS = 100_000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(what, isTrue, limitMs = 60_000) {
  const endMs = performance.now() + limitMs;
  while (!(await isTrue())) {
    if (performance.now() > endMs) throw new Error(`in ${limitMs} ms it was not so: ${what}`);
    await pause(20);
  }
}

/** User and system time of one thread, or of all of a process, in microseconds. */
function cpuOf(path) {
  const text = readFileSync(path, "utf8");
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * TICK_US;
}

/** Nodes on a schema of their own. */
class Nodes {
  #common;
  running = new Map();

  constructor({ url, durability }, schema, shards, more = {}) {
    const databaseOptions = { durability, schema };
    const peerKey = "a key of the benchmark, which is long enough";
    this.#common = { database: url, databaseOptions, peerKey, shards, leaseMs: LEASE_MS, ...more };
  }

  async start(...names) {
    for (const node of names) {
      const child = spawn(process.execPath, [NODE, JSON.stringify({ ...this.#common, node })], {
        stdio: ["ignore", "pipe", "ignore", "ipc"],
        env: { ...process.env, NODE_ENV: "production" },
      });
      const ended = new Promise((resolve) => child.once("exit", resolve));
      const url = await new Promise((resolve, reject) => {
        let text = "";
        child.stdout.setEncoding("utf8").on("data", (chunk) => {
          text += chunk;
          const found = /listening on (\S+)/.exec(text)?.[1];
          if (found !== undefined) resolve(found);
        });
        void ended.then(() => reject(new Error(`node ${node} ended before it was ready`)));
      });
      this.running.set(node, { node, child, ended, url, isAway: false });
    }
  }

  /** Ties each shard to one of the nodes, in turn. */
  async tie(...names) {
    const { database, databaseOptions, shards } = this.#common;
    const client = new pg.Client({ connectionString: database });
    await client.connect();
    try {
      const text = `UPDATE ${databaseOptions.schema}.hapax_shard SET pinned = $1 WHERE shard = $2`;
      for (let shard = 0; shard < shards; shard += 1)
        await client.query(text, [names[shard % names.length], shard]);
    } finally {
      await client.end();
    }
  }

  /** The nodes that take requests. */
  get there() {
    return [...this.running.values()].filter(({ isAway }) => !isAway);
  }

  at(name) {
    return this.running.get(name);
  }

  /** Waits until every node has its share, and, if they keep copies, until each shard has one. */
  async settle(shards, copies) {
    await until("every node owns its shards", async () => {
      const owned = await Promise.all(this.there.map(ownedBy));
      return owned.every((one) => one > 0) && sum(owned) === shards;
    });
    await until("every shard has a copy", async () => {
      return copies === 0 || sum(await Promise.all(this.there.map(copiesAt))) === copies;
    });
  }

  /** A path of a stream of its own that this node owns. */
  async pathAt(name) {
    const { url } = this.at(name);
    for (let tenant = 0; ; tenant += 1) {
      const path = `/v1/stream/tenant-${tenant}/log`;
      const { status, headers } = await ask("PUT", url + path, TYPE);
      if (status > 204) throw new Error(`PUT ${path}: ${status}`);
      if (headers["hapax-owner"] === undefined || headers["hapax-owner"] === url) return path;
    }
  }

  async stop() {
    for (const { child } of this.running.values()) {
      child.kill("SIGCONT");
      child.kill("SIGKILL");
    }
    await Promise.all([...this.running.values()].map(({ ended }) => ended));
  }
}

const TYPE = { "content-type": "text/plain" };
const sum = (values) => values.reduce((total, value) => total + value, 0);

function ask(method, url, headers = {}, { body, agent, signal } = {}) {
  return new Promise((resolve, reject) => {
    const sent = request(url, { method, headers, agent, signal });
    sent.on("error", reject);
    sent.on("response", (answer) => {
      let text = "";
      answer.setEncoding("utf8");
      answer.on("data", (chunk) => (text += chunk));
      answer.on("error", reject);
      answer.on("end", () => resolve({ status: answer.statusCode, headers: answer.headers, text }));
    });
    sent.end(body);
  });
}

async function ownedBy({ url }) {
  return JSON.parse((await ask("GET", `${url}/healthz`)).text).shards.owned;
}

async function copiesAt({ url }) {
  const { text } = await ask("GET", `${url}/_hapax/metrics`);
  return Number(/^hapax_cluster_copies (\d+)$/m.exec(text)?.[1] ?? 0);
}

/** Appends for a time; what a thread or a process has needed for one of them, in microseconds. */
async function costOf(tasks, watched) {
  const loads = await Promise.all(tasks.map(() => startLoad()));
  const look = () => sum(watched.map(cpuOf));
  try {
    let [before, after] = [0, 0];
    const server = { pid: process.pid, stats: () => Promise.resolve({}) };
    const measured = tasks.map((task, at) => loads[at].measure(task, server));
    const { warmMs, measureMs } = tasks[0];
    await pause(warmMs);
    before = look();
    await pause(measureMs);
    after = look();
    const results = await Promise.all(measured);
    const count = sum(results.map((one) => one.count));
    return {
      micros: (after - before) / count,
      perSecond: sum(results.map((one) => one.perSecond)),
    };
  } finally {
    for (const load of loads) load.stop();
  }
}

let runs = 0;

function appends(url, path, connections, seconds) {
  runs += 1;
  return {
    task: "append",
    port: Number(new URL(url).port),
    paths: [path],
    contentType: "text/plain",
    connections,
    body: "x".repeat(APPEND_BYTES),
    warmMs: 500,
    measureMs: seconds * 1000,
    producer: `run-${runs}`,
  };
}

async function compareForwarding(database, { rounds, seconds, verdict }) {
  const nodes = new Nodes(database, "bench_forward", 2);
  try {
    await nodes.start("n1", "n2");
    await nodes.tie("n1", "n2");
    await nodes.settle(2, 0);
    const path = await nodes.pathAt("n1");
    const { child, url } = nodes.at("n1");
    const thread = `/proc/${child.pid}/task/${child.pid}/stat`;
    const found = { direct: [], forwarded: [] };
    const rates = { direct: [], forwarded: [] };
    for (let round = 1 - WARM_ROUNDS; round <= rounds; round += 1) {
      for (const [name, door] of [
        ["direct", url],
        ["forwarded", nodes.at("n2").url],
      ]) {
        const { micros, perSecond } = await costOf(
          [appends(door, path, CONNECTIONS, seconds)],
          [thread],
        );
        if (round <= 0) continue; // They compile.
        found[name].push(micros);
        rates[name].push(perSecond);
      }
    }
    console.log("\nan append at its owner, main thread, 64 connections");
    for (const [name, micros] of Object.entries(found)) {
      const rate = Math.round(median(rates[name])).toLocaleString("en-US");
      console.log(`  ${name.padEnd(10)} ${median(micros).toFixed(1)} us, ${rate} appends/s`);
    }
    const ratios = found.forwarded.map((value, at) => value / found.direct[at]);
    verdict("Q4", "forwarded / direct", ratios, 0.45, "most");
  } finally {
    await nodes.stop();
  }
}

async function compareSizes(database, { rounds, seconds, verdict }) {
  const one = new Nodes(database, "bench_one", 1);
  const four = new Nodes(database, "bench_four", 4, { warmCopies: false });
  try {
    await one.start("n1");
    await four.start("n1", "n2", "n3", "n4");
    await four.tie("n1", "n2", "n3", "n4");
    await one.settle(1, 0);
    await four.settle(4, 0);
    const tasksOf = async (nodes, connections) => {
      const paths = [];
      for (const { node, url } of nodes.there) paths.push([url, await nodes.pathAt(node)]);
      return () => paths.map(([url, path]) => appends(url, path, connections, seconds));
    };
    const ways = {
      "1 node": { nodes: one, tasks: await tasksOf(one, CONNECTIONS) },
      "4 nodes": { nodes: four, tasks: await tasksOf(four, CONNECTIONS / 4) },
    };
    const found = { "1 node": [], "4 nodes": [] };
    const rates = { "1 node": [], "4 nodes": [] };
    for (let round = 1 - WARM_ROUNDS; round <= rounds; round += 1) {
      for (const [name, { nodes, tasks }] of Object.entries(ways)) {
        const watched = nodes.there.map(({ child }) => `/proc/${child.pid}/stat`);
        const { micros, perSecond } = await costOf(tasks(), watched);
        if (round <= 0) continue;
        found[name].push(micros);
        rates[name].push(perSecond);
      }
    }
    console.log("\nCPU of all nodes for an append, each client at the owner");
    for (const [name, micros] of Object.entries(found)) {
      const rate = Math.round(median(rates[name])).toLocaleString("en-US");
      console.log(`  ${name.padEnd(10)} ${median(micros).toFixed(1)} us, ${rate} appends/s`);
    }
    const ratios = found["4 nodes"].map((value, at) => value / found["1 node"][at]);
    verdict("Q5", "4 nodes x 1 shard / 1 node", ratios, 1.2, "most");
  } finally {
    await one.stop();
    await four.stop();
  }
}

let writers = 0;

/** Writers that go on until they are stopped; the longest that one of them has waited for an answer. */
class Writers {
  longestMs = 0;
  done = 0;
  #isStopped = false;
  #agent = new Agent({ keepAlive: true });
  #running;

  constructor(nodes, paths) {
    writers += 1;
    this.#running = paths.map((path, at) => this.#write(nodes, path, `w${writers}-${at}`));
  }

  async #write(nodes, path, id) {
    for (let number = 0; !this.#isStopped; number += 1) {
      const begunMs = performance.now();
      const headers = { ...TYPE, "producer-id": id, "producer-epoch": "0", "producer-seq": number };
      for (let isDone = false; !isDone;) {
        const { there } = nodes;
        const { url } = there[Math.floor(Math.random() * there.length)];
        const options = { body: "x".repeat(APPEND_BYTES), agent: this.#agent };
        options.signal = AbortSignal.timeout(8000);
        const answer = await ask("POST", url + path, headers, options).catch(() => undefined);
        isDone = answer?.status === 200 || answer?.status === 204;
        if (!isDone) await pause(10);
      }
      this.longestMs = Math.max(this.longestMs, performance.now() - begunMs);
      this.done += 1;
      await pause(5);
    }
  }

  async progress(count = 40) {
    const goal = this.done + count;
    await until("the writers go on", () => this.done >= goal);
  }

  async stop() {
    this.#isStopped = true;
    await Promise.all(this.#running);
    this.#agent.destroy();
  }
}

const TENANTS = 8;

async function createTenants(nodes) {
  const paths = Array.from({ length: TENANTS }, (_, at) => `/v1/stream/tenant-${at}/log`);
  for (const path of paths) await ask("PUT", nodes.there[0].url + path, TYPE);
  return paths;
}

/** Runs `harm` on each node in turn; the longest wait of a client each time, in seconds. */
async function stallsOf(nodes, harm, copies) {
  const load = new Writers(nodes, await createTenants(nodes));
  const stalls = [];
  try {
    for (const name of ["n1", "n2", "n3"]) {
      await nodes.settle(16, copies);
      await load.progress();
      load.longestMs = 0;
      await harm(nodes.at(name), name);
      await load.progress();
      stalls.push(load.longestMs / 1000);
      await nodes.at(name).back?.();
    }
  } finally {
    await load.stop();
  }
  return stalls;
}

async function measureStalls(database, { verdict }) {
  const nodes = new Nodes(database, "bench_stalls", 16);
  const again = (name) => ({ back: () => nodes.start(name) });
  console.log(
    `\nthe longest wait of a client, eight writers, three nodes, a lease of ${LEASE_MS} ms`,
  );
  try {
    await nodes.start("n1", "n2", "n3");
    const drained = await stallsOf(
      nodes,
      async (node, name) => {
        node.isAway = true;
        node.child.kill("SIGTERM");
        await node.ended;
        Object.assign(node, again(name));
      },
      16,
    );
    verdict("Q7", "drain, s", drained, 0.2, "most");
    const killed = await stallsOf(
      nodes,
      async (node, name) => {
        node.isAway = true;
        node.child.kill("SIGKILL");
        await node.ended;
        Object.assign(node, again(name));
      },
      16,
    );
    verdict("Q7", "kill -9 with warm copies, s", killed, 1, "most");
    const stopped = await stallsOf(
      nodes,
      async (node) => {
        node.isAway = true;
        await pause(200); // What it was asked is answered.
        node.child.kill("SIGSTOP");
        await until(
          "the others own all",
          async () => sum(await Promise.all(nodes.there.map(ownedBy))) === 16,
        );
        node.back = () => {
          node.child.kill("SIGCONT");
          node.isAway = false;
        };
      },
      16,
    );
    verdict("Q7", "SIGSTOP, s", stopped, LEASE_MS / 1000 + 1, "most");
  } finally {
    await nodes.stop();
  }
}

async function measureCold(database, { verdict }) {
  const nodes = new Nodes(database, "bench_cold", 1, { warmCopies: false });
  const load = await startLoad();
  try {
    await nodes.start("n1", "n2");
    const [owner] = (
      await Promise.all(
        nodes.there.map(async (node) => ((await ownedBy(node)) === 1 ? [node] : [])),
      )
    ).flat();
    const paths = Array.from({ length: COLD_STREAMS }, (_, at) => `/v1/stream/tenant-0/${at}`);
    const port = Number(new URL(owner.url).port);
    await load.run({ task: "createStreams", port, paths, contentType: "text/plain" });
    const writer = new Writers(nodes, ["/v1/stream/tenant-0/0"]);
    await writer.progress(10);
    writer.longestMs = 0;
    owner.isAway = true;
    owner.child.kill("SIGKILL");
    await writer.progress(10);
    await writer.stop();
    const title = `kill -9 without copies, ${COLD_STREAMS.toLocaleString("en-US")} streams, s`;
    verdict("Q7", title, [writer.longestMs / 1000], 2.5, "most");
  } finally {
    load.stop();
    await nodes.stop();
  }
}

/** `parts`: rounds, seconds, what is wanted, and what prints a verdict. */
export async function measureCluster(url, parts) {
  const database = { url, durability: parts.durability };
  const { isWanted } = parts;
  if (isWanted("forwarding")) await compareForwarding(database, parts);
  if (isWanted("sizes")) await compareSizes(database, parts);
  if (isWanted("stalls")) await measureStalls(database, parts);
  if (isWanted("cold")) await measureCold(database, parts);
}
