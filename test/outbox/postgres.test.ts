// The outbox on a real PostgreSQL: the log by snapshots and the rows, with both clients.
import fc from "fast-check";
import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { pgPoolSession, type PostgresSession } from "../../src/toolkit/databases/postgres.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import {
  createPostgresOutbox,
  type OutboxNotify,
  pgListener,
  type PostgresOutboxOptions,
} from "../../src/toolkit/ledgers/postgres-outbox.ts";
import type {
  NewOutboxEvent,
  OutboxEvent,
  RowsOutbox,
  OutboxSpan,
  LogOutbox,
} from "../../src/toolkit/outbox/log.ts";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";
import { outboxConformance } from "../../src/testing/outbox-conformance.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: the outbox on PostgreSQL: ${reason}`);

const encoder = new TextEncoder();
const decoder = new TextDecoder();

const event = (text: string, key?: string): NewOutboxEvent => ({
  topic: "t",
  payload: encoder.encode(text),
  ...(key === undefined ? {} : { key }),
});
const textsOf = (events: readonly OutboxEvent[]): readonly string[] =>
  events.map(({ payload }) => decoder.decode(payload));

let server: TestPostgres;
const sqls: postgres.Sql[] = [];
const clients: pg.Client[] = [];

beforeAll(async () => {
  if (reason !== undefined) return;
  server = await startPostgres();
  await postgresLedger<pg.PoolClient>(server.pool).migrate();
}, 60_000);
afterAll(async () => {
  if (reason !== undefined) return;
  await Promise.all(sqls.map((sql) => sql.end()));
  await Promise.all(clients.map((client) => client.end()));
  await server.stop();
}, 60_000);

const openSql = (): postgres.Sql => {
  const sql = postgres({
    host: server.host,
    user: "postgres",
    database: "postgres",
    max: 5,
    onnotice: () => undefined,
  });
  sqls.push(sql);
  return sql;
};

/** A connection of its own, for a transaction of its own. */
async function openClient(): Promise<pg.Client> {
  const client = new pg.Client({ host: server.host, user: "postgres", database: "postgres" });
  client.on("error", () => undefined);
  clients.push(client);
  await client.connect();
  return client;
}

interface Writer {
  readonly begin: () => Promise<unknown>;
  readonly add: (...events: readonly NewOutboxEvent[]) => Promise<readonly string[]>;
  readonly query: (text: string) => Promise<{ readonly rows: readonly unknown[] }>;
  readonly commit: () => Promise<unknown>;
  readonly rollback: () => Promise<unknown>;
}

/** A client with a transaction of several steps. */
async function openWriter(): Promise<Writer> {
  const client = await openClient();
  const session = { ...pgPoolSession(server.pool), in: () => queryOf(client) };
  const log = createPostgresOutbox(session, undefined, {});
  const query = (text: string): Promise<pg.QueryResult<object>> => client.query<object>(text);
  return {
    begin: () => query("BEGIN"),
    // The session above takes the client for every transaction.
    add: (...events) => log.add(undefined as never, events),
    query,
    commit: () => query("COMMIT"),
    rollback: () => query("ROLLBACK"),
  };
}

function queryOf(client: pg.Client): PostgresSession<unknown>["query"] {
  return async (text, values = []) =>
    (await client.query<Record<string, unknown>>(text, [...values])).rows;
}

function openLog(options: PostgresOutboxOptions = {}): LogOutbox<pg.PoolClient> {
  const session = pgPoolSession<pg.PoolClient>(server.pool);
  const log = createPostgresOutbox(session, undefined, options);
  if (log.way === "rows") throw new Error("not a log");
  return log;
}

function openRows(pool = server.pool): RowsOutbox<pg.PoolClient> {
  const session = pgPoolSession<pg.PoolClient>(pool);
  const log = createPostgresOutbox(session, undefined, { way: "rows" });
  if (log.way !== "rows") throw new Error("no rows");
  return log;
}

function addNow(...events: readonly NewOutboxEvent[]): Promise<readonly string[]> {
  return pgPoolSession<pg.PoolClient>(server.pool).transaction((tx) => openLog().add(tx, events));
}

/** A relay that has a position, and reads on. */
async function openReader(log: LogOutbox<pg.PoolClient>, max = 100) {
  let at = await log.spans.start("end", "test");
  const spans: OutboxSpan[] = [];
  return {
    spans,
    position: () => at,
    async next(): Promise<readonly string[]> {
      const seen: string[] = [];
      for (;;) {
        const span = await log.spans.plan(at, max);
        if (span === undefined) return seen;
        spans.push(span);
        seen.push(...textsOf(await log.spans.read(span)));
        at = span.to;
      }
    },
  };
}

