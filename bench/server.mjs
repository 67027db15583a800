/**
 * One server of a benchmark in a process of its own: `node bench/server.mjs <kind> [directory]`. It sends
 * `{ port }` to its parent when it is ready and answers `stats` with what only it can know.
 */

import { createReadStream, existsSync, readdirSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createSocketServer } from "node:net";
import { join } from "node:path";
import { PerformanceObserver } from "node:perf_hooks";
import { pathToFileURL } from "node:url";

const [kind = "bare", directory = ""] = process.argv.slice(2);

/** As many headers as our own answer to an append has. */
const ANSWER_HEADERS = [
  ["X-Content-Type-Options", "nosniff"],
  ["Cross-Origin-Resource-Policy", "cross-origin"],
  ["Stream-Next-Offset", "0000000000000000_0000000000000100"],
  ["Producer-Epoch", "0"],
  ["Producer-Seq", "0"],
].flat();

const STARTERS = {
  bare: () => startBare(() => undefined),
  "bare-json": () => startBare(parseJson),
  "bare-net": startBareNet,
  "hapax-fsync": () => startHapax("fsync"),
  "hapax-os": () => startHapax("os"),
  "hapax-memory": () => startHapax(undefined),
  "hapax-postgres": () => startHapax("postgres"),
  "reference-memory": () => startReference(undefined),
  "reference-files": () => startReference(directory),
};

/** The least that a server can do: read the body, answer 204, or stream a file. */
async function startBare(check) {
  const server = createServer((request, response) => {
    if (request.method === "GET") {
      const file = join(directory, "content");
      response.writeHead(200, ["Content-Length", String(statSync(file).size)]);
      createReadStream(file).pipe(response);
      return;
    }
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
      if (chunks.length > 0) check(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks));
      response.writeHead(204, ANSWER_HEADERS);
      response.end();
    });
  });
  await new Promise((resolve) =>
    server.listen({ port: 0, host: "127.0.0.1", backlog: 1024 }, resolve),
  );
  return {
    port: server.address().port,
    stats: () => ({}),
    stop: () => server.closeAllConnections(),
  };
}

const NET_ANSWER = `HTTP/1.1 204 No Content\r\n${ANSWER_HEADERS.map((text, at) => text + (at % 2 === 0 ? ": " : "\r\n")).join("")}\r\n`;
const LENGTH = "Content-Length: ";

