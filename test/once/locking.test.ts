// CK7: work in a transaction whose claim is the lock of its place. In worlds that lose things, and on PostgreSQL.
import type { EventEmitter } from "node:events";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { PgPool } from "../../src/toolkit/databases/postgres.ts";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { createIdempotency } from "../../src/toolkit/idempotency.ts";
import { createInbox, GLOBAL, processOnce } from "../../src/toolkit/ledger.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { connect, newFile } from "../ledgers/kit.ts";
import { resolveTools } from "../../src/toolkit/once/tools.ts";
import { acquiredBy } from "../../src/toolkit/once/locking.ts";
import { memoryLedger } from "../../src/toolkit/ledgers/memory.ts";
import { gate } from "./stage.ts";
import { createWorld, flush, type Process } from "./worlds.ts";

const PLACE = { kind: "once", scope: "s", key: "k" };

/** Work that waits for `go`. */
function slow(process: Process, name: string, options: { waitMs?: number } = {}) {
  const { opened, open } = gate();
  let signal: AbortSignal | undefined;
  const call = processOnce(
    process.ledger,
    PLACE,
    async (context) => {
      ({ signal } = context);
      context.tx.write(name);
      await opened;
      return name;
    },
    { leaseMs: 1_000, clock: process.clock, ...options },
  );
  call.catch(() => undefined);
  return { call, go: open, signal: () => signal };
}

describe("a claim that is a lock", () => {
  test("leaves no entry before its end, and a twin learns of it without waiting", async () => {
    const world = createWorld({ locks: true });
    const first = slow(world.process(), "first");
    await flush();
    expect(await world.memory.entries.find(PLACE)).toBeUndefined();
    const twin = slow(world.process(), "twin");
    await expect(twin.call).rejects.toMatchObject({ code: "in_progress", retryAfterMs: 5_000 });
    first.go();
    expect(await first.call).toMatchObject({ result: "first", isDuplicate: false });
    expect(await world.memory.entries.find(PLACE)).toMatchObject({ state: "done", revision: 1 });
    expect(world.effects).toEqual(["first"]);
  });

  test("is free at once after a crash, and after its work threw", async () => {
    const world = createWorld({ locks: true });
    const crashed = world.process();
    slow(crashed, "crashed");
    await flush();
    crashed.crash();
    await flush();
    const process = world.process();
    const failing = processOnce(
      process.ledger,
      PLACE,
      () => {
        throw new Error("no");
      },
      { clock: process.clock },
    );
    await expect(failing).rejects.toThrow("no");
    // What threw has begun: that counts, though its transaction is undone.
    expect(await world.memory.entries.find(PLACE)).toMatchObject({ state: "released" });
    const heir = slow(world.process(), "heir");
    heir.go();
    expect(await heir.call).toMatchObject({ result: "heir" });
    expect(world.effects).toEqual(["heir"]);
  });

  test("CK7 is written down if its work is not over soon, and is renewed from then on", async () => {
    const world = createWorld({ locks: true });
    const long = slow(world.process(), "long");
    await flush();
    await world.advance(350);
    const entry = await world.memory.entries.find(PLACE);
    expect(entry).toMatchObject({ state: "running", attempts: 1 });
    await world.advance(10_000);
    const twin = slow(world.process(), "twin");
    await expect(twin.call).rejects.toMatchObject({ code: "in_progress" });
    long.go();
    expect(await long.call).toMatchObject({ result: "long", token: entry?.token });
    expect(long.signal()?.aborted).toBe(false);
    expect(world.effects).toEqual(["long"]);
  });

  test("CK7 that stands still is taken over, and its end is refused", async () => {
    const world = createWorld({ locks: true });
    const still = world.process();
    const zombie = slow(still, "zombie");
    await flush();
    still.cut(true); // It cannot be written down.
    await world.advance(4_800);
    expect(zombie.signal()?.aborted).toBe(true);
    const early = slow(world.process(), "early");
    await expect(early.call).rejects.toMatchObject({ code: "in_progress" });
    const other = world.process();
    const heir = slow(other, "heir", { waitMs: 3_000 });
    await world.advance(1_000);
    still.cut(false);
    zombie.go();
    await expect(zombie.call).rejects.toMatchObject({ code: "lease_lost" });
    heir.go();
    await world.advance(100);
    expect(await heir.call).toMatchObject({ result: "heir" });
    expect(world.effects).toEqual(["heir"]);
  });

  test("a commit without an answer counts if it was stored, and only then", async () => {
    for (const fate of ["stored", "undone"] as const) {
      const world = createWorld({ locks: true });
      const process = world.process();
      process.loseCommit(fate);
      const first = slow(process, "paid");
      first.go();
      if (fate === "stored") expect(await first.call).toMatchObject({ result: "paid" });
      else await expect(first.call).rejects.toThrow("lost in COMMIT");
      const next = slow(world.process(), "again");
      next.go();
      expect(await next.call).toMatchObject({ isDuplicate: fate === "stored" });
      expect(world.effects).toEqual([fate === "stored" ? "paid" : "again"]);
    }
  });
});

