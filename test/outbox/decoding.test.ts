// The outbox by logical decoding on a real PostgreSQL: rows and messages, slots, and what is kept on disk.
import { mkdirSync, mkdtempSync, symlinkSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import pg from "pg";
import postgres from "postgres";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { openOutboxDatabase } from "../../src/cli/outbox-database.ts";
import { pgPoolSession, postgresSession } from "../../src/toolkit/databases/postgres.ts";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { createPostgresDecoding } from "../../src/toolkit/ledgers/postgres-decoding.ts";
import {
  describeSlot,
  dropSlot,
  explainSlotError,
} from "../../src/toolkit/ledgers/postgres-slot.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { createOutbox, createRelay, functionPublisher } from "../../src/toolkit/outbox.ts";
import type { LogOutbox, NewOutboxEvent, OutboxEvent } from "../../src/toolkit/outbox/log.ts";
import { outboxConformance } from "../../src/testing/outbox-conformance.ts";
import { hapax } from "../kits/cli-harness.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";

type Way = "decoding" | "messages";
type Log = LogOutbox<pg.PoolClient>;

const WAYS: readonly Way[] = ["decoding", "messages"];
const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: logical decoding: ${reason}`);

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const event = (text: string, key = "k"): NewOutboxEvent => ({
  topic: "t",
  key,
  payload: encoder.encode(text),
});
const textsOf = (events: readonly OutboxEvent[]): readonly string[] =>
  events.map(({ payload }) => decoder.decode(payload));

let server: TestPostgres;
const connections: pg.PoolClient[] = [];
const proxies: Server[] = [];
beforeAll(async () => {
  if (reason !== undefined) return;
  server = await startPostgres();
  await postgresLedger<pg.PoolClient>(server.pool).migrate();
  await sql("CREATE TABLE others (id serial PRIMARY KEY, text text)");
});
afterEach(async () => {
  if (reason !== undefined) return;
  for (const client of connections.splice(0)) {
    await client.query("ROLLBACK");
    client.release();
  }
  await sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots");
});
afterAll(async () => {
  for (const proxy of proxies) proxy.close();
  await server?.stop();
});

const sql = async (text: string, values: unknown[] = []): Promise<readonly pg.QueryResultRow[]> =>
  (await server.pool.query<pg.QueryResultRow>(text, values)).rows;

/** Small distances: a test need not write much to see something move. */
function openLog(way: Way, bytes = 1, pool: pg.Pool = server.pool): Log {
  const distances = { advanceBytes: bytes, heartbeatBytes: bytes };
  return createPostgresDecoding(pgPoolSession<pg.PoolClient>(pool), undefined, { way }, distances);
}

/** Without movements of its own. */
const openStill = (way: Way): Log => openLog(way, 1_000_000_000);

const add = (log: Log, ...texts: readonly string[]): Promise<readonly string[]> =>
  pgPoolSession<pg.PoolClient>(server.pool).transaction((tx) =>
    log.add(
      tx,
      texts.map((text) => event(text)),
    ),
  );

/** The server listens on a socket in its folder; a URL names a port. */
async function openPort(): Promise<number> {
  const proxy = createServer((socket) => {
    const inner = connect(join(server.host, ".s.PGSQL.5432"));
    socket.pipe(inner).pipe(socket);
    for (const one of [socket, inner]) one.on("error", () => undefined);
  });
  proxies.push(proxy);
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  return (proxy.address() as AddressInfo).port;
}

/** A folder of an application that has this driver, and no other. */
function folderWith(driver: string): string {
  const folder = mkdtempSync(join(tmpdir(), "hapax-driver-"));
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(join(process.cwd(), "node_modules", driver), join(folder, "node_modules", driver));
  return folder;
}

/** A transaction of several steps. */
async function begin(): Promise<pg.PoolClient> {
  const client = await server.pool.connect();
  connections.push(client);
  await client.query("BEGIN");
  return client;
}

interface Followed {
  readonly to: string;
  readonly pages: readonly (readonly string[])[];
}

async function follow(log: Log, from: string, max = 100): Promise<Followed> {
  const pages: (readonly string[])[] = [];
  for (let at = from; ;) {
    const span = await log.spans.plan(at, max);
    if (span === undefined) return { to: at, pages };
    const events = await log.spans.read(span);
    if (events.length > 0) pages.push(textsOf(events));
    at = span.to;
    // The position of the ledger is no part of this test: what others write need not be gone through to its end.
    if (events.length === 0) return { to: at, pages };
  }
}

describe.skipIf(reason !== undefined).each(WAYS)("the outbox by %s", (way) => {
  for (const { title, ways, run } of outboxConformance) {
    if (!ways.includes(way)) continue;
    test(title, async () => {
      const open = async (): Promise<Ledger<pg.PoolClient>> =>
        postgresLedger<pg.PoolClient>(server.pool, { outbox: { way } });
      expect(await run({ open })).toBeUndefined();
    });
  }

  test("has the order of commits: a lower id that commits later comes later, and is not lost", async () => {
    const log = openStill(way);
    const from = await log.spans.start("beginning", "relay");
    const [first, second] = [await begin(), await begin()];
    await log.add(first, [event("first")]);
    await log.add(second, [event("second")]);
    await second.query("COMMIT");
    const { to, pages } = await follow(log, from);
    expect(pages).toEqual([["second"]]);
    await first.query("COMMIT");
    expect((await follow(log, to)).pages).toEqual([["first"]]);
    expect((await follow(log, from)).pages.flat()).toEqual(["second", "first"]);
  });

  test("is not stopped by a long transaction of another client", async () => {
    const log = openStill(way);
    const from = await log.spans.start("beginning", "relay");
    const long = await begin();
    await long.query("INSERT INTO others (text) VALUES ('long')");
    await add(log, "one");
    const { to, pages } = await follow(log, from);
    expect(pages).toEqual([["one"]]);
    await add(log, "two");
    expect((await follow(log, to)).pages).toEqual([["two"]]);
  });

  test("knows nothing of what was rolled back, as a whole or to a savepoint", async () => {
    const log = openStill(way);
    const from = await log.spans.start("beginning", "relay");
    const tx = await begin();
    const say = (text: string) => log.add(tx, [event(text)]);
    await say("one");
    await tx.query("SAVEPOINT a");
    await say("never");
    await tx.query("SAVEPOINT b");
    await say("nor this");
    await tx.query("ROLLBACK TO a");
    await say("two");
    await tx.query("SAVEPOINT c");
    await say("three");
    await tx.query("RELEASE c");
    const gone = await begin();
    await log.add(gone, [event("gone")]);
    await gone.query("ROLLBACK");
    await tx.query("COMMIT");
    expect((await follow(log, from)).pages).toEqual([["one", "two", "three"]]);
  });

  test("never splits a transaction: a page has at least a whole one, and no more than fit", async () => {
    const log = openStill(way);
    const from = await log.spans.start("beginning", "relay");
    await add(log, "a");
    await add(log, "b", "c");
    const many = Array.from({ length: 5000 }, (_, index) => String(index));
    await add(log, ...many);
    await add(log, "d");
    const { pages } = await follow(log, from, 3);
    expect(pages.map((page) => page.length)).toEqual([3, 5000, 1]);
    expect(pages.flat()).toEqual(["a", "b", "c", ...many, "d"]);
  });

  test("has committed events in the order of commits, with any interleaving of transactions", async () => {
    const log = openStill(way);
    let at = await log.spans.start("beginning", "relay");
    const act = fc.constantFrom(
      "add",
      "add",
      "save",
      "back",
      "commit",
      "commit",
      "rollback",
      "read",
    );
    const steps = fc.array(fc.tuple(fc.nat({ max: 2 }), act), { maxLength: 40 });
    let count = 0;
    await fc.assert(
      fc.asyncProperty(steps, async (history) => {
        const clients = await Promise.all([begin(), begin(), begin()]);
        const open = clients.map((client) => ({ client, texts: [] as string[], saved: -1 }));
        const [expected, seen]: [string[], string[]] = [[], []];
        const read = async (): Promise<void> => {
          const followed = await follow(log, at, 4);
          seen.push(...followed.pages.flat());
          at = followed.to;
        };
        for (const [index, what] of history) {
          const one = open[index];
          if (one === undefined) throw new Error("three writers");
          if (what === "read") await read();
          if (what === "add") {
            const text = String((count += 1));
            await log.add(one.client, [event(text)]);
            one.texts.push(text);
          }
          if (what === "save") {
            await one.client.query("SAVEPOINT s");
            one.saved = one.texts.length;
          }
          if (what === "back" && one.saved >= 0) {
            await one.client.query("ROLLBACK TO s");
            one.texts.length = one.saved;
          }
          if (what === "commit" || what === "rollback") {
            await one.client.query(`${what}; BEGIN`);
            if (what === "commit") expected.push(...one.texts);
            Object.assign(one, { texts: [], saved: -1 });
          }
        }
        for (const { client, texts } of open) {
          await client.query("COMMIT");
          expected.push(...texts);
          client.release();
          connections.splice(connections.indexOf(client), 1);
        }
        await read();
        expect(seen).toEqual(expected);
      }),
      { numRuns: 15 },
    );
  });

  test("sees nothing but events: not other tables, other messages, or messages outside of transactions", async () => {
    const log = openStill(way);
    const from = await log.spans.start("beginning", "relay");
    const foreign = "SELECT pg_logical_emit_message";
    await sql("INSERT INTO others (text) VALUES ('x')");
    await sql(`${foreign}(true, 'stranger', 'x'), ${foreign.slice(7)}(false, 'hapax.outbox', 'x')`);
    await sql(`${foreign}(true, 'hapax.outbox2', 'x'), ${foreign.slice(7)}(true, 'hapax', 'x')`);
    expect(await log.spans.plan(from, 10)).toBeUndefined();
    const tx = await begin();
    await tx.query("INSERT INTO others (text) VALUES ('y')");
    await tx.query(
      `${foreign}(true, 'stranger', 'y'), ${foreign.slice(7)}(false, 'hapax.outbox', 'y')`,
    );
    await log.add(tx, [event("ours")]);
    await tx.query("COMMIT");
    expect((await follow(log, from)).pages).toEqual([["ours"]]);
  });

  test("can read again what its position has not passed, after any number of cleanups", async () => {
    const log = openLog(way);
    const from = await log.spans.start("beginning", "relay");
    await add(log, "a");
    const still = openStill(way);
    const middle = (await follow(still, from)).to;
    await add(log, "b");
    const span = await still.spans.plan(middle, 10);
    if (span === undefined) throw new Error("there is an event");
    // The intent to publish the span is kept, the position is not: the relay died, and others clean.
    for (let round = 0; round < 3; round += 1) await log.spans.clean([middle], 0, 100);
    expect(textsOf(await log.spans.read(span))).toEqual(["b"]);
    expect((await follow(still, middle)).pages).toEqual([["b"]]);
    expect(await log.spans.plan(middle, 10)).toEqual(span);
    expect(textsOf(await log.spans.read(span))).toEqual(["b"]);
    // What was published and kept is given up: by cleaning, and by planning on.
    await log.spans.clean([span.to], 0, 100);
    await expect(log.spans.read(span)).rejects.toMatchObject({ code: "position_lost" });
    await expect(log.spans.plan(middle, 10)).rejects.toThrow("it is ahead of the position");
    expect((await follow(log, span.to)).pages).toEqual([]);
    await add(log, "c");
    const last = (await follow(still, span.to)).to;
    expect(await log.spans.plan(last, 10)).toBeUndefined();
    await expect(still.spans.plan(span.to, 10)).rejects.toThrow("it is ahead of the position");
  });

  test("goes on exactly in another process, and each relay has a slot of its own", async () => {
    const log = openLog(way);
    const [one, other] = [
      await log.spans.start("beginning", "A"),
      await log.spans.start("beginning", "a"),
    ];
    expect(one).not.toBe(other);
    await add(log, "1");
    await add(log, "2");
    const span = await log.spans.plan(one, 1);
    if (span === undefined) throw new Error("there are two events");
    await log.spans.clean([span.to, other], 0, 100);
    const pool = server.openPool();
    const restarted = openLog(way, 1_000_000_000, pool);
    expect((await follow(restarted, span.to)).pages).toEqual([["2"]]);
    expect((await follow(restarted, other)).pages).toEqual([["1", "2"]]);
    // A relay that lost its position before it could keep it finds its slot, and nothing is skipped.
    expect(
      (await follow(restarted, await restarted.spans.start("beginning", "a"))).pages.flat(),
    ).toEqual(["1", "2"]);
  });

  test("releases the journal of other writes while no events are added", async () => {
    const log = openLog(way, 100_000);
    let at = await log.spans.start("beginning", "relay");
    const write = "INSERT INTO others (text) SELECT repeat('x', 500) FROM generate_series(1, 2000)";
    await sql(write);
    const before = await describeSlot(server.pool, "relay", { way });
    expect(before?.retainedBytes).toBeGreaterThan(1_000_000);
    expect((await log.lag(at)).slotBytes).toBe(before?.retainedBytes);
    // What a server does by itself every few seconds: without it no slot lets go of anything.
    await sql("SELECT pg_log_standby_snapshot()");
    await sql("INSERT INTO others (text) VALUES ('now it is on disk')");
    const span = await log.spans.plan(at, 10);
    if (span === undefined) throw new Error("the position moves on");
    expect(await log.spans.read(span)).toEqual([]);
    at = span.to;
    await log.spans.clean([at], 0, 100);
    const after = await describeSlot(server.pool, "relay", { way });
    expect(after?.retainedBytes).toBeLessThan(100_000);
    expect(after).toMatchObject({
      walStatus: "reserved",
      isUnlimited: true,
      safeWalBytes: undefined,
    });
    // And an event that was added meanwhile stops it.
    await sql(write);
    await add(log, "ours");
    await sql(write);
    expect((await follow(log, at)).pages).toEqual([["ours"]]);
  });

  test("a relay that is forgotten on the command line leaves no slot behind", async () => {
    const ledger = postgresLedger<pg.PoolClient>(server.openPool(), { outbox: { way } });
    const publisher = functionPublisher(() => Promise.resolve());
    await createRelay(ledger, publisher, { name: "old" }).runOnce();
    const before = await describeSlot(server.pool, "old", { way });
    const url = `postgres://postgres@localhost/postgres?host=${encodeURIComponent(server.host)}`;
    const words = ["outbox", "forget", "--relay", "old", "--database", url];
    expect(await hapax(words)).toMatchObject({
      code: 0,
      stdout: `forgot relay old; slot ${before?.slot} dropped\n`,
    });
    expect(await describeSlot(server.pool, "old", { way })).toBeUndefined();
  });

  test("tells that a slot is gone, was made anew, or is of another database, and skips nothing", async () => {
    const log = openStill(way);
    const at = await log.spans.start("beginning", "relay");
    const slot = (JSON.parse(at) as { slot: string }).slot;
    await add(log, "lost");
    expect(await dropSlot(server.pool, "relay", { way })).toBe(true);
    expect(await dropSlot(server.pool, "relay", { way })).toBe(false);
    const span = { from: at, to: at };
    for (const call of [
      () => log.spans.plan(at, 1),
      () => log.spans.read(span),
      () => log.lag(at),
    ]) {
      await expect(call()).rejects.toMatchObject({ code: "position_lost" });
      await expect(call()).rejects.toThrow("it does not exist any more");
    }
    // Cleaning goes on for the others: the relay itself tells.
    expect(await log.spans.clean([at], 0, 100)).toBe(0);
    await sql("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", [slot]);
    await expect(log.spans.plan(at, 1)).rejects.toThrow("it is ahead of the position");
    const beyond = JSON.stringify({ slot, lsn: "FFFF/0" });
    await expect(log.spans.plan(beyond, 1)).rejects.toThrow("this is another database");
    const [long, ...same] = await Promise.all(
      ["é".repeat(100), "é".repeat(101)].map((name) => log.spans.start("end", name)),
    );
    expect(same).not.toContain(long);
    // The names of slots are shared by all databases of a server.
    await dropSlot(server.pool, "relay", { way });
    const elsewhere = new pg.Pool({ host: server.host, user: "postgres", database: "template1" });
    await elsewhere.query("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", [slot]);
    await expect(log.spans.start("end", "relay")).rejects.toMatchObject({ code: "unsupported" });
    await elsewhere.query("SELECT pg_drop_replication_slot($1)", [slot]);
    await elsewhere.end();
    await expect(log.spans.plan("17", 1)).rejects.toMatchObject({ code: "invalid_request" });
    await expect(log.spans.plan("no position", 1)).rejects.toMatchObject({
      code: "invalid_request",
    });
  });

  test("many that start and read at once share one slot, each in its turn", async () => {
    const logs = Array.from({ length: 6 }, () => openStill(way));
    const starts = await Promise.all(logs.map((log) => log.spans.start("beginning", "relay")));
    expect(new Set(starts).size).toBe(1);
    const [log, at] = [logs[0] ?? openStill(way), starts[0] ?? ""];
    await add(log, "a");
    await add(log, "b");
    const all = await Promise.all(logs.map((one) => follow(one, at, 1)));
    expect(all.map(({ pages }) => pages.flat())).toEqual(logs.map(() => ["a", "b"]));
    const places = [...new Set(all.map(({ to }) => to))];
    expect(places).toHaveLength(1);
    const movers = logs.map(() => openLog(way));
    await Promise.all(movers.map((one, index) => one.spans.clean([places[index % 2] ?? at], 0, 1)));
  });

  test("feeds a relay, which goes on where it was, and the command line tells how far it is", async () => {
    const ledger = postgresLedger<pg.PoolClient>(server.pool, { outbox: { way } });
    const outbox = createOutbox(ledger);
    const seen: string[] = [];
    const publisher = functionPublisher(async ({ key }) => {
      if (key === "bad") throw new Error("no route");
      seen.push(key ?? "");
    });
    const name = `feeds-${way}`;
    const relay = () => createRelay(ledger, publisher, { name, retry: { attemptsMax: 1 } });
    await relay().runOnce();
    for (const key of ["1", "2", "bad", "3", "bad"]) {
      await ledger.transaction((tx) => outbox.add(tx, { topic: "t", key, payload: key }));
    }
    expect((await relay().runOnce()).published).toBe(3);
    expect((await relay().runOnce()).published).toBe(0);
    expect(seen).toEqual(["1", "2", "3"]);
    await ledger.transaction((tx) => outbox.add(tx, { topic: "t", key: "4", payload: "late" }));

    // Only the driver of the folder is used: here the one, and then the other.
    const url = `postgres://postgres@127.0.0.1:${String(await openPort())}/postgres`;
    for (const driver of ["pg", "postgres"]) {
      const options = { directory: folderWith(driver), schema: undefined };
      const database = await openOutboxDatabase(url, options);
      const held = await database.ledger.outbox.held.list({ relay: name, max: 10 });
      expect(held.map(({ state }) => state)).toEqual(["dead", "waiting"]);
      await database.close();
    }
    const words = ["outbox", "status", "--database", url, "--relay", name, "--json"];
    const status = JSON.parse((await hapax(words)).stdout) as Record<string, number>;
    expect(status).toMatchObject({ relay: name, waiting: 1, dead: 1 });
    expect(status["lagSeconds"]).toBeGreaterThan(0);
    expect(status["slotBytes"]).toBeGreaterThan(0);
    expect((await relay().runOnce()).published).toBe(1);
  });

  test("works with the other client", async () => {
    await sql("DELETE FROM hapax_outbox");
    const client = postgres({ host: server.host, user: "postgres", database: "postgres", max: 3 });
    const session = postgresSession<postgres.TransactionSql>(client);
    const log = createPostgresDecoding(session, undefined, { way });
    const at = await log.spans.start("end", "relay");
    const payload = Uint8Array.of(0, 10, 255);
    const headers = { a: "ü\n" };
    const ids = await session.transaction((tx) => log.add(tx, [{ topic: "x", payload, headers }]));
    const span = await log.spans.plan(at, 10);
    const events = span === undefined ? [] : await log.spans.read(span);
    expect(events).toEqual([
      { id: ids[0], topic: "x", key: undefined, payload, headers, addedAtMs: expect.any(Number) },
    ]);
    expect((await log.lag(at)).oldestMs).toBeGreaterThan(0);
    expect(await log.spans.clean([at], 0, 10)).toBe(0);
    expect(await describeSlot(client, "relay", { way })).toMatchObject({ walStatus: "reserved" });
    await client.end();
  });
});