/** The least that a server on sockets can do: find where requests end, and answer all that have come with one write. */
async function startBareNet() {
  const server = createSocketServer({ noDelay: true }, (socket) => {
    let rest = Buffer.alloc(0);
    socket.on("error", () => undefined);
    socket.on("data", (chunk) => {
      const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
      let at = 0;
      let answers = "";
      for (;;) {
        const head = bytes.indexOf("\r\n\r\n", at);
        if (head === -1) break;
        const field = bytes.indexOf(LENGTH, at);
        const isLong = field !== -1 && field < head;
        const start = field + LENGTH.length;
        const length = isLong ? Number(bytes.latin1Slice(start, bytes.indexOf("\r", start))) : 0;
        if (head + 4 + length > bytes.length) break;
        at = head + 4 + length;
        answers += NET_ANSWER;
      }
      rest = bytes.subarray(at);
      if (answers !== "") socket.write(answers, "latin1");
    });
  });
  await new Promise((resolve) =>
    server.listen({ port: 0, host: "127.0.0.1", backlog: 1024 }, resolve),
  );
  return { port: server.address().port, stats: () => ({}), stop: () => server.close() };
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** What checking JSON costs at least: decode it strictly and parse it. */
function parseJson(body) {
  JSON.parse(utf8.decode(body));
}

/** By the names of the package, which an earlier commit has too, in other folders. */
async function openStore(durability, folder) {
  if (durability === undefined) {
    const { openMemoryStore } = await import("hapax/stores/memory");
    return openMemoryStore();
  }
  if (durability === "postgres") {
    // postgres.mjs: the directory is the URL of a server of its own.
    const { openPostgresStore } = await import("hapax/stores/postgres");
    const [database, promise = "fsync"] = folder.split(" ");
    return openPostgresStore(database, { durability: promise, takeover: "now" });
  }
  const { openFileStore } = await import("hapax/stores/file");
  return openFileStore(folder, { durability });
}

/** For access.mjs: a server for each way, in one process, so that all run the same compiled code. */
async function startAll(durability, ways) {
  const servers = {};
  for (const way of ways) servers[way] = await startHapax(durability, way, join(directory, way));
  return {
    port: 0,
    ports: Object.fromEntries(Object.entries(servers).map(([way, { port }]) => [way, port])),
    stats: () => ({}),
    stop: () => Promise.all(Object.values(servers).map((server) => server.stop())),
  };
}

async function startHapax(durability, way = process.env.BENCH_ACCESS, folder = directory) {
  if (way?.includes(",")) return startAll(durability, way.split(","));
  const { startNodeServer } = await import("hapax/node");
  const store = await openStore(durability, folder);
  // compare.mjs can leave it out, to compare with a commit that has none.
  const hasFastLane = process.env.BENCH_FAST_LANE !== "off";
  const authorize = await authorizeBy(way);
  const options = {
    port: 0,
    hasFastLane,
    store,
    ...(authorize === undefined ? {} : { authorize }),
  };
  const server = await startNodeServer(options);
  return {
    port: Number(new URL(server.url).port),
    stats: () => store.stats(),
    stop: () => server.stop(),
  };
}

/** For access.mjs, which sends the credential: by an API key of a file, or by a token of a provider. */
async function authorizeBy(way) {
  if (way === undefined || way === "none") return undefined;
  const { openKeys } = await import("../dist/streams/runtimes/node-keys.js");
  const ignore = () => undefined;
  const path = process.env.BENCH_TOKENS_FILE;
  const listeners = { onAudit: ignore, onNote: ignore, onFault: ignore };
  const { authorize: byKey } = await openKeys({ path, mustExist: true, ...listeners });
  const { anyOf, jwtAuthorize } = await import("hapax/server");
  if (way === "key") return anyOf(byKey);
  const { BENCH_JWKS: jwks, BENCH_ISSUER: issuer } = process.env;
  // As `hapax serve` has it: the keys of the file see a token first.
  return anyOf(
    byKey,
    jwtAuthorize({ jwks: () => Promise.resolve(jwks), issuer, audience: "bench" }),
  );
}

async function startReference(dataDir) {
  const home = process.env.BENCH_REFERENCE ?? "";
  const entry = join(home, "node_modules", "@durable-streams", "server", "dist", "index.js");
  if (!existsSync(entry)) throw new Error("the reference server is not installed");
  const { DurableStreamTestServer } = await import(pathToFileURL(entry).href);
  const server = new DurableStreamTestServer({ port: 0, ...(dataDir ? { dataDir } : {}) });
  const url = await server.start();
  return {
    port: Number(new URL(url).port),
    stats: () => (dataDir ? { liveBytes: bytesIn(dataDir) } : {}),
    stop: () => server.stop(),
  };
}

function bytesIn(folder) {
  let bytes = 0;
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isFile())
      bytes += statSync(join(entry.parentPath ?? entry.path, entry.name)).blocks * 512;
  }
  return bytes;
}

let collections = 0;
new PerformanceObserver((list) => (collections += list.getEntries().length)).observe({
  type: "gc",
});

/** What the process has used until now. Without a collection between two looks, all that was allocated is still there. */
function costs() {
  const { heapUsed, external } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  return { heapUsed, external, userMicros: user, systemMicros: system, collections };
}

const running = await STARTERS[kind]();
process.on("message", (message) => {
  if (message.kind === "stats") process.send({ kind: "stats", ...running.stats(), ...costs() });
  if (message.kind === "stop") {
    Promise.resolve(running.stop()).then(
      () => process.exit(0),
      () => process.exit(1),
    );
  }
});
process.on("disconnect", () => process.exit(0));
process.send({ kind: "ready", port: running.port, ports: running.ports });
