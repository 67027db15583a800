// LG3 after a restore and with a wrong clock: tokens follow the database's clock, and never go back.
import { copyFileSync } from "node:fs";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";
import { memoryLedger } from "../../src/toolkit/ledgers/memory.ts";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { TOKEN_CLOCK_MAX } from "../../src/toolkit/ledgers/tokens.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { ABSENT, CLAIM, connect, newFile, placeOf } from "./kit.ts";

let keys = 0;

/** Draws a token by a claim. */
async function draw<Tx>({ entries }: Ledger<Tx>): Promise<number> {
  keys += 1;
  const put = await entries.put(placeOf(`token-${keys}`), ABSENT, CLAIM);
  if (put === undefined) throw new Error("the place was taken");
  return put.token;
}

/** A database may be ahead of its clock by 10 ms. No restore takes less. */
function laterThanBlocks(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 15));
}

/** The next hour, as microseconds: a counter there has seen a clock that was set back since. */
function nextHour(): number {
  return (Date.now() + 3_600_000) * 1000;
}

describe("tokens in memory", () => {
  test("LG3 follow the clock, and go on when it is set back", async () => {
    const clock = createVirtualClock(1_000_000);
    const ledger = memoryLedger({ clock });
    expect(await draw(ledger)).toBe(1_000_000_000);
    expect(await draw(ledger)).toBe(1_000_000_001);
    clock.advance(5);
    expect(await draw(ledger)).toBe(1_000_005_000);
    clock.jump(-1000);
    expect(await draw(ledger)).toBe(1_000_005_001);
  });
});

