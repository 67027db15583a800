// Idempotency keys whose record and business rows are in one transaction of a real database.
import { randomBytes } from "node:crypto";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import type pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { setFailpoint } from "../../src/base/failpoint.ts";
import {
  createIdempotency,
  type FetchHandler,
  GLOBAL,
  type Idempotency,
  type IdempotencyOptions,
} from "../../src/toolkit/idempotency.ts";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { acquire } from "../../src/toolkit/once/claiming.ts";
import { resolveTools } from "../../src/toolkit/once/tools.ts";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";

type Connection = InstanceType<typeof Database>;

/** A database with a table of payments. Each ledger is as one of another process. */
interface Target<Tx> {
  readonly openLedger: () => Promise<Ledger<Tx>>;
  readonly pay: (tx: Tx, key: string) => Promise<void>;
  readonly countOf: (key: string) => Promise<number>;
}

afterEach(() => {
  setFailpoint(undefined);
});

let keys = 0;
const newKey = (): string => `k${(keys += 1)}`;

async function engineOf<Tx>(
  target: Target<Tx>,
  options: Partial<IdempotencyOptions> = {},
): Promise<Idempotency<Tx>> {
  return createIdempotency(await target.openLedger(), {
    scope: GLOBAL,
    onError: () => undefined,
    ...options,
  });
}

function requestOf(key: string, headers: Record<string, string> = {}): Request {
  const all = { "Idempotency-Key": key, "content-type": "application/json", ...headers };
  return new Request("http://localhost/pay", {
    method: "POST",
    headers: all,
    body: '{"amount":1}',
  });
}

