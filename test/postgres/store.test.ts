// What can happen to a store in PostgreSQL, on a real server: lost answers, doubts, a database that goes back, damage, owners.
import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { pgSession, sqlSession } from "../../src/streams/stores/postgres/clients.ts";
import { openPostgresStore, PostgresNotices } from "../../src/streams/stores/postgres.ts";
import { openOnSession, openOnTables } from "../../src/streams/stores/postgres/postgres-store.ts";
import { PostgresTables } from "../../src/streams/stores/postgres/postgres-tables.ts";
import type { Session } from "../../src/streams/stores/postgres/session.ts";
import type { FencedWrite } from "../../src/streams/stores/postgres/tables.ts";
import type { Store } from "../../src/streams/store.ts";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";
import {
  appended,
  created,
  describeWorld,
  ended,
  pattern,
  readAll,
  write,
} from "../../src/testing/store-case-kit.ts";
import { storeConformance } from "../../src/testing/store-conformance.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { freshSchema, type Harm, isCommit, openOnPool, OPTIONS } from "./kit.ts";

const reason = whyNoPostgres();
const isLong = process.env["HAPAX_LONG"] === "1";

async function storedIn(store: Store): Promise<string> {
  const tail = store.world.byId.get(1 as never)?.tail ?? 0;
  return Buffer.concat(await readAll(store, 1, 0, tail)).toString();
}

