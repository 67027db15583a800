/** The databases of the crash suite, with the tables of the business, and the processes over them. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import Database from "libsql";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { redisLedger } from "../../src/toolkit/ledgers/redis.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import {
  type CrashCase,
  type CrashTarget,
  type CrashWork,
  startCrashProcess,
} from "../../src/testing/ledger-crashes.ts";
import { startPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { findRedisPrograms, type RedisProgram } from "../databases/redis-programs.ts";
import { startRedis } from "../databases/redis.ts";

export interface CrashStage extends CrashTarget {
  close(): Promise<void>;
}

const WORKER = fileURLToPath(new URL("worker.mjs", import.meta.url));
const FOUND = "SELECT text FROM effects UNION ALL SELECT text FROM letters";

interface Row {
  readonly text: string;
}

async function openSqliteStage(): Promise<CrashStage> {
  const folder = mkdtempSync(join(tmpdir(), "hapax-crash-ledger-"));
  const file = join(folder, "crash.db");
  const connection = new Database(file, { timeout: 5000 });
  connection.exec("PRAGMA journal_mode = WAL");
  connection.exec("CREATE TABLE effects (id INTEGER PRIMARY KEY, text TEXT)");
  connection.exec("CREATE TABLE letters (key TEXT PRIMARY KEY, text TEXT)");
  const ledger = sqliteLedger(() => new Database(file));
  await ledger.migrate();
  ledger.close();
  return {
    isExclusive: true,
    start: (task) => startCrashProcess(WORKER, { database: "sqlite", file }, task),
    // Cast: two columns of text, in the order of the query.
    read: async () => (connection.prepare(FOUND).all() as readonly Row[]).map(({ text }) => text),
    async close() {
      connection.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function openPostgresStage(options: object): Promise<CrashStage> {
  const postgres = await startPostgres();
  const { pool, host } = postgres;
  await pool.query("CREATE TABLE effects (id SERIAL, text TEXT)");
  await pool.query("CREATE TABLE letters (key TEXT PRIMARY KEY, text TEXT)");
  await postgresLedger(pool).migrate();
  return {
    isExclusive: false,
    start: (task) => startCrashProcess(WORKER, { database: "postgres", host, ...options }, task),
    read: async () => (await pool.query<Row>(FOUND)).rows.map(({ text }) => text),
    close: () => postgres.stop(),
  };
}

/** Redis has no transactions: its only effects are those elsewhere, under a key. */
async function openRedisStage(program: RedisProgram): Promise<CrashStage> {
  const server = await startRedis(program);
  await redisLedger(server.admin).migrate();
  return {
    isExclusive: false,
    start: (task) => startCrashProcess(WORKER, { database: "redis", url: server.url }, task),
    read: () => server.admin.hvals("letters"),
    close: () => server.stop(),
  };
}

export interface CrashDatabase {
  readonly name: string;
  readonly isExclusive: boolean;
  /** The only work that is possible there, or other than elsewhere; undefined: all. An outbox has one case after the other. */
  readonly only?: CrashWork;
  readonly open: () => Promise<CrashStage>;
}

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: crashes over PostgreSQL: ${reason}`);

const { programs, missing } = findRedisPrograms();
const redis = programs.at(-1);
if (redis === undefined && process.env["CI"] === "true") throw new Error(missing.join("; "));
if (redis === undefined) console.log(`skipped: crashes over Redis: ${missing.join("; ")}`);

/** Rows and their transaction apart: to see that the suite notices it. */
export const CARELESS: CrashDatabase | undefined =
  reason === undefined
    ? { name: "careless", isExclusive: false, open: () => openPostgresStage({ isCareless: true }) }
    : undefined;

/** Those that can be had here. */
export const CRASH_DATABASES: readonly CrashDatabase[] = [
  { name: "SQLite", isExclusive: true, open: openSqliteStage },
  ...(reason === undefined
    ? [
        { name: "PostgreSQL", isExclusive: false, open: () => openPostgresStage({}) },
        {
          name: "PostgreSQL with an outbox of rows",
          isExclusive: false,
          only: "outbox" as const,
          open: () => openPostgresStage({ outbox: { way: "rows" } }),
        },
      ]
    : []),
  ...(redis === undefined
    ? []
    : [
        {
          name: redis.name,
          isExclusive: false,
          only: "once repeatable" as const,
          open: () => openRedisStage(redis),
        },
      ]),
];

/** The cases that say something about a database. */
export function casesFor<Case extends Pick<CrashCase, "work" | "needsShared">>(
  cases: readonly Case[],
  { only, isExclusive }: CrashDatabase,
): readonly Case[] {
  return cases.filter(
    ({ work, needsShared }) =>
      (only === undefined || work === only) && !(needsShared && isExclusive),
  );
}
