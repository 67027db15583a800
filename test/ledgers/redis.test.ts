// What the ledger in Redis promises beside the contract: refusals, scripts, answers that are lost, memory that is full.
import { createServer, type Socket, connect as connectSocket } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Redis } from "ioredis";
import { createClientPool } from "redis";
import { type RedisClient, redisSession } from "../../src/toolkit/databases/redis.ts";
import { acquireLease } from "../../src/toolkit/once/lease.ts";
import { confirming } from "../../src/toolkit/ledgers/redis-confirming.ts";
import { redisEntries } from "../../src/toolkit/ledgers/redis-entries.ts";
import { redisLedger } from "../../src/toolkit/ledgers/redis.ts";
import { freePort, startRedis, type TestRedis } from "../databases/redis.ts";
import { ABSENT, CLAIM, placeOf } from "./kit.ts";
import { atEnd, connect, newest, serve } from "./redis-kit.ts";

/** A log of writes. Tests that are about the disk say when it is written. */
const LOGGING = ["--appendonly", "yes", "--appendfsync", "no"];

const codeOf = (code: string): unknown => expect.objectContaining({ code });

/** A client that notes the names of its commands. */
function watch(client: Redis): { readonly watched: RedisClient; readonly names: string[] } {
  const names: string[] = [];
  const watched: RedisClient = {
    call(name: string, ...rest: string[]) {
      names.push(name);
      return client.call(name, ...rest);
    },
  };
  return { watched, names };
}

