/**
 * What users write, against the package as it is published: it compiles in the strictest mode, without a cast. `same` compiles
 * only if two types are one.
 */

import express from "express";
import Database from "libsql";
import pg from "pg";
import postgres from "postgres";
import { connect, type StandardSchema, typed } from "hapax/client";
import { createIdempotency, GLOBAL, type IdempotencyRequest } from "hapax/idempotency";
import { expressIdempotency } from "hapax/idempotency/node";
import { ledgerSink, processOnce } from "hapax/ledger";
import { memoryLedger } from "hapax/ledgers/memory";
import { postgresLedger } from "hapax/ledgers/postgres";
import { type SqliteConnection, sqliteLedger } from "hapax/ledgers/sqlite";
import { createOutbox } from "hapax/outbox";
import { connectServer, type PipelineContext } from "hapax/processing";
import { createSagas, defineSaga, describeSaga, type Saga } from "hapax/saga";

type Same<One, Other> =
  (<T>() => T extends One ? 1 : 2) extends <T>() => T extends Other ? 1 : 2 ? true : false;
declare function same<One, Other>(isSame: Same<One, Other>): void;

const ledger = memoryLedger();
const engine = createIdempotency(ledger, { scope: GLOBAL });
const app = express();

// A handler has the request and the response of Express: in a route, alone, and as a middleware.
app.post(
  "/pay/:id",
  expressIdempotency(engine, async (req, res) => {
    same<typeof req, express.Request>(true);
    same<typeof res, express.Response>(true);
    res.status(201).json({ id: req.params["id"], body: req.body });
  }),
);
export const alone = expressIdempotency(engine, (req, res, next) => {
  if (req.get("x-skip") === "1") next();
  else res.sendStatus(204);
});
app.use(expressIdempotency(engine));
export interface SignedIn extends express.Request {
  readonly user: { readonly tenant: string };
}

// The tenant is taken from the request of the framework.
export const byTenant = createIdempotency(ledger, {
  scope: ({ source }: IdempotencyRequest<SignedIn>) => source.user.tenant,
});
same<Parameters<typeof byTenant.begin>[0]["source"], SignedIn>(true);
app.use(expressIdempotency(byTenant));
export const byHeader = createIdempotency(ledger, {
  scope: ({ headers }) => headers.get("x-tenant") ?? "none",
});

// A result is typed as it comes back.
export async function results(): Promise<void> {
  const work = () => ({
    at: new Date(),
    cents: 500,
    lines: [{ sku: "a", soldAt: new Date() }] as const,
    note: process.env["NOTE"],
  });
  const { result } = await processOnce(ledger, { scope: GLOBAL, key: "k" }, work);
  same<typeof result.at, string>(true);
  same<typeof result.cents, number>(true);
  same<(typeof result.lines)[0]["soldAt"], string>(true);
  result.note?.toUpperCase();
  const plain = await processOnce(ledger, { scope: GLOBAL, key: "k" }, () => ({
    id: "a",
    tags: ["x"],
  }));
  const again: { id: string; tags: string[] } = plain.result;
  const none = await processOnce(ledger, { scope: GLOBAL, key: "k" }, () => undefined);
  same<typeof none.result, undefined>(true);
  const dates = { encode: (at: Date) => new Uint8Array(at.getTime()), decode: () => new Date() };
  const kept = await processOnce(ledger, { scope: GLOBAL, key: "k" }, () => new Date(), {
    codec: dates,
  });
  same<typeof kept.result, Date>(true);
  const call = await processOnce(
    ledger,
    { scope: GLOBAL, key: "k" },
    async ({ key }) => ({ key, at: new Date() }),
    { effect: "repeatable" },
  );
  same<typeof call.result.at, string>(true);
  await engine.handle(new Request("http://localhost"), async (_request, { phase }) => {
    const booked = await phase("book", async () => ({ at: new Date() }));
    same<typeof booked.at, string>(true);
    return Response.json(booked);
  });
  console.log(again);
}

