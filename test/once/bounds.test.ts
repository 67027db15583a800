// What has no end by itself is given one: work that never returns, and failures that only COMMIT tells.
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { setFailpoint } from "../../src/base/failpoint.ts";
import { createIdempotency } from "../../src/toolkit/idempotency.ts";
import { memoryLedger } from "../../src/toolkit/ledgers/memory.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { acquireLease, GLOBAL, ledgerSink, processOnce } from "../../src/toolkit/ledger.ts";
import type { OnceProbed } from "../../src/toolkit/once/options.ts";
import { createOutbox, createRelay, functionPublisher } from "../../src/toolkit/outbox.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { connect, newFile } from "../ledgers/kit.ts";

const never = () => new Promise<never>(() => undefined);

const warnings: Error[] = [];
const hear = (warning: Error): void => void warnings.push(warning);
process.on("warning", hear);
afterAll(() => {
  process.off("warning", hear);
});
afterEach(() => {
  setFailpoint(undefined);
  warnings.length = 0;
});

describe("work that never ends", () => {
  const limited = { leaseMs: 60_000, workMsMax: 30 };

  test("CK5 is given up, and its key is free at once", { timeout: 20_000 }, async () => {
    const file = newFile();
    for (const ledger of [memoryLedger(), sqliteLedger(() => connect(file))]) {
      await ledger.migrate();
      const hanging = processOnce(
        ledger as ReturnType<typeof memoryLedger>,
        { scope: GLOBAL, key: "a" },
        never,
        limited,
      );
      await expect(hanging).rejects.toMatchObject({
        code: "lease_lost",
        message: expect.stringContaining("workMsMax=30"),
      });
      const next = processOnce(
        ledger as ReturnType<typeof memoryLedger>,
        { scope: GLOBAL, key: "a" },
        () => 1,
        limited,
      );
      expect(await next).toMatchObject({ result: 1, isDuplicate: false });
    }
  });

  test("CK5 is given up also if it happens elsewhere, and is asked for if it must be", async () => {
    const ledger = memoryLedger();
    const repeatable = { ...limited, effect: "repeatable" } as const;
    await expect(
      processOnce(ledger, { scope: GLOBAL, key: "a" }, never, repeatable),
    ).rejects.toThrow("workMsMax");
    expect(
      await processOnce(ledger, { scope: GLOBAL, key: "a" }, () => 1, repeatable),
    ).toMatchObject({ result: 1 });
    let asked = 0;
    const probed = {
      ...limited,
      effect: "probed",
      reconcile: async () => {
        asked += 1;
        return { kind: "done", result: 2 };
      },
    } satisfies OnceProbed<number>;
    await expect(processOnce(ledger, { scope: GLOBAL, key: "b" }, never, probed)).rejects.toThrow(
      "workMsMax",
    );
    expect(await processOnce(ledger, { scope: GLOBAL, key: "b" }, () => 3, probed)).toMatchObject({
      result: 2,
    });
    expect(asked).toBe(1);
  });

  test("CK5 of an HTTP key is taken back, and the key is free when its lease ends", async () => {
    const engine = createIdempotency(memoryLedger(), {
      scope: GLOBAL,
      leaseMs: 200,
      workMsMax: 50,
      waitMs: 5_000,
    });
    const send = (handler: () => Promise<Response>) =>
      engine.handle(
        new Request("http://localhost/pay", {
          method: "POST",
          headers: { "Idempotency-Key": "k" },
          body: "{}",
        }),
        handler,
      );
    void send(never);
    const retry = await send(async () => new Response("done"));
    expect([retry.status, await retry.text()]).toEqual([200, "done"]);
  });
});

describe("a clock that was set back", () => {
  const dead = { leaseMs: 200, claimsFirst: true };
  const heir = { ...dead, waitMs: 10_000 };
  const crash = (): never => {
    throw new Error("the process is gone");
  };

  test("CK6 frees the key of a dead process when its lease is over, on SQLite", async () => {
    const file = newFile();
    const ledger = sqliteLedger(() => connect(file));
    await ledger.migrate();
    setFailpoint((name) => (name === "once.claimed" ? crash() : undefined));
    await expect(processOnce(ledger, { scope: GLOBAL, key: "a" }, () => 1, dead)).rejects.toThrow(
      "gone",
    );
    setFailpoint(undefined);
    // Three hours: for the entry, that is the same as a clock that is set back.
    connect(file).exec("UPDATE hapax_entries SET lease_until = lease_until + 10800000");
    const refused = processOnce(ledger, { scope: GLOBAL, key: "a" }, () => 2, dead);
    await expect(refused).rejects.toMatchObject({ code: "in_progress", retryAfterMs: 200 });
    expect(await processOnce(ledger, { scope: GLOBAL, key: "a" }, () => 2, heir)).toMatchObject({
      result: 2,
    });
  });

  test("CK6 does not take a lease from one who renews it", async () => {
    const file = newFile();
    const ledger = sqliteLedger(() => connect(file));
    await ledger.migrate();
    const lease = await acquireLease(ledger, { scope: GLOBAL, key: "l" }, { leaseMs: 300 });
    connect(file).exec("UPDATE hapax_entries SET lease_until = lease_until + 10800000");
    expect(
      await acquireLease(ledger, { scope: GLOBAL, key: "l" }, { leaseMs: 300, waitMs: 900 }),
    ).toBeUndefined();
    expect(lease?.signal.aborted).toBe(false);
    await lease?.release();
  });
});