for (const way of ["log", "rows"] as const) {
  const cases = outboxConformance.filter(({ ways }) => ways.includes(way));
  describe.skipIf(reason !== undefined)(`the ${way} of pg`, () => {
    for (const { title, run } of cases)
      test(title, async () => {
        const open = async () => postgresLedger<pg.PoolClient>(server.pool, { outbox: { way } });
        expect(await run({ open })).toBeUndefined();
      });
  });
  describe.skipIf(reason !== undefined)(`the ${way} of postgres, in a schema`, () => {
    let sql: postgres.Sql;
    const open = async () =>
      postgresLedger<postgres.TransactionSql>(sql, { schema: 'odd "one', outbox: { way } });
    beforeAll(async () => {
      sql = openSql();
      await (await open()).migrate();
    });
    for (const { title, run } of cases)
      test(title, async () => {
        expect(await run({ open })).toBeUndefined();
      });
  });
}

describe.skipIf(reason !== undefined)("a log by snapshots", () => {
  test("has an event whose lower id commits later, where a cursor of ids has lost it", async () => {
    const reader = await openReader(openLog());
    const naive = await naiveReader((at) => `id > ${at}`, "max(id)");
    const [early, late] = [await openWriter(), await openWriter()];
    await late.begin();
    await early.begin();
    await late.add(event("lower id"));
    await early.add(event("higher id"));
    await early.commit();
    expect(await reader.next()).toEqual(["higher id"]);
    expect(await naive()).toEqual(["higher id"]);
    await late.commit();
    expect(await reader.next()).toEqual(["lower id"]);
    expect(await naive()).toEqual([]);
    expect(await reader.next()).toEqual([]);
  });

  test("waits for no transaction, where a cursor behind the oldest one stands still", async () => {
    const reader = await openReader(openLog());
    const horizon = "tx < pg_snapshot_xmin(pg_current_snapshot())";
    const naive = await naiveReader((at) => `tx > '${at}' AND ${horizon}`, "max(tx)");
    const unrelated = await openWriter();
    await unrelated.begin();
    await unrelated.query("CREATE TEMPORARY TABLE unrelated (n int)");
    await addNow(event("a"));
    expect(await reader.next()).toEqual(["a"]);
    await addNow(event("b"));
    expect(await reader.next()).toEqual(["b"]);
    expect(await naive()).toEqual([]);
    await unrelated.rollback();
    expect(await naive()).toEqual(["a", "b"]);
    expect(await reader.next()).toEqual([]);
  });

  /** What relays commonly do. */
  async function naiveReader(where: (at: string) => string, last: string) {
    const { rows } = await server.pool.query<{ at: string }>(
      `SELECT COALESCE((SELECT (${last})::text FROM hapax_outbox), '0') AS at`,
    );
    let at = rows[0]?.at ?? "0";
    return async (): Promise<readonly string[]> => {
      const found = await server.pool.query<{ text: string; at: string }>(
        `SELECT convert_from(payload, 'UTF8') AS text, (SELECT (${last})::text FROM hapax_outbox WHERE ${where(at)}) AS at
         FROM hapax_outbox WHERE ${where(at)} ORDER BY id`,
      );
      at = found.rows.at(-1)?.at ?? at;
      return found.rows.map(({ text }) => text);
    };
  }

  test("has the events of savepoints that were kept, with their transaction", async () => {
    const reader = await openReader(openLog());
    const writer = await openWriter();
    await writer.begin();
    await writer.query("SAVEPOINT one");
    await writer.add(event("kept"));
    await writer.query("RELEASE one");
    await writer.query("SAVEPOINT two");
    await writer.add(event("undone"));
    await writer.query("ROLLBACK TO two");
    await writer.add(event("after"));
    const { rows } = await writer.query(
      "SELECT DISTINCT tx = pg_current_xact_id() AS same FROM hapax_outbox WHERE tx >= pg_current_xact_id()",
    );
    expect(rows).toEqual([{ same: true }]);
    await addNow(event("another"));
    expect(await reader.next()).toEqual(["another"]);
    await writer.commit();
    expect(await reader.next()).toEqual(["kept", "after"]);
  });

  test("has nothing of a transaction that was rolled back, or whose connection was lost", async () => {
    const reader = await openReader(openLog());
    const [undone, lost] = [await openWriter(), await openWriter()];
    for (const writer of [undone, lost]) {
      await writer.begin();
      await writer.add(event("never"));
    }
    await undone.rollback();
    const { rows } = await lost.query("SELECT pg_backend_pid() AS pid");
    const { pid } = rows[0] as { readonly pid: number };
    await server.pool.query("SELECT pg_terminate_backend($1, 5000)", [pid]);
    await addNow(event("there"));
    expect(await reader.next()).toEqual(["there"]);
    expect(await reader.next()).toEqual([]);
  });

  test("has a prepared transaction when it is committed, and waits for none", async () => {
    const reader = await openReader(openLog());
    const writer = await openWriter();
    for (const name of ["kept", "undone"]) {
      await writer.begin();
      await writer.add(event(name));
      await writer.query(`PREPARE TRANSACTION '${name}'`);
    }
    await addNow(event("another"));
    expect(await reader.next()).toEqual(["another"]);
    await writer.query("COMMIT PREPARED 'kept'");
    await writer.query("ROLLBACK PREPARED 'undone'");
    expect(await reader.next()).toEqual(["kept"]);
  });

  test("leaves out the transaction that it is asked in, which may still add more", async () => {
    const log = openLog();
    const reader = await openReader(log);
    const client = await openClient();
    await client.query("BEGIN");
    const session = { ...pgPoolSession(server.pool), in: () => queryOf(client) };
    const joined = createPostgresOutbox(session, queryOf(client), {});
    if (joined.way === "rows") throw new Error("not a log");
    await joined.add(undefined as never, [event("own")]);
    // The own transaction lies before one that is over: by its number alone it would be over, too.
    await addNow(event("other"));
    const span = await joined.spans.plan(reader.position(), 10);
    if (span === undefined) throw new Error("there is something");
    expect(textsOf(await joined.spans.read(span))).toEqual(["other"]);
    const end = await joined.spans.start("end", "test");
    await joined.add(undefined as never, [event("more")]);
    await client.query("COMMIT");
    for (const from of [span.to, end]) {
      const next = await log.spans.plan(from, 10);
      if (next === undefined) throw new Error("there is something");
      expect(textsOf(await log.spans.read(next))).toEqual(["own", "more"]);
    }
  });

  test("has the events of a key in order, though the later transaction got its number first", async () => {
    const reader = await openReader(openLog());
    const [first, second] = [await openWriter(), await openWriter()];
    const lock = "SELECT pg_advisory_xact_lock(42)";
    await second.begin();
    await second.query("SELECT pg_current_xact_id()");
    await first.begin();
    await first.query(lock);
    await first.add(event("1", "k"));
    await first.commit();
    await second.query(lock);
    await second.add(event("2", "k"));
    await second.commit();
    expect(await reader.next()).toEqual(["1", "2"]);
  });

  test("has every event once, and reads each span the same again, with any order of commits", async () => {
    const writers = await Promise.all([openWriter(), openWriter(), openWriter()]);
    const step = fc.oneof(
      { weight: 4, arbitrary: fc.record({ kind: fc.constant("add"), writer: fc.nat(2) }) },
      { weight: 3, arbitrary: fc.record({ kind: fc.constant("commit"), writer: fc.nat(2) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("rollback"), writer: fc.nat(2) }) },
      { weight: 2, arbitrary: fc.record({ kind: fc.constant("read"), writer: fc.nat(2) }) },
    );
    const steps = fc.array(step, { maxLength: 40 });
    const property = fc.asyncProperty(steps, fc.integer({ min: 1, max: 4 }), async (all, max) => {
      const log = openLog();
      const reader = await openReader(log, max);
      const open = new Map<number, string[]>();
      const [seen, committed]: [string[], string[]] = [[], []];
      let count = 0;
      const end = async (writer: number, isKept: boolean): Promise<void> => {
        const texts = open.get(writer);
        if (texts === undefined) return;
        await (isKept ? writers[writer]?.commit() : writers[writer]?.rollback());
        open.delete(writer);
        if (isKept) committed.push(...texts);
      };
      for (const { kind, writer } of all) {
        if (kind === "read") seen.push(...(await reader.next()));
        else if (kind === "add") {
          if (!open.has(writer)) await writers[writer]?.begin();
          const text = `${writer}.${(count += 1)}`;
          await writers[writer]?.add(event(text, `k${writer}`));
          open.set(writer, [...(open.get(writer) ?? []), text]);
        } else await end(writer, kind === "commit");
      }
      for (const writer of open.keys()) await end(writer, true);
      seen.push(...(await reader.next()));
      expect(seen.toSorted()).toEqual(committed.toSorted());
      for (const writer of [0, 1, 2]) {
        const ofKey = (text: string): boolean => text.startsWith(`${writer}.`);
        expect(seen.filter(ofKey)).toEqual(committed.filter(ofKey));
      }
      const again: string[] = [];
      for (const span of reader.spans) again.push(...textsOf(await log.spans.read(span)));
      expect(again).toEqual(seen);
    });
    await fc.assert(property, { numRuns: 25 });
  });

  test("reads a backlog in pages that cost what they contain, also behind an old transaction", async () => {
    const old = await openWriter();
    await old.begin();
    await old.add(event("old"));
    await addNow(event("past"));
    const start = await openLog().spans.start("end", "test");
    await server.pool.query(
      "INSERT INTO hapax_outbox (topic, payload) SELECT 't', convert_to(n::text, 'UTF8') FROM generate_series(1, 100000) n",
    );
    const { log, costOf } = openMeasured();
    const first = await log.spans.plan(start, 100);
    if (first === undefined) throw new Error("there is a backlog");
    expect(textsOf(await log.spans.read(first))).toHaveLength(100);
    const second = await costOf(() => log.spans.plan(first.to, 100));
    if (second.result === undefined) throw new Error("there is a backlog");
    const { result: span } = second;
    expect(second.blocks).toBeLessThan(100);
    const read = await costOf(() => log.spans.read(span));
    expect(textsOf(read.result)).toEqual(Array.from({ length: 100 }, (_, n) => String(n + 101)));
    expect(read.blocks).toBeLessThan(100);

    let at = span.to;
    let count = 200;
    for (
      let next = await log.spans.plan(at, 40_000);
      next !== undefined;
      next = await log.spans.plan(at, 40_000)
    ) {
      count += (await log.spans.read(next)).length;
      at = next.to;
    }
    expect(count).toBe(100_000);
    expect((await log.lag(at)).oldestMs).toBe(0);

    // A hundred thousand were passed while the old one is open: the next ones cost nothing of that.
    await addNow(event("new"));
    const look = await costOf(() => log.spans.plan(at, 100));
    expect(look.blocks).toBeLessThan(100);
    const { result: next } = look;
    if (next === undefined) throw new Error("there is something");
    expect(textsOf(await log.spans.read(next))).toEqual(["new"]);
    const idle = await costOf(() => log.spans.plan(next.to, 100));
    expect(idle.result).toBeUndefined();
    expect(idle.blocks).toBeLessThan(100);
    await old.commit();
    const late = await costOf(() => log.spans.plan(next.to, 100));
    if (late.result === undefined) throw new Error("there is something");
    expect(late.blocks).toBeLessThan(100);
    expect(textsOf(await log.spans.read(late.result))).toEqual(["old"]);
    await server.pool.query("TRUNCATE hapax_outbox");
  });

  /** Counts the blocks that PostgreSQL touches: a time would depend on the machine. */
  function openMeasured() {
    const session = pgPoolSession<pg.PoolClient>(server.pool);
    const said: (readonly [string, readonly unknown[]])[] = [];
    const query: typeof session.query = (text, values = []) => {
      said.push([text, values]);
      return session.query(text, values);
    };
    const log = createPostgresOutbox({ ...session, query }, undefined, {});
    if (log.way === "rows") throw new Error("not a log");
    const costOf = async <T>(work: () => Promise<T>): Promise<{ result: T; blocks: number }> => {
      said.length = 0;
      const result = await work();
      let blocks = 0;
      for (const [text, values] of said) {
        const [row] = await session.query(
          `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${text}`,
          values,
        );
        const [told] = (row?.["QUERY PLAN"] ?? []) as { readonly Plan: Record<string, number> }[];
        const plan = told?.Plan ?? {};
        blocks += (plan["Shared Hit Blocks"] ?? 0) + (plan["Shared Read Blocks"] ?? 0);
      }
      return { result, blocks };
    };
    return { log, costOf };
  }

  test("deletes nothing that a relay has not passed, also if its id is low", async () => {
    const log = openLog();
    const reader = await openReader(log, 2);
    const late = await openWriter();
    await late.begin();
    await late.add(event("late"));
    await addNow(...["a", "b", "c"].map((text) => event(text)));
    const half = await log.spans.plan(reader.position(), 2);
    if (half === undefined) throw new Error("there is something");
    expect(await reader.next()).toEqual(["a", "b", "c"]);
    await late.commit();
    // Half way through a difference: what of it was passed may go, the rest may not.
    expect(await log.spans.clean([reader.position(), half.to], 0, 100)).toBeGreaterThanOrEqual(2);
    await log.spans.clean([half.to], 0, 100);
    const rest = await log.spans.plan(half.to, 10);
    if (rest === undefined) throw new Error("there is something");
    expect(textsOf(await log.spans.read(rest))).toEqual(["c"]);
    while ((await log.spans.clean([reader.position()], 0, 100)) > 0);
    expect(await reader.next()).toEqual(["late"]);
    expect(await log.spans.clean([reader.position()], 3_600_000, 100)).toBe(0);
    expect(await log.spans.clean([], 0, 100)).toBe(0);
    expect(await log.spans.clean([reader.position()], 0, 100)).toBe(1);
  });

  test("refuses a position of other transaction ids, and says what to do", async () => {
    const log = openLog();
    const position = JSON.parse(await log.spans.start("end", "test")) as Record<string, string>;
    const refusal = { code: "position_lost", message: expect.stringContaining("new name") };
    const refused = async (facts: object): Promise<void> => {
      const bad = JSON.stringify({ ...position, ...facts });
      await expect(log.spans.plan(bad, 10)).rejects.toMatchObject(refusal);
      await expect(log.spans.clean([bad], 0, 10)).rejects.toMatchObject(refusal);
    };
    await refused({ last: "900000000:900000000:" });
    await refused({ next: "900000000:900000000:", after: "1" });
    await refused({ origin: "7" });
    await addNow(event("there"));
    const taken = async (facts: object): Promise<void> => {
      const span = await log.spans.plan(JSON.stringify({ ...position, ...facts }), 10);
      if (span === undefined) throw new Error("there is something");
      expect(textsOf(await log.spans.read(span))).toEqual(["there"]);
      expect(JSON.parse(span.to)).toMatchObject({ cluster: position["cluster"] });
    };
    // As after pg_upgrade, which keeps the ids: the row of the origin is the one that was written first.
    await taken({ cluster: "7" });
    // As after a restore, also on the same server: it was written again, by another transaction.
    await server.pool.query("UPDATE hapax_outbox_origin SET place = place");
    await refused({ cluster: "7" });
    await refused({ cluster: undefined });
    await refused({});
    // Also where the server has reached the transaction number of one of them.
    await server.pool.query("UPDATE hapax_outbox_origin SET tx = DEFAULT WHERE place = 2");
    await refused({ cluster: "7" });
    await server.pool.query("DELETE FROM hapax_outbox_origin");
    await refused({});
    await log.spans.start("end", "test");
    await refused({});
    await refused({ cluster: undefined });
    const half = JSON.stringify({ ...position, next: "1:1:" });
    for (const bad of ["", "{}", "7", JSON.stringify({ ...position, last: "1:2" }), half])
      await expect(log.spans.plan(bad, 10)).rejects.toMatchObject({ code: "invalid_request" });
  });

  test("starts no relay over rows whose numbers this server has not given yet, until they are its own", async () => {
    const log = openLog();
    await server.pool.query("TRUNCATE hapax_outbox");
    const writer = await openWriter();
    await writer.begin();
    await writer.add(event("open"));
    await server.pool.query(
      "INSERT INTO hapax_outbox (tx, topic, payload) VALUES ('900000000', 't', convert_to('restored', 'UTF8'))",
    );
    const refusal = {
      code: "position_lost",
      message: expect.stringContaining("SET tx = DEFAULT"),
    };
    await expect(log.spans.start("beginning", "test")).rejects.toMatchObject(refusal);
    await server.pool.query("UPDATE hapax_outbox SET tx = DEFAULT");
    await writer.commit();
    const span = await log.spans.plan(await log.spans.start("beginning", "test"), 10);
    if (span === undefined) throw new Error("there is something");
    expect(textsOf(await log.spans.read(span))).toEqual(["open", "restored"]);
  });

  test("goes by the numbers alone where the server does not tell who it is", async () => {
    await server.pool.query("CREATE ROLE limited LOGIN");
    await server.pool.query("GRANT ALL ON hapax_outbox, hapax_outbox_origin TO limited");
    await server.pool.query("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC");
    const pool = new pg.Pool({ host: server.host, user: "limited", database: "postgres", max: 2 });
    try {
      const log = createPostgresOutbox(pgPoolSession(pool), undefined, {});
      if (log.way === "rows") throw new Error("not a log");
      const from = await log.spans.start("end", "test");
      expect(JSON.parse(from)).not.toHaveProperty("cluster");
      await addNow(event("there"));
      const span = await log.spans.plan(from, 10);
      if (span === undefined) throw new Error("there is something");
      expect(textsOf(await log.spans.read(span))).toEqual(["there"]);
      const ahead = JSON.stringify({
        ...(JSON.parse(from) as object),
        last: "900000000:900000000:",
      });
      await expect(log.spans.plan(ahead, 10)).rejects.toMatchObject({ code: "position_lost" });
    } finally {
      await pool.end();
      await server.pool.query("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC");
    }
  });

  test("gives ids in the order of what is added, however many", async () => {
    const log = openLog();
    const from = await log.spans.start("end", "test");
    const texts = Array.from({ length: 1203 }, (_, index) => String(index));
    const ids = await addNow(...texts.map((text) => event(text, "k")));
    expect(ids).toEqual(ids.toSorted((one, other) => Number(one) - Number(other)));
    const span = await log.spans.plan(from, 2000);
    if (span === undefined) throw new Error("there is something");
    const events = await log.spans.read(span);
    expect(textsOf(events)).toEqual(texts);
    expect(events.map(({ id }) => id)).toEqual(ids);
    for (const bad of [
      { topic: "\0" },
      { key: "a\0" },
      { headers: { "a\0": "b" } },
      { headers: { a: "\0" } },
    ])
      await expect(addNow({ ...event("x"), ...bad })).rejects.toMatchObject({
        code: "invalid_request",
      });
  });

  test("says everything that is wrong with its options", () => {
    const options = { way: "wal", schema: "", notify: {} } as never;
    expect(() => openLog(options)).toThrowError(
      /way=wal .*; notify has no function listen; schema is no name/,
    );
  });
});