// A transaction is that of the user's own client.
const pool = new pg.Pool();
const sink = ledgerSink(postgresLedger(pool));
export async function transactions(): Promise<void> {
  await sink.move({ pipeline: "p", stream: "/s" }, 1, undefined, async (tx) => {
    same<typeof tx, pg.PoolClient>(true);
    const { rows } = await tx.query<{ id: number }>("SELECT 1 AS id");
    return String(rows[0]?.id);
  });
  await postgresLedger(pool).transaction(async (tx) => {
    same<typeof tx, pg.PoolClient>(true);
    await createOutbox(postgresLedger(pool)).add(tx, { topic: "t", payload: 1 });
  });
  const sql = postgres();
  await postgresLedger(sql).transaction(async (tx) => {
    same<typeof tx, postgres.TransactionSql>(true);
    await tx`SELECT 1`;
  });
  const own = sqliteLedger(() => new Database("a.db"));
  await own.transaction(async (tx) => {
    tx.prepare("INSERT INTO t VALUES (?, ?)").run("a", 1);
  });
}

/** Over any client of SQLite. */
export async function anySqlite(open: () => SqliteConnection, names: readonly unknown[]) {
  await ledgerSink(sqliteLedger(open)).move({ pipeline: "p", stream: "/s" }, 1, undefined, (tx) => {
    const insert = tx.prepare("INSERT INTO t VALUES (?, ?)");
    insert.run("a", 1);
    insert.run(...names);
    return String(tx.prepare("SELECT ?").get(null));
  });
}

// The type of records is given, and the sink beside it.
interface Order {
  readonly cents: number;
}
const hapax = connectServer("http://localhost");
const from = { streams: ["/v1/stream/orders"] };
hapax.pipeline<Order>({ from, group: "g", sink, each: ({ cents }) => cents });
hapax.pipeline<Order>({
  from,
  group: "g",
  sink,
  each: async ({ cents }, { tx }: PipelineContext<pg.PoolClient>) => {
    await tx.query("INSERT INTO t VALUES ($1)", [cents]);
  },
});
hapax.pipeline({
  from,
  group: "g",
  sink,
  each: async ({ cents }: Order, { tx }) => {
    same<typeof tx, pg.PoolClient>(true);
    await tx.query("INSERT INTO t VALUES ($1)", [cents]);
  },
});

// What may be undefined may be given as such.
export async function positions(offset: string | undefined, signal: AbortSignal | undefined) {
  const stream = connect("http://localhost/v1/stream/a");
  await stream.read({ from: offset, signal }).values();
  for await (const record of stream.follow({ from: offset, signal })) console.log(record);
}

// Results flow from step to step, as they come back from JSON; an undo has the outcome of its own step.
const sqlite = sqliteLedger(() => new Database(":memory:"));
// Not exported: a declaration cannot name the types of libsql.
const trip = defineSaga<{ readonly at: Date; readonly seats: number }, Database.Database>("trip")
  .tx("hold", {
    run: ({ tx, input }) => {
      same<typeof tx, Database.Database>(true);
      same<typeof input.at, string>(true);
      return { held: input.seats, until: new Date() };
    },
    undo: ({ result }) => {
      same<typeof result, { held: number; until: string }>(true);
    },
  })
  .parallel("book", (group) =>
    group
      .call("flight", {
        run: async ({ key, results }) => `${key} ${results.hold.held}`,
        undo: ({ outcome, runKey }) => {
          same<typeof runKey, string>(true);
          if (outcome.kind === "done") same<typeof outcome.result, string>(true);
          same<typeof outcome.kind, "done" | "unknown">(true);
        },
      })
      .probe("hotel", {
        run: async () => ({ room: 7 }),
        probe: async () => ({ kind: "done", result: { room: 7 } }),
        undo: ({ result }) => {
          same<typeof result.room, number>(true);
        },
      }),
  )
  .pivot("pay", { run: ({ results }) => `${results.flight} ${results.hotel.room}` })
  .sleep("wait", ({ results }) => results.pay.length)
  .signal("landed", { timeoutMs: 5, onTimeout: "continue", parse: (payload) => Number(payload) })
  .call("thank", {
    run: ({ results }) => {
      same<typeof results.landed, number | undefined>(true);
      return results.pay;
    },
  });
