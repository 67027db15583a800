/**
 * `node bench/turns.mjs [--streams 100000] [--readers 1500] [--only list]`: the longest time for which the event loop of
 * a server was held, for each thing that touches everything at once. A server in a process of its own, in memory, so
 * that nothing but the loop is measured. Used by hand; the unit tests count steps instead.
 */

import { fork } from "node:child_process";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { fileURLToPath } from "node:url";
import { buildIfNeeded, main } from "../scripts/prepare.mjs";
import { formatMachine, machineOf } from "./machine.mjs";
import { optionOf, saveResults } from "./results.mjs";

const EACH_MAX = 20;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// The server, with a probe: how long no turn could begin.
async function serve() {
  const { startNodeServer } = await import("../dist/streams/runtimes/node.js");
  const { openMemoryStore } = await import("../dist/streams/stores/memory.js");
  const server = await startNodeServer({
    port: 0,
    store: openMemoryStore(),
    onAudit: () => undefined,
  });
  let longest = 0;
  let last = performance.now();
  let used = process.cpuUsage();
  setInterval(() => {
    const now = performance.now();
    const { user, system } = process.cpuUsage(used);
    // On a machine that others use too, time without work of this process is not its doing.
    longest = Math.max(longest, Math.min(now - last - 1, (user + system) / 1000));
    last = now;
    used = process.cpuUsage();
  }, 1);
  process.on("message", (word) => {
    if (word === "reset") longest = 0;
    process.send({ longest, url: server.url });
    longest = 0;
    last = performance.now();
    used = process.cpuUsage();
  });
  process.send({ url: server.url });
}

function startServer() {
  const child = fork(fileURLToPath(import.meta.url), ["serve"], { stdio: "inherit" });
  const ask = (word) =>
    new Promise((resolve) => {
      child.once("message", resolve);
      if (word !== undefined) child.send(word);
    });
  return { child, ask };
}

async function send(url, method, path, body, headers = {}) {
  const response = await fetch(`${url}${path}`, {
    method,
    body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
    headers: { "Content-Type": "text/plain", ...headers },
  });
  const text = await response.text();
  if (response.status >= 400) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text === "" || !text.startsWith("{") ? text : JSON.parse(text);
}

/** Streams by transactions of a thousand: a hundred thousand requests would be the longest part. */
async function createStreams(url, count, folder, more = {}) {
  for (let from = 0; from < count; from += 1000) {
    const operations = Array.from({ length: Math.min(1000, count - from) }, (_, index) => ({
      create: { stream: `/${folder}/${from + index}`, contentType: "text/plain", ...more },
    }));
    await send(
      url,
      "POST",
      "/_hapax/transactions",
      { operations },
      {
        "Content-Type": "application/json",
        "Idempotency-Key": `${folder}-${from}-${Math.random()}`,
      },
    );
  }
}

