// The contract of ledgers on Redis 7, Redis 8 and Valkey 9, with all clients of Node, and on a cluster of three.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  redisLedger,
  type RedisLedger,
  type RedisLedgerOptions,
} from "../../src/toolkit/ledgers/redis.ts";
import { ledgerConformance, type LedgerTarget } from "../../src/testing/ledger-conformance.ts";
import { startRedis, startRedisCluster, type TestRedis } from "../databases/redis.ts";
import { programOf, requirePart } from "../client/runtimes-kit.ts";
import {
  CLIENTS,
  CLUSTER_CLIENTS,
  newest,
  type OpenedClient,
  programs,
  serve,
} from "./redis-kit.ts";

/** The contract is the same with and without a disk; redis-crashes.test.ts is about the disk. */
const QUICK = ["--appendonly", "no"];

/** Six clients, one after the other: as six processes. */
class Opened {
  readonly #all: Promise<OpenedClient>[] = [];
  readonly #options: RedisLedgerOptions;
  readonly #open: () => Promise<OpenedClient>;
  #next = 0;

  constructor(open: () => Promise<OpenedClient>, options: RedisLedgerOptions = {}) {
    this.#open = open;
    this.#options = options;
  }

  async ledger(): Promise<RedisLedger> {
    const at = this.#next % 6;
    this.#next += 1;
    const { client } = await (this.#all[at] ??= this.#open());
    const ledger = redisLedger(client, this.#options);
    await ledger.migrate();
    return ledger;
  }

  async close(): Promise<void> {
    for (const { end } of await Promise.all(this.#all)) end();
  }
}

const cases = ledgerConformance.filter(({ needs }) => needs === "nothing");

/**
 * The whole contract on every server with every client takes two minutes: HAPAX_LONG=1 runs it. A default run has all of it on the
 * newest server with one client, and elsewhere what depends on the server: that one wins, tokens, time and sweeps.
 */
const isLong = process.env["HAPAX_LONG"] !== undefined;
const shortCases = ["LG2", "LG3", "LG4", "LG8"].flatMap(
  (label) => cases.find(({ title }) => title.startsWith(label)) ?? [],
);

function runAll(opened: () => Opened, isWhole = isLong): void {
  const target: LedgerTarget<never> = {
    open: () => opened().ledger(),
    write: () => Promise.reject(new Error("there is no transaction to write in")),
    read: () => Promise.resolve([]),
  };
  for (const { title, run } of isWhole ? cases : shortCases) test(title, () => run(target));
}

if (!isLong)
  console.log(
    "most cases of Redis run on one server with one client: HAPAX_LONG=1 runs all of them",
  );

test("the cases that a ledger in Redis leaves out are those of transactions, and of ledgers with one holder", () => {
  expect(cases.length).toBeGreaterThan(18);
  const left = ledgerConformance.filter(({ needs }) => needs !== "nothing");
  for (const { needs } of left) expect(needs).toMatch(/transactions|recovery/);
});

for (const program of programs) {
  describe(program.name, () => {
    let server: TestRedis;
    beforeAll(async () => {
      server = await startRedis(program, QUICK);
    });
    afterAll(() => server.stop());
    for (const [name, open] of Object.entries(CLIENTS)) {
      describe(`with ${name}`, () => {
        const opened = new Opened(() => open(server.url), { prefix: name });
        afterAll(() => opened.close());
        runAll(() => opened, isLong || (program === newest && name === "ioredis"));
      });
    }
  });
}

test("the contract holds in Bun, with its own client", async (context) => {
  context.skip(!isLong, "HAPAX_LONG=1 runs it");
  context.skip(newest === undefined, "there is no Redis");
  const require = createRequire(import.meta.url);
  const program = programOf(require.resolve("bun/package.json"), "bin/bun.exe", "bin/bun");
  const bun = requirePart(context, program, "no bun of this platform is installed: not tested");
  const { url } = await serve(QUICK);
  const script = fileURLToPath(new URL("./redis-bun.ts", import.meta.url));
  const child = spawn(bun, ["run", script, url], { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
  await new Promise((resolve) => child.once("close", resolve));
  expect(JSON.parse(output)).toEqual({ held: cases.length, wrong: [] });
});

describe.skipIf(newest === undefined)("a cluster of three", () => {
  let cluster: Awaited<ReturnType<typeof startRedisCluster>>;
  beforeAll(async () => {
    if (newest !== undefined) cluster = await startRedisCluster(newest);
  });
  afterAll(() => cluster.stop());
  for (const [name, open] of Object.entries(CLUSTER_CLIENTS)) {
    describe(`with ${name}`, () => {
      const ports = (): number[] => cluster.servers.map(({ port }) => port);
      const opened = new Opened(() => open(ports()), { prefix: name, shards: 8 });
      afterAll(() => opened.close());
      runAll(() => opened);

      test("entries are spread over the servers, and those of a shard are together", async () => {
        const shards = new Map<string, Set<number>>();
        for (const { admin, port } of cluster.servers)
          for (const key of await admin.keys(`{${name}:*`)) {
            const tag = key.slice(0, key.indexOf("}") + 1);
            shards.set(tag, (shards.get(tag) ?? new Set()).add(port));
          }
        expect(shards.size).toBe(8);
        for (const ports of shards.values()) expect(ports.size).toBe(1);
        expect(new Set([...shards.values()].flatMap((ports) => [...ports])).size).toBe(3);
        expect(await (await opened.ledger()).describe()).toMatchObject({ isCluster: true });
      });
    });
  }
});