describe.skipIf(reason !== undefined)("a store in PostgreSQL", () => {
  let server: TestPostgres;

  beforeAll(async () => {
    server = await startPostgres();
  });

  afterAll(async () => {
    await server.stop();
  });

  const run = (text: string): Promise<pg.QueryResult> => server.pool.query(text);

  test("S11 answers and requests that get lost at any statement are settled inside the commit", async () => {
    const schema = freshSchema();
    const harm: Harm = { isKilled: false };
    const store = await openOnPool(server.pool, { schema }, harm);
    await write(store, created(1));
    let statements = 0;
    harm.before = () => {
      statements += 1;
      if (statements % 5 === 2) throw new Error("the connection was lost before the statement");
    };
    harm.after = () => {
      if (statements % 3 === 0) throw new Error("the connection was lost after the statement");
    };
    let expected = "";
    for (let count = 0; count < 20; count += 1) {
      await write(store, appended(1, `${count};`));
      expected += `${count};`;
    }
    harm.before = undefined;
    harm.after = undefined;
    expect(store.stats().settled).toBeGreaterThan(5);
    await store.close();
    const after = await openOnPool(server.pool, { schema });
    expect(await storedIn(after)).toBe(expected);
    await after.close();
  });

  test("G81 after a doubtful answer a commit waits for a write of its own that is answered without doubt", async () => {
    const schema = freshSchema();
    let doubts = 0;
    const texts: string[] = [];
    const inner = pgSession(server.pool);
    const session: Session = {
      async run(text, values) {
        const answer = await inner.run(text, values);
        if (doubts === 0) return answer;
        texts.push(text);
        doubts -= 1;
        return { ...answer, isSure: false };
      },
      close: () => inner.close(),
    };
    const store = await openOnSession(session, { ...OPTIONS, schema, leaseMs: 60_000 });
    await write(store, created(1));
    doubts = 3;
    await write(store, appended(1, "doubtful"));
    // The commit and two confirmations were doubtful; the third confirmation counts.
    expect(texts.map((text) => (isCommit(text) ? "commit" : "confirm"))).toEqual([
      "commit",
      "confirm",
      "confirm",
    ]);
    expect(store.stats()).toMatchObject({ barriers: 3, settled: 1 });
    await store.close();
  });

  test("G81 the warning of a server that gives up the wait for its standby makes an answer doubtful", async () => {
    const text = "DO $$ BEGIN RAISE WARNING 'canceling wait for synchronous replication'; END $$";
    expect((await pgSession(server.pool).run(text)).isSure).toBe(false);
    expect((await pgSession(server.pool).run("SELECT 1", [])).isSure).toBe(true);
    const notices = new PostgresNotices();
    const options = {
      host: server.host,
      user: "postgres",
      database: "postgres",
      onnotice: notices.listener,
    };
    const sql = postgres(options);
    expect((await sqlSession(sql, notices).run(text)).isSure).toBe(false);
    expect((await sqlSession(sql, notices).run("SELECT 1", [])).isSure).toBe(true);
    await sql.end();
  });

  test("G81 a database that has lost the last frame, the epoch or a table is noticed by the next commit", async () => {
    const losses: readonly ((schema: string) => Promise<unknown>)[] = [
      (schema) =>
        run(
          `DELETE FROM ${schema}.hapax_seg_0_1 WHERE position = (SELECT max(position) FROM ${schema}.hapax_seg_0_1)`,
        ),
      (schema) => run(`UPDATE ${schema}.hapax_shard SET epoch = epoch - 1`),
      (schema) => run(`DROP TABLE ${schema}.hapax_seg_0_1`),
    ];
    for (const lose of losses) {
      const schema = freshSchema();
      const store = await openOnPool(server.pool, {
        schema,
        segmentBytes: 1 << 20,
        leaseMs: 60_000,
      });
      await write(store, created(1), appended(1, "acknowledged"));
      await lose(schema);
      await expect(write(store, appended(1, "more"))).rejects.toMatchObject({
        code: "engine_went_back",
      });
      await expect(write(store, appended(1, "and more"))).rejects.toMatchObject({
        code: "engine_went_back",
      });
      await store.close();
    }
  });

  test("G8 a changed or missing row is refused with its table and place, and a damaged image is passed over", async () => {
    const schema = freshSchema();
    const open = () => openOnPool(server.pool, { schema, segmentBytes: 1 << 20 });
    const store = await open();
    await write(store, created(1), appended(1, "one"));
    await store.maintain();
    await write(store, appended(1, "two"));
    await store.maintain();
    await write(store, appended(1, "three"));
    const world = describeWorld(store.world);
    await store.close();
    await run(`UPDATE ${schema}.hapax_image_part SET block = set_byte(block, 90, get_byte(block, 90) # 1)
      WHERE lsn = (SELECT max(lsn) FROM ${schema}.hapax_image_part)`);
    const older = await open();
    expect(older.recovery.warnings.join()).toContain("hapax_image");
    expect(describeWorld(older.world)).toBe(world);
    await older.close();
    const last = `position = (SELECT max(position) FROM ${schema}.hapax_seg_0_1 WHERE position < (SELECT max(position) FROM ${schema}.hapax_seg_0_1))`;
    await run(
      `UPDATE ${schema}.hapax_seg_0_1 SET frame = set_byte(frame, 36, get_byte(frame, 36) # 1) WHERE ${last}`,
    );
    await expect(open()).rejects.toMatchObject({
      code: "data_damaged",
      message: expect.stringContaining("hapax_seg_1"),
    });
    await run(`DELETE FROM ${schema}.hapax_seg_0_1 WHERE ${last}`);
    await expect(open()).rejects.toMatchObject({
      code: "data_damaged",
      message: expect.stringContaining("missing"),
    });
  });

  test("ID2 the end of a journal that was released cannot go missing unnoticed", async () => {
    const schema = freshSchema();
    const store = await openOnPool(server.pool, { schema, segmentBytes: 1 << 20 });
    await write(store, created(1), appended(1, "one"));
    await store.close();
    await run(
      `DELETE FROM ${schema}.hapax_seg_0_1 WHERE position = (SELECT max(position) FROM ${schema}.hapax_seg_0_1)`,
    );
    await expect(openOnPool(server.pool, { schema })).rejects.toMatchObject({
      code: "data_damaged",
    });
  });

  test("G81 the table of a segment that is just being made is not swept away", async () => {
    const schema = freshSchema();
    const harm: Harm = { isKilled: false };
    const store = await openOnPool(server.pool, { schema, leaseMs: 60_000 }, harm);
    await write(store, created(1));
    const tables = new PostgresTables(pgSession(server.pool), {
      schema,
      shard: 0,
      keepsPromise: () => true,
    });
    let sweeps = 0;
    harm.after = async (text) => {
      if (!text.startsWith("CREATE TABLE")) return;
      sweeps += 1;
      await tables.sweep(store.epoch); // As after a snapshot that ends at this moment.
    };
    for (let at = 0; at < 3; at += 1) await write(store, appended(1, pattern(40_000, at)));
    expect(sweeps).toBe(3);
    await store.close();
    const next = await openOnPool(server.pool, { schema });
    expect(next.world.byId.get(1 as never)?.tail).toBe(120_000);
    await next.close();
  });

  test("G80 a living owner is not taken over, a dead one is after its lease, and one that has closed at once", async () => {
    const schema = freshSchema();
    const harm: Harm = { isKilled: false };
    const first = await openOnPool(server.pool, { schema, takeover: "refuse", leaseMs: 300 }, harm);
    await write(first, created(1), appended(1, "one;"));
    const second = { schema, takeover: "refuse", leaseMs: 300 } as const;
    await expect(openOnPool(server.pool, second)).rejects.toMatchObject({ code: "shard_owned" });
    await write(first, appended(1, "two;"));
    const waiting = openOnPool(server.pool, { ...second, takeover: "wait" });
    harm.isKilled = true;
    const next = await waiting;
    expect(next.epoch).toBe(first.epoch + 1);
    expect(await storedIn(next)).toBe("one;two;");
    await next.close();
    const third = await openOnPool(server.pool, second);
    expect(third.epoch).toBe(next.epoch + 1);
    await third.close();
  });

  test("G80 an owner that was taken over notices it without a commit", async () => {
    const schema = freshSchema();
    let lost: Error | undefined;
    const onLost = (error: Error): void => void (lost = error);
    const old = await openOnPool(server.pool, { schema, leaseMs: 100, onLost });
    await write(old, created(1));
    const next = await openOnPool(server.pool, { schema });
    while (lost === undefined) await new Promise((resolve) => setTimeout(resolve, 20));
    expect(lost).toMatchObject({ code: "shard_moved" });
    await expect(write(old, appended(1, "x"))).rejects.toMatchObject({ code: "shard_moved" });
    await old.close();
    await next.close();
  });

  test("G80 an owner that is stopped before or after any statement of a commit acknowledges nothing after a takeover", async () => {
    for (const point of ["before", "after"] as const) {
      const schema = freshSchema();
      const harm: Harm = { isKilled: false };
      const old = await openOnPool(server.pool, { schema, leaseMs: 60_000 }, harm);
      await write(old, created(1), appended(1, "one;"));
      let goOn: () => void = () => undefined;
      let stopped: () => void = () => undefined;
      const isStopped = new Promise<void>((resolve) => (stopped = resolve));
      harm[point] = async () => {
        harm[point] = undefined;
        stopped();
        await new Promise<void>((resolve) => (goOn = resolve));
      };
      const outcome = write(old, appended(1, "two;")).then(
        () => "acknowledged",
        (error: unknown) => error,
      );
      await isStopped;
      const next = await openOnPool(server.pool, { schema });
      goOn();
      // Stopped after it was executed, the commit is in the log that the next owner read: it may be acknowledged.
      if (point === "before") expect(await outcome).toMatchObject({ code: "shard_moved" });
      const isAcknowledged = (await outcome) === "acknowledged";
      expect((await storedIn(next)).includes("two;")).toBe(point === "after");
      if (isAcknowledged) expect(await storedIn(next)).toBe("one;two;");
      await write(next, appended(1, "three;"));
      await expect(write(old, appended(1, "late;"))).rejects.toMatchObject({ code: "shard_moved" });
      await old.close();
      await next.close();
    }
  });

  test(`S10 ${isLong ? 1000 : 25} takeovers against owners that go on committing: nothing lost, nothing twice`, async () => {
    const schema = freshSchema();
    const acked: string[] = [];
    const working: Promise<void>[] = [];
    const parts = { schema, leaseMs: 60_000, segmentBytes: 1 << 16 };
    let owner = await openOnPool(server.pool, parts);
    await write(owner, created(1));
    const work = async (store: Store, round: number): Promise<void> => {
      for (let count = 0; ; count += 1) {
        const text = `${round}.${count};`;
        try {
          await write(store, appended(1, text));
        } catch (error) {
          expect(error).toMatchObject({ code: "shard_moved" });
          await store.close();
          return;
        }
        acked.push(text);
      }
    };
    for (let round = 0; round < (isLong ? 1000 : 25); round += 1) {
      working.push(work(owner, round));
      owner = await openOnPool(server.pool, parts);
    }
    await Promise.all(working);
    const stored = (await storedIn(owner)).split(/(?<=;)/);
    expect(new Set(stored).size).toBe(stored.length);
    const found = new Set(stored);
    expect(acked.filter((text) => !found.has(text))).toEqual([]);
    await owner.close();
  });

  test("G80 no fenced write of an earlier epoch does anything, whichever kind it is", async () => {
    const schema = freshSchema();
    const store = await openOnPool(server.pool, { schema, segmentBytes: 1 << 20, leaseMs: 60_000 });
    await write(store, created(1), appended(1, "one"));
    await store.maintain();
    const keepsPromise = (): boolean => true;
    const tables = new PostgresTables(pgSession(server.pool), { schema, shard: 0, keepsPromise });
    const [image] = await tables.images();
    const lsn = image?.lsn ?? 0;
    const bytes = new Uint8Array(8);
    const writes: readonly FencedWrite[] = [
      {
        kind: "frame",
        segment: 1,
        position: 1 << 19,
        lsn: 9,
        ordinal: 9,
        parts: [bytes],
        before: undefined,
      },
      { kind: "segment", segment: { number: 9, firstLsn: 9, salt: 9, crcBefore: 9 } },
      { kind: "retired", number: 1 },
      { kind: "image_part", lsn: 99, part: 0, bytes },
      { kind: "image", lsn: 99, bytes: 8 },
      { kind: "image_dropped", lsn },
    ];
    for (const one of writes) {
      const { kind } = one;
      expect([kind, (await tables.write(store.epoch - 1, one)).isDone]).toEqual([kind, false]);
      expect([kind, (await tables.confirm(store.epoch - 1, one)).isDone]).toEqual([kind, false]);
    }
    // The same with the present epoch do what they say, so nothing else kept them from it.
    for (const one of writes)
      expect([one.kind, (await tables.write(store.epoch, one)).isDone]).toEqual([one.kind, true]);
    await store.close();
  });

  test("G81 commits wait while the server promises too little, and go on when it promises enough", async () => {
    const schema = freshSchema();
    let isEnough = true;
    const session = pgSession(server.pool);
    const tables = new PostgresTables(session, { schema, shard: 0, keepsPromise: () => isEnough });
    await (await openOnPool(server.pool, { schema })).close();
    const cluster = { storeId: "ab".repeat(16), secret: "s" };
    const clock = createVirtualClock();
    const warnings: string[] = [];
    const onWarning = (warning: string): void => void warnings.push(warning);
    const options = { ...OPTIONS, clock, onWarning, leaseMs: 600_000 };
    await run(`UPDATE ${schema}.hapax_cluster SET id = '${cluster.storeId}'`);
    const store = await openOnTables(tables, cluster, options, () => Promise.resolve());
    await write(store, created(1));
    isEnough = false;
    let isDone = false;
    const writing = write(store, appended(1, "one")).then(() => (isDone = true));
    while (warnings.length === 0) {
      await new Promise((resolve) => setImmediate(resolve));
      clock.advance(100);
    }
    expect(warnings[0]).toContain("a commit has waited");
    expect(isDone).toBe(false);
    isEnough = true;
    while (!isDone) {
      await new Promise((resolve) => setImmediate(resolve));
      clock.advance(100);
    }
    await writing;
    await store.close();
  });

  test("snapshots are rows, two are kept, dead segments are dropped tables, and a former owner retires nothing", async () => {
    const schema = freshSchema();
    const open = () =>
      openOnPool(server.pool, { schema, segmentBytes: 8192, leaseMs: 60_000, cacheBytes: 0 });
    const store = await open();
    await write(store, created(1), created(2));
    for (let count = 0; count < 12; count += 1)
      await write(store, appended(1, pattern(3000, count)));
    await write(store, appended(2, "kept"));
    await write(store, ended("removed", 1));
    const many = store.stats().segments;
    for (let turns = 0; turns < 4; turns += 1) {
      await write(store, appended(2, `+${turns}`));
      await store.maintain();
    }
    expect(store.stats()).toMatchObject({ snapshots: 2 });
    expect(store.stats().segments).toBeLessThan(many / 2);
    const tables = await run(
      `SELECT count(*)::int AS count FROM pg_tables WHERE schemaname = '${schema}' AND tablename LIKE 'hapax_seg_0_%'`,
    );
    expect(tables.rows[0]).toEqual({ count: store.stats().segments });
    const images = await run(
      `SELECT count(DISTINCT lsn)::int AS count FROM ${schema}.hapax_image_part`,
    );
    expect(images.rows[0]).toEqual({ count: 2 });
    await write(store, appended(2, "="));
    const world = describeWorld(store.world);
    const next = await open();
    expect(describeWorld(next.world)).toBe(world);
    await write(next, appended(2, "next"));
    await expect(store.maintain()).rejects.toMatchObject({ code: "shard_moved" });
    expect(Buffer.concat(await readAll(next, 2, 0, 17)).toString()).toBe("kept+0+1+2+3=next");
    await store.close();
    await next.close();
  });

  test("G33 a store with a limit refuses data when it is full, and has room again when data was removed", async () => {
    const schema = freshSchema();
    const bytesMax = 3 * 1024 * 1024;
    const store = await openOnPool(server.pool, { schema, bytesMax, segmentBytes: 64 * 1024 });
    await write(store, created(1), created(2));
    while (store.room.bytes > 0) await write(store, appended(1, pattern(100_000, 1)));
    expect(store.stats().isFull).toBe(true);
    await write(store, ended("removed", 1));
    for (let turns = 0; turns < 4 && store.room.bytes < 0; turns += 1) {
      await write(store, appended(2, "x"));
      await store.maintain();
    }
    expect(store.room.bytes).toBeGreaterThan(0);
    await store.close();
  });

  test("a server that promises less than the store is refused with every reason, and less must be asked for", async () => {
    const schema = freshSchema();
    await expect(openPostgresStore(server.pool, { schema })).rejects.toMatchObject({
      code: "invalid_options",
      message: expect.stringMatching(/fsync is off.*synchronous_standby_names is empty/),
    });
    await expect(
      openPostgresStore(server.pool, { schema, durability: "fsync" }),
    ).rejects.toMatchObject({
      code: "invalid_options",
    });
    const warnings: string[] = [];
    const onWarning = (warning: string): void => void warnings.push(warning);
    const store = await openPostgresStore(server.pool, { schema, durability: "os", onWarning });
    expect(warnings.join()).toContain("fsync is off");
    expect(store.supports.durability).toBe("os");
    await store.close();
  });

  test("tables of another version are refused and not touched", async () => {
    const schema = freshSchema();
    await (await openOnPool(server.pool, { schema })).close();
    await run(`UPDATE ${schema}.hapax_cluster SET format = 2`);
    await expect(openOnPool(server.pool, { schema })).rejects.toMatchObject({
      code: "format_unknown",
    });
  });

  const FEW = /^(S1 what|S1 large appends and|S2 writing|S10|S12)/;
  const all = { isDurable: true, failNextCommit: undefined, takeOver: () => Promise.reject() };
  for (const { name, run: check } of storeConformance(all).filter((one) => FEW.test(one.name))) {
    test(`with postgres.js: ${name}`, async () => {
      const schema = freshSchema();
      const notices = new PostgresNotices();
      const options = {
        host: server.host,
        user: "postgres",
        database: "postgres",
        onnotice: notices.listener,
      };
      const sql = postgres({ ...options, max: 4 });
      const open = (): Promise<Store> => openPostgresStore(sql, { ...OPTIONS, schema, notices });
      await check({
        isDurable: true,
        failNextCommit: undefined,
        open,
        takeOver: open,
        abandon: async () => undefined,
      });
      await sql.end();
    });

    test(`with another connection for each statement, as behind a pooler of transactions: ${name}`, async () => {
      const schema = freshSchema();
      const sessions = [server.openPool(), server.openPool(), server.openPool()].map((pool) =>
        pgSession(pool),
      );
      let turn = 0;
      const session: Session = {
        run(text, values) {
          turn += 1;
          const [first] = [...sessions.slice(turn % 3), ...sessions];
          if (first === undefined) throw new Error("there are no sessions");
          return first.run(text, values);
        },
        close: async () => undefined,
      };
      const open = (): Promise<Store> => openOnSession(session, { ...OPTIONS, schema });
      await check({
        isDurable: true,
        failNextCommit: undefined,
        open,
        takeOver: open,
        abandon: async () => undefined,
      });
    });
  }
});
