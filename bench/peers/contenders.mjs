/**
 * Those who take part: each a server in processes of its own, on 127.0.0.1, with its data in a folder of the run, durable before
 * it answers. What they have in common:
 *
 *   pids       whose CPU and memory is measured
 *   prepare    makes a stream of this name
 *   append     the load that appends to it (load.c), for this body and producer
 *   tail       the load that appends marks, with a reader that follows; undefined if the peer has none
 */

import { spawn, spawnSync } from "node:child_process";
import { chownSync, mkdirSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { userInfo } from "node:os";
import { join } from "node:path";
import { startServer } from "../processes.mjs";
import { findNats, findPostgres, findRedis } from "./programs.mjs";
import * as wire from "./wire.mjs";

export async function startContender(kind, folder) {
  mkdirSync(folder, { recursive: true });
  if (kind.startsWith("redis")) return startRedis(kind, folder);
  if (kind === "nats") return startNats(folder);
  if (kind === "postgres") return startPostgres(folder);
  return startHttp(kind, folder);
}

async function startHttp(kind, folder) {
  const server = await startServer(kind, folder);
  const { port, pid } = server;
  const pathOf = (stream) => `/v1/stream/${stream}`;
  const isBare = kind.startsWith("bare");
  return {
    kind,
    title: HTTP_TITLES[kind],
    port,
    pids: [pid],
    prepare: (stream, type) =>
      isBare ? undefined : wire.createHttpStream(port, pathOf(stream), type),
    append: (stream, body, producer, contentType) =>
      wire.httpAppend({ port, path: pathOf(stream), body, producer, contentType }),
    tail: isBare ? undefined : (stream) => wire.httpTail({ port, path: pathOf(stream) }),
    stop: () => server.stop(),
  };
}

const HTTP_TITLES = {
  "hapax-fsync": "Hapax",
  "hapax-memory": "Hapax in memory",
  bare: "bare node:http",
  "bare-json": "bare node:http + JSON.parse",
  "bare-net": "bare node:net",
};

export async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Starts a program and waits until its port takes connections. */
export async function startProgram(path, args, port, options = {}) {
  const child = spawn(path, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
  let words = "";
  const keep = (chunk) => (words = (words + chunk).slice(-2000));
  child.stdout.on("data", keep);
  child.stderr.on("data", keep);
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.once("error", keep);
  for (let left = 300; left > 0; left -= 1) {
    if (child.exitCode !== null || child.pid === undefined) break;
    if (await canConnect(port)) return { pid: child.pid, stop: () => stopProgram(child, ended) };
    await pause(100);
  }
  child.kill("SIGKILL");
  throw new Error(`${path} did not start: ${words.trim().split("\n").at(-1)}`);
}

async function stopProgram(child, ended) {
  child.kill("SIGINT");
  const cut = setTimeout(() => child.kill("SIGKILL"), 10_000);
  await ended;
  clearTimeout(cut);
}

function canConnect(port) {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}

/** Sends bytes and resolves with what comes back until `isWhole` says so. */
function talk(port, bytes, isWhole) {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1", () => socket.write(bytes));
    let answer = "";
    const cut = setTimeout(() => socket.destroy(new Error(`no answer: ${answer}`)), 20_000);
    socket.setEncoding("latin1").on("data", (chunk) => {
      answer += chunk;
      if (isWhole(answer)) socket.end();
    });
    socket.once("error", reject).once("close", () => {
      clearTimeout(cut);
      resolve(answer);
    });
  });
}

/** The programs of Redis and its kin that are here, by the names of contenders. */
let redisPrograms;

export async function redisKinds() {
  redisPrograms ??= await findRedis();
  const { programs, missing } = redisPrograms;
  return { kinds: programs.map(({ name }) => `redis: ${name}`), missing };
}

async function startRedis(kind, folder) {
  await redisKinds();
  const name = kind.slice("redis: ".length);
  const program = redisPrograms.programs.find((one) => one.name === name);
  if (program === undefined) throw new Error(`there is no ${name} here`);
  const port = await freePort();
  const durable = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--save",
    "",
    "--auto-aof-rewrite-percentage",
    "0",
  ];
  const place = ["--port", String(port), "--bind", "127.0.0.1", "--dir", folder];
  const { pid, stop } = await startProgram(program.path, [...place, ...durable], port);
  const load = await talk(
    port,
    wire.resp("SCRIPT", "LOAD", wire.REDIS_SCRIPT),
    (answer) => answer.endsWith("\r\n") && answer.includes("\r\n", 4) && answer.length > 44,
  );
  const digest = load.split("\r\n")[1];
  return {
    kind,
    title: `${name}, Lua, appendfsync always`,
    port,
    pids: [pid],
    prepare: () => undefined,
    append: (stream, body, producer) => wire.redisAppend({ port, digest, stream, body, producer }),
    tail: (stream) => wire.redisTail({ port, digest, stream }),
    stop,
  };
}