describe.skipIf(reason !== undefined)("rows in batches", () => {
  const RELAY = "rows";
  const LEASE_MS = 60_000;
  beforeEach(async () => {
    await server.pool.query("TRUNCATE hapax_outbox, hapax_outbox_batches, hapax_outbox_held");
  });

  /** Waits until so many wait for a lock. */
  async function untilWaiting(count: number): Promise<void> {
    for (let attempt = 0; attempt < 5000; attempt += 1) {
      const { rows } = await server.pool.query("SELECT 1 FROM pg_locks WHERE NOT granted");
      if (rows.length >= count) return;
    }
    throw new Error(`there are no ${count} that wait for a lock`);
  }

  const inTransaction = <T>(work: (rows: RowsOutbox<pg.PoolClient>) => Promise<T>): Promise<T> => {
    const session = pgPoolSession<pg.PoolClient>(server.pool);
    return session.transaction(async (tx) => {
      const joined = createPostgresOutbox(session, session.in(tx), { way: "rows" });
      if (joined.way !== "rows") throw new Error("no rows");
      return work(joined);
    });
  };

  test("gives claims that waited for each other different events, under any isolation", async () => {
    const pool = new pg.Pool({
      host: server.host,
      user: "postgres",
      database: "postgres",
      options: "-c default_transaction_isolation=repeatable\\ read",
    });
    try {
      await addNow(event("a1", "a"), event("b1", "b"), event("a2", "a"), event("c1"));
      const blocker = await openWriter();
      await blocker.begin();
      await blocker.query(
        "SELECT pg_advisory_xact_lock(hashtextextended('hapax_outbox_batches', 0))",
      );
      const claims = [1, 2, 3].map(() => openRows(pool).rows.claim(RELAY, 2, LEASE_MS, "block"));
      await untilWaiting(3);
      await blocker.commit();
      const batches = (await Promise.all(claims)).filter((batch) => batch !== undefined);
      const texts = batches.map(({ events }) => textsOf(events).join()).toSorted();
      // The second event of a waits until the first one is settled.
      expect(texts).toEqual(["a1,b1", "c1"]);
    } finally {
      await pool.end();
    }
  });

  test("leaves alone the keys of held events, and of this relay only", async () => {
    await addNow(event("a1", "a"), event("b1", "b"), event("free"));
    const rows = openRows();
    const batch = await rows.rows.claim(RELAY, 1, LEASE_MS, "block");
    const [first] = batch?.events ?? [];
    if (batch === undefined || first === undefined) throw new Error("there is something");
    const failure = { fingerprint: "f", message: "it \0 broke" };
    const put = {
      relay: RELAY,
      event: first,
      state: "dead",
      attempts: 1,
      dueInMs: 0,
      reason: failure,
    } as const;
    await inTransaction(async (joined) => {
      await joined.held.change(RELAY, [put], []);
      expect(await joined.rows.settle(batch, [])).toBe(true);
    });
    await addNow(event("a2", "a"));
    const next = await rows.rows.claim(RELAY, 10, LEASE_MS, "block");
    expect(textsOf(next?.events ?? [])).toEqual(["b1", "free"]);
    const other = await rows.rows.claim("other", 10, LEASE_MS, "block");
    expect(textsOf(other?.events ?? [])).toEqual(["a2"]);
  });

  test.each(["before", "after"])(
    "moves an event that is held %s its batch is settled, so that it comes no more",
    async (order) => {
      await addNow(event("a1", "a"), event("b1", "b"));
      const rows = openRows();
      const batch = await rows.rows.claim(RELAY, 10, LEASE_MS, "block");
      const [first, second] = batch?.events ?? [];
      if (batch === undefined || first === undefined || second === undefined)
        throw new Error("there is something");
      const put = {
        relay: RELAY,
        event: first,
        state: "waiting",
        attempts: 1,
        dueInMs: 0,
      } as const;
      await inTransaction(async (joined) => {
        if (order === "before")
          await joined.held.change(RELAY, [{ ...put, reason: undefined }], []);
        expect(await joined.rows.settle(batch, [second.id])).toBe(true);
        if (order === "after") await joined.held.change(RELAY, [{ ...put, reason: undefined }], []);
      });
      expect(
        textsOf((await rows.held.list({ relay: RELAY, max: 10 })).map((one) => one.event)),
      ).toEqual(["a1"]);
      await inTransaction((joined) => joined.held.change(RELAY, [], [first.id]));
      expect(await rows.rows.claim(RELAY, 10, LEASE_MS, "block")).toBeUndefined();
    },
  );

  test("deletes nothing if the transaction of its settling is rolled back, and nothing that is not its own", async () => {
    const [, otherId = ""] = await addNow(event("a1", "a"), event("b1", "b"), event("a2", "a"));
    const rows = openRows();
    const batch = await rows.rows.claim(RELAY, 1, LEASE_MS, "block");
    if (batch === undefined) throw new Error("there is something");
    const ids = batch.events.map(({ id }) => id);
    await expect(
      inTransaction(async (joined) => {
        expect(await joined.rows.settle(batch, ids)).toBe(true);
        throw new Error("it broke");
      }),
    ).rejects.toThrow("it broke");
    expect(await rows.rows.renew(batch, LEASE_MS)).toBe(true);
    expect(await inTransaction((joined) => joined.rows.settle(batch, [...ids, otherId]))).toBe(
      true,
    );
    const next = await rows.rows.claim(RELAY, 10, LEASE_MS, "block");
    expect(textsOf(next?.events ?? [])).toEqual(["b1", "a2"]);
  });

  test("does not settle a batch that is being taken over, nor renew it", async () => {
    await addNow(event("a1", "a"), event("b1", "b"));
    const rows = openRows();
    const batch = await rows.rows.claim(RELAY, 10, LEASE_MS, "block");
    if (batch === undefined) throw new Error("there is something");
    const taker = await openWriter();
    await taker.begin();
    await taker.query("UPDATE hapax_outbox_batches SET token = nextval('hapax_outbox_tokens')");
    const settled = inTransaction((joined) =>
      joined.rows.settle(
        batch,
        batch.events.map(({ id }) => id),
      ),
    );
    await untilWaiting(1);
    await taker.commit();
    expect(await settled).toBe(false);
    expect(await rows.rows.renew(batch, LEASE_MS)).toBe(false);
    await server.pool.query("UPDATE hapax_outbox_batches SET lease_until = now()");
    const taken = await rows.rows.claim(RELAY, 1, LEASE_MS, "block");
    expect(taken).toMatchObject({ id: batch.id, isTakeover: true });
    expect(taken?.token).toBeGreaterThan(batch.token);
    expect(textsOf(taken?.events ?? [])).toEqual(["a1", "b1"]);
  });

  test("drops a lost batch whose rows were deleted by hand", async () => {
    await addNow(event("a1", "a"));
    const rows = openRows();
    await rows.rows.claim(RELAY, 10, -1, "block");
    await server.pool.query("DELETE FROM hapax_outbox");
    await addNow(event("a2", "a"));
    const batch = await rows.rows.claim(RELAY, 10, LEASE_MS, "block");
    expect(batch?.isTakeover).toBe(false);
    expect(textsOf(batch?.events ?? [])).toEqual(["a2"]);
  });

  test("limits how long a relay that stops inside a claim can hold up others", async () => {
    const pool = server.openPool();
    const session = pgPoolSession<pg.PoolClient>(pool);
    const seen: unknown[] = [];
    const spying: PostgresSession<pg.PoolClient> = {
      ...session,
      transaction: (work) =>
        session.transaction(async (tx) => {
          const result = await work(tx);
          const { rows } = await tx.query("SHOW idle_in_transaction_session_timeout");
          seen.push(rows[0]);
          return result;
        }),
    };
    const rows = createPostgresOutbox(spying, undefined, { way: "rows" });
    if (rows.way !== "rows") throw new Error("no rows");
    await rows.rows.claim(RELAY, 1, LEASE_MS, "block");
    expect(seen).toEqual([{ idle_in_transaction_session_timeout: "10s" }]);
    const { rows: after } = await pool.query("SHOW idle_in_transaction_session_timeout");
    expect(after).toEqual([{ idle_in_transaction_session_timeout: "0" }]);
  });

  test("keeps held events whose ids are no numbers in the order of their putting, with their content", async () => {
    const log = openLog();
    const names = Array.from({ length: 600 }, (_, index) => `id-${(index * 7919) % 600}`);
    const held = (id: string, attempts: number, text = id) =>
      ({
        relay: RELAY,
        event: {
          id,
          topic: "t",
          key: "k",
          payload: encoder.encode(text),
          headers: { h: id },
          addedAtMs: 1_700_000_000_123,
        },
        state: "waiting",
        attempts,
        dueInMs: Number.POSITIVE_INFINITY,
        reason: undefined,
      }) as const;
    await log.held.change(
      RELAY,
      names.map((id) => held(id, 1)),
      [],
    );
    await log.held.change(RELAY, [held("id-7", 2, "other"), held("id-7", 3, "other")], ["id-8"]);
    const found = await log.held.list({ relay: RELAY, max: 1000 });
    expect(found.map(({ event: { id } }) => id)).toEqual(names.filter((id) => id !== "id-8"));
    const changed = found.find(({ event: { id } }) => id === "id-7");
    expect(changed).toMatchObject({
      attempts: 3,
      event: { ...held("id-7", 1).event, headers: { h: "id-7" } },
    });
    expect(changed?.dueInMs).toBeGreaterThan(1e12);
  });
});

