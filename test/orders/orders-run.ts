/**
 * Orders through three systems: PostgreSQL with an outbox, a stream of Hapax, SQLite with an inbox. Every process is
 * killed again and again, and in the end each order is booked once, in the order of its customer.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import Database from "libsql";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { type Connection, connectServer } from "../../src/client/processing.ts";
import { checkHistory, type Verdict } from "../../src/testing/checker.ts";
import { readHistory } from "../../src/testing/checker-files.ts";
import { type FaultProxy, openFaultProxy } from "../../src/testing/fault-proxy.ts";
import { createSeededRandom, type SeededRandom } from "../../src/testing/seeded-random.ts";
import { type ServerProcess, startServer } from "../crash/processes.ts";
import { startPostgres, type TestPostgres } from "../databases/postgres.ts";

export interface OrdersOptions {
  readonly seed: number;
  readonly way: "log" | "rows" | "decoding" | "messages";
  readonly customers: number;
  /** Of each customer. */
  readonly orders: number;
  readonly leaseMs: number;
  /** From one kill to the next, on average. */
  readonly killEveryMs: number;
  /** At least so long; it ends when everything is booked. */
  readonly killForMs: number;
}

export interface OrdersReport {
  readonly sold: number;
  readonly streamed: number;
  readonly booked: number;
  readonly soldCents: number;
  readonly bookedCents: number;
  /** Deliveries that the inbox has recognised. */
  readonly duplicates: number;
  readonly kills: Readonly<Record<Role | "server", number>>;
  readonly verdict: Verdict;
  readonly tookMs: number;
}

/** Two relays of one name, so that they fight. */
const ROLES = ["sells", "relays", "relays too", "books"] as const;
type Role = (typeof ROLES)[number];

const SHOP = fileURLToPath(new URL("shop.mjs", import.meta.url));
const STREAM = "/v1/stream/orders";

export async function runOrders(options: OrdersOptions): Promise<OrdersReport> {
  const run = new OrdersRun(options);
  try {
    await run.open();
    return await run.run();
  } finally {
    await run.close();
  }
}

interface Booked {
  readonly id: string;
  readonly customer: number;
  readonly cents: number;
}

class OrdersRun {
  readonly #options: OrdersOptions;
  readonly #random: SeededRandom;
  readonly #folder = mkdtempSync(join(tmpdir(), "hapax-orders-"));
  readonly #kills = { sells: 0, relays: 0, "relays too": 0, books: 0, server: 0 };
  readonly #processes = new Map<Role, ChildProcess>();
  readonly #histories: string[] = [];
  #server: Promise<ServerProcess>;
  #postgres: TestPostgres | undefined;
  #proxy: FaultProxy | undefined;
  #hapax: Connection | undefined;
  #duplicates = 0;
  #isSold = false;

  constructor(options: OrdersOptions) {
    this.#options = options;
    this.#random = createSeededRandom(options.seed);
    this.#server = startServer({ dir: join(this.#folder, "data") });
  }

  get #books(): string {
    return join(this.#folder, "books.db");
  }

