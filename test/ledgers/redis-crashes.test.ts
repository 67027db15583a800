// What a Redis server keeps when it is killed, and what it loses when another one takes over: the control that must fail.
import { describe, expect, test } from "vitest";
import { GLOBAL, processOnce } from "../../src/toolkit/ledger.ts";
import { type RedisLedger, redisLedger } from "../../src/toolkit/ledgers/redis.ts";
import { DURABLE, type TestRedis } from "../databases/redis.ts";
import type { EntryWrite } from "../../src/toolkit/ledgers/ledger.ts";
import { ABSENT, CLAIM } from "./kit.ts";
import { connect, newest, programs, serve } from "./redis-kit.ts";

const REPEATABLE = { effect: "repeatable", leaseMs: 60_000 } as const;

async function open(server: TestRedis): Promise<RedisLedger> {
  return redisLedger(await connect(server), { durability: "fsync" });
}

/** What the caller was told: the key, and the token of the attempt. */
type Told = Map<string, number>;

const DONE: EntryWrite = { ...CLAIM, state: "done", leaseMs: undefined };

/** Records work under new keys, four at once, until the server is gone. */
async function recordUntilGone(ledger: RedisLedger, told: Told, onTold: () => void): Promise<void> {
  let keys = told.size;
  const recording = async (): Promise<void> => {
    for (;;) {
      const key = `key-${(keys += 1)}`;
      const put = await ledger.entries.put({ kind: "once", scope: GLOBAL, key }, ABSENT, DONE);
      // One that was sent, and not told, before the last kill has its key already.
      if (put === undefined) continue;
      told.set(key, put.token);
      onTold();
    }
  };
  const all = await Promise.allSettled([recording(), recording(), recording(), recording()]);
  expect(all.map(({ status }) => status)).not.toContain("fulfilled");
}

/** The keys whose work would be done again. */
async function forgotten(ledger: RedisLedger, told: Told): Promise<readonly string[]> {
  const lost: string[] = [];
  for (const [key, token] of told) {
    const entry = await ledger.entries.find({ kind: "once", scope: GLOBAL, key });
    if (entry?.state !== "done" || entry.token !== token) lost.push(key);
  }
  return lost;
}

test.for(programs)(
  "G56 a server that is killed with appendfsync always has lost nothing that was told: $name",
  async (program) => {
    const server = await serve(DURABLE, program);
    const admin = await open(server);
    await admin.migrate();
    expect((await admin.describe()).appendfsync).toBe("always");
    const told: Told = new Map();
    for (let kills = 0; kills < 3; kills += 1) {
      // A client that gives up at once: what it has not heard counts as not told.
      const client = await connect(server);
      client.options.maxRetriesPerRequest = 0;
      const until = told.size + 25 + 10 * kills;
      let killed: Promise<void> | undefined;
      await recordUntilGone(redisLedger(client), told, () => {
        if (told.size >= until) killed ??= server.kill();
      });
      await killed;
      client.disconnect();
      await server.restart();
      expect(await forgotten(admin, told)).toEqual([]);
    }
    expect(told.size).toBeGreaterThan(100);
    const next = await processOnce(admin, { scope: GLOBAL, key: "next" }, () => 1, REPEATABLE);
    expect(next.token).toBeGreaterThan(Math.max(...told.values()));
  },
);

describe.skipIf(newest === undefined)("controls that must fail", () => {
  test("G56 a failover with a replica that lags loses claims, and the ledger had said so", async () => {
    const primary = await serve([...DURABLE, "--repl-diskless-sync-delay", "0"]);
    const replica = await serve([...DURABLE, "--replicaof", `127.0.0.1 ${primary.port}`]);
    const ledger = await open(primary);
    await ledger.migrate();
    while (!/master_link_status:up/.test(await replica.admin.info("replication")));
    const told: Told = new Map();
    const work = async (key: string): Promise<void> => {
      const { token } = await processOnce(ledger, { scope: GLOBAL, key }, () => key, REPEATABLE);
      told.set(key, token);
    };
    for (let made = 0; made < 10; made += 1) await work(`early-${made}`);
    await primary.admin.call("WAIT", "1", "5000");
    const promises = await ledger.describe();
    // The replica stands still, and its link is gone.
    replica.signal("SIGSTOP");
    await primary.admin.call("CLIENT", "KILL", "TYPE", "replica");
    for (let made = 0; made < 40; made += 1) await work(`late-${made}`);
    await primary.kill();
    replica.signal("SIGCONT");
    await replica.admin.call("REPLICAOF", "NO", "ONE");
    const after = await open(replica);
    await after.migrate();
    const lost = await forgotten(after, told);
    console.log(`a failover lost ${lost.length} of ${told.size} claims that were told`);
    // The control: if nothing was lost, this test shows nothing.
    expect(lost).toEqual(Array.from({ length: 40 }, (_, made) => `late-${made}`));
    expect(ledger.supports.durability).toBe("server");
    expect(promises.replicas).toBe(1);
    expect(promises.sentences).toContain(
      "A failover may lose claims that were answered: their work can be done again.",
    );
    // What was lost is done again, under a token that is greater than the lost one.
    for (const key of ["late-0", "late-39"]) {
      const again = await processOnce(after, { scope: GLOBAL, key }, () => "again", REPEATABLE);
      expect(again).toMatchObject({ isDuplicate: false, result: "again" });
      expect(again.token).toBeGreaterThan(Math.max(...told.values()));
    }
  });

  test("a server without a log loses everything, says so before, and refuses claims after", async () => {
    const server = await serve(["--appendonly", "no"]);
    const ledger = redisLedger(await connect(server));
    await ledger.migrate();
    const { sentences } = await ledger.describe();
    expect(sentences[0]).toContain("a restart loses claims");
    const key = { scope: GLOBAL, key: "k" };
    await processOnce(ledger, key, () => "once", REPEATABLE);
    await server.kill();
    await server.restart();
    let runs = 0;
    const again = processOnce(ledger, key, () => (runs += 1), REPEATABLE);
    await expect(again).rejects.toThrow("lost its data");
    expect(runs).toBe(0);
  });
});