describe("tokens in SQLite", () => {
  test("LG3 a block that is nearly used up is replaced at once", async () => {
    const connection = connect(newFile());
    let saved = 0;
    const ledger = sqliteLedger(() => ({
      prepare: (text: string) => connection.prepare(text),
      exec(text: string) {
        if (text.startsWith("SAVEPOINT")) saved += 1;
        return connection.exec(text);
      },
    }));
    await ledger.migrate();
    const drawMany = async (count: number): Promise<void> => {
      await ledger.transaction(async (tx) => {
        for (let drawn = 0; drawn < count; drawn += 1)
          await ledger.in(tx).entries.lock?.(placeOf("absent"));
      });
    };
    await drawMany(1);
    await laterThanBlocks();
    saved = 0;
    await drawMany(6_000);
    await drawMany(1);
    expect(saved).toBe(1);
    await drawMany(1);
    await drawMany(1);
    expect(saved).toBe(1);
  });

  test("LG3 a restored database gives none again", async () => {
    const [file, backup] = [newFile(), newFile()];
    const before = sqliteLedger(() => connect(file));
    await before.migrate();
    await draw(before);
    before.close();
    copyFileSync(file, backup);
    const lost = sqliteLedger(() => connect(file));
    const given = [await draw(lost), await draw(lost), await draw(lost)];
    await laterThanBlocks();
    const restored = sqliteLedger(() => connect(backup));
    expect(await draw(restored)).toBeGreaterThan(Math.max(...given));
  });

  test("LG3 two who take turns give each token once, and stay at the clock", async () => {
    const file = newFile();
    const ledgers = [sqliteLedger(() => connect(file)), sqliteLedger(() => connect(file))];
    await ledgers[0]?.migrate();
    const given: number[] = [];
    // In runs, so that each has blocks of its own, which the other cuts short; some draws are taken back.
    for (const [index, ledger] of [0, 0, 0, 1, 0, 1, 1, 0, 0, 1].flatMap((which) =>
      Array.from({ length: 3 }, () => [which, ledgers[which]] as const),
    )) {
      if (ledger === undefined) continue;
      const undone = ledger.transaction(async (tx) => {
        given.push(await draw(ledger.in(tx)));
        throw new Error(`undone ${index}`);
      });
      await expect(undone).rejects.toThrow("undone");
      given.push(await draw(ledger));
    }
    expect(given).toEqual([...new Set(given)].toSorted((one, other) => one - other));
    expect(given.at(-1)).toBeLessThan((Date.now() + 1_000) * 1000);
  });

  test("LG3 one transaction may draw more than a block has", async () => {
    const ledger = sqliteLedger(() => connect(newFile()));
    await ledger.migrate();
    await draw(ledger);
    const given = await ledger.transaction(async (tx) => {
      const drawn: number[] = [];
      const inside = ledger.in(tx);
      for (let index = 0; index < 11_000; index += 1) drawn.push(await draw(inside));
      return drawn;
    });
    expect(new Set(given).size).toBe(11_000);
    expect(await draw(ledger)).toBeGreaterThan(given.at(-1) ?? Infinity);
  });

  test("LG3 a clock that was set back gives none again, and one beyond all years is not followed", async () => {
    const connection = connect(newFile());
    const ledger = sqliteLedger(() => connection);
    await ledger.migrate();
    const ahead = nextHour();
    connection.prepare("UPDATE hapax_tokens SET last = ?").run(ahead);
    expect([await draw(ledger), await draw(ledger)]).toEqual([ahead + 1, ahead + 2]);
    connection.prepare("UPDATE hapax_tokens SET last = ?").run(TOKEN_CLOCK_MAX);
    expect(await draw(ledger)).toBe(TOKEN_CLOCK_MAX + 1);
  });
});

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: tokens on PostgreSQL: ${reason}`);

describe.skipIf(reason !== undefined)("tokens in PostgreSQL", () => {
  let server: TestPostgres;
  let pool: pg.Pool;
  let ledger: Ledger<pg.PoolClient>;
  beforeAll(async () => {
    server = await startPostgres();
    pool = new pg.Pool({ host: server.host, user: "postgres", database: "postgres", max: 8 });
    pool.on("error", () => undefined); // Idle connections end when the server does.
    ledger = postgresLedger(pool);
    await ledger.migrate();
  }, 60_000);
  afterAll(async () => {
    await pool.end();
    await server.stop();
  });
  const set = (last: number): Promise<unknown> =>
    pool.query("SELECT setval('hapax_tokens', $1)", [last]);

  test("LG3 a database whose sequence went back gives none again", async () => {
    const backup = await draw(ledger);
    const given = [await draw(ledger), await draw(ledger), await draw(ledger)];
    for (const last of [backup, 1]) {
      await laterThanBlocks();
      await set(last);
      const token = await draw(ledger);
      expect(token).toBeGreaterThan(Math.max(...given));
      given.push(token);
    }
  });

  test("LG3 one at a time sets the sequence to the clock", async () => {
    const setter = await pool.connect();
    const which = "71654370, 'hapax_tokens'::regclass::oid::integer";
    await setter.query(`SELECT pg_advisory_lock(${which})`);
    await set(1);
    let isDrawn = false;
    const drawn = draw(ledger).finally(() => {
      isDrawn = true;
    });
    // Until it waits for the one that sets it, or has set it as well.
    const waiting = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    while (!isDrawn && (await server.pool.query(waiting)).rows.length === 0)
      await new Promise((resolve) => setTimeout(resolve, 5));
    const wasEarly = isDrawn;
    await setter.query(`SELECT pg_advisory_unlock(${which})`);
    setter.release();
    expect([wasEarly, (await drawn) > 1e15]).toEqual([false, true]);
  });

  test("LG3 connections that take turns get greater ones each, also where the clock does not decide", async () => {
    await set(nextHour());
    const where = { host: server.host, user: "postgres", database: "postgres", max: 1 };
    const pools = [new pg.Pool(where), new pg.Pool(where)];
    const given: number[] = [];
    for (let round = 0; round < 5; round += 1)
      for (const own of pools) given.push(await draw(postgresLedger(own)));
    await Promise.all(pools.map((own) => own.end()));
    await set(1);
    expect(given).toEqual([...new Set(given)].toSorted((one, other) => one - other));
  });

  test("LG3 all who draw when the sequence went back get tokens of their own", async () => {
    const given = new Set<number>([await draw(ledger)]);
    for (let round = 0; round < 20; round += 1) {
      const before = Math.max(...given);
      await set(round + 1);
      const drawn = await Promise.all(Array.from({ length: 16 }, () => draw(ledger)));
      for (const token of drawn) expect(token).toBeGreaterThan(before);
      for (const token of drawn) given.add(token);
    }
    expect(given.size).toBe(1 + 20 * 16);
  });

  test("LG3 an open transaction that has set the sequence does not hold others up", async () => {
    const waiting = postgresLedger(pool);
    const token = await ledger.transaction(async (tx) => {
      await set(1);
      const inside = await draw(ledger.in(tx));
      await set(1);
      const outside = await draw(waiting);
      expect(outside).toBeGreaterThan(inside);
      const { rows } = await tx.query("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'");
      expect(rows).toEqual([]);
      return outside;
    });
    expect(await draw(ledger)).toBeGreaterThan(token);
  });

  test("LG3 two who take turns give each token once, and stay at the clock", async () => {
    const file = newFile();
    const ledgers = [sqliteLedger(() => connect(file)), sqliteLedger(() => connect(file))];
    await ledgers[0]?.migrate();
    const given: number[] = [];
    // In runs, so that each has blocks of its own, which the other cuts short; some draws are taken back.
    for (const [index, ledger] of [0, 0, 0, 1, 0, 1, 1, 0, 0, 1].flatMap((which) =>
      Array.from({ length: 3 }, () => [which, ledgers[which]] as const),
    )) {
      if (ledger === undefined) continue;
      const undone = ledger.transaction(async (tx) => {
        given.push(await draw(ledger.in(tx)));
        throw new Error(`undone ${index}`);
      });
      await expect(undone).rejects.toThrow("undone");
      given.push(await draw(ledger));
    }
    expect(given).toEqual([...new Set(given)].toSorted((one, other) => one - other));
    expect(given.at(-1)).toBeLessThan((Date.now() + 1_000) * 1000);
  });

  test("LG3 one transaction may draw more than a block has", async () => {
    const ledger = sqliteLedger(() => connect(newFile()));
    await ledger.migrate();
    await draw(ledger);
    const given = await ledger.transaction(async (tx) => {
      const drawn: number[] = [];
      const inside = ledger.in(tx);
      for (let index = 0; index < 11_000; index += 1) drawn.push(await draw(inside));
      return drawn;
    });
    expect(new Set(given).size).toBe(11_000);
    expect(await draw(ledger)).toBeGreaterThan(given.at(-1) ?? Infinity);
  });

  test("LG3 a clock that was set back gives none again, and one beyond all years is not followed", async () => {
    const ahead = nextHour();
    await set(ahead);
    expect([await draw(ledger), await draw(ledger)]).toEqual([ahead + 1, ahead + 2]);
    await set(TOKEN_CLOCK_MAX);
    expect(await draw(ledger)).toBe(TOKEN_CLOCK_MAX + 1);
    await set(1);
  });

  test("G28 batches of relays have tokens that follow the clock as well", async () => {
    const { rows } = await pool.query<{ token: string }>(
      "SELECT hapax_next_token('hapax_outbox_tokens') AS token",
    );
    expect(Number(rows[0]?.token)).toBeGreaterThan((Date.now() - 3_600_000) * 1000);
  });
});
