/**
 * Modules of users that export what the toolkit returned, with the types that the compiler finds: their declarations can be
 * written without naming a type that no entry point has.
 */

import type Fastify from "fastify";
import { Hono } from "hono";
import type pg from "pg";
import { createIdempotency, GLOBAL, idempotencyOpenApi } from "hapax/idempotency";
import { fastifyIdempotency } from "hapax/idempotency/fastify";
import { createIdempotentFetch, memoryKeyStore } from "hapax/idempotency/fetch";
import { honoIdempotency } from "hapax/idempotency/hono";
import {
  expressIdempotency,
  expressIdempotencyErrors,
  fileKeyStore,
  withIdempotency,
} from "hapax/idempotency/node";
import {
  acquireLease,
  createInbox,
  createSweeper,
  fenced,
  ledgerSink,
  processOnce,
  type ScopedKey,
  setVersion,
} from "hapax/ledger";
import { memoryLedger, type MemoryTransaction } from "hapax/ledgers/memory";
import { describeSlot, dropSlot, pgListener, postgresLedger } from "hapax/ledgers/postgres";
import { type SqliteConnection, sqliteLedger } from "hapax/ledgers/sqlite";
import { createConsole } from "hapax/console";
import { consoleListener } from "hapax/console/node";
import { openTelemetryMeter, prometheusMeter } from "hapax/meters";
import {
  createDeadLetters,
  createOutbox,
  createRelay,
  forgetRelay,
  functionPublisher,
  hapaxPublisher,
} from "hapax/outbox";
import {
  type DedupWindow,
  fileObjects,
  objectLog,
  openWindow,
  s3Objects,
  type WindowObjects,
} from "hapax/window";

// The identity has one type, and can be made once.
export const order: ScopedKey = { scope: GLOBAL, key: "order 17" };

export const ledger = memoryLedger();
export const inSqlite = (open: () => SqliteConnection) => sqliteLedger(open);
export const inPostgres = (pool: pg.Pool) => postgresLedger(pool);

export const paid = () => processOnce(ledger, order, () => ({ at: new Date() }));
export const inbox = createInbox(ledger, { consumer: "c", retainMs: 1000 });
export const handled = () => inbox.handle(order, () => 1);
export const lease = () => acquireLease(ledger, order);
export const proved = (tx: MemoryTransaction) => fenced(ledger.in(tx), order, 1);
export const moved = (tx: MemoryTransaction) =>
  setVersion(ledger.in(tx), order, { expected: 0, id: "w" });
export const sweeper = createSweeper(ledger);
export const sink = ledgerSink(ledger);

export const outbox = createOutbox(ledger);
export const letters = createDeadLetters(ledger);
export const listed = () => letters.list();
export const grouped = () => letters.groups();
export const publisher = functionPublisher(async () => undefined);
export const toStreams = hapaxPublisher({ url: "http://localhost:4437", streamOf: () => "/s" });
export const relay = createRelay(ledger, publisher);
export const report = () => relay.runOnce();
export const forgotten = () => forgetRelay(ledger, "relay");
export const slot = (pool: pg.Pool) => describeSlot(pool, "relay", { way: "decoding" });
export const dropped = (pool: pg.Pool) => dropSlot(pool, "relay", { way: "decoding" });
export const listener = (connect: () => pg.Client) => pgListener(connect);

export const engine = createIdempotency(ledger, { scope: GLOBAL });
export const answered = (request: Request) => engine.handle(request, async () => new Response());
export const completer = engine.completer(() => undefined);
export const middleware = expressIdempotency(engine);
export const errors = expressIdempotencyErrors();
export const listening = withIdempotency(engine, () => undefined);
export const plugin = fastifyIdempotency(engine);
export const register = (app: ReturnType<typeof Fastify>) => app.register(plugin);
export const hono = honoIdempotency(engine);
export const app = new Hono().use(hono);
export const openApi = idempotencyOpenApi();

export const memoryKeys = memoryKeyStore();
export const fileKeys = fileKeyStore("keys");
export const fetching = createIdempotentFetch({ store: memoryKeys, windowMs: 60_000 });
export const called = () => fetching("charge 17", "http://localhost/pay", { method: "POST" });

export const meter = prometheusMeter();
export const exported = (own: Parameters<typeof openTelemetryMeter>[0]) => openTelemetryMeter(own);

export const objects: WindowObjects = fileObjects("folder");
export const bucket = s3Objects({ url: "https://bucket.s3.amazonaws.com" });
export const objectsLog = objectLog(objects);
export const openedWindow = () => openWindow({ log: objectsLog, snapshots: bucket });
export const written = async (window: DedupWindow) => await window.write("id", new Uint8Array());
export const position = async (window: DedupWindow) => (await written(window)).position;
export const known = (window: DedupWindow) => window.stats;
export const extent = () => objectsLog.extent();
export const batches = () => objectsLog.read(0, 0);

export const listened = consoleListener(
  createConsole(memoryLedger(), { authorize: () => ({ by: "ann", mayAct: ["saga.retry"] }) }),
);