async function startNats(folder) {
  const { path, missing } = findNats();
  if (path === undefined) throw new Error(missing);
  const port = await freePort();
  const config = join(folder, "nats.conf");
  writeFileSync(
    config,
    `listen: "127.0.0.1:${port}"\njetstream { store_dir: "${folder}/data", sync_interval: always }\n`,
  );
  const { pid, stop } = await startProgram(path, ["-c", config], port);
  const api = async (subject, request) => {
    const body = JSON.stringify(request);
    const greeting = 'CONNECT {"verbose":false}\r\nSUB answers 1\r\n';
    const publish = `PUB $JS.API.${subject} answers ${body.length}\r\n${body}\r\n`;
    const answer = await talk(port, greeting + publish, (text) => /\nMSG [^]*}\r\n$/.test(text));
    if (answer.includes('"error"')) throw new Error(`NATS: ${answer}`);
  };
  const seconds = (count) => count * 1e9;
  return {
    kind: "nats",
    title: "NATS JetStream, sync_interval always",
    port,
    pids: [pid],
    async prepare(name) {
      const rest = { retention: "limits", storage: "file", duplicate_window: seconds(120) };
      await api(`STREAM.CREATE.${name}`, { name, subjects: [name], num_replicas: 1, ...rest });
      const consumer = { deliver_subject: `deliver.${name}`, deliver_policy: "new" };
      const made = { ...consumer, ack_policy: "none", durable_name: "reader" };
      await api(`CONSUMER.DURABLE.CREATE.${name}.reader`, { stream_name: name, config: made });
    },
    append: (subject, body, producer) => wire.natsAppend({ port, subject, body, producer }),
    tail: (subject) =>
      wire.natsTail({ port, subject, deliver: `deliver.${subject}`, producer: "tail" }),
    stop,
  };
}

async function startPostgres(folder) {
  const { path, missing } = findPostgres();
  if (path === undefined) throw new Error(missing);
  const data = join(folder, "data");
  // PostgreSQL refuses to be run by root.
  const identity = userInfo().uid === 0 ? otherUser() : {};
  mkdirSync(data, { recursive: true });
  if (identity.uid !== undefined)
    for (const one of [folder, data]) chownSync(one, identity.uid, identity.gid);
  const made = spawnSync(join(path, "initdb"), ["-D", data, "-U", "bench", "-A", "trust"], {
    ...identity,
    cwd: folder,
    encoding: "utf8",
  });
  if (made.status !== 0) throw new Error(`initdb: ${made.stderr || made.error?.message}`);
  const port = await freePort();
  const options = { max_connections: 300, shared_buffers: "128MB", listen_addresses: "127.0.0.1" };
  const args = ["-D", data, "-p", String(port), "-k", folder];
  for (const [name, value] of Object.entries(options)) args.push("-c", `${name}=${value}`);
  const { pid, stop } = await startProgram(join(path, "postgres"), args, port, identity);
  const { default: pg } = await import("pg");
  const client = await connected(() => new pg.Client({ ...LOCAL, port, user: "bench" }));
  await client.query(
    "CREATE TABLE records (place bigserial, producer text, sequence bigint, data text, PRIMARY KEY (producer, sequence))",
  );
  const { rows } = await client.query("SHOW server_version");
  await client.end();
  return {
    kind: "postgres",
    title: `PostgreSQL ${String(rows[0].server_version).split(" ")[0]}, insert on conflict`,
    port,
    pids: [pid],
    prepare: () => undefined,
    append: (stream, body, producer) =>
      wire.postgresAppend({ port, user: "bench", body, producer: `${stream}-${producer}` }),
    stop,
  };
}

const LOCAL = { host: "127.0.0.1", database: "postgres" };

/** A server that takes connections may still refuse them for a moment. */
async function connected(make) {
  for (let left = 50; ; left -= 1) {
    const client = make();
    try {
      await client.connect();
      return client;
    } catch (error) {
      if (left === 0) throw error;
      await pause(200);
    }
  }
}

/** A user without rights, which every Debian has. */
function otherUser() {
  for (const name of ["postgres", "www-data"]) {
    const { status, stdout } = spawnSync("id", ["-u", name], { encoding: "utf8" });
    const group = spawnSync("id", ["-g", name], { encoding: "utf8" });
    if (status === 0) return { uid: Number(stdout), gid: Number(group.stdout) };
  }
  return {};
}