  async open(): Promise<void> {
    const { seed, customers, way } = this.#options;
    const address = async (): Promise<string> => (await this.#server).url;
    this.#proxy = await openFaultProxy(address, { seed, dropAnswers: 0.02 });
    this.#hapax = connectServer(await address());
    await this.#hapax.stream(STREAM).create();
    this.#postgres = await startPostgres();
    const { pool } = this.#postgres;
    await pool.query("CREATE TABLE customers (id INT PRIMARY KEY, orders INT NOT NULL)");
    await pool.query(
      "CREATE TABLE orders (place SERIAL, id TEXT, customer INT NOT NULL, cents INT NOT NULL)",
    );
    await pool.query("INSERT INTO customers SELECT id, 0 FROM generate_series(0, $1::int - 1) id", [
      customers,
    ]);
    await postgresLedger(pool, { outbox: { way } }).migrate();
    const books = new Database(this.#books);
    books.exec("PRAGMA journal_mode = WAL");
    // Nothing here would refuse a second booking.
    books.exec("CREATE TABLE booked (place INTEGER PRIMARY KEY, id, customer, number, cents)");
    await sqliteLedger(() => books).migrate();
    books.close();
  }

  async run(): Promise<OrdersReport> {
    const startMs = performance.now();
    for (const role of ROLES) this.#start(role);
    const { killForMs, killEveryMs, customers, orders } = this.#options;
    const isOver = async (): Promise<boolean> =>
      this.#isSold && this.#readBooked().length >= customers * orders;
    const endMs = startMs + Math.max(120_000, killForMs * 5);
    while (performance.now() - startMs < killForMs || !(await isOver())) {
      if (performance.now() > endMs) throw new Error(`the orders do not get on: ${this.#state()}`);
      await new Promise((resolve) =>
        setTimeout(resolve, killEveryMs * (0.5 + this.#random.unit())),
      );
      if (performance.now() - startMs < killForMs) await this.#kill();
    }
    const tookMs = performance.now() - startMs;
    return await this.#report(tookMs);
  }

  async close(): Promise<void> {
    for (const child of this.#processes.values()) child.kill("SIGKILL");
    await this.#proxy?.close();
    await (await this.#server).kill();
    await this.#postgres?.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #state(): string {
    return JSON.stringify({ isSold: this.#isSold, booked: this.#readBooked().length });
  }

  #start(role: Role): void {
    const { way, customers, orders, leaseMs } = this.#options;
    const history = join(this.#folder, `${this.#histories.length}.jsonl`);
    this.#histories.push(history);
    const options = {
      url: this.#proxy?.url,
      host: this.#postgres?.host,
      database: this.#books,
      ...{ history, way, customers, orders, leaseMs },
    };
    const [does = role] = role.split(" ");
    const child = spawn(process.execPath, [SHOP, does, JSON.stringify(options)], {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    child.on("message", () => {
      this.#duplicates += 1;
    });
    child.on("exit", (code) => {
      if (role === "sells" && code === 0) this.#isSold = true;
    });
    this.#processes.set(role, child);
  }

  async #kill(): Promise<void> {
    const victims = [...ROLES, "server"] as const;
    const victim = victims[this.#random.below(victims.length)] ?? "server";
    if (victim === "server") {
      this.#server = this.#server.then(async (server) => {
        await server.kill();
        return startServer({ dir: join(this.#folder, "data") });
      });
      await this.#server;
    } else {
      if (victim === "sells" && this.#isSold) return;
      this.#processes.get(victim)?.kill("SIGKILL");
      this.#start(victim);
    }
    this.#kills[victim] += 1;
  }

  #readBooked(): readonly Booked[] {
    const books = new Database(this.#books, { readonly: true });
    try {
      return books
        .prepare("SELECT id, customer, cents FROM booked ORDER BY place")
        .all() as Booked[];
    } finally {
      books.close();
    }
  }

  async #report(tookMs: number): Promise<OrdersReport> {
    for (const child of this.#processes.values()) child.kill("SIGKILL");
    const { rows } = (await this.#postgres?.pool.query<Booked>(
      "SELECT id, customer, cents FROM orders ORDER BY place",
    )) ?? { rows: [] };
    const direct = connectServer((await this.#server).url);
    const streamed = await direct.stream(STREAM).read<{ payload: Booked }>().values();
    const booked = this.#readBooked();
    const found = (all: readonly Booked[]) => all.map(({ id }) => ({ id }));
    const streams = {
      orders: found(rows),
      stream: found(streamed.map(({ payload }) => payload)),
      books: found(booked),
    };
    const pipelines = [
      { from: ["orders"], to: ["stream"] },
      { from: ["stream"], to: ["books"] },
    ];
    // A process that was killed before it began has left none.
    const histories = this.#histories.filter((path) => existsSync(path));
    const sum = (all: readonly Booked[]) => all.reduce((cents, order) => cents + order.cents, 0);
    return {
      sold: rows.length,
      streamed: streamed.length,
      booked: booked.length,
      soldCents: sum(rows),
      bookedCents: sum(booked),
      duplicates: this.#duplicates,
      kills: this.#kills,
      verdict: checkHistory(readHistory(histories), { streams }, { pipelines }),
      tookMs,
    };
  }
}