test("no signal that many wait for has a listener for each of them", async () => {
  const ledger = memoryLedger();
  const { signal } = new AbortController();
  const held = await acquireLease(ledger, { scope: GLOBAL, key: "l" }, { leaseMs: 60_000 });
  const calls = Array.from({ length: 40 }, (_, index) => [
    processOnce(ledger, { scope: GLOBAL, key: `k${index}` }, () => index, { signal }),
    processOnce(ledger, { scope: GLOBAL, key: "same" }, () => index, { signal, waitMs: 1000 }),
    acquireLease(ledger, { scope: GLOBAL, key: "l" }, { signal, waitMs: 50 }),
  ]);
  await Promise.all(calls.flat());
  await held?.release();
  await new Promise((resolve) => setImmediate(resolve));
  expect(warnings.map(({ name }) => name)).not.toContain("MaxListenersExceededWarning");
});

test("a relay that publishes many keys at once has one listener for all of them", async () => {
  const ledger = memoryLedger();
  const outbox = createOutbox(ledger);
  const events = Array.from({ length: 20 }, (_, index) => ({
    topic: "t",
    key: `${index}`,
    payload: "x",
  }));
  await ledger.transaction((tx) => outbox.addAll(tx, events));
  let [atOnce, most] = [0, 0];
  const publisher = functionPublisher(async () => {
    atOnce += 1;
    most = Math.max(most, atOnce);
    await new Promise((resolve) => setTimeout(resolve, 10));
    atOnce -= 1;
  });
  await createRelay(ledger, publisher, { concurrency: 20 }).runOnce();
  expect(most).toBe(20);
  expect(warnings.map(({ name }) => name)).not.toContain("MaxListenersExceededWarning");
});

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: bounds on PostgreSQL: ${reason}`);

describe.skipIf(reason !== undefined)("on PostgreSQL", () => {
  let server: TestPostgres;
  beforeAll(async () => {
    server = await startPostgres();
    await postgresLedger(server.pool).migrate();
  });
  afterAll(() => server.stop());

  test("a failure that COMMIT tells is remembered, as one that the work throws", async () => {
    await server.pool.query("CREATE TABLE parents (id INT PRIMARY KEY)");
    await server.pool.query(
      "CREATE TABLE children (parent INT REFERENCES parents DEFERRABLE INITIALLY DEFERRED)",
    );
    const ledger = postgresLedger<pg.PoolClient>(server.openPool());
    const call = () =>
      processOnce(
        ledger,
        { scope: GLOBAL, key: "orphan" },
        async ({ tx }) => {
          await tx.query("INSERT INTO children VALUES (1)");
        },
        { onFailure: "remember" },
      );
    await expect(call()).rejects.toMatchObject({ code: "23503" });
    await expect(call()).rejects.toMatchObject({ code: "failure_kept" });
  });

  test("CK6 frees the key of a dead process when its lease is over", async () => {
    const ledger = postgresLedger<pg.PoolClient>(server.openPool());
    setFailpoint((name) => {
      if (name === "once.claimed") throw new Error("the process is gone");
      return undefined;
    });
    const dead = { leaseMs: 200 };
    await expect(
      processOnce(ledger, { scope: GLOBAL, key: "clock" }, () => 1, dead),
    ).rejects.toThrow("gone");
    setFailpoint(undefined);
    await server.pool.query(
      "UPDATE hapax_entries SET lease_until = lease_until + interval '3 hours' WHERE key = 'clock'",
    );
    const heir = processOnce(ledger, { scope: GLOBAL, key: "clock" }, () => 2, {
      ...dead,
      waitMs: 10_000,
    });
    expect(await heir).toMatchObject({ result: 2, isDuplicate: false });
  });

  test("a lease with many transactions at once has one listener for all of them", async () => {
    const { host } = server;
    const pool = new pg.Pool({ host, user: "postgres", database: "postgres", max: 16 });
    pool.on("error", () => undefined);
    try {
      const lease = await acquireLease(
        postgresLedger(pool),
        { scope: GLOBAL, key: "busy" },
        { leaseMs: 60_000 },
      );
      if (lease === undefined) throw new Error("the lease is free");
      const all = Array.from({ length: 15 }, () =>
        lease.transaction(() => new Promise((resolve) => setTimeout(resolve, 50))),
      );
      await Promise.all(all);
      await lease.release();
      expect(warnings.map(({ name }) => name)).not.toContain("MaxListenersExceededWarning");
    } finally {
      await pool.end();
    }
  });

  test("LG7 a role that may not create finds nothing to do", async () => {
    await postgresLedger(server.pool).migrate();
    await server.pool.query("CREATE ROLE humble LOGIN");
    await server.pool.query("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    await server.pool.query(
      "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO humble",
    );
    const pool = new pg.Pool({ host: server.host, user: "humble", database: "postgres", max: 1 });
    pool.on("error", () => undefined); // Idle connections end when the server does.
    try {
      await postgresLedger(pool).migrate();
      await ledgerSink(postgresLedger(pool)).prepare();
    } finally {
      await pool.end();
    }
  });
});
