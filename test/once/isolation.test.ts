// processOnce, inbox, leases and migrations where the database's transactions are stricter than usual, and pools are small.
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { EntryWrite } from "../../src/toolkit/ledgers/ledger.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { acquireLease, createInbox, GLOBAL, processOnce } from "../../src/toolkit/ledger.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { fresh } from "./database-suite.ts";

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: isolation on PostgreSQL: ${reason}`);

describe.skipIf(reason !== undefined)("on PostgreSQL", () => {
  let server: TestPostgres;
  const ends: (() => Promise<void>)[] = [];
  const newPool = (others: pg.PoolConfig = {}): pg.Pool => {
    const { host } = server;
    const pool = new pg.Pool({ host, user: "postgres", database: "postgres", max: 4, ...others });
    pool.on("error", () => undefined);
    ends.push(() => pool.end());
    return pool;
  };
  const strict = (level: string) =>
    newPool({ options: `-c default_transaction_isolation=${level}` });
  beforeAll(async () => {
    server = await startPostgres();
    await server.pool.query("CREATE TABLE effects (text TEXT)");
    await postgresLedger(server.pool).migrate();
  }, 60_000);
  afterEach(async () => {
    await Promise.all(ends.splice(0).map((end) => end()));
  });
  afterAll(async () => {
    await server.stop();
  });
  const count = async (text: string): Promise<number> =>
    (await server.pool.query("SELECT 1 FROM effects WHERE text = $1", [text])).rows.length;

  /** Until a session waits for a lock, as the database reports. */
  const untilWaiting = async (): Promise<void> => {
    for (;;) {
      const { rows } = await server.pool.query("SELECT 1 FROM pg_locks WHERE NOT granted");
      if (rows.length > 0) return;
    }
  };

  for (const level of ["repeatable\\ read", "serializable"]) {
    test(`LG7 many migrate at once where transactions are ${level}`, async () => {
      const schema = fresh();
      const ledgers = Array.from({ length: 4 }, () => postgresLedger(strict(level), { schema }));
      const all = await Promise.allSettled(ledgers.map((ledger) => ledger.migrate()));
      expect(all.filter(({ status }) => status === "rejected")).toEqual([]);
    });

    // A renewal changes the entry, and the snapshot of the work is older: PostgreSQL refuses the end of it.
    test(`work that outlives a renewal is undone and given back where transactions are ${level}`, async () => {
      const key = fresh();
      const ledger = postgresLedger(strict(level));
      const call = (leaseMs: number, seconds: number) =>
        processOnce(
          ledger,
          { scope: GLOBAL, key },
          async ({ tx, attempt }) => {
            await tx.query("INSERT INTO effects VALUES ($1)", [key]);
            await tx.query("SELECT pg_sleep($1)", [seconds]);
            return attempt;
          },
          { leaseMs },
        );
      await expect(call(900, 0.5)).rejects.toMatchObject({ code: "40001" });
      expect(await count(key)).toBe(0);
      expect(await call(6_000, 0.1)).toMatchObject({ result: 2, isDuplicate: false });
      expect(await count(key)).toBe(1);
    });

    test(`guarded work that outlives a renewal is undone where transactions are ${level}`, async () => {
      const key = fresh();
      const lease = await acquireLease(
        postgresLedger(strict(level)),
        { scope: GLOBAL, key },
        { leaseMs: 900 },
      );
      const guarded = lease?.transaction(async (tx) => {
        await tx.query("INSERT INTO effects VALUES ($1)", [key]);
        await tx.query("SELECT pg_sleep(0.5)");
      });
      await expect(guarded).rejects.toMatchObject({ code: "40001" });
      expect(lease?.signal.aborted).toBe(false);
      await lease?.release();
      expect(await count(key)).toBe(0);
    });

    test(`of deliveries at once one is handled where transactions are ${level}`, async () => {
      const key = fresh();
      const inbox = createInbox(postgresLedger(strict(level)), { consumer: "c", retainMs: 60_000 });
      const deliver = () =>
        inbox.handle({ scope: "s", key }, async (tx) => {
          await tx.query("INSERT INTO effects VALUES ($1)", [key]);
        });
      const all = await Promise.allSettled(Array.from({ length: 8 }, deliver));
      const refused = all.filter((one) => one.status === "rejected");
      for (const { reason: why } of refused) expect(why).toMatchObject({ code: "40001" });
      expect(await deliver()).toEqual({ isDuplicate: true });
      expect(await count(key)).toBe(1);
    });
  }

  test("LG3 a token that was drawn before a lock and put after it is drawn again", async () => {
    const [ledger, other] = [postgresLedger(newPool()), postgresLedger(newPool())];
    const place = { kind: "once", scope: GLOBAL, key: fresh() };
    const write: EntryWrite = {
      state: "running",
      token: "next",
      attempts: 1,
      leaseMs: 60_000,
      keepMs: undefined,
      fingerprint: { value: undefined },
      data: { value: undefined },
    };
    const made = await ledger.entries.put(place, { kind: "absent" }, write);
    const expected = { kind: "unchanged", token: 0, revision: 0, ...made } as const;
    let late: ReturnType<typeof other.entries.put> | undefined;
    let seen = 0;
    const undone = ledger.transaction(async (tx) => {
      const { entries } = ledger.in(tx);
      await entries.find(place);
      late = other.entries.put(place, expected, write);
      await untilWaiting();
      seen = (await entries.put(place, expected, write))?.token ?? 0;
      throw new Error("undo");
    });
    await expect(undone).rejects.toThrow("undo");
    const put = await late;
    expect(put?.token).toBeGreaterThan(seen);
    expect(await ledger.entries.find(place)).toMatchObject({ ...put, revision: 2 });
  });

  test("a pool of one connection is enough for many keys at once", async () => {
    const ledger = postgresLedger(newPool({ max: 1 }));
    const keys = Array.from({ length: 20 }, fresh);
    await Promise.all(
      keys
        .flatMap((key) => [key, key])
        .map((key) =>
          processOnce(
            ledger,
            { scope: GLOBAL, key },
            async ({ tx }) => {
              await tx.query("INSERT INTO effects VALUES ($1)", [key]);
              await tx.query("SELECT pg_sleep(0.02)");
            },
            { leaseMs: 5_000 },
          ),
        ),
    );
    for (const key of keys) expect(await count(key)).toBe(1);
  });
});