function cases<Tx>(target: () => Target<Tx>): void {
  const paying: FetchHandler<Tx> = async (_request, { tx, key = "" }) => {
    await target().pay(tx, key);
    return new Response(new Uint8Array(randomBytes(300_000)), { status: 201 });
  };

  test("CK5 a phase that never ends is rolled back in time, and does not block the database", async () => {
    const ledger = await target().openLedger();
    const key = newKey();
    const options = { scope: GLOBAL, mode: "phases", workMsMax: 200, onError: () => undefined };
    const engine = createIdempotency(ledger, options as IdempotencyOptions);
    const answer = await engine.handle(requestOf(key), async (_request, { phase }) => {
      await phase("pay", async ({ tx }) => {
        await target().pay(tx, key);
        await new Promise(() => undefined);
      });
      return new Response("paid");
    });
    expect(answer.status).toBe(409);
    expect(await ledger.transaction(async () => "free")).toBe("free");
    expect(await target().countOf(key)).toBe(0);
  });

  test("CK5 a request without a key is rolled back in time too, and does not block the database", async () => {
    const ledger = await target().openLedger();
    const key = newKey();
    const engine = createIdempotency(ledger, { scope: GLOBAL, isRequired: false, workMsMax: 200 });
    const keyless = new Request("http://localhost/pay", { method: "POST" });
    const late = engine.handle(keyless, async (_request, { tx, signal }) => {
      await target().pay(tx, key);
      await new Promise((resolve) => {
        signal.addEventListener("abort", resolve);
      });
      expect(await ledger.transaction(async () => "free")).toBe("free");
      return new Response("paid");
    });
    await expect(late).rejects.toThrow("workMsMax=200");
    expect(await target().countOf(key)).toBe(0);
  });

  test("64 requests to two processes at once have one row and equal answers", async () => {
    const engines = [await engineOf(target()), await engineOf(target())] as const;
    const key = newKey();
    const answers = await Promise.all(
      Array.from({ length: 64 }, async (_, at) => {
        const engine = engines[at % 2 === 0 ? 0 : 1];
        const answer = await engine.handle(requestOf(key, { Prefer: "wait=20" }), paying);
        return { status: answer.status, bytes: Buffer.from(await answer.arrayBuffer()) };
      }),
    );
    expect(await target().countOf(key)).toBe(1);
    const [first] = answers;
    for (const { status, bytes } of answers) {
      expect(status).toBe(201);
      expect(bytes.equals(first?.bytes ?? Buffer.alloc(0))).toBe(true);
    }
  });

  test.each(["http.worked", "http.completed"])(
    "a process that fails at %s leaves neither row nor record, and a retry leaves one of each",
    async (point) => {
      const engine = await engineOf(target());
      const key = newKey();
      setFailpoint((name) => {
        if (name === point) throw new Error("died");
      });
      await expect(engine.handle(requestOf(key), paying)).rejects.toThrow("died");
      setFailpoint(undefined);
      expect(await target().countOf(key)).toBe(0);
      expect((await engine.handle(requestOf(key), paying)).status).toBe(201);
      expect(
        (await engine.handle(requestOf(key), paying)).headers.get("Idempotency-Replayed"),
      ).toBe("true");
      expect(await target().countOf(key)).toBe(1);
    },
  );

  test("an answer that was lost after the commit is repeated", async () => {
    const engine = await engineOf(target());
    const key = newKey();
    setFailpoint((name) => {
      if (name === "http.committed") throw new Error("died");
    });
    await expect(engine.handle(requestOf(key), paying)).rejects.toThrow("died");
    setFailpoint(undefined);
    expect((await engine.handle(requestOf(key), paying)).headers.get("Idempotency-Replayed")).toBe(
      "true",
    );
    expect(await target().countOf(key)).toBe(1);
  });

  test("a claim whose process is gone is taken over when its lease ends", async () => {
    const ledger = await target().openLedger();
    const engine = await engineOf(target(), { leaseMs: 400 });
    const key = newKey();
    const terms = {
      fingerprint: undefined,
      effect: "transaction",
      attemptsMax: 9,
      leaseMs: 400,
      retainMs: 60_000,
    } as const;
    const place = { kind: "http", scope: GLOBAL, key };
    await acquire(ledger, place, terms, resolveTools({ clock: createVirtualClock() }));
    expect((await engine.handle(requestOf(key, { Prefer: "wait=0" }), paying)).status).toBe(409);
    const answer = await engine.handle(requestOf(key, { Prefer: "wait=10" }), paying);
    expect(answer.status).toBe(201);
    expect(answer.headers.get("Idempotency-Replayed")).toBeNull();
    expect(await target().countOf(key)).toBe(1);
  });

  test("a handler that throws after its write leaves nothing", async () => {
    const engine = await engineOf(target());
    const key = newKey();
    const failing: FetchHandler<Tx> = async (_request, { tx }) => {
      await target().pay(tx, key);
      throw new Error("in the middle");
    };
    await expect(engine.handle(requestOf(key), failing)).rejects.toThrow("in the middle");
    expect(await target().countOf(key)).toBe(0);
  });

  test("phases commit one by one, and a completer finishes what was left", async () => {
    const key = newKey();
    const options = { mode: "phases", completes: true, leaseMs: 1000 } as const;
    const engine = await engineOf(target(), options);
    const steps: FetchHandler<Tx> = async (_request, { phase }) => {
      await phase("one", ({ tx }) => target().pay(tx, key));
      const remote = await phase("call", async (call) => call.key, { effect: "call" });
      await phase("two", ({ tx }) => target().pay(tx, key));
      return new Response(remote);
    };
    let seen = 0;
    setFailpoint((name) => {
      if (name === "http.phase.done" && (seen += 1) === 2) throw new Error("died");
    });
    await expect(engine.handle(requestOf(key), steps)).rejects.toThrow("died");
    setFailpoint(undefined);
    expect(await target().countOf(key)).toBe(1);
    const others = [await engineOf(target(), options), await engineOf(target(), options)];
    const completers = others.map((other) =>
      other.completer((_request, place) => (place.key === key ? steps : undefined), { everyMs: 1 }),
    );
    await expect
      .poll(async () => (await Promise.all(completers.map((one) => one.run()))).includes(1), {
        timeout: 20_000,
      })
      .toBe(true);
    expect(await target().countOf(key)).toBe(2);
    const answer = await engine.handle(requestOf(key), steps);
    expect(answer.headers.get("Idempotency-Replayed")).toBe("true");
    expect(await answer.text()).toMatch(/^[0-9a-f]{64}$/);
  });
}

