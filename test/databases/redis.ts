/** Servers of Redis and Valkey for tests: each with a folder and a port of its own, which go with it. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import type { RedisProgram } from "./redis-programs.ts";

export interface TestRedis {
  readonly port: number;
  readonly url: string;
  /** A client for the test itself. */
  readonly admin: Redis;
  /** Sends a signal to the server. */
  signal(name: NodeJS.Signals): void;
  /** Kills the server as a power cut of its process would, and waits until it is gone. */
  kill(): Promise<void>;
  /** Starts the server again on its files and its port. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

/** How long a server may take to start on a busy machine. */
const START_MS = 20_000;
/** A port may be taken between the question and the start. */
const PORTS_MAX = 5;

/** A log of writes that is on the disk before an answer. */
export const DURABLE = ["--appendonly", "yes", "--appendfsync", "always"];

export async function startRedis(
  program: RedisProgram,
  options: readonly string[] = DURABLE,
): Promise<TestRedis> {
  for (let tried = 1; ; tried += 1) {
    const server = new Server(program, options, await freePort());
    try {
      await server.restart();
      return server;
    } catch (error) {
      await server.stop();
      if (tried === PORTS_MAX) throw error;
    }
  }
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer().once("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const address = probe.address();
      probe.close(() => {
        if (typeof address === "object" && address !== null) resolve(address.port);
        else reject(new Error("no port"));
      });
    });
  });
}

class Server implements TestRedis {
  readonly port: number;
  readonly url: string;
  readonly admin: Redis;
  readonly #path: string;
  readonly #options: readonly string[];
  readonly #folder = mkdtempSync(join(tmpdir(), "hapax-redis-data-"));
  #child: ChildProcess | undefined;
  #ended: Promise<unknown> = Promise.resolve();
  #log = "";

  constructor({ path }: RedisProgram, options: readonly string[], port: number) {
    this.#path = path;
    this.port = port;
    this.url = `redis://127.0.0.1:${port}`;
    const own = ["--port", String(port), "--bind", "127.0.0.1", "--dir", this.#folder];
    this.#options = [...own, "--save", "", ...options];
    this.admin = new Redis({ port, lazyConnect: true, retryStrategy: () => 20 });
    this.admin.on("error", () => undefined); // It is down when a test has killed it.
  }

  async restart(): Promise<void> {
    const child = spawn(this.#path, this.#options, { stdio: ["ignore", "pipe", "pipe"] });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => (this.#log += text));
    this.#ended = new Promise((resolve) => child.once("exit", resolve));
    process.once("exit", this.#killNow);
    let isEnded = false;
    void this.#ended.then(() => (isEnded = true));
    for (const endMs = Date.now() + START_MS; ;) {
      if (/Ready to accept connections/.test(this.#log)) break;
      if (isEnded || Date.now() > endMs) throw new Error(`the server did not start: ${this.#log}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    this.#log = "";
    // Replies while it loads its files say so.
    while ((await this.admin.ping().catch(() => "")) !== "PONG");
  }

  signal(name: NodeJS.Signals): void {
    this.#child?.kill(name);
  }

  async kill(): Promise<void> {
    this.signal("SIGKILL");
    await this.#ended;
    process.off("exit", this.#killNow);
  }

  async stop(): Promise<void> {
    this.admin.disconnect();
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Nothing outlives a test that was cut off. */
  readonly #killNow = (): void => {
    this.#child?.kill("SIGKILL");
  };
}

/** Starts three servers as a cluster. */
export async function startRedisCluster(program: RedisProgram): Promise<{
  readonly servers: readonly TestRedis[];
  stop(): Promise<void>;
}> {
  const servers: TestRedis[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(servers.map((server) => server.stop()));
  };
  try {
    for (let made = 0; made < 3; made += 1) servers.push(await startClusterNode(program));
    await join3(servers);
  } catch (error) {
    await stop();
    throw error;
  }
  return { servers, stop };
}

async function startClusterNode(program: RedisProgram): Promise<TestRedis> {
  const bus = String(await freePort());
  const cluster = ["--cluster-enabled", "yes", "--cluster-port", bus];
  const quick = ["--cluster-node-timeout", "2000"];
  const server = await startRedis(program, ["--appendonly", "no", ...cluster, ...quick]);
  return Object.assign(server, { bus });
}

const SLOTS = 16_384;

async function join3(servers: readonly TestRedis[]): Promise<void> {
  const share = Math.ceil(SLOTS / servers.length);
  for (const [at, { admin }] of servers.entries()) {
    const last = Math.min(SLOTS, (at + 1) * share) - 1;
    await admin.call("CLUSTER", "ADDSLOTSRANGE", String(at * share), String(last));
    await admin.call("CLUSTER", "SET-CONFIG-EPOCH", String(at + 1));
  }
  const [first, ...others] = servers as (TestRedis & { readonly bus: string })[];
  for (const { port, bus } of others)
    await first?.admin.call("CLUSTER", "MEET", "127.0.0.1", String(port), bus);
  for (const { admin } of servers)
    for (;;) {
      const info = String(await admin.call("CLUSTER", "INFO"));
      if (/cluster_state:ok/.test(info) && /cluster_known_nodes:3/.test(info)) break;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
}