describe.skipIf(newest === undefined)("a ledger in Redis", () => {
  let server: TestRedis;
  beforeAll(async () => {
    if (newest !== undefined) server = await startRedis(newest, LOGGING);
  });
  afterAll(() => server.stop());
  beforeEach(async () => {
    await server.admin.flushall();
    await server.admin.config("SET", "appendfsync", "no");
  });
  const fsync = (when: string): Promise<unknown> => server.admin.config("SET", "appendfsync", when);

  async function newLedger(options = {}) {
    const ledger = redisLedger(await connect(server), options);
    await ledger.migrate();
    return ledger;
  }

  test("says what it is: no transactions, no outbox, and claims that a failover may lose", async () => {
    const ledger = await newLedger();
    await fsync("always");
    expect(ledger.supports).toEqual({
      transactions: false,
      isExclusive: false,
      durability: "server",
      outbox: [],
    });
    const promises = await ledger.describe();
    expect(promises).toMatchObject({ appendfsync: "always", isCluster: false, replicas: 0 });
    expect(promises.sentences.join(" ")).toMatch(/on the server's disk.*failover may lose/);
    await fsync("everysec");
    const weaker = await ledger.describe();
    expect(weaker.sentences[0]).toContain("about the last second");
    await expect(ledger.transaction(() => Promise.resolve())).rejects.toThrow("no transactions");
    expect(() => ledger.in(undefined as never)).toThrow(codeOf("unsupported"));
    expect(() => ledger.outbox).toThrow(codeOf("unsupported"));
  });

  describe("migrate", () => {
    test("refuses a server that deletes entries when its memory is full", async () => {
      const ledger = redisLedger(await connect(server));
      for (const policy of ["allkeys-lru", "volatile-ttl", "allkeys-random"]) {
        await server.admin.config("SET", "maxmemory-policy", policy);
        await expect(ledger.migrate()).rejects.toThrow(`maxmemory-policy=${policy}`);
      }
      const allowed = redisLedger(await connect(server), { allowEviction: true });
      await allowed.migrate();
      const { sentences } = await allowed.describe();
      expect(sentences.at(-1)).toContain("may delete claims");
      await server.admin.config("SET", "maxmemory-policy", "noeviction");
      await ledger.migrate();
    });

    test("refuses a replica", async () => {
      const replica = await serve(["--replicaof", `127.0.0.1 ${server.port}`]);
      const ledger = redisLedger(await connect(replica));
      await expect(ledger.migrate()).rejects.toThrow(/is a replica.*role=slave/);
    });

    test("refuses a server that is too old", async () => {
      // The words of version 6 in the place of this server's own.
      const old: RedisClient = {
        async call(name: string, ...rest: string[]) {
          const reply: unknown = await server.admin.call(name, ...rest);
          if (typeof reply !== "string") return reply;
          return reply.replaceAll(/(redis|valkey)_version:\d+/g, "$1_version:6");
        },
      };
      await expect(redisLedger(old).migrate()).rejects.toThrow(/too old.*version=6/);
    });

    test("refuses a server that cannot promise what was asked for", async () => {
      await fsync("everysec");
      const ledger = redisLedger(await connect(server), { durability: "fsync" });
      await expect(ledger.migrate()).rejects.toThrow("appendfsync=everysec");
      await fsync("always");
      await ledger.migrate();
      const without = await serve(["--appendonly", "no"]);
      const waiting = redisLedger(await connect(without), { durability: "waitaof" });
      await expect(waiting.migrate()).rejects.toThrow("durability=waitaof needs");
      expect((await waiting.describe()).appendfsync).toBe("off");
    });

    test("refuses another number of shards, and a layout of a newer version", async () => {
      await newLedger({ shards: 2 });
      for (const shards of [1, 3]) {
        const other = redisLedger(await connect(server), { shards });
        await expect(other.migrate()).rejects.toThrow(codeOf("invalid_options"));
        // Also without migrate: it would look for entries where they are not.
        const put = other.entries.put(placeOf("k"), ABSENT, CLAIM);
        await expect(put).rejects.toThrow(/another number of shards|has no ledger/);
      }
      await server.admin.hset("{hapax:0}:ledger", "layout", "2/1");
      await expect(newLedger()).rejects.toThrow(codeOf("schema_newer"));
    });
  });

  test("a server that has lost the ledger refuses every claim, instead of giving it again", async () => {
    const ledger = await newLedger();
    await ledger.entries.put(placeOf("k"), ABSENT, CLAIM);
    await server.admin.flushall();
    const again = ledger.entries.put(placeOf("k"), ABSENT, CLAIM);
    await expect(again).rejects.toThrow(/lost its data/);
    expect(await server.admin.dbsize()).toBe(0);
  });

  test("G56 an entry that the server has deleted behind the ledger is not claimed again, and the error says so", async () => {
    const ledger = await newLedger();
    const done = { ...CLAIM, state: "done", leaseMs: undefined, keepMs: 60_000 } as const;
    await ledger.entries.put(placeOf("k"), ABSENT, done);
    await ledger.entries.put(placeOf("kept"), ABSENT, CLAIM);
    // As a policy that was changed after migrate() does it, or a person.
    const keys = await server.admin.keys("{hapax:0}:entry:*");
    await server.admin.del(...keys.filter((key) => !key.includes("kept")));
    const again = ledger.entries.put(placeOf("k"), ABSENT, CLAIM);
    await expect(again).rejects.toThrow(/has deleted an entry .*maxmemory-policy.* key=k/);
    await expect(again).rejects.toThrow(codeOf("unsupported"));
    expect(await ledger.entries.find(placeOf("k"))).toBeUndefined();
    expect(await ledger.entries.put(placeOf("kept"), ABSENT, CLAIM)).toBeUndefined();
    const lax = redisLedger(await connect(server), { allowEviction: true });
    expect(await lax.entries.put(placeOf("k"), ABSENT, CLAIM)).toBeDefined();
    const { kind } = placeOf("k");
    expect(await ledger.entries.scan({ kind, state: "done", max: 10 })).toEqual([]);
    expect(await server.admin.zcard(`{hapax:0}:done:${kind}`)).toBe(0);
  });

  test("LG3 tokens are greater than those of a server that lost them, by the clock", async () => {
    const ledger = await newLedger();
    const before = await ledger.entries.put(placeOf("k"), ABSENT, CLAIM);
    await server.admin.flushall();
    await ledger.migrate();
    const after = await ledger.entries.put(placeOf("k"), ABSENT, CLAIM);
    expect(after?.token).toBeGreaterThan(before?.token ?? Infinity);
    // A clock that was set back does not take them with it: the last one counts too.
    const ahead = (after?.token ?? 0) + 3_600_000_000;
    await server.admin.hset("{hapax:0}:ledger", "token", String(ahead));
    const next = await ledger.entries.put(placeOf("other"), ABSENT, CLAIM);
    expect(next?.token).toBe(ahead + 1);
  });

  test("scripts go by their digest, and by their text after the server has forgotten them", async () => {
    const { watched, names } = watch(await connect(server));
    const ledger = redisLedger(watched);
    await ledger.migrate();
    await server.admin.script("FLUSH");
    names.length = 0;
    await ledger.entries.find(placeOf("k"));
    await ledger.entries.find(placeOf("k"));
    expect(names).toEqual(["EVALSHA", "EVAL", "EVALSHA"]);
  });

  test("LG2 a write that the client sends twice, because its answer was lost, is one write", async () => {
    const proxy = await startProxy(server.port);
    const client = new Redis(proxy.port, { retryStrategy: () => 5 });
    client.on("error", () => undefined);
    atEnd(() => {
      client.disconnect();
    });
    const ledger = redisLedger(client);
    await ledger.migrate();
    const warm = await ledger.entries.put(placeOf("warm"), ABSENT, CLAIM);
    for (const token of [undefined, warm?.token]) {
      const expected = token === undefined ? ABSENT : ({ kind: "owned", token } as const);
      const place = placeOf(token === undefined ? "new" : "warm");
      proxy.loseNextAnswer();
      const put = await ledger.entries.put(place, expected, { ...CLAIM, attempts: 7 });
      expect(proxy.lost()).toBe(token === undefined ? 1 : 2);
      const entry = await ledger.entries.find(place);
      expect(put).toEqual({ token: entry?.token, revision: entry?.revision });
      expect(entry).toMatchObject({ attempts: 7, revision: token === undefined ? 1 : 2 });
    }
  });

  test("with a full memory nothing new is claimed, and what was begun can be ended", async () => {
    const ledger = await newLedger();
    const begun = await ledger.entries.put(placeOf("begun"), ABSENT, CLAIM);
    const over = { ...CLAIM, state: "done", leaseMs: undefined, keepMs: 0 } as const;
    await ledger.entries.put(placeOf("over"), ABSENT, over);
    await server.admin.config("SET", "maxmemory", "1");
    try {
      const claim = ledger.entries.put(placeOf("new"), ABSENT, CLAIM);
      await expect(claim).rejects.toThrow(codeOf("store_full"));
      const owned = { kind: "owned", token: begun?.token ?? 0 } as const;
      const done = { ...CLAIM, state: "done", token: "same", leaseMs: undefined } as const;
      expect(await ledger.entries.put(placeOf("begun"), owned, done)).toBeDefined();
      expect(await ledger.entries.find(placeOf("begun"))).toMatchObject({ state: "done" });
      expect(await ledger.entries.sweep(10)).toBe(1);
    } finally {
      await server.admin.config("SET", "maxmemory", "0");
    }
    expect(await ledger.entries.find(placeOf("new"))).toBeUndefined();
  });

  test("errors of the server have a code: not now, not you", async () => {
    const ledger = await newLedger();
    await server.admin.call("REPLICAOF", "127.0.0.1", String(await freePort()));
    const put = ledger.entries.put(placeOf("k"), ABSENT, CLAIM);
    await expect(put).rejects.toThrow(codeOf("unreachable"));
    await server.admin.call("REPLICAOF", "NO", "ONE");
    await server.admin.call("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@read");
    const reader = redisLedger(
      await connect({ url: `redis://reader:secret@127.0.0.1:${server.port}` }),
    );
    await expect(reader.migrate()).rejects.toThrow(codeOf("invalid_options"));
    await server.admin.call("ACL", "DELUSER", "reader");
  });

  test("LG10 a scan and a sweep leave nothing behind, with more entries than one page has", async () => {
    const ledger = await newLedger({ shards: 2 });
    const over = { ...CLAIM, state: "done", leaseMs: undefined, keepMs: 0 } as const;
    const keys = Array.from({ length: 1100 }, (_, at) => `key-${at}`);
    await Promise.all(keys.map((key) => ledger.entries.put(placeOf(key), ABSENT, over)));
    const found = await ledger.entries.scan({ kind: "once", scope: "", state: "done", max: 2000 });
    expect(new Set(found.map(({ place }) => place.key)).size).toBe(1100);
    const tokens = found.map(({ token }) => token);
    expect(tokens).toEqual(tokens.toSorted((one, other) => one - other));
    expect(await ledger.entries.scan({ kind: "once", scope: "x", max: 1 })).toEqual([]);
    expect(await ledger.entries.sweep(2000)).toBe(1100);
    // Only the two ledgers are left: no member of an index.
    expect((await server.admin.keys("*")).toSorted()).toEqual([
      "{hapax:0}:ledger",
      "{hapax:1}:ledger",
    ]);
  });

  test("LG10 entries that become due in the same moment are all found", async () => {
    const ledger = await newLedger();
    const abandoned = { ...CLAIM, leaseMs: 0 };
    const keys = Array.from({ length: 1100 }, (_, at) => `key-${at}`);
    await Promise.all(keys.map((key) => ledger.entries.put(placeOf(key), ABSENT, abandoned)));
    // As a cluster with a coarse clock would have it.
    const due = "{hapax:0}:due:once";
    const ids = await server.admin.zrange(due, "0", "-1");
    await server.admin.call("ZADD", due, ...ids.flatMap((id) => ["5", id]));
    const filter = { kind: "once", scope: "", isAbandoned: true, max: 2000 } as const;
    for (const order of ["made", "due"] as const) {
      const found = await ledger.entries.scan({ ...filter, order });
      expect(new Set(found.map(({ place }) => place.key)).size).toBe(1100);
    }
  });

  describe("with durability waitaof", () => {
    test("a write is confirmed by the server, also over a new connection", async () => {
      await fsync("always");
      const client = await connect(server);
      const { watched, names } = watch(client);
      const ledger = redisLedger(watched, { durability: "waitaof" });
      await ledger.migrate();
      await ledger.entries.put(placeOf("first"), ABSENT, CLAIM);
      names.length = 0;
      await ledger.entries.put(placeOf("second"), ABSENT, CLAIM);
      expect(names).toEqual(["EVALSHA", "WAITAOF", "CLIENT"]);
      // A new connection has no writes to wait for: the write is made again on it, and changes nothing.
      names.length = 0;
      const id = String(await client.call("CLIENT", "ID"));
      await server.admin.call("CLIENT", "KILL", "ID", id);
      const put = await ledger.entries.put(placeOf("third"), ABSENT, CLAIM);
      expect(names).toEqual(["EVALSHA", "WAITAOF", "CLIENT", "EVALSHA", "WAITAOF", "CLIENT"]);
      expect(put).toMatchObject({ revision: 1 });
    });

    test("a write that replicas have not confirmed is not answered as done", async () => {
      await newLedger();
      await fsync("always");
      const session = confirming(redisSession(await connect(server)), 1, 50);
      const entries = redisEntries(session, { prefix: "hapax", shards: 1, allowEviction: false });
      const put = entries.put(placeOf("k"), ABSENT, CLAIM);
      await expect(put).rejects.toThrow(/not confirmed.*replicas=0 wanted=1/);
    });

    test("a pool of connections is refused", async () => {
      await fsync("always");
      const pool = createClientPool({ url: server.url }, { minimum: 5, maximum: 5 });
      await pool.connect();
      atEnd(() => {
        pool.destroy();
      });
      const ledger = redisLedger(pool, { durability: "waitaof" });
      await ledger.migrate();
      const puts = Array.from({ length: 10 }, (_, at) =>
        ledger.entries.put(placeOf(`k${at}`), ABSENT, CLAIM),
      );
      await expect(Promise.all(puts)).rejects.toThrow("not a pool");
      await Promise.allSettled(puts);
    });
  });

  test("options and clients that are none are refused", async () => {
    const client = await connect(server);
    for (const options of [
      { prefix: "" },
      { prefix: "a{b}" },
      { prefix: "x".repeat(65) },
      { shards: 0 },
      { shards: 1.5 },
      { shards: 257 },
      { replicas: 1 },
      { durability: "waitaof", replicas: -1 },
      { durability: "always" },
    ])
      expect(() => redisLedger(client, options as object)).toThrow(codeOf("invalid_options"));
    for (const wrong of [{}, undefined, "redis://localhost"])
      expect(() => redisLedger(wrong as never)).toThrow(codeOf("invalid_options"));
  });

  test("two prefixes are two ledgers", async () => {
    const [one, other] = [await newLedger(), await newLedger({ prefix: "other" })];
    await one.entries.put(placeOf("k"), ABSENT, CLAIM);
    expect(await other.entries.find(placeOf("k"))).toBeUndefined();
    const lease = await acquireLease(other, { scope: "s", key: "k" });
    expect(lease?.token).toBeGreaterThan(0);
    await lease?.release();
  });
});

interface Proxy {
  readonly port: number;
  /** Cuts the connection when the next answer comes from the server. */
  loseNextAnswer(): void;
  lost(): number;
}

async function startProxy(port: number): Promise<Proxy> {
  let isLosing = false;
  let lost = 0;
  const sockets = new Set<Socket>();
  const proxy = createServer((client) => {
    const upstream = connectSocket(port, "127.0.0.1");
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("error", () => undefined).on("close", () => sockets.delete(socket));
    }
    client.pipe(upstream);
    upstream.on("data", (bytes) => {
      if (isLosing) {
        isLosing = false;
        lost += 1;
        client.destroy();
        upstream.destroy();
      } else client.write(bytes);
    });
    upstream.on("close", () => client.destroy());
    client.on("close", () => upstream.destroy());
  });
  await new Promise<void>((resolve) => {
    proxy.listen(0, "127.0.0.1", resolve);
  });
  atEnd(() => {
    proxy.close();
    for (const socket of sockets) socket.destroy();
  });
  const address = proxy.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return {
    port: address.port,
    loseNextAnswer() {
      isLosing = true;
    },
    lost: () => lost,
  };
}