describe("SQLite", () => {
  const file = join(mkdtempSync(join(tmpdir(), "hapax-idempotency-")), "shop.db");
  const connections: Connection[] = [];
  const connect = (): Connection => {
    const connection = new Database(file, { timeout: 10 });
    connections.push(connection);
    return connection;
  };
  connect().exec("PRAGMA journal_mode = WAL");
  connect().exec("CREATE TABLE payments (key TEXT)");
  const reader = connect();
  const target: Target<Connection> = {
    async openLedger() {
      const ledger = sqliteLedger(() => connect());
      await ledger.migrate();
      return ledger;
    },
    async pay(tx, key) {
      tx.prepare("INSERT INTO payments VALUES (?)").run(key);
    },
    async countOf(key) {
      const row = reader.prepare("SELECT count(*) AS count FROM payments WHERE key = ?").get(key);
      return (row as { readonly count: number }).count;
    },
  };
  afterAll(() => {
    for (const connection of connections) connection.close();
  });
  cases(() => target);

  test("a new key costs one commit, a look and an entry", async () => {
    const texts: string[] = [];
    const connection = new Database(":memory:");
    connections.push(connection);
    connection.exec("CREATE TABLE payments (key TEXT)");
    const ledger = sqliteLedger(() => noting(connection, (text) => texts.push(text)));
    await ledger.migrate();
    const engine = createIdempotency(ledger, { scope: GLOBAL });
    const pay = async (): Promise<void> => {
      const key = newKey();
      const answer = await engine.handle(requestOf(key), async (_request, { tx }) => {
        await target.pay(tx, key);
        return new Response("paid");
      });
      expect(answer.status).toBe(200);
    };
    await pay(); // Takes a block of tokens.
    texts.length = 0;
    await pay();
    const counted = texts.filter((text) => !text.startsWith("SELECT total_changes()"));
    const [, look] = counted;
    expect(look).toContain("FROM hapax_tokens");
    expect(counted.map((text) => text.split(/\s/, 1)[0])).toEqual([
      "BEGIN",
      "SELECT",
      "INSERT", // The row of the handler.
      "INSERT",
      "COMMIT",
    ]);
  });
});

type Run = (...values: unknown[]) => unknown;