test("CK7 a lock that is older than any that works is taken over, and a younger one is not", () => {
  const ledger = memoryLedger();
  const terms = {
    effect: "transaction",
    attemptsMax: 1e9,
    leaseMs: 1_000,
    retainMs: 1_000,
  } as const;
  const outcome = (heldMs: number | undefined): string => {
    const tools = resolveTools({});
    const all = { ...terms, fingerprint: undefined };
    const over = new AbortController();
    return acquiredBy({ kind: "held", heldMs }, ledger, PLACE, all, tools, over, 0).kind;
  };
  expect([undefined, 0, 4_999, 5_000, 60_000].map(outcome)).toEqual([
    ...["running", "running", "running"],
    ...["claims first", "claims first"],
  ]);
});

/** What another process leaves behind at the place of a lock that does not hold. */
const THEIRS = {
  state: "done",
  token: "next",
  attempts: 1,
  leaseMs: undefined,
  keepMs: 60_000,
  fingerprint: { value: undefined },
  data: { value: new TextEncoder().encode('"theirs"') },
} as const;

describe("a lock that does not hold", () => {
  test("lets the first entry decide: the other work is undone, and gets its result", async () => {
    const world = createWorld({ locks: true });
    const late = slow(world.process(), "late");
    await flush();
    await world.memory.entries.put(PLACE, { kind: "absent" }, THEIRS);
    late.go();
    expect(await late.call).toMatchObject({ result: "theirs", isDuplicate: true });
    expect(world.effects).toEqual([]);
  });
});