describe.skipIf(reason !== undefined)("a wait for events", () => {
  const never = new AbortController().signal;
  const LONG_MS = 600_000;

  test("ends with its pause where nothing is notified", async () => {
    const clock = createVirtualClock();
    const log = openLog({ clock });
    let isOver = false;
    const waiting = log.wait(1000, never).then(() => (isOver = true));
    await addNow(event("a"));
    clock.advance(999);
    await new Promise((resolve) => setImmediate(resolve));
    expect(isOver).toBe(false);
    clock.advance(1);
    await waiting;
    expect(clock.pending).toBe(0);
  });

  async function addNotified(options: PostgresOutboxOptions): Promise<void> {
    await pgPoolSession<pg.PoolClient>(server.pool).transaction((tx) =>
      openLog(options).add(tx, [event("a")]),
    );
  }

  async function listeners(): Promise<readonly number[]> {
    const { rows } = await server.pool.query<{ pid: number }>(
      "SELECT pid FROM pg_stat_activity WHERE application_name = 'listener'",
    );
    return rows.map(({ pid }) => pid);
  }

  test("ends when an event is committed, connects again when it is cut off, and listens no more when it is given up", async () => {
    const errors: Error[] = [];
    const connect = (): pg.Client =>
      new pg.Client({
        host: server.host,
        user: "postgres",
        database: "postgres",
        application_name: "listener",
      });
    const options = { notify: pgListener(connect, { onError: (error) => errors.push(error) }) };
    const log = openLog(options);
    const stop = new AbortController();
    await log.wait(LONG_MS, stop.signal); // It listens now.
    const told = log.wait(LONG_MS, stop.signal);
    await addNotified(options);
    await told;
    const reconnected = log.wait(LONG_MS, stop.signal);
    const [pid] = await listeners();
    await server.pool.query("SELECT pg_terminate_backend($1, 5000)", [pid]);
    await reconnected;
    expect(errors.length).toBeGreaterThan(0);
    expect(await listeners()).toHaveLength(1);
    const told2 = log.wait(LONG_MS, stop.signal);
    await addNotified(options);
    await told2;
    const waiting = log.wait(LONG_MS, stop.signal);
    stop.abort();
    await waiting;
    for (let attempt = 0; (await listeners()).length > 0; attempt += 1)
      if (attempt === 1000) throw new Error("it still listens");
  });

  test("tries again to connect, longer and longer apart, and ends with its pause meanwhile", async () => {
    const clock = createVirtualClock();
    let attempts = 0;
    const refuse = (): never => {
      attempts += 1;
      throw new Error("no connection");
    };
    const errors: Error[] = [];
    const log = openLog({
      clock,
      notify: pgListener(refuse, { clock, onError: (error) => errors.push(error) }),
    });
    const stop = new AbortController();
    const settled = () => new Promise((resolve) => setImmediate(resolve));
    const waiting = log.wait(1000, stop.signal);
    for (const [delayMs, expected] of [
      [0, 1],
      [100, 2],
      [199, 2],
      [1, 3],
      [399, 3],
      [1, 4],
    ] as const) {
      await settled();
      clock.advance(delayMs);
      await settled();
      expect(attempts).toBe(expected);
    }
    clock.advance(1000);
    await waiting;
    const last = log.wait(1000, stop.signal);
    stop.abort();
    await last;
    expect(clock.pending).toBe(0);
    expect(errors).toHaveLength(attempts);
  });

  test("ends at once if an event came before the wait, and works with postgres", async () => {
    const sql = openSql();
    let heard: () => void = () => undefined;
    const notify: OutboxNotify = {
      async listen(onNotify) {
        const listening = await sql.listen("hapax_outbox", () => {
          onNotify();
          heard();
        });
        return () => listening.unlisten();
      },
    };
    const log = openLog({ notify });
    const first = log.wait(LONG_MS, never);
    const together = log.wait(LONG_MS, never);
    // Listening begins some time: one of these is heard.
    const told = Promise.all([first, together]).then(() => true);
    while (!(await Promise.race([told, new Promise((resolve) => setTimeout(resolve, 5))])))
      await addNotified({ notify });
    const hearing = new Promise<void>((resolve) => (heard = resolve));
    await addNotified({ notify });
    await hearing;
    await log.wait(LONG_MS, never);
    const stop = new AbortController();
    const last = log.wait(LONG_MS, stop.signal);
    stop.abort();
    await last;
  });

  test("says that it cannot listen, and the next one tries again", async () => {
    let attempts = 0;
    const notify: OutboxNotify = {
      listen: () => {
        attempts += 1;
        return Promise.reject(new Error("no connection"));
      },
    };
    const clock = createVirtualClock();
    const log = openLog({ notify, clock });
    for (const expected of [1, 2]) {
      await expect(log.wait(LONG_MS, never)).rejects.toThrow("no connection");
      expect(attempts).toBe(expected);
    }
    expect(clock.pending).toBe(0);
  });
});