/** Tells every text that the connection runs. */
function noting(connection: Connection, note: (text: string) => void): Connection {
  const exec = connection.exec.bind(connection);
  const prepare = connection.prepare.bind(connection);
  const own = {
    exec: (text: string) => {
      note(text);
      return exec(text);
    },
    prepare: (text: string) => {
      const statement = prepare(text);
      const noted = (run: Run): Run => {
        const bound = run.bind(statement);
        return (...values) => {
          note(text);
          return bound(...values);
        };
      };
      // Casts: the client has types for each kind of values.
      const { run, get } = statement as unknown as { readonly run: Run; readonly get: Run };
      return Object.assign(statement, { run: noted(run), get: noted(get) });
    },
  };
  return Object.assign(connection, own as object);
}

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: idempotency on PostgreSQL: ${reason}`);

describe.skipIf(reason !== undefined)("PostgreSQL", () => {
  let server: TestPostgres;
  beforeAll(async () => {
    server = await startPostgres();
    await server.pool.query("CREATE TABLE payments (key TEXT)");
  });
  afterAll(async () => {
    await server.stop();
  });
  const target: Target<pg.PoolClient> = {
    async openLedger() {
      const ledger = postgresLedger<pg.PoolClient>(server.openPool());
      await ledger.migrate();
      return ledger;
    },
    async pay(tx, key) {
      await tx.query("INSERT INTO payments VALUES ($1)", [key]);
    },
    async countOf(key) {
      const { rows } = await server.pool.query<{ count: number }>(
        "SELECT count(*)::int AS count FROM payments WHERE key = $1",
        [key],
      );
      return rows[0]?.count ?? 0;
    },
  };
  cases(() => target);

  test("a connection that is lost in the transaction leaves nothing, and a retry runs", async () => {
    const engine = await engineOf(target);
    const key = newKey();
    const cut: FetchHandler<pg.PoolClient> = async (_request, { tx }) => {
      await target.pay(tx, key);
      const { rows } = await tx.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
      tx.on("error", () => undefined); // The end of the connection is what is wanted.
      await server.pool.query("SELECT pg_terminate_backend($1)", [rows[0]?.pid]);
      return new Response("never");
    };
    await expect(engine.handle(requestOf(key), cut)).rejects.toThrow();
    expect(await target.countOf(key)).toBe(0);
    const pay: FetchHandler<pg.PoolClient> = async (_request, { tx }) => {
      await target.pay(tx, key);
      return new Response("paid");
    };
    expect(await (await engine.handle(requestOf(key), pay)).text()).toBe("paid");
    expect(await target.countOf(key)).toBe(1);
  });

  test("work that finds the entry of another one at its end is undone, and its client gets 409", async () => {
    const [ledger, other] = [await target.openLedger(), await target.openLedger()];
    const counts = new Map<string, number>();
    const add = (name: string, value: number): unknown =>
      counts.set(name, (counts.get(name) ?? 0) + value);
    const meter = { add, set: add };
    const engine = createIdempotency(ledger, { scope: GLOBAL, meter });
    const key = newKey();
    let heard: AbortSignal | undefined;
    const answer = await engine.handle(requestOf(key), async (_request, { tx, signal }) => {
      heard = signal;
      await target.pay(tx, key);
      // Another process did not see the lock, as after a failover.
      const write = {
        state: "running",
        token: "next",
        attempts: 1,
        leaseMs: 60_000,
        keepMs: 60_000,
        fingerprint: { value: undefined },
        data: { value: undefined },
      } as const;
      await other.entries.put({ kind: "http", scope: GLOBAL, key }, { kind: "absent" }, write);
      return new Response("paid");
    });
    expect(answer.status).toBe(409);
    expect(await answer.json()).toMatchObject({ code: "in_progress" });
    expect(heard?.reason).toMatchObject({ code: "lease_lost" });
    expect(counts.get("fenced_total")).toBe(1);
    expect(await target.countOf(key)).toBe(0);
  });

  test("a zombie whose claim was taken over cannot commit its rows", async () => {
    const [slow, quick] = [await target.openLedger(), await target.openLedger()];
    let isStopped = false;
    const { entries } = slow;
    // It renews nothing while it is stopped, as a process that gets no time.
    const stopped: typeof slow = {
      ...slow,
      entries: {
        ...entries,
        put: (...all) => (isStopped ? new Promise(() => undefined) : entries.put(...all)),
      },
    };
    const options = { scope: GLOBAL, leaseMs: 300, onError: () => undefined } as const;
    const zombie = createIdempotency(stopped, options);
    const other = createIdempotency(quick, options);
    const key = newKey();
    const pay: FetchHandler<pg.PoolClient> = async (_request, { tx }) => {
      await target.pay(tx, key);
      return new Response("paid");
    };
    const old = await zombie.handle(requestOf(key), async (request, context) => {
      isStopped = true;
      const answer = await pay(request, context);
      const taken = await other.handle(requestOf(key, { Prefer: "wait=10" }), pay);
      expect(taken.status).toBe(200);
      return answer;
    });
    expect(old.status).toBe(409);
    expect(await target.countOf(key)).toBe(1);
  });
});
