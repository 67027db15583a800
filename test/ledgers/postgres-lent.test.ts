// What the work of a transaction on PostgreSQL gets ends with the transaction, and cannot end it. With both clients.
import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { loanOf } from "../../src/toolkit/databases/lending.ts";
import { setFailpoint } from "../../src/base/failpoint.ts";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import {
  acquireLease,
  createHybridClock,
  createInbox,
  GLOBAL,
  processOnce,
  setIfNewer,
  setVersion,
} from "../../src/toolkit/ledger.ts";
import { createSagas, defineSaga } from "../../src/toolkit/saga.ts";
import { ledgerSink } from "../../src/toolkit/once/ledger-sink.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { ABSENT, CLAIM, endings, placeOf } from "./kit.ts";

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: transactions on PostgreSQL: ${reason}`);

let server: TestPostgres;
const options = () => ({ host: server.host, user: "postgres", database: "postgres" });

function openPool(max = 4): pg.Pool {
  const pool = new pg.Pool({ ...options(), max });
  pool.on("error", () => undefined);
  endings.push(() => pool.end());
  return pool;
}

function openSql(max = 4): postgres.Sql {
  const sql = postgres({ ...options(), max, onnotice: () => undefined });
  endings.push(() => sql.end({ timeout: 1 }));
  return sql;
}

async function effects(): Promise<readonly string[]> {
  const { rows } = await server.pool.query<{ text: string }>("SELECT text FROM effects");
  return rows.map(({ text }) => text).toSorted();
}

function deferred(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve: () => void = () => undefined;
  const promise = new Promise<void>((done) => (resolve = done));
  return { promise, resolve };
}

const turn = () => new Promise((resolve) => setTimeout(resolve, 5));
const INSERT = "INSERT INTO effects VALUES ('late')";

/** A client, and how it runs a statement in a transaction. */
interface Client<Tx> {
  readonly name: string;
  readonly open: (max?: number) => Ledger<Tx>;
  readonly run: (tx: Tx, text: string) => PromiseLike<unknown>;
}

const withPg: Client<pg.PoolClient> = {
  name: "pg",
  open: (max) => postgresLedger<pg.PoolClient>(openPool(max)),
  run: (tx, text) => tx.query(text),
};
const withPostgres: Client<postgres.TransactionSql> = {
  name: "postgres",
  open: (max) => postgresLedger<postgres.TransactionSql>(openSql(max)),
  run: (tx, text) => tx.unsafe(text),
};

describe.skipIf(reason !== undefined)("on PostgreSQL", () => {
  beforeAll(async () => {
    server = await startPostgres();
    await server.pool.query("CREATE TABLE effects (text TEXT)");
    await postgresLedger(server.pool).migrate();
  });
  afterAll(() => server.stop());
  beforeEach(async () => {
    endings.push(() => setFailpoint(undefined));
    await server.pool.query("TRUNCATE effects, hapax_entries");
  });

  suite(withPg);
  suite(withPostgres);

  test("everything that pg hands out is refused after the end, and the connection is not given back twice", async () => {
    const pool = openPool(1);
    const ledger = postgresLedger<pg.PoolClient>(pool);
    let kept: pg.PoolClient | undefined;
    await ledger.transaction(async (tx) => {
      kept = tx;
      expect(tx).toBeInstanceOf(pg.Client);
      expect(() => {
        tx.release();
      }).toThrow("given back when the work returns");
    });
    const called = new Promise((resolve) => kept?.query(INSERT, (error) => resolve(error)));
    expect(await called).toMatchObject({ code: "invalid_request" });
    await expect(kept?.query({ text: INSERT })).rejects.toThrow("the transaction has ended");
    kept?.off("error", () => undefined);
    expect([pool.totalCount, pool.idleCount, await effects()]).toEqual([1, 1, []]);
  });

  test("a query of postgres that was made before the end and is sent after it is refused", async () => {
    const ledger = withPostgres.open();
    let late: PromiseLike<unknown> = Promise.resolve();
    let inner: postgres.TransactionSql | undefined;
    await ledger.transaction(async (tx) => {
      late = tx`INSERT INTO effects VALUES ('late')`;
      await tx.savepoint(async (point) => {
        inner = point as postgres.TransactionSql;
        await point`INSERT INTO effects VALUES (${"in time"})`;
        await ledger.in(inner).entries.put(placeOf("in time"), ABSENT, CLAIM);
      });
    });
    await expect(Promise.resolve(late)).rejects.toThrow("the transaction has ended");
    await expect(inner?.unsafe(INSERT)).rejects.toThrow("the transaction has ended");
    expect(await ledger.entries.find(placeOf("in time"))).toBeDefined();
    expect(await effects()).toEqual(["in time"]);
  });

  test("a query of pg that is refused tells so itself, and ends no process", async () => {
    const ledger = withPg.open();
    const outcomeOf = (tx: pg.PoolClient, text: string): Promise<unknown> =>
      new Promise((resolve) => {
        const query = new pg.Query(text);
        expect(tx.query(query)).toBe(query);
        query.on("error", resolve).on("end", () => {
          resolve("done");
        });
      });
    let kept: pg.PoolClient | undefined;
    await ledger.transaction(async (tx) => {
      kept = tx;
      expect(await outcomeOf(tx, "SELECT 1")).toBe("done");
      expect(await outcomeOf(tx, "COMMIT")).toMatchObject({ code: "invalid_request" });
    });
    if (kept === undefined) throw new Error("there was no transaction");
    expect(await outcomeOf(kept, INSERT)).toMatchObject({ code: "invalid_request" });
    kept.query(new pg.Query(INSERT));
    await turn();
    expect(await effects()).toEqual([]);
  });

  test("a part of a query of postgres may be END, and a query may not be COMMIT", async () => {
    const ledger = withPostgres.open();
    const rows = await ledger.transaction(
      async (tx) => tx`SELECT CASE WHEN true THEN 1 ${tx`END`} AS one`,
    );
    expect([...rows]).toEqual([{ one: 1 }]);
    const split = ledger.transaction(async (tx) => tx`COMMIT`);
    await expect(split).rejects.toThrow("the work ran COMMIT");
  });

  test("a file of postgres is refused: the client would read a COMMIT in it unseen", async () => {
    const ledger = withPostgres.open();
    const sent = ledger.transaction(async (tx) => {
      await tx.unsafe(INSERT);
      await tx.file("commit.sql");
    });
    await expect(sent).rejects.toMatchObject({
      code: "invalid_request",
      message: expect.stringContaining("pass its text to unsafe"),
    });
    expect(await effects()).toEqual([]);
  });

  test("a sink lends its client as a ledger does", async () => {
    const sink = ledgerSink(postgresLedger<pg.PoolClient>(openPool()));
    const place = { pipeline: "p", stream: "/v1/stream/in" };
    await sink.prepare();
    await sink.take(place, 1);
    let kept: pg.PoolClient | undefined;
    await sink.move(place, 1, undefined, async (tx) => {
      kept = tx;
      return "1";
    });
    await expect(kept?.query(INSERT)).rejects.toThrow("the transaction has ended");
    const split = sink.move(place, 1, "1", async (tx) => {
      await tx.query(INSERT);
      await tx.query("COMMIT");
      return "2";
    });
    await expect(split).rejects.toThrow("the work ran COMMIT");
    expect([await sink.take(place, 1), await effects()]).toEqual(["1", []]);
  });
});

function suite<Tx extends object>({ name, open, run }: Client<Tx>): void {
  describe(`with ${name}`, () => {
    test("a write that comes after the end is refused, and is in no other transaction", async () => {
      const ledger = open(1);
      const kept: Tx[] = [];
      const keep = (tx: Tx): void => {
        kept.push(tx);
      };
      await processOnce(ledger, { scope: GLOBAL, key: "a" }, ({ tx }) => keep(tx));
      const failed = ledger.transaction(async (tx) => {
        keep(tx);
        throw new Error("no");
      });
      await expect(failed).rejects.toThrow("no");
      const inbox = createInbox(ledger, { consumer: "c", retainMs: 1000 });
      await inbox.handle({ scope: "s", key: "1" }, keep);
      // The only connection has another transaction when they come.
      const outcomes = await ledger.transaction(async () =>
        Promise.allSettled(kept.map((tx) => run(tx, INSERT))),
      );
      const refused = { status: "rejected", reason: { code: "invalid_request" } };
      expect(outcomes).toMatchObject([refused, refused, refused]);
      // The rejection of a write without an await does not end the process.
      for (const tx of kept) void run(tx, INSERT);
      await turn();
      expect(await effects()).toEqual([]);
    });

    test("a joined ledger ends with its transaction", async () => {
      const ledger = open();
      const joined = await ledger.transaction(async (tx) => ledger.in(tx));
      const put = joined.entries.put(placeOf("late"), ABSENT, CLAIM);
      await expect(put).rejects.toThrow("the transaction has ended");
      expect(await ledger.entries.find(placeOf("late"))).toBeUndefined();
    });

    test("work that ends the transaction itself fails, and leaves nothing", async () => {
      const ledger = open();
      for (const text of ["COMMIT", " rollback work", "-- done\nCOMMIT AND CHAIN", "BEGIN"]) {
        const call = processOnce(ledger, { scope: GLOBAL, key: text }, async ({ tx }) => {
          await run(tx, INSERT);
          await run(tx, text);
        });
        await expect(call).rejects.toMatchObject({ code: "invalid_request" });
        const entry = await ledger.entries.find({ kind: "once", scope: GLOBAL, key: text });
        expect(entry?.state).toBe("released");
      }
      await ledger.transaction(async (tx) => {
        await run(tx, "SAVEPOINT part");
        await run(tx, INSERT);
        await run(tx, "ROLLBACK TO SAVEPOINT part");
      });
      expect(await effects()).toEqual([]);
    });

    test.each(["COMMIT", "ROLLBACK", "COMMIT AND CHAIN"])(
      "a %s behind the ledger's back is found out, and the work does not count as done",
      async (control) => {
        const ledger = open();
        // The end of a lock goes with COMMIT, that of a claim that came first before it.
        for (const claimsFirst of [false, true]) {
          const identity = { scope: GLOBAL, key: `${control} ${claimsFirst}` };
          // As a helper that has got at the client behind the stand-in.
          const call = processOnce(
            ledger,
            identity,
            async ({ tx }) => {
              await run(tx, INSERT);
              await run(behind(tx), control);
            },
            { onFailure: "retry", claimsFirst },
          );
          await expect(call).rejects.toMatchObject({ code: "invalid_request" });
          const entry = await ledger.entries.find({ kind: "once", ...identity });
          expect(entry?.state).toBe("released");
        }
      },
    );

    test("work that resets the settings of its transaction runs once, and gets the error that says why", async () => {
      const ledger = open();
      for (const [key, result] of Object.entries({ small: "x", large: "x".repeat(20_000) })) {
        let runs = 0;
        const work = async ({ tx }: { readonly tx: Tx }): Promise<string> => {
          runs += 1;
          if (runs > 3) throw new Error("the work is repeated");
          await run(tx, INSERT);
          await run(tx, "RESET ALL");
          return result;
        };
        for (const claimsFirst of [false, true]) {
          runs = 0;
          const identity = { scope: GLOBAL, key: `${key} ${claimsFirst}` };
          await expect(processOnce(ledger, identity, work, { claimsFirst })).rejects.toMatchObject({
            code: "invalid_request",
            message: expect.stringContaining("the work ended the transaction"),
          });
          expect(runs).toBe(1);
          const entry = await ledger.entries.find({ kind: "once", ...identity });
          expect(entry?.state).toBe("released");
        }
      }
      expect(await effects()).toEqual([]);
    });

    test("a version, a stamp and the step of a saga are not tried again without end after such a reset", async () => {
      const ledger = open();
      const identity = { scope: GLOBAL, key: "a" };
      const clock = createHybridClock({ node: "n" });
      const writes: ((joined: Ledger<Tx>, expected: number) => Promise<unknown>)[] = [
        (joined, expected) => setVersion(joined, identity, { id: `${expected}`, expected }),
        (joined) => setIfNewer(joined, identity, { stamp: clock.now() }),
      ];
      for (const write of writes) {
        await ledger.transaction((tx) => write(ledger.in(tx), 0));
        const second = ledger.transaction(async (tx) => {
          await run(tx, "RESET ALL");
          return write(ledger.in(tx), 1);
        });
        await expect(second).rejects.toMatchObject({ code: "invalid_request" });
      }
      const order = defineSaga<number, Tx>("order").tx("pay", {
        run: async ({ tx }) => {
          await run(tx, INSERT);
          await run(tx, "RESET ALL");
        },
        retry: { attemptsMax: 1 },
      });
      const sagas = createSagas(ledger, [order]);
      const ended = await sagas.start(order, identity, 1, { waitMs: 10_000 });
      expect(ended).toMatchObject({ state: "undone", cause: { step: "pay" } });
      expect(await effects()).toEqual([]);
      await sagas.stop();
    });

    test("a transaction that its work has ended rejects with invalid_request", async () => {
      const ledger = open();
      const split = ledger.transaction(async (tx) => {
        await run(behind(tx), "COMMIT");
      });
      await expect(split).rejects.toMatchObject({
        code: "invalid_request",
        message: expect.stringContaining("the work ended the transaction"),
      });
    });

    test("a statement whose failure the work has caught undoes the transaction, and says so", async () => {
      const ledger = open();
      const done = ledger.transaction(async (tx) => {
        await run(tx, INSERT);
        await Promise.resolve(run(tx, "SELECT 1 / 0")).catch(() => undefined);
      });
      await expect(done).rejects.toThrow();
      expect(await effects()).toEqual([]);
    });

    test(
      "a lost lease ends the transaction at once, even if its work hangs",
      { timeout: 20_000 },
      async () => {
        const [ledger, other] = [open(1), open(2)];
        const started = deferred();
        const never = new Promise<never>(() => undefined);
        const hanging = processOnce(
          ledger,
          { scope: GLOBAL, key: "a" },
          async ({ tx }) => {
            await run(tx, INSERT);
            started.resolve();
            return never;
          },
          { leaseMs: 150 },
        );
        await started.promise;
        // Its pool has one connection: the claim cannot be renewed, and so is lost.
        await expect(hanging).rejects.toMatchObject({ code: "lease_lost" });
        expect(await ledger.transaction(async () => "free")).toBe("free");
        const heir = await processOnce(other, { scope: GLOBAL, key: "a" }, () => "heir", {
          waitMs: 5_000,
        });
        expect([heir.result, await effects()]).toEqual(["heir", []]);
      },
    );

    test("a statement that does not end blocks neither its caller nor the next one", async () => {
      const ledger = open();
      let isOver = false;
      const call = processOnce(
        ledger,
        { scope: GLOBAL, key: "a" },
        async ({ tx }) => {
          await run(tx, INSERT);
          await run(tx, "SELECT pg_sleep(3)");
        },
        { workMsMax: 100 },
      ).finally(() => (isOver = true));
      const refused = expect(call).rejects.toMatchObject({ code: "lease_lost" });
      await server.pool.query("SELECT pg_sleep(1.5)");
      expect(isOver).toBe(true);
      await refused;
      const heir = await processOnce(ledger, { scope: GLOBAL, key: "a" }, () => "heir");
      expect([heir.result, await effects()]).toEqual(["heir", []]);
    });

    test("as many calls as connections, each of which needs one more, all end", async () => {
      const ledger = open(2);
      const nested = (key: string) =>
        processOnce(
          ledger,
          { scope: GLOBAL, key },
          async () => {
            await turn();
            // Without ledger.in(tx): it needs a connection of its own.
            await processOnce(ledger, { scope: GLOBAL, key: `${key} inside` }, () => 1);
          },
          { leaseMs: 200 },
        );
      const all = await Promise.allSettled([nested("a"), nested("b")]);
      expect(all.map(({ status }) => status)).toContain("rejected");
      expect(await ledger.transaction(async () => "free")).toBe("free");
    });

    test("a call that needs a connection which its own transaction holds is refused in time", async () => {
      const ledger = open(1);
      const outcome = await ledger.transaction(async () => {
        vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
        // Without ledger.in(tx).
        const nested = ledger.transaction(async () => "never").catch((error: unknown) => error);
        await vi.advanceTimersByTimeAsync(60_001);
        vi.useRealTimers();
        return nested;
      });
      expect(outcome).toMatchObject({ code: "too_many" });
      expect(String(outcome)).toContain("ledger.in(tx)");
      // What was given up is not done later, and its connection is not lost.
      expect(await ledger.transaction(async () => "free")).toBe("free");
    });

    test(
      "a holder that is cut off before its COMMIT delays other calls for a bounded time",
      { timeout: 20_000 },
      async () => {
        const [holder, other] = [open(), open()];
        const cut = deferred();
        const isThere = deferred();
        setFailpoint(async (point) => {
          if (point !== "once.completed") return;
          setFailpoint(undefined);
          isThere.resolve();
          await cut.promise;
        });
        let timeout: unknown;
        // Its end is written before COMMIT is sent. The end of a lock goes with COMMIT.
        const options = { leaseMs: 1_000, claimsFirst: true };
        const held = processOnce(
          holder,
          { scope: GLOBAL, key: "a" },
          async ({ tx }) => {
            await run(tx, INSERT);
            timeout = () => run(tx, "SHOW idle_in_transaction_session_timeout");
            return 1;
          },
          options,
        );
        await isThere.promise;
        // What PostgreSQL does with it if it never comes back.
        const shown = JSON.stringify(await (timeout as () => Promise<unknown>)());
        expect(shown).toContain('"10s"');
        await new Promise((resolve) => setTimeout(resolve, 1_100));
        const impatient = processOnce(other, { scope: GLOBAL, key: "a" }, () => 2, {
          ...options,
          waitMs: 100,
        });
        await expect(impatient).rejects.toMatchObject({ code: "in_progress" });
        const controller = new AbortController();
        const stopped = processOnce(other, { scope: GLOBAL, key: "a" }, () => 2, {
          ...options,
          waitMs: 60_000,
          signal: controller.signal,
        });
        controller.abort(new Error("enough"));
        await expect(stopped).rejects.toThrow("enough");
        expect(
          await acquireLease(other, { scope: GLOBAL, key: "free" }, { leaseMs: 1000 }),
        ).toBeDefined();
        cut.resolve();
        expect((await held).result).toBe(1);
        expect(
          await processOnce(other, { scope: GLOBAL, key: "a" }, () => 2, options),
        ).toMatchObject({ result: 1 });
      },
    );
  });
}

/** The client itself, as no user gets it. */
function behind<Tx extends object>(tx: Tx): Tx {
  return loanOf(tx)?.target ?? tx;
}
