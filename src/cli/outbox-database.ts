/**
 * The database of an outbox, opened with the user's own driver: whichever of those that a ledger takes is found from the
 * working directory. This package has no driver of its own.
 */

import { stat } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import { HapaxError } from "../base/errors.ts";
import { isPgPool, type PgPool, type PostgresSql } from "../toolkit/databases/postgres.ts";
import type { SqliteConnection } from "../toolkit/databases/sqlite.ts";
import type { Ledger } from "../toolkit/ledgers/ledger.ts";
import type { OutboxWay } from "../toolkit/outbox/log.ts";
import { describeSlot, dropSlot } from "../toolkit/ledgers/postgres-slot.ts";
import { postgresLedger } from "../toolkit/ledgers/postgres.ts";
import { sqliteLedger } from "../toolkit/ledgers/sqlite.ts";
import { CommandFailure, EXIT, systemCode, usageFailure } from "./failure.ts";
import { printable } from "./terminal.ts";

/** An open outbox. What a transaction is does not matter here. */
export interface OutboxDatabase {
  /** For people: without a password. */
  readonly label: string;
  readonly ledger: Ledger<unknown>;
  /** The ledger as the relay of this position has it: on PostgreSQL there are several ways to read an outbox. */
  ledgerAt(relay: string, position: string | undefined): Promise<Ledger<unknown>>;
  /** The ledger by which a relay is forgotten, whichever way it went. */
  readonly forgetting: Ledger<unknown>;
  /** Drops the slot that a position names; answers its name, and undefined if it names none. */
  dropSlot(relay: string, position: string | undefined): Promise<string | undefined>;
  close(): Promise<void>;
}

export interface DatabaseOptions {
  /** Where drivers are looked for. */
  readonly directory: string;
  readonly schema: string | undefined;
}

type Module = Readonly<Record<string, unknown>>;
type Loaded = { readonly name: string; readonly module: Module };

const POSTGRES_DRIVERS = ["pg", "postgres"];
const SQLITE_DRIVERS = ["bun:sqlite", "node:sqlite", "better-sqlite3", "libsql"];
const TABLE = "hapax_outbox_held";

