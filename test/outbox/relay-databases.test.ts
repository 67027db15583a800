// Relays on real databases: SQLite in a file, and PostgreSQL by its log and by rows that many relays take.
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import type pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { setFailpoint } from "../../src/base/failpoint.ts";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import {
  createDeadLetters,
  createOutbox,
  createRelay,
  forgetRelay,
  functionPublisher,
  type Publisher,
  type RelayOptions,
} from "../../src/toolkit/outbox.ts";
import { hapaxPublisher } from "../../src/toolkit/outbox/hapax-publisher.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { badNetwork, openStage, QUICK } from "../processing/stage.ts";
import { textOf } from "./relay-kit.ts";

const options: RelayOptions = {
  batchMax: 5,
  pollMs: 20,
  leaseMs: 300,
  retry: { pauseMs: 1, pauseMsMax: 20, attemptsMax: 3 },
  onError: () => undefined,
};

afterEach(() => {
  setFailpoint(undefined);
});

async function addAll<Tx>(ledger: Ledger<Tx>, texts: readonly string[]): Promise<void> {
  const outbox = createOutbox(ledger);
  for (const text of texts) {
    const [key = ""] = text.split(".");
    await ledger.transaction((tx) => outbox.add(tx, { topic: "x", key, payload: text }));
  }
}

const texts = Array.from({ length: 60 }, (_, index) => `${"abc"[index % 3]}.${index}`);
const ofKey = (all: readonly string[], key: string) => all.filter((one) => one.startsWith(key));

/** Two relays over two handles, until everything is there; once for each idempotency key, as a receiver has it. */
async function relayAll<Tx>(
  ledgers: readonly Ledger<Tx>[],
  count: number,
  poison: string | undefined,
): Promise<readonly string[]> {
  const seen = new Set<string>();
  const received: string[] = [];
  let finish: () => void = () => undefined;
  const done = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const publisher = functionPublisher(async (event, { idempotencyKey }) => {
    const text = textOf(event);
    if (text === poison) throw new Error("poison");
    if (seen.has(idempotencyKey)) return;
    seen.add(idempotencyKey);
    received.push(text);
    if (received.length === count) finish();
  });
  const relays = ledgers.map((ledger) => createRelay(ledger, publisher, options));
  const running = relays.map((relay) => relay.run());
  await done;
  await Promise.all(relays.map((relay) => relay.stop()));
  await Promise.all(running);
  return received;
}

describe("on SQLite", () => {
  test("two relays over two connections publish every event in the order of its key, around a poisoned one", async () => {
    const file = join(mkdtempSync(join(tmpdir(), "hapax-relay-")), "relay.db");
    const connections = [0, 1].map(() => new Database(file, { timeout: 10 }));
    const ledgers = connections.map((connection) => sqliteLedger(() => connection));
    const [ledger] = ledgers;
    if (ledger === undefined) throw new Error("there is a ledger");
    await ledger.migrate();
    const adding = addAll(ledger, texts);
    const received = await relayAll(ledgers, texts.length - 14, "c.20");
    await adding;
    for (const key of ["a", "b"]) expect(ofKey(received, key)).toEqual(ofKey(texts, key));
    expect(ofKey(received, "c")).toEqual(ofKey(texts, "c").slice(0, 6));
    for (const connection of connections) connection.close();
  });
});