describe("one commit on SQLite", () => {
  test("processOnce and the inbox are one transaction with the work", async () => {
    const connection = connect(newFile());
    const texts: string[] = [];
    const spy = {
      exec(sql: string) {
        texts.push(sql);
        return connection.exec(sql);
      },
      prepare(sql: string) {
        const statement = connection.prepare(sql);
        const run = statement.run.bind(statement);
        statement.run = (...values) => {
          texts.push(sql);
          return run(...values);
        };
        return statement;
      },
    };
    const ledger = sqliteLedger(() => spy);
    await ledger.migrate();
    const work = ({ tx }: { tx: typeof spy }) => void tx.exec("CREATE TABLE IF NOT EXISTS t (a)");
    texts.length = 0;
    await processOnce(ledger, PLACE, work);
    expect(texts.filter((text) => text === "COMMIT")).toHaveLength(1);
    texts.length = 0;
    await processOnce(ledger, { ...PLACE, key: "first" }, work, { claimsFirst: true });
    expect(texts.filter((text) => text === "COMMIT")).toHaveLength(2);
  });
});

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: one commit on PostgreSQL: ${reason}`);

describe.skipIf(reason !== undefined)("one commit on PostgreSQL", () => {
  let server: TestPostgres;
  const pools: pg.Pool[] = [];
  let keys = 0;
  const fresh = () => ({ scope: GLOBAL, key: `key ${(keys += 1)}` });
  const newPool = (options: pg.PoolConfig = {}): pg.Pool => {
    const where = { host: server.host, user: "postgres", database: "postgres", max: 4 };
    const pool = new pg.Pool({ ...where, ...options });
    pool.on("error", () => undefined); // Idle connections end when the server does.
    pools.push(pool);
    return pool;
  };
  beforeAll(async () => {
    server = await startPostgres();
    await server.pool.query("CREATE TABLE effects (text TEXT)");
    await postgresLedger(server.pool).migrate();
  }, 60_000);
  afterAll(async () => {
    await Promise.all(pools.map((pool) => pool.end()));
    await server.stop();
  });
  const write = (tx: pg.PoolClient, text: string): Promise<unknown> =>
    tx.query("INSERT INTO effects VALUES ($1)", [text]);
  const count = async (text: string): Promise<number> => {
    const { rows } = await server.pool.query("SELECT FROM effects WHERE text = $1", [text]);
    return rows.length;
  };
  /** A ledger whose statements are noted, and whose COMMIT may be lost. */
  const spied = (pool: pg.Pool, lose?: "before" | "after") => {
    const texts: string[] = [];
    let fate = lose;
    const spy: PgPool<pg.PoolClient> = {
      query: (text, values) => pool.query(text, values),
      async connect() {
        const client = await pool.connect();
        const query = client.query.bind(client) as unknown as PgPool["query"];
        const noting: PgPool["query"] = async (text, values) => {
          texts.push(text);
          const isLost = fate !== undefined && text.endsWith("COMMIT");
          if (!isLost) return query(text, values);
          if (fate === "after") await query(text, values);
          fate = undefined;
          throw new Error("read ECONNRESET");
        };
        // A stand-in for the time of one connection: the client itself is used again.
        return new Proxy(client, {
          get: (whole, name) => {
            const value: unknown = name === "query" ? noting : Reflect.get(whole, name);
            return typeof value === "function" && name !== "query" ? value.bind(whole) : value;
          },
        });
      },
    };
    return { ledger: postgresLedger<pg.PoolClient>(spy), texts };
  };

  test("a call is one commit, and two round trips beside those of its work", async () => {
    const { ledger, texts } = spied(newPool());
    const identity = fresh();
    const call = () => processOnce(ledger, identity, ({ tx }) => void write(tx, identity.key));
    await processOnce(ledger, identity, async ({ tx }) => {
      await write(tx, identity.key);
      return "result";
    });
    expect(texts.map((text) => text.split(/[\s;]/, 1)[0])).toEqual([
      "BEGIN", // With the lock behind it.
      "INSERT",
      "INSERT", // The entry, which looks for the mark, with COMMIT behind it.
    ]);
    expect(await call()).toMatchObject({ result: "result", isDuplicate: true });
    expect(await count(identity.key)).toBe(1);
  });

  test("an entry that another has made meanwhile decides: the work is undone", async () => {
    const ledger = postgresLedger(newPool());
    const identity = fresh();
    const call = processOnce(ledger, identity, async ({ tx }) => {
      await write(tx, identity.key);
      await ledger.entries.put({ kind: "once", ...identity }, { kind: "absent" }, THEIRS);
      return "late";
    });
    expect(await call).toMatchObject({ result: "theirs", isDuplicate: true });
    expect(await count(identity.key)).toBe(0);
  });

  test("names and results stay as they are, with any characters and any size", async () => {
    const texts = [
      "'; DROP TABLE effects; --",
      "\\",
      "\\' OR '1'='1",
      "$1 \u00e9 \u{1f600}",
      "\u0001\n",
    ];
    for (const conforming of ["on", "off"]) {
      for (const text of [...texts, "x".repeat(400)]) {
        // The first transactions of a connection send texts, later ones prepared statements.
        const options = `-c standard_conforming_strings=${conforming}`;
        const ledger = postgresLedger(newPool({ options, max: 1 }));
        const identity = { scope: text, key: `${conforming} ${text}` };
        const result = { text, long: "y".repeat(text.length > 100 ? 40_000 : 0) };
        const call = () =>
          processOnce(
            ledger,
            identity,
            async ({ tx }) => {
              await write(tx, identity.key);
              return result;
            },
            { fingerprint: text },
          );
        expect(await call()).toMatchObject({ result, isDuplicate: false });
        expect(await call()).toMatchObject({ result, isDuplicate: true });
        expect(await count(identity.key)).toBe(1);
        const entry = await ledger.entries.find({ kind: "once", ...identity });
        expect(entry?.fingerprint).toBe(text);
      }
    }
  });

  test("a connection that is used often keeps the statements of its locks prepared, and they do the same", async () => {
    const ledger = postgresLedger(newPool({ max: 1 }));
    const kept = async (tx: pg.PoolClient): Promise<number> => {
      const { rows } = await tx.query("SELECT FROM pg_prepared_statements WHERE name ~ '^hapax_'");
      return rows.length;
    };
    const counts = [];
    for (let call = 0; call < 5; call += 1) {
      const identity = fresh();
      const work = async ({ tx }: { readonly tx: pg.PoolClient }) => {
        await write(tx, identity.key);
        return await kept(tx);
      };
      // The end of work with a fingerprint is another statement.
      const fingerprint = `print of ${identity.key}`;
      const options = call % 2 === 0 ? {} : { fingerprint };
      const { result, isDuplicate } = await processOnce(ledger, identity, work, options);
      counts.push(result);
      expect(isDuplicate).toBe(false);
      expect(await count(identity.key)).toBe(1);
      expect(await ledger.entries.find({ kind: "once", ...identity })).toMatchObject({
        ...{ state: "done", revision: 1, attempts: 1, leaseLeftMs: undefined },
        keepLeftMs: expect.closeTo(86_400_000, -5),
        fingerprint: call % 2 === 0 ? undefined : fingerprint,
      });
    }
    // BEGIN and COMMIT too: all are made with the first batch.
    expect(counts).toEqual([0, 0, 5, 5, 5]);
    const identity = fresh();
    const late = processOnce(ledger, identity, async ({ tx }) => {
      await write(tx, identity.key);
      const place = { kind: "once", ...identity };
      await postgresLedger(server.pool).entries.put(place, { kind: "absent" }, THEIRS);
    });
    expect(await late).toMatchObject({ result: "theirs", isDuplicate: true });
    const reset = fresh();
    const lost = processOnce(ledger, reset, async ({ tx }) => {
      await write(tx, reset.key);
      await tx.query("RESET ALL");
    });
    await expect(lost).rejects.toMatchObject({ code: "invalid_request" });
    expect([await count(identity.key), await count(reset.key)]).toEqual([0, 0]);
  });

  test.each([
    ["texts", false],
    ["batches", true],
  ])(
    "a pool that forgets prepared statements, as poolers do, refuses one transaction before its work, and no call: %s",
    async (_, isWired) => {
      const pool = newPool({ max: 1 });
      let refused = 0;
      const note = (): void => {
        refused += 1;
      };
      const forgetful: PgPool<pg.PoolClient> = {
        query: (text, values) => pool.query(text, values),
        async connect() {
          const client = await pool.connect();
          await client.query("DEALLOCATE ALL");
          if (isWired) {
            const { connection } = client as unknown as { readonly connection: EventEmitter };
            connection.removeListener("errorMessage", note).on("errorMessage", note);
            return client;
          }
          const query = pg.Client.prototype.query.bind(client) as unknown as PgPool["query"];
          const noting: PgPool["query"] = (text, values) =>
            query(text, values).catch((error: unknown) => {
              refused += 1;
              throw error;
            });
          return Object.assign(client, { query: noting });
        },
      };
      const ledger = postgresLedger<pg.PoolClient>(forgetful);
      for (let call = 0; call < 8; call += 1) {
        const identity = fresh();
        let runs = 0;
        const work = async ({ tx }: { readonly tx: pg.PoolClient }): Promise<void> => {
          runs += 1;
          await write(tx, identity.key);
        };
        expect(await processOnce(ledger, identity, work)).toMatchObject({ isDuplicate: false });
        expect([runs, await count(identity.key)]).toEqual([1, 1]);
      }
      expect(refused).toBe(1);
    },
  );

  test("work that drops all prepared statements gets the error, and nothing of it stays", async () => {
    const ledger = postgresLedger(newPool({ max: 1 }));
    const call = async (text: string): Promise<string> => {
      const identity = fresh();
      await processOnce(ledger, identity, async ({ tx }) => {
        await write(tx, identity.key);
        await tx.query(text);
      });
      return identity.key;
    };
    for (let number = 0; number < 3; number += 1) await call("SELECT 1");
    await expect(call("DEALLOCATE ALL")).rejects.toMatchObject({ code: "26000" });
    expect(await count(`key ${keys}`)).toBe(0);
    expect(await count(await call("SELECT 1"))).toBe(1);
  });

  test("a request with a key is one commit too, and leaves nothing if it is refused", async () => {
    const { ledger, texts } = spied(newPool());
    const engine = createIdempotency(ledger, { scope: GLOBAL });
    const send = (key: string, status: number) =>
      engine.handle(
        new Request("http://localhost/", { method: "POST", headers: { "idempotency-key": key } }),
        async (_, { tx }) => {
          await write(tx, key);
          return new Response("paid", { status });
        },
      );
    expect((await send("http-1", 201)).status).toBe(201);
    expect(texts).toHaveLength(3);
    expect((await send("http-1", 201)).headers.get("idempotency-replayed")).toBe("true");
    expect((await send("http-2", 403)).status).toBe(403);
    expect([await count("http-1"), await count("http-2")]).toEqual([1, 0]);
    expect(
      await ledger.entries.find({ kind: "http", scope: GLOBAL, key: "http-2" }),
    ).toBeUndefined();
  });

  test("a twin learns at once that the work is done by another, or waits for its result", async () => {
    const [one, other] = [postgresLedger(newPool()), postgresLedger(newPool())];
    const identity = fresh();
    const [began, end] = [gate(), gate()];
    const first = processOnce(one, identity, async ({ tx }) => {
      await write(tx, identity.key);
      began.open();
      await end.opened;
      return 1;
    });
    await began.opened;
    const twin = (options: object) => processOnce(other, identity, () => 2, options);
    await expect(twin({})).rejects.toMatchObject({ code: "in_progress" });
    const waiting = twin({ waitMs: 10_000 });
    end.open();
    expect(await first).toMatchObject({ result: 1, isDuplicate: false });
    expect(await waiting).toMatchObject({ result: 1, isDuplicate: true });
    expect(await count(identity.key)).toBe(1);
  });

  test("a lost connection frees the key at once, and nothing of its work stays", async () => {
    const [one, other] = [postgresLedger(newPool()), postgresLedger(newPool())];
    const identity = fresh();
    const began = gate();
    const lost = processOnce(one, identity, async ({ tx }) => {
      await write(tx, identity.key);
      const { rows } = await tx.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
      await server.pool.query("SELECT pg_terminate_backend($1)", [rows[0]?.pid]);
      began.open();
      await tx.query("SELECT 1");
    });
    lost.catch(() => undefined);
    await began.opened;
    // The lease would be 30 seconds.
    const heir = await processOnce(
      other,
      identity,
      async ({ tx }) => {
        await write(tx, identity.key);
        return "heir";
      },
      { waitMs: 5_000 },
    );
    expect(heir).toMatchObject({ result: "heir", isDuplicate: false });
    await expect(lost).rejects.toThrow();
    expect(await count(identity.key)).toBe(1);
  });

  test("CK7 work that is not over soon is seen as running, and ends under its token", async () => {
    const ledger = postgresLedger(newPool());
    const identity = fresh();
    const end = gate();
    const long = processOnce(ledger, identity, async ({ tx }) => {
      await write(tx, identity.key);
      await end.opened;
      return "long";
    });
    const place = { kind: "once", ...identity };
    let entry = await ledger.entries.find(place);
    while (entry === undefined) entry = await ledger.entries.find(place);
    expect(entry).toMatchObject({ state: "running" });
    end.open();
    expect(await long).toMatchObject({ result: "long", token: entry.token });
    expect(await ledger.entries.find(place)).toMatchObject({ state: "done", token: entry.token });
    expect(await count(identity.key)).toBe(1);
  });

  test("a COMMIT without an answer is looked up: it counts if it was stored, and only then", async () => {
    for (const lose of ["before", "after"] as const) {
      const { ledger } = spied(newPool(), lose);
      const identity = fresh();
      const call = (): Promise<unknown> =>
        processOnce(ledger, identity, async ({ tx }) => {
          await write(tx, identity.key);
          return "paid";
        });
      if (lose === "after") expect(await call()).toMatchObject({ result: "paid" });
      else await expect(call()).rejects.toThrow("ECONNRESET");
      expect(await call()).toMatchObject({ result: "paid", isDuplicate: lose === "after" });
      expect(await count(identity.key)).toBe(1);
    }
  });

  test("of callers that claim first and callers that do not, one has the effect", async () => {
    const ledgers: Ledger<pg.PoolClient>[] = [newPool(), newPool()].map((pool) =>
      postgresLedger(pool),
    );
    for (let round = 0; round < 10; round += 1) {
      const identity = fresh();
      const calls = ledgers.flatMap((ledger, process) =>
        [true, false, true, false].map((claimsFirst) =>
          processOnce(
            { ...ledger },
            identity,
            async ({ tx }) => {
              await write(tx, identity.key);
              return process;
            },
            { claimsFirst, waitMs: 10_000 },
          ).catch((error: unknown) => error),
        ),
      );
      const ends = await Promise.all(calls);
      expect(await count(identity.key)).toBe(1);
      const results = ends.filter((end) => !(end instanceof Error));
      expect(results.length).toBeGreaterThan(0);
      for (const end of ends)
        if (end instanceof Error) expect(end).toMatchObject({ code: "lease_lost" });
    }
  });

  test("where transactions see only the past, the claim comes first", async () => {
    const options = "-c default_transaction_isolation=serializable";
    const { ledger, texts } = spied(newPool({ options }));
    const identity = fresh();
    const end = await processOnce(ledger, identity, ({ tx }) =>
      write(tx, identity.key).then(() => 1),
    );
    expect(end).toMatchObject({ result: 1, isDuplicate: false });
    expect(texts.filter((text) => text.startsWith("BEGIN")).length).toBe(2);
    expect(await count(identity.key)).toBe(1);
  });

  test("a twin in the inbox waits for as long as it asks, and then learns that it must come again", async () => {
    const ledger = postgresLedger(newPool());
    const inbox = createInbox(ledger, { consumer: "billing", retainMs: 60_000 });
    const message = { scope: "shop", key: "twin" };
    const [began, end] = [gate(), gate()];
    const options = { waitMs: 0 };
    const first = inbox.handle(
      message,
      async (tx) => {
        await write(tx, "twin");
        began.open();
        await end.opened;
      },
      options,
    );
    await began.opened;
    const twin = (waitMs: number) => inbox.handle(message, (tx) => write(tx, "twin"), { waitMs });
    await expect(twin(0)).rejects.toMatchObject({ code: "in_progress" });
    const waiting = twin(10_000);
    end.open();
    expect([(await first).isDuplicate, (await waiting).isDuplicate]).toEqual([false, true]);
    expect(await count("twin")).toBe(1);
  });

  test("the inbox is one commit with the work", async () => {
    const { ledger, texts } = spied(newPool());
    const inbox = createInbox(ledger, { consumer: "billing", retainMs: 60_000 });
    const message = { scope: "shop", key: "evt" };
    const handle = () => inbox.handle(message, (tx) => write(tx, "evt"));
    expect((await handle()).isDuplicate).toBe(false);
    expect(texts).toHaveLength(4);
    expect((await handle()).isDuplicate).toBe(true);
    expect(await count("evt")).toBe(1);
  });
});