export const drawn: string = describeSaga(trip);

export async function travels(): Promise<void> {
  const sagas = createSagas(sqlite, [trip]);
  const identity = { scope: GLOBAL, key: "trip 1" };
  const ended = await sagas.start(trip, identity, { at: new Date(), seats: 2 });
  if (ended.state === "completed") {
    same<typeof ended.results.hotel, { room: number }>(true);
    same<typeof ended.results.thank, string>(true);
  } else {
    same<typeof ended.results.thank, string | undefined>(true);
  }
  await sqlite.transaction((tx) =>
    sagas.in(tx).start(trip, identity, { at: new Date(), seats: 2 }),
  );
}
// A definition that is exported has a declaration. What a migration returns has the type of the new input.
export const voyage = defineSaga<{ readonly seats: number }, pg.PoolClient>("voyage", {
  version: 2,
  migrate: ({ version, input, results, states }) => {
    same<typeof results, Readonly<Record<string, unknown>>>(true);
    if (version < 2 && typeof input === "number") return { input: { seats: input } };
    return states["hold"] === "done" ? { done: { hold: results["hold"] } } : undefined;
  },
})
  .tx("hold", {
    run: async ({ tx, input }) => {
      same<typeof tx, pg.PoolClient>(true);
      await tx.query("INSERT INTO t VALUES ($1)", [input.seats]);
      return input.seats;
    },
    undo: ({ result }) => {
      same<typeof result, number>(true);
    },
  })
  .pivot("pay", { kind: "call", run: async ({ key, results }) => ({ key, held: results.hold }) });
export const voyages = createSagas(postgresLedger(new pg.Pool()), [voyage]);
export const paid = async () => {
  const ended = await voyages.start(voyage, { scope: GLOBAL, key: "1" }, { seats: 2 });
  return ended.state === "completed" ? ended.results.pay.held : undefined;
};
same<Awaited<ReturnType<typeof paid>>, number | undefined>(true);
// Steps without transactions fit every ledger.
export const plain: Saga<string, { readonly say: string }> = defineSaga<string>("plain").call(
  "say",
  {
    run: ({ input }) => input,
  },
);
createSagas(memoryLedger(), [plain]);
createSagas(sqlite, [plain, trip]);

// A stream has the type of its records, and a schema gives it its input and its output.
interface TypedOrder {
  readonly id: number;
}
export async function typedStreams(
  schema: StandardSchema<{ readonly at: string }, { readonly at: Date }>,
): Promise<void> {
  const orders = connect<TypedOrder>("http://127.0.0.1:4437/v1/stream/orders");
  await orders.append({ id: 1 });
  same<Parameters<typeof orders.append>[0], TypedOrder>(true);
  orders.producer().append({ id: 2 });
  const values = await orders.read().values();
  same<typeof values, TypedOrder[]>(true);
  const others = await orders.read<string>().values();
  same<typeof others, string[]>(true);
  const untyped = await connect("http://127.0.0.1:4437/v1/stream/orders").read().values();
  same<typeof untyped, unknown[]>(true);
  const events = typed(connect("http://127.0.0.1:4437/v1/stream/events"), schema);
  await events.append({ at: "2026-11-18" });
  same<Parameters<typeof events.append>[0], { readonly at: string }>(true);
  const dates = await events.read().values();
  same<typeof dates, { readonly at: Date }[]>(true);
  const near = connectServer("http://127.0.0.1:4437").stream<TypedOrder>("/v1/stream/orders");
  const followed = near.follow();
  for await (const { value } of followed) same<typeof value, TypedOrder>(true);
}