describe.skipIf(reason !== undefined)("rows that are decoded", () => {
  test("come also if they are deleted in their transaction: the table stays empty", async () => {
    const log = openStill("decoding");
    const from = await log.spans.start("beginning", "relay");
    await sql("DELETE FROM hapax_outbox");
    const tx = await begin();
    await log.add(tx, [event("gone at once")]);
    await tx.query("DELETE FROM hapax_outbox");
    await tx.query("COMMIT");
    expect(await sql("SELECT 1 FROM hapax_outbox")).toEqual([]);
    expect((await follow(log, from)).pages).toEqual([["gone at once"]]);
  });

  test("are missed by a publication without the table, which is an error", async () => {
    const log = openStill("decoding");
    const from = await log.spans.start("beginning", "relay");
    await sql("ALTER PUBLICATION hapax_outbox DROP TABLE hapax_outbox");
    await add(log, "not published");
    await expect(log.spans.plan(from, 1)).rejects.toMatchObject({ code: "invalid_options" });
    await expect(log.spans.start("beginning", "relay")).rejects.toThrow("publication=hapax_outbox");
    await sql("DROP PUBLICATION hapax_outbox");
    await expect(log.spans.plan(from, 1)).rejects.toMatchObject({ code: "invalid_options" });
  });

  test("are deleted in small parts, only when every relay is past them", async () => {
    const log = openLog("decoding");
    await sql("DELETE FROM hapax_outbox");
    const [slow, fast] = [
      await log.spans.start("end", "slow"),
      await log.spans.start("end", "fast"),
    ];
    await add(log, "a", "b", "c");
    const { to } = await follow(openStill("decoding"), fast);
    const late = await begin();
    await log.add(late, [event("late")]);
    expect(await log.spans.clean([to, slow], 0, 100)).toBe(0);
    const passed = (await follow(openStill("decoding"), slow)).to;
    expect(await log.spans.clean([to, passed], 3_600_000, 100)).toBe(0);
    // A relay of another way has a position that means nothing here, and needs the rows.
    expect(await log.spans.clean([to, passed, '{"last":"1:1:"}'], 0, 100)).toBe(0);
    expect(await log.spans.clean([], 0, 100)).toBe(0);
    await late.query("COMMIT");
    expect(await log.spans.clean([to, passed], 0, 2)).toBe(2);
    expect(await log.spans.clean([to, passed], 0, 2)).toBe(1);
    expect(await log.spans.clean([to, passed], 0, 2)).toBe(0);
    await dropSlot(server.pool, "slow", { way: "decoding" });
    const end = (await follow(openStill("decoding"), to)).to;
    expect(await log.spans.clean([end, passed], 0, 2)).toBe(0);
    expect(await log.spans.clean([end], 0, 2)).toBe(1);
  });

  test("are not skipped when PostgreSQL has invalidated the slot, and they stay", async () => {
    const log = openLog("decoding");
    const at = await log.spans.start("end", "relay");
    await add(log, "kept");
    await sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'");
    await sql("SELECT pg_reload_conf()");
    try {
      for (let round = 0; round < 100; round += 1) {
        await sql("INSERT INTO others (text) VALUES ('x')");
        await sql("SELECT pg_switch_wal()");
        await sql("CHECKPOINT");
        const slot = await describeSlot(server.pool, "relay", { way: "decoding" });
        expect(slot).toMatchObject({ isUnlimited: false });
        if (slot?.walStatus === "lost") break;
      }
      await expect(log.spans.plan(at, 1)).rejects.toThrow("PostgreSQL has invalidated it");
      await expect(log.spans.start("beginning", "relay")).rejects.toThrow(
        "PostgreSQL has invalidated it",
      );
      expect(await log.spans.clean([at], 0, 100)).toBe(0);
    } finally {
      await sql("ALTER SYSTEM RESET max_slot_wal_keep_size");
      await sql("SELECT pg_reload_conf()");
    }
  });

  test("need a role that may decode, and a journal that can be decoded: what is missing is said", async () => {
    await sql("CREATE ROLE low LOGIN");
    await sql("GRANT CREATE ON DATABASE postgres TO low");
    const client = postgres({ host: server.host, user: "low", database: "postgres", max: 1 });
    const log = createPostgresDecoding(postgresSession(client), undefined, { way: "messages" });
    await expect(log.spans.start("end", "low")).rejects.toMatchObject({ code: "unsupported" });
    await expect(log.spans.start("end", "low")).rejects.toThrow("REPLICATION");
    // An owner may prepare what the role of the relay may not make.
    await sql("REVOKE CREATE ON DATABASE postgres FROM low");
    await sql("ALTER ROLE low REPLICATION");
    expect(await log.spans.plan(await log.spans.start("end", "low"), 1)).toBeUndefined();
    await sql("DROP PUBLICATION hapax_messages");
    await expect(log.spans.start("end", "low")).rejects.toThrow("GRANT CREATE ON DATABASE");
    await client.end();
    // A server with another wal_level would have to be started for this alone.
    const notReady = Object.assign(new Error("not ready"), { code: "55000" });
    const replica = () => Promise.resolve([{ level: "replica" }]);
    expect(await explainSlotError(replica, notReady)).toMatchObject({ code: "unsupported" });
    expect(await explainSlotError(replica, notReady)).toHaveProperty(
      "message",
      expect.stringContaining("SET wal_level = logical"),
    );
    const logical = () => Promise.resolve([{ level: "logical" }]);
    expect(await explainSlotError(logical, notReady)).toBe(notReady);
  });
});
