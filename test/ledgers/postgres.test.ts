// What the ledger in PostgreSQL promises beside the contract, and the contract behind a pooler.
import pg from "pg";
import postgres from "postgres";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Ledger, Place } from "../../src/toolkit/ledgers/ledger.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import type { PgClient, PgPool } from "../../src/toolkit/databases/postgres.ts";
import { ledgerConformance, whySkipped } from "../../src/testing/ledger-conformance.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { ABSENT, CLAIM } from "./kit.ts";

/** A pool that keeps the plans of its statements, and does nothing of them. */
function explaining(pool: pg.Pool, plans: string[]): PgPool {
  const explain = async (text: string, values?: unknown[]): Promise<{ rows: [] }> => {
    const { rows } = await pool.query(`EXPLAIN ${text}`, values);
    plans.push(JSON.stringify(rows));
    return { rows: [] };
  };
  return { query: explain, connect: async () => ({ query: explain, release: () => undefined }) };
}

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: ledgers on PostgreSQL: ${reason}`);

let server: TestPostgres;
const ends: (() => Promise<void>)[] = [];
let places = 0;

function freshPlace(): Place {
  places += 1;
  return { kind: "once", scope: "", key: `key-${places}` };
}

afterEach(async () => {
  await Promise.all(ends.splice(0).map((end) => end()));
});

const options = () => ({ host: server.host, user: "postgres", database: "postgres", max: 4 });

function newPool(
  others: pg.PoolConfig = {},
  atEnd: (end: () => Promise<void>) => void = (end) => ends.push(end),
): pg.Pool {
  const pool = new pg.Pool({ ...options(), ...others });
  pool.on("error", () => undefined);
  atEnd(() => pool.end());
  return pool;
}

function newSql(others: postgres.Options<Record<string, never>> = {}): postgres.Sql {
  const sql = postgres({ ...options(), onnotice: () => undefined, ...others });
  ends.push(() => sql.end());
  return sql;
}

async function newLedger(): Promise<Ledger<pg.PoolClient>> {
  const ledger = postgresLedger<pg.PoolClient>(newPool());
  await ledger.migrate();
  return ledger;
}

/** Until a session waits for a lock, as the database reports. */
async function untilWaiting(): Promise<void> {
  for (;;) {
    const { rows } = await server.pool.query("SELECT 1 FROM pg_locks WHERE NOT granted");
    if (rows.length > 0) return;
  }
}

/** A pool that changes connections after every transaction and forgets what a session knew, as poolers do. */
function pooled(pool: pg.Pool): PgPool<pg.PoolClient> {
  const connect = async (): Promise<pg.PoolClient> => {
    const client = await pool.connect();
    const release = client.release.bind(client);
    client.release = (error) => {
      client.release = release;
      if (error !== undefined) release(error);
      else
        void client.query("DISCARD ALL").then(
          () => {
            release();
          },
          (problem: Error) => {
            release(problem);
          },
        );
    };
    return client;
  };
  return {
    connect,
    async query(text, values) {
      const client = await connect();
      try {
        return await client.query(text, values);
      } finally {
        client.release();
      }
    },
  };
}

beforeAll(async () => {
  if (reason !== undefined) return;
  server = await startPostgres();
  await server.pool.query("CREATE TABLE effects (id SERIAL PRIMARY KEY, text TEXT)");
  await postgresLedger(server.pool).migrate();
}, 60_000);
afterAll(async () => {
  if (reason === undefined) await server.stop();
});

describe.skipIf(reason !== undefined)("a ledger in PostgreSQL", () => {
  describe("behind a pooler of transactions", () => {
    const pools: pg.Pool[] = [];
    let opened = 0;
    afterAll(async () => {
      await Promise.all(pools.map((pool) => pool.end()));
    });
    for (const one of ledgerConformance)
      test(one.title, async (context) => {
        const whyNot = whySkipped(one, postgresLedger(server.pool));
        context.skip(whyNot !== undefined, whyNot);
        await one.run<pg.PoolClient>({
          async open() {
            opened += 1;
            const pool = (pools[opened % 8] ??= newPool({ max: 3 }, () => undefined));
            return postgresLedger<pg.PoolClient>(pooled(pool));
          },
          async write(tx, text) {
            await tx.query("INSERT INTO effects (text) VALUES ($1)", [text]);
          },
          async read() {
            const { rows } = await server.pool.query<{ text: string }>(
              "SELECT text FROM effects ORDER BY id",
            );
            return rows.map(({ text }) => text);
          },
        });
      });
  });

  test("postgres prepares statements if it prepares at all, and needs it not", async () => {
    for (const prepare of [true, false]) {
      const sql = newSql({ max: 1, prepare });
      const ledger = postgresLedger<postgres.TransactionSql>(sql);
      const place = freshPlace();
      const put = await ledger.entries.put(place, ABSENT, CLAIM);
      await ledger.entries.find(place);
      await ledger.entries.find(place);
      expect(await ledger.entries.find(place)).toMatchObject({ token: put?.token, revision: 1 });
      const [row] = await sql`SELECT count(*)::int AS count FROM pg_prepared_statements
        WHERE statement LIKE '%hapax_entries WHERE%'`.simple();
      expect(row?.["count"]).toBe(prepare ? 1 : 0);
    }
  });

  test("a lease that is taken late in a transaction begins late", async () => {
    const ledger = await newLedger();
    const place = freshPlace();
    await ledger.transaction(async (tx) => {
      await tx.query("SELECT pg_sleep(0.2)");
      await ledger.in(tx).entries.put(place, ABSENT, { ...CLAIM, leaseMs: 1_000_000 });
      const { rows } = await tx.query<{ late: boolean }>(
        `SELECT lease_until - now() > interval '1000.2 seconds' AND made_at > now() + interval '0.2 s' AS late
         FROM hapax_entries WHERE key = $1`,
        [place.key],
      );
      expect(rows).toEqual([{ late: true }]);
    });
  });

  test.each(["commit", "rollback"])(
    "a put waits for a transaction that makes the same entry, until its %s",
    async (end) => {
      const [one, other] = [await newLedger(), await newLedger()];
      const place = freshPlace();
      let isOver = false;
      let put: ReturnType<typeof other.entries.put> | undefined;
      const work = one.transaction(async (tx) => {
        await one.in(tx).entries.put(place, ABSENT, CLAIM);
        put = other.entries.put(place, ABSENT, CLAIM).finally(() => {
          isOver = true;
        });
        await untilWaiting();
        expect(isOver).toBe(false);
        if (end === "rollback") throw new Error("undo");
      });
      if (end === "rollback") await expect(work).rejects.toThrow("undo");
      else await work;
      expect((await put) === undefined).toBe(end === "commit");
    },
  );

  test("what was found in a transaction is found by the next one after its end", async () => {
    const [one, other] = [await newLedger(), await newLedger()];
    const place = freshPlace();
    await one.entries.put(place, ABSENT, CLAIM);
    let second: Promise<unknown> | undefined;
    await one.transaction(async (tx) => {
      const entry = await one.in(tx).entries.find(place);
      second = other.transaction((their) => other.in(their).entries.find(place));
      await untilWaiting();
      // A call outside of a transaction does not wait for the lock.
      expect(await other.entries.find(place)).toMatchObject({ revision: 1 });
      const expected = { kind: "owned", token: entry?.token ?? 0 } as const;
      await one.in(tx).entries.put(place, expected, { ...CLAIM, state: "done", token: "same" });
    });
    expect(await second).toMatchObject({ revision: 2, state: "done" });
  });

  test("a serialisable default of the user does not break calls of their own", async () => {
    const options = "-c default_transaction_isolation=serializable";
    const ledgers = Array.from({ length: 4 }, () =>
      postgresLedger<pg.PoolClient>(newPool({ options })),
    );
    const many = Array.from({ length: 5 }, () => ledgers).flat();
    for (let round = 0; round < 10; round += 1) {
      const place = freshPlace();
      const made = await Promise.all(many.map(({ entries }) => entries.put(place, ABSENT, CLAIM)));
      const [winner, ...others] = made.filter((put) => put !== undefined);
      expect([winner === undefined, others]).toEqual([false, []]);
      const { token = 0, revision = 0 } = winner ?? {};
      const taken = await Promise.all(
        many.map(({ entries }) =>
          entries.put(place, { kind: "unchanged", token, revision }, CLAIM),
        ),
      );
      expect(taken.filter((put) => put !== undefined)).toHaveLength(1);
    }
  });

  test("a connection that is lost in COMMIT throws its own error, and the entry has the outcome", async () => {
    const pool = newPool();
    const lost = new Error("read ECONNRESET");
    const cutting: PgPool<pg.PoolClient> = {
      query: (text, values) => pool.query(text, values),
      async connect() {
        const client = await pool.connect();
        const query = client.query.bind(client) as unknown as PgPool["query"];
        const cut: PgPool["query"] = async (text, values) => {
          const answer = await query(text, values);
          if (!text.endsWith("COMMIT")) return answer;
          // It was done; only the answer does not come.
          await server.pool.query("SELECT pg_terminate_backend($1)", [
            (client as unknown as { readonly processID: number }).processID,
          ]);
          throw lost;
        };
        Object.assign(client, { query: cut });
        return client;
      },
    };
    const ledger = postgresLedger<pg.PoolClient>(cutting);
    const place = freshPlace();
    const work = ledger.transaction(async (tx) => {
      await ledger.in(tx).entries.put(place, ABSENT, CLAIM);
    });
    await expect(work).rejects.toBe(lost);
    expect(await ledger.entries.find(place)).toMatchObject({ state: "running" });
  });

  test("LG3 a token that was drawn early and put late is drawn again", async () => {
    const slow = postgresLedger(newPool({ application_name: "slow" }));
    const ledger = await newLedger();
    const place = freshPlace();
    // Between the token and the entry of the slow one there is a lock that the test holds.
    await server.pool.query(`CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF current_setting('application_name') = 'slow' THEN PERFORM pg_advisory_xact_lock(42); END IF;
      RETURN NEW; END $$`);
    await server.pool.query(
      "CREATE TRIGGER hold BEFORE INSERT ON hapax_entries FOR EACH ROW EXECUTE FUNCTION hold()",
    );
    const holder = await server.pool.connect();
    await holder.query("SELECT pg_advisory_lock(42)");
    const late = slow.entries.put(place, ABSENT, CLAIM);
    await untilWaiting();
    const meanwhile = await ledger.entries.put(place, ABSENT, CLAIM);
    const owned = { kind: "owned", token: meanwhile?.token ?? 0 } as const;
    expect(await ledger.entries.remove(place, owned)).toBe(true);
    await holder.query("SELECT pg_advisory_unlock(42)");
    holder.release();
    const put = await late;
    await server.pool.query("DROP FUNCTION hold CASCADE");
    expect(put?.token).toBeGreaterThan(owned.token);
    expect(await ledger.entries.find(place)).toMatchObject({ token: put?.token, revision: 1 });
  });

  test("a connection that is lost in a transaction fails its next statement, and not the process", async () => {
    const ledger = await newLedger();
    const place = freshPlace();
    const work = ledger.transaction(async (tx) => {
      await ledger.in(tx).entries.put(place, ABSENT, CLAIM);
      const { rows } = await tx.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
      const ended = new Promise((resolve) => tx.once("end", resolve));
      await server.pool.query("SELECT pg_terminate_backend($1)", [rows[0]?.pid]);
      await ended;
    });
    await expect(work).rejects.toThrow(/not queryable|terminat/);
    expect(await ledger.entries.find(place)).toBeUndefined();
  });

  test("a transaction in which a statement failed is not told as committed", async () => {
    const place = freshPlace();
    const ledger = await newLedger();
    const withPg = ledger.transaction(async (tx) => {
      await ledger.in(tx).entries.put(place, ABSENT, CLAIM);
      await tx.query("SELECT 1 / 0").catch(() => undefined);
      return "done";
    });
    await expect(withPg).rejects.toThrow("undone");
    const other = postgresLedger<postgres.TransactionSql>(newSql());
    const withPostgres = other.transaction(async (tx) => {
      await other.in(tx).entries.put(place, ABSENT, CLAIM);
      await tx`SELECT 1 / 0`.catch(() => undefined);
      return "done";
    });
    await expect(withPostgres).rejects.toThrow("division by zero");
    expect(await ledger.entries.find(place)).toBeUndefined();
  });

  test("LG8 LG10 a sweep, a scan of what is not over and a scan of what is due go by an index", async () => {
    const pool = newPool({ max: 1 });
    await pool.query("SET enable_seqscan = off");
    const plans: string[] = [];
    const { entries } = postgresLedger<PgClient>(explaining(pool, plans));
    await entries.sweep(1);
    await entries.scan({ kind: "once", state: "released", max: 1 });
    await entries.scan({ kind: "once", state: "running", isAbandoned: true, order: "due", max: 1 });
    await entries.scan({ kind: "once", state: "running", order: "due", max: 1 });
    await entries.nextDue(["once", "http"]);
    // The time is a bound of the search, not a filter over all that there is.
    expect(plans[0]).toMatch(/hapax_entries_expiry[^}]*\},\{[^}]*Index Cond: \(expires_at <= /);
    expect(plans[1]).toContain("using hapax_entries_open");
    for (const plan of plans.slice(2)) expect(plan).toContain("using hapax_entries_due");
    // In the order of the index: the search ends at the first of each kind.
    for (const plan of plans.slice(4)) expect(plan).not.toContain("Sort");
  });

  test("LG13 a page goes by an index, from the place on where the page before has ended", async () => {
    const pool = newPool({ max: 1 });
    await pool.query("SET enable_seqscan = off");
    const plans: string[] = [];
    const { entries } = postgresLedger<PgClient>(explaining(pool, plans));
    const from = JSON.stringify(["2026-01-01T00:00:00.000000", "1"]);
    await entries.page({ kind: "once", from, max: 5 });
    await entries.page({ kind: "once", scope: "s", from, max: 5 });
    await entries.page({ kind: "once", state: "failed", from, max: 5 });
    await entries.page({ kind: "once", state: "released", from, max: 5 });
    expect(plans[0]).toMatch(
      /hapax_entries_pkey[^}]*\},\{[^}]*Index Cond:[^}]*ROW\(scope, key\) > ROW/,
    );
    expect(plans[1]).toMatch(/hapax_entries_pkey[^}]*\},\{[^}]*Index Cond:[^}]*key > /);
    expect(plans[2]).toMatch(/hapax_entries_open[^}]*\},\{[^}]*Index Cond:[^}]*made_at >= /);
    expect(plans[3]).toMatch(/hapax_entries_open[^}]*\},\{[^}]*Index Cond:[^}]*made_at >= /);
  });

  test("LG2 an owner's write uses the primary key and no other index", async () => {
    const pool = newPool({ max: 1 });
    const plans: string[] = [];
    const { entries } = postgresLedger<PgClient>(explaining(pool, plans));
    const place = freshPlace();
    await entries.put(place, { kind: "owned", token: 1 }, CLAIM);
    await entries.put(place, { kind: "unchanged", token: 1, revision: 1 }, CLAIM);
    await entries.remove(place, { kind: "owned", token: 1 });
    // The index of what is open has every claim that was ever made until it is vacuumed.
    for (const plan of plans) expect(plan).not.toMatch(/hapax_entries_(open|due)/);
    await pool.query("SET enable_seqscan = off");
    await entries.put(place, { kind: "owned", token: 1 }, CLAIM);
    expect(plans.at(-1)).toContain("hapax_entries_pkey");
  });

  test("integers are read correctly, with every type parser of the user's client", async () => {
    const types = { getTypeParser: pg.types.getTypeParser };
    const asBigInt = {
      getTypeParser: ((oid: number, format: "text") =>
        oid === 20 ? BigInt : types.getTypeParser(oid, format)) as typeof pg.types.getTypeParser,
    };
    const big = postgresLedger<pg.PoolClient>(newPool({ types: asBigInt }));
    const camel = postgresLedger<postgres.TransactionSql>(newSql({ transform: postgres.camel }));
    for (const { entries } of [big, camel]) {
      const place = freshPlace();
      const put = await entries.put(place, ABSENT, CLAIM);
      const entry = await entries.find(place);
      expect(entry).toMatchObject({ token: put?.token, revision: 1, attempts: 1 });
      expect(entry?.leaseLeftMs).toBeGreaterThan(50_000);
    }
    await server.pool.query("SELECT setval('hapax_tokens', 9007199254740993)");
    await expect(big.entries.put(freshPlace(), ABSENT, CLAIM)).rejects.toThrow("no safe integer");
    await server.pool.query("SELECT setval('hapax_tokens', 1000000)");
  });

  test("a schema that is no name is refused", () => {
    for (const schema of ["", "nul\0", "é".repeat(32)])
      expect(() => postgresLedger<pg.PoolClient>(newPool(), { schema })).toThrow(
        expect.objectContaining({ code: "invalid_options" }),
      );
  });
});