/** `text` is a URL of PostgreSQL, or the path of a SQLite file. */
export function openOutboxDatabase(
  text: string,
  options: DatabaseOptions,
): Promise<OutboxDatabase> {
  if (/^postgres(ql)?:\/\//i.test(text)) return openPostgres(text, options);
  if (/^[a-z][a-z0-9+.-]+:\/\//i.test(text)) {
    throw usageFailure("--database is a URL of PostgreSQL, or the path of a SQLite file");
  }
  if (options.schema !== undefined) throw usageFailure("--schema is for PostgreSQL");
  return openSqlite(text, options);
}

async function openSqlite(path: string, options: DatabaseOptions): Promise<OutboxDatabase> {
  // Every driver would make the file that is missing.
  await requireFile(path);
  const { name, module } = await loadDriver(SQLITE_DRIVERS, options.directory, "SQLite");
  const make = module[SQLITE_CLASSES[name] ?? "default"] as new (
    path: string,
  ) => SqliteConnection & {
    close(): void;
  };
  const connection = new make(path);
  const close = async (): Promise<void> => {
    connection.close();
  };
  try {
    // A relay may be writing: not all drivers wait for it by themselves.
    connection.exec("PRAGMA busy_timeout = 5000");
    const found = connection.prepare(`SELECT 1 FROM sqlite_master WHERE name = '${TABLE}'`).get();
    if (found === undefined || found === null) throw noOutbox(path);
  } catch (error) {
    await close();
    throw error;
  }
  const ledger = asLedger(sqliteLedger(() => connection));
  return {
    label: path,
    ledger,
    ledgerAt: () => Promise.resolve(ledger),
    forgetting: ledger,
    dropSlot: () => Promise.resolve(undefined),
    close,
  };
}

const SQLITE_CLASSES: Readonly<Record<string, string>> = {
  "bun:sqlite": "Database",
  "node:sqlite": "DatabaseSync",
};

async function requireFile(path: string): Promise<void> {
  try {
    if ((await stat(path)).isFile()) return;
  } catch (error) {
    const code = systemCode(error);
    if (code === undefined) throw error;
    throw new CommandFailure(EXIT.notFound, `cannot open ${JSON.stringify(path)} (${code})`);
  }
  throw usageFailure(`${JSON.stringify(path)} is not a file`);
}

interface PostgresClient {
  readonly client: PgPool | PostgresSql;
  readonly close: () => Promise<void>;
}

async function openPostgres(url: string, options: DatabaseOptions): Promise<OutboxDatabase> {
  const label = url.replace(/^(\w+:\/\/[^/@:]*):[^/@]*@/, "$1:***@");
  const loaded = await loadDriver(POSTGRES_DRIVERS, options.directory, "PostgreSQL");
  const { client, close } = connectPostgres(loaded, url);
  const { schema } = options;
  const open = (way: OutboxWay): Ledger<unknown> => {
    const wanted = { ...(schema === undefined ? {} : { schema }), outbox: { way } };
    return isPgPool(client)
      ? asLedger(postgresLedger(client, wanted))
      : asLedger(postgresLedger(client, wanted));
  };
  const ledger = open("log");
  try {
    // The first statement: it also tells whether the database is there.
    await ledger.outbox.held.list({ relay: "", max: 1 });
  } catch (error) {
    await close();
    throw systemCode(error) === "42P01" ? noOutbox(label) : error;
  }
  return {
    label,
    ledger,
    // Batches of rows are given up with it.
    forgetting: open("rows"),
    close,
    async dropSlot(relay, position) {
      const slot = slotOf(position);
      if (slot === undefined) return undefined;
      const scope = schema === undefined ? {} : { schema };
      for (const way of ["decoding", "messages"] as const) {
        const found = await describeSlot(client, relay, { way, ...scope });
        if (found?.slot === slot) await dropSlot(client, relay, { way, ...scope });
      }
      return slot;
    },
    async ledgerAt(relay, position) {
      const slot = slotOf(position);
      if (slot === undefined) return ledger;
      const scope = schema === undefined ? {} : { schema };
      const messages = await describeSlot(client, relay, { way: "messages", ...scope });
      return open(messages?.slot === slot ? "messages" : "decoding");
    },
  };
}

/** Positions of logical decoding name their slot. */
function slotOf(position: string | undefined): string | undefined {
  const slot: unknown = Object(JSON.parse(position ?? "{}"))["slot"];
  return typeof slot === "string" ? slot : undefined;
}

function connectPostgres({ name, module }: Loaded, url: string): PostgresClient {
  if (name === "pg") {
    const fields = (module["default"] ?? module) as Module;
    const Pool = fields["Pool"] as new (options: object) => PgPool & {
      on(event: "error", listener: () => void): void;
      end(): Promise<void>;
    };
    const pool = new Pool({ connectionString: url, max: 2 });
    // A query over a lost connection fails by itself. The loss of an idle connection needs no report.
    pool.on("error", () => undefined);
    return { client: pool, close: () => pool.end() };
  }
  const connect = module["default"] as (
    url: string,
    options: object,
  ) => PostgresSql & { end(): Promise<void> };
  const sql = connect(url, { max: 2, onnotice: () => undefined });
  return { client: sql, close: () => sql.end() };
}

/** The first one that is installed. */
async function loadDriver(
  names: readonly string[],
  directory: string,
  database: string,
): Promise<Loaded> {
  for (const name of names) {
    const module = await tryImport(name, directory);
    if (module !== undefined) return { name, module };
  }
  const installed = names.filter((name) => !name.includes(":"));
  throw usageFailure(`no driver for ${database} was found from ${directory}`, [
    `install one of these there: ${installed.map((name) => `npm install ${name}`).join(", or ")}`,
  ]);
}

/** Undefined: there is none of this name. One that is there and does not load is a failure. */
async function tryImport(name: string, directory: string): Promise<Module | undefined> {
  if (name.startsWith("bun:") && !("bun" in process.versions)) return undefined;
  const isBuiltIn = name.includes(":");
  let place: string;
  try {
    const found = createRequire(join(directory, "package.json")).resolve(name);
    place = isBuiltIn ? name : pathToFileURL(found).href;
  } catch (error) {
    const code = systemCode(error);
    if (code === "MODULE_NOT_FOUND" || code === "ERR_UNKNOWN_BUILTIN_MODULE") return undefined;
    throw error;
  }
  return (await import(place)) as Module;
}

function noOutbox(label: string): CommandFailure {
  return new CommandFailure(EXIT.notFound, `there is no outbox in ${label}`, [
    "`await ledger.migrate()` creates its tables; on PostgreSQL give their schema with --schema",
  ]);
}

/** What a database or its driver says, by its code: a fault of this program has none, and keeps its stack. */
export function databaseFailure(error: unknown): unknown {
  if (error instanceof CommandFailure || !(error instanceof Error)) return error;
  if (error instanceof HapaxError) {
    const { code, status: httpStatus, message, help } = error;
    const problem = { status: httpStatus, code, detail: message, help };
    const words = `${printable(message)} (${code})`;
    return new CommandFailure(EXIT.refused, words, [help], problem, { cause: error });
  }
  const code = systemCode(error);
  if (code === undefined) return error;
  const isUnreachable = /^(E[A-Z]+|CONNECT.*|08...|57P0.|53300)$/.test(code);
  if (!isUnreachable && !/^[0-9A-Z]{5}$|SQLITE/.test(code)) return error;
  const words = `the database says: ${printable(error.message || code)} (${code})`;
  const exitCode = isUnreachable ? EXIT.unreachable : EXIT.refused;
  return new CommandFailure(exitCode, words, [], { code }, { cause: error });
}

/** Only what needs no transaction of the caller's is used, or gives its own back. */
function asLedger<Tx>(ledger: Ledger<Tx>): Ledger<unknown> {
  return ledger as Ledger<unknown>;
}