const SCENARIOS = {
  async list({ url, streams, measure }) {
    await createStreams(url, streams, "list");
    await measure("a page of the list", () => send(url, "GET", "/_hapax/streams?limit=100"));
    await measure("a page of the list, by prefix", () =>
      send(url, "GET", "/_hapax/streams?limit=100&prefix=/list/77"),
    );
  },
  async groups({ url, streams, measure }) {
    await createStreams(url, streams, "in");
    await measure("a group over all streams", () =>
      send(url, "PUT", "/_hapax/groups/g", { pattern: "/in/*", start: "tail", leaseMs: 600_000 }),
    );
    const { member } = await send(url, "POST", "/_hapax/groups/g/join", {});
    await measure("a claim of the first of them", () =>
      send(url, "POST", "/_hapax/groups/g/claim", { member }),
    );
    for (let held = 0; held < streams;) {
      held = (await send(url, "POST", "/_hapax/groups/g/claim", { member })).leases.length;
    }
    await measure("a claim that changes nothing", () =>
      send(url, "POST", "/_hapax/groups/g/claim", { member }),
    );
    await measure("the list of groups", () => send(url, "GET", "/_hapax/groups"));
    await measure("a page of the group", () => send(url, "GET", "/_hapax/groups/g?limit=100"));
    await measure("the metrics", () => send(url, "GET", "/_hapax/metrics"));
    await measure("leave", () => send(url, "POST", "/_hapax/groups/g/leave", { member }));
    await measure("a reset of all of them", () =>
      send(url, "POST", "/_hapax/groups/g/reset", { to: "beginning" }),
    );
    await measure("the deletion of the group", () => send(url, "DELETE", "/_hapax/groups/g"));
  },
  async creations({ url, measure }) {
    for (let group = 0; group < 100; group += 1) {
      const names = Array.from({ length: 10_000 }, (_, index) => `/named/${group}/${index}`);
      await send(url, "PUT", `/_hapax/groups/n${group}`, { streams: names });
    }
    for (let group = 0; group < 5000; group += 1) {
      await send(url, "PUT", `/_hapax/groups/p${group}`, { pattern: `/p${group}/**` });
    }
    await measure("a creation beside a million names and 5,000 patterns of groups", () =>
      send(url, "PUT", "/v1/stream/alone"),
    );
  },
  async expiry({ url, streams, measure, pause: wait }) {
    await createStreams(url, streams, "gone", {
      expiresAt: new Date(Date.now() + 8000).toISOString(),
    });
    await measure("streams that expire together", async () => {
      await wait(12_000);
    });
  },
  async forks({ url, measure }) {
    await send(url, "PUT", "/v1/stream/f0", "x");
    let depth = 0;
    try {
      for (; depth < 12_000; depth += 1) {
        await send(url, "PUT", `/v1/stream/f${depth + 1}`, "x", {
          "Stream-Forked-From": `/v1/stream/f${depth}`,
        });
      }
    } catch (error) {
      console.log(`  forks end at depth ${depth}: ${String(error).slice(0, 120)}`);
    }
    await measure(`a read of a fork of depth ${depth}`, () =>
      send(url, "GET", `/v1/stream/f${depth}`),
    );
  },
  async bodies({ url, measure }) {
    const headers = { "Content-Type": "application/json" };
    await send(url, "PUT", "/v1/stream/bodies", undefined, headers);
    const records = Array.from({ length: 150_000 }, (_, index) => ({
      index,
      text: "x".repeat(80),
    }));
    const body = JSON.stringify(records).slice(0, -1).padEnd(15_999_999, " ") + "]";
    await measure("an append of a JSON body of 16 MB", () =>
      send(url, "POST", "/v1/stream/bodies", body, headers),
    );
  },
  readers: (facts) => liveReaders(facts, "readers"),
  deaf: (facts) => liveReaders(facts, "readers that do not read"),
};

async function liveReaders({ url, readers, measure }, name) {
  const path = `/v1/stream/live-${name.length}`;
  await send(url, "PUT", path);
  const { hostname, port } = new URL(url);
  const sockets = [];
  let received = 0;
  for (let index = 0; index < readers; index += 1) {
    const socket = connect(Number(port), hostname);
    sockets.push(socket);
    await new Promise((resolve) => socket.once("connect", resolve));
    socket.write(`GET ${path}?offset=now&live=sse HTTP/1.1\r\nHost: x\r\n\r\n`);
    await new Promise((resolve) => socket.once("data", resolve));
    if (name === "readers") socket.on("data", (chunk) => (received += chunk.length));
    else socket.pause();
  }
  await pause(500);
  const body = "x".repeat(256 * 1024);
  await measure(`one append of 256 KB to ${readers} ${name}`, async () => {
    await send(url, "POST", path, body);
    if (name === "readers") {
      while (received < readers * body.length) await pause(50);
    } else {
      await pause(6000);
    }
  });
  for (const socket of sockets) socket.destroy();
}

async function run() {
  await buildIfNeeded();
  console.log(formatMachine(machineOf(tmpdir())));
  const streams = Number(optionOf("--streams", 100_000));
  const readers = Number(optionOf("--readers", 1500));
  const only = optionOf("--only", undefined);
  const results = [];
  for (const [name, scenario] of Object.entries(SCENARIOS)) {
    if (only !== undefined && !only.split(",").includes(name)) continue;
    const { child, ask } = startServer();
    const { url } = await ask();
    const measure = async (what, act) => {
      await pause(300);
      await ask("reset");
      const from = performance.now();
      await act();
      const ms = performance.now() - from;
      await pause(50);
      const { longest } = await ask("longest");
      results.push({ name, what, longestMs: longest, tookMs: ms });
      const verdict = longest <= EACH_MAX ? "" : "  <-- too long";
      console.log(
        `  ${what}: held for ${longest.toFixed(1)} ms, took ${ms.toFixed(0)} ms${verdict}`,
      );
    };
    console.log(name);
    try {
      await scenario({ url, streams, readers, measure, pause });
    } finally {
      child.kill();
    }
  }
  if (optionOf("--result", undefined) !== undefined) saveResults("turns", { results });
}

if (process.argv[2] === "serve") await serve();
else await main(run);