describe("a relay with much to do", () => {
  test("leaves time to others of its process, also if nothing that it does takes any", async () => {
    const connection = new Database(":memory:");
    const ledger = sqliteLedger(() => connection);
    await ledger.migrate();
    const outbox = createOutbox(ledger);
    const messages = Array.from({ length: 1500 }, (_, payload) => ({ topic: "x", payload }));
    await ledger.transaction((tx) => outbox.addAll(tx, messages));
    let ticks = 0;
    const ticking = setInterval(() => (ticks += 1), 1);
    const publisher = functionPublisher(() => Promise.resolve());
    const { published } = await createRelay(ledger, publisher, { batchMax: 1 }).runOnce();
    clearInterval(ticking);
    connection.close();
    expect(published).toBe(1500);
    expect(ticks).toBeGreaterThan(2);
  });
});

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: relays on PostgreSQL: ${reason}`);

describe.skipIf(reason !== undefined)("on PostgreSQL", () => {
  let server: TestPostgres;
  beforeAll(async () => {
    server = await startPostgres();
    await postgresLedger<pg.PoolClient>(server.pool).migrate();
  });
  afterAll(async () => {
    await server.stop();
  });
  beforeEach(async () => {
    await server.pool.query(
      "TRUNCATE hapax_outbox, hapax_outbox_held, hapax_outbox_batches, hapax_entries",
    );
  });
  const open = (way: "log" | "rows") =>
    postgresLedger<pg.PoolClient>(server.openPool(), { outbox: { way } });

  for (const way of ["log", "rows"] as const) {
    test(`two relays on the ${way} publish every event in the order of its key, around a poisoned one`, async () => {
      const ledgers = [open(way), open(way)];
      const [ledger] = ledgers;
      if (ledger === undefined) throw new Error("there is a ledger");
      const adding = addAll(ledger, texts);
      const received = await relayAll(ledgers, texts.length - 14, "c.20");
      await adding;
      for (const key of ["a", "b"]) expect(ofKey(received, key)).toEqual(ofKey(texts, key));
      expect(ofKey(received, "c")).toEqual(ofKey(texts, "c").slice(0, 6));
    });

    test(`letters on the ${way} are replayed and discarded, and their keys go on`, async () => {
      const ledger = open(way);
      const letters = createDeadLetters(ledger);
      const received: string[] = [];
      const poison = new Set(["a.1", "b.1"]);
      const publisher = functionPublisher(async (event) => {
        if (poison.has(textOf(event))) throw new Error("poison");
        received.push(textOf(event));
      });
      const relay = createRelay(ledger, publisher, { ...options, retry: { attemptsMax: 1 } });
      await addAll(ledger, ["a.1", "b.1", "a.2", "b.2", "c.1"]);
      await relay.runOnce();
      expect(received).toEqual(["c.1"]);
      expect((await letters.groups()).map(({ count }) => count)).toEqual([2]);
      await letters.discard({ key: "a" });
      poison.clear();
      await letters.replay();
      await relay.runOnce();
      expect(ofKey(received, "a")).toEqual(["a.2"]);
      expect(ofKey(received, "b")).toEqual(["b.1", "b.2"]);
    });

    test(`relays on the ${way} that die everywhere store every event once in a stream`, async () => {
      const stage = await openStage(badNetwork(5));
      await stage.direct.stream("/v1/stream/x").create();
      const ledger = open(way);
      await addAll(ledger, texts);
      const publisher = hapaxPublisher({
        url: stage.proxy.url,
        clientOptions: { ...QUICK, timeoutMs: 200 },
        streamOf: () => "/v1/stream/x",
        hasEnvelope: false,
      });
      let [points, deaths] = [0, 0];
      setFailpoint((name) => {
        if (!name.startsWith("outbox.")) return;
        points += 1;
        if (points % 4 !== 0 || deaths >= 8) return;
        deaths += 1;
        throw new Error("it dies here");
      });
      const relay = createRelay(ledger, publisher, {
        ...options,
        leaseMs: 50,
        retry: { pauseMs: 1, pauseMsMax: 5, attemptsMax: 100 },
      });
      const running = relay.run();
      const stream = stage.direct.stream("/v1/stream/x");
      const seen: unknown[] = [];
      for await (const { value } of stream.follow()) {
        seen.push(value);
        if (seen.length === texts.length) break;
      }
      await relay.stop();
      await running;
      await stage.proxy.drain();
      const stored = (await stream.read().values()).map(String);
      for (const key of ["a", "b", "c"]) expect(ofKey(stored, key)).toEqual(ofKey(texts, key));
      expect([stored.length, deaths]).toEqual([texts.length, 8]);
      await stage.close();
    });
  }

  test("a relay whose batch was taken over can settle nothing, and the heir has its identity", async () => {
    const identities: string[] = [];
    let thaw: () => void = () => undefined;
    let isFrozen = false;
    let freeze: () => void = () => undefined;
    const froze = new Promise<void>((resolve) => {
      freeze = resolve;
    });
    const publisher: Publisher = {
      publish: async ({ events, identity }) => {
        identities.push(JSON.stringify([identity, events.map(({ id }) => id)]));
        if (!isFrozen) {
          isFrozen = true;
          freeze();
          await new Promise<void>((resolve) => {
            thaw = resolve;
          });
        }
        return events.map(() => ({ kind: "published" }));
      },
    };
    const [one, other] = [open("rows"), open("rows")];
    await addAll(one, ["a.1", "b.1"]);
    // Its timers never fire, as those of a stopped process.
    const clock = { nowMs: () => 0, steadyMs: () => 0, after: () => () => undefined };
    const frozen = createRelay(one, publisher, { ...options, leaseMs: 30, clock }).runOnce();
    await froze;
    const heir = createRelay(other, publisher, { ...options, leaseMs: 2000 });
    while (identities.length < 2) await heir.runOnce();
    thaw();
    await expect(frozen).rejects.toMatchObject({ code: "lease_lost" });
    expect(identities[1]).toBe(identities[0]);
    const { rows } = await server.pool.query("SELECT id FROM hapax_outbox");
    expect(rows).toEqual([]);
  });

  test.each(["was stored", "was never sent"])(
    "a batch that %s, and of which a row was deleted by hand, is not stored twice and holds up nothing",
    async (fate) => {
      const stage = await openStage();
      const [one, other] = [open("rows"), open("rows")];
      await addAll(one, ["a.1", "b.1", "c.1"]);
      const publisher = hapaxPublisher({
        url: stage.proxy.url,
        clientOptions: { ...QUICK },
        streamOf: () => "/v1/stream/x",
        hasEnvelope: false,
        create: {},
        encode: textOf,
      });
      const point = fate === "was stored" ? "outbox.published" : "outbox.planned";
      setFailpoint((name) => {
        if (name === point) throw new Error("killed");
        return undefined;
      });
      // Long enough for a slow machine to reach the point; the other relay waits until it is over.
      const dying = createRelay(one, publisher, { ...options, leaseMs: 500 });
      await expect(dying.runOnce()).rejects.toThrow("killed");
      setFailpoint(undefined);
      await server.pool.query("DELETE FROM hapax_outbox WHERE key = 'b'");
      const left = async () =>
        (await server.pool.query("SELECT id FROM hapax_outbox")).rows.length > 0;
      while (await left()) await createRelay(other, publisher, options).runOnce();
      const stored = await stage.direct.stream("/v1/stream/x").read().values();
      expect(stored).toEqual(fate === "was stored" ? ["a.1", "b.1", "c.1"] : ["a.1", "c.1"]);
      await stage.close();
    },
  );

  test("behind a dead letter the rows of its key wait, or go on without it", async () => {
    const ledger = open("rows");
    const done: string[] = [];
    const publisher = functionPublisher(async (event) => {
      if (textOf(event) === "a.1") throw new Error("poison");
      done.push(textOf(event));
    });
    const run = (afterDead: "block" | "continue") =>
      createRelay(ledger, publisher, {
        ...options,
        afterDead,
        retry: { attemptsMax: 1 },
      }).runOnce();
    await addAll(ledger, ["a.1", "a.2", "b.1", "a.3"]);
    await run("block");
    expect(done).toEqual(["b.1"]);
    expect(await run("continue")).toEqual({ published: 2, failed: 0, dead: 0 });
    expect(done).toEqual(["b.1", "a.2", "a.3"]);
    expect(await createDeadLetters(ledger).list()).toHaveLength(1);
  });

  test("the rows of a relay that will not come back go to others, when its lease is over", async () => {
    const ledger = open("rows");
    const publisher = functionPublisher(() => Promise.resolve());
    await addAll(ledger, ["a.1", "a.2"]);
    const { outbox } = ledger;
    if (outbox.way !== "rows") throw new Error("no rows");
    const held = await outbox.rows.claim("old", 10, 60_000, "block");
    expect(held?.events).toHaveLength(2);
    await expect(forgetRelay(ledger, "old")).rejects.toMatchObject({ code: "in_progress" });
    const run = () => createRelay(ledger, publisher, { ...options, name: "new" }).runOnce();
    expect((await run()).published).toBe(0);
    await server.pool.query("UPDATE hapax_outbox_batches SET lease_until = clock_timestamp()");
    expect((await run()).published).toBe(0);
    await forgetRelay(ledger, "old");
    expect((await run()).published).toBe(2);
  });

  test("OL6 a hundred thousand events behind one failure cost a relay no more than a few", async () => {
    const ledger = open("log");
    await createRelay(
      ledger,
      functionPublisher(() => Promise.resolve()),
      options,
    ).runOnce();
    await server.pool.query(
      `INSERT INTO hapax_outbox_held (relay, event_id, place, topic, key, payload, headers, added_at, state, attempts, due_at)
       SELECT 'relay', 'x' || n, n, 't', 'k', '', '{}', now(), 'waiting', 0, now() + interval '100 years'
       FROM generate_series(1, 100000) AS n`,
    );
    await server.pool.query("ANALYZE hapax_outbox_held");
    const pool = server.openPool();
    const plans = async (sql: string, values: readonly unknown[]): Promise<number> => {
      const { rows } = await pool.query<{ readonly "QUERY PLAN": readonly [Plan] }>(
        `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${sql}`,
        [...values],
      );
      return rows[0]?.["QUERY PLAN"][0].Plan["Shared Hit Blocks"] ?? Infinity;
    };
    // As the relay asks, through a pool that explains every question.
    const blocks: number[] = [];
    const explaining = {
      connect: async () => {
        const client = await pool.connect();
        const query = async (sql: string, values: readonly unknown[] = []) => {
          if (sql.includes("hapax_outbox_held")) blocks.push(await plans(sql, values));
          return await client.query<Record<string, unknown>>(sql, [...values]);
        };
        const release = (error?: Error | boolean): void => {
          client.release(error);
        };
        return { query, release };
      },
      query: (sql: string, values: readonly unknown[] = []) => pool.query(sql, [...values]),
    };
    const { outbox } = postgresLedger(explaining);
    expect(
      await outbox.held.list({ relay: "relay", state: "waiting", isDue: true, max: 100 }),
    ).toEqual([]);
    expect([...(await outbox.held.keys("relay", ["k", "other"]))]).toEqual(["k"]);
    expect(blocks).toHaveLength(2);
    for (const count of blocks) expect(count).toBeLessThan(50);
  });
});

interface Plan {
  readonly Plan: { readonly "Shared Hit Blocks": number };
}
