/** The databases of the crash suite of sagas, its processes, and what must be there at the end. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import Database from "libsql";
import { expect } from "vitest";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { startPostgres, whyNoPostgres } from "../databases/postgres.ts";

/** A saga, and the moment at which its process stands still. */
export interface Cell {
  readonly id: string;
  /** Default `checkout`. */
  readonly saga?: "checkout" | "trip";
  /** Whether its last step fails, so that it is undone. */
  readonly fails: boolean;
  readonly at?: string;
  readonly occurrence?: number;
  /** Instead of a named moment: the first, second, third that it reaches. */
  readonly nth?: number;
}

export type Task =
  | {
      readonly kind: "start";
      readonly cells: readonly Cell[];
      readonly by?: "stop";
      readonly leaseMs?: number;
    }
  | { readonly kind: "seed"; readonly cells: readonly Cell[] }
  /** Says which moments each saga reaches. */
  | { readonly kind: "count"; readonly cells: readonly Cell[] }
  | {
      readonly kind: "run";
      /** Each saga stands still at the first of these moments. */
      readonly halts?: readonly string[];
      readonly leaseMs?: number;
    };

export interface Worker {
  readonly child: ChildProcess;
  readonly ended: Promise<void>;
  /** Resolves when so many sagas stand still. */
  reached(count: number): Promise<void>;
  output(): string;
  kill(): Promise<void>;
}

export interface Stage {
  readonly isExclusive: boolean;
  readonly ledger: Ledger<unknown>;
  start(task: Task): Worker;
  /** What has happened to a saga, in order. */
  read(saga: string): Promise<readonly string[]>;
  /** Ends all leases: as if time had passed since their processes were killed. */
  lapse(): Promise<void>;
  close(): Promise<void>;
}

/** A process that waits for a processor does not lose its sagas: nothing here waits for it to be over. */
const LEASE_MS = 60_000;
/** Of processes that are stopped for longer. */
export const SHORT_LEASE_MS = 6_000;
const WORKER = fileURLToPath(new URL("crash-worker.mjs", import.meta.url));

interface Row {
  readonly at: string;
  readonly what: string;
}

function startWorker(options: object, task: Task): Worker {
  const words = JSON.stringify({ leaseMs: LEASE_MS, ...options, task });
  const child = spawn(process.execPath, [WORKER, words], { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  const listeners = new Set<() => void>();
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      for (const listener of listeners) listener();
    });
  const ended = new Promise<void>((resolve) => {
    child.once("close", () => {
      for (const listener of listeners) listener();
      resolve();
    });
  });
  let isOver = false;
  void ended.then(() => (isOver = true));
  const countOf = (): number =>
    output.split("\n").filter((line) => line.startsWith("reached")).length;
  return {
    child,
    ended,
    output: () => output,
    reached: (count) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          if (countOf() >= count) resolve();
          else if (isOver) reject(new Error(`${countOf()} of ${count} stand still: ${output}`));
          else return;
          listeners.delete(look);
        };
        listeners.add(look);
        void ended.then(look);
        look();
      }),
    async kill() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

const TABLES = [
  "CREATE TABLE effects (at TEXT, saga TEXT, what TEXT)",
  "CREATE TABLE remote (at TEXT, saga TEXT, what TEXT, key TEXT UNIQUE)",
] as const;

const LAPSE = "UPDATE hapax_entries SET lease_until =";
const WHERE = "WHERE state = 'running' AND lease_until IS NOT NULL";

async function openSqliteStage(): Promise<Stage> {
  const folder = mkdtempSync(join(tmpdir(), "hapax-saga-"));
  const [file, remoteFile] = [join(folder, "shop.db"), join(folder, "remote.db")];
  const own = new Database(file, { timeout: 5000 });
  const remote = new Database(remoteFile, { timeout: 5000 });
  for (const one of [own, remote]) one.exec("PRAGMA journal_mode = WAL");
  own.exec(TABLES[0]);
  remote.exec(TABLES[1]);
  const ledger = sqliteLedger(() => new Database(file));
  await ledger.migrate();
  const rowsOf = (connection: typeof own, table: string, saga: string): readonly Row[] =>
    // Cast: two columns of text.
    connection.prepare(`SELECT at, what FROM ${table} WHERE saga = ?`).all(saga) as readonly Row[];
  return {
    isExclusive: true,
    ledger: ledger as Ledger<unknown>,
    start: (task) => startWorker({ database: "sqlite", file, remoteFile }, task),
    read: async (saga) =>
      inOrder([...rowsOf(own, "effects", saga), ...rowsOf(remote, "remote", saga)]),
    lapse: async () => void own.exec(`${LAPSE} 0 ${WHERE}`),
    async close() {
      ledger.close();
      own.close();
      remote.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function openPostgresStage(): Promise<Stage> {
  const postgres = await startPostgres();
  const { pool, host } = postgres;
  for (const text of TABLES) await pool.query(text);
  const ledger = postgresLedger(pool);
  await ledger.migrate();
  const all = "SELECT at, what, saga FROM effects UNION ALL SELECT at, what, saga FROM remote";
  return {
    isExclusive: false,
    ledger: ledger as Ledger<unknown>,
    start: (task) => startWorker({ database: "postgres", host }, task),
    read: async (saga) =>
      inOrder(
        (await pool.query<Row>(`SELECT * FROM (${all}) AS one WHERE saga = $1`, [saga])).rows,
      ),
    lapse: async () => void (await pool.query(`${LAPSE} 'epoch' ${WHERE}`)),
    close: () => postgres.stop(),
  };
}

function inOrder(rows: readonly Row[]): readonly string[] {
  return rows
    .toSorted((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : 0))
    .map(({ what }) => what);
}

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: sagas over PostgreSQL: ${reason}`);

/** Those that can be had here. */
export const STAGES: readonly { readonly name: string; readonly open: () => Promise<Stage> }[] = [
  { name: "SQLite", open: openSqliteStage },
  ...(reason === undefined ? [{ name: "PostgreSQL", open: openPostgresStage }] : []),
];

const FORWARD = ["reserve", "charge", "label", "send"];
const UNDONE = ["reserve", "charge", "label", "cancel", "refund", "release"];
/** Begun side by side. */
const BOOKED = ["flight", "hold", "hotel"];
const TRAVELLED = ["pay", "thank", "file"];
const UNBOOKED = ["hotel off", "flight off", "hold off"];

/** Each effect once; what was undone, whole and in reverse order. */
export async function expectWhole(stage: Stage, { id, saga, fails }: Cell): Promise<void> {
  const found = await stage.read(id);
  if (saga !== "trip") {
    expect(found, id).toEqual(fails ? UNDONE : FORWARD);
    return;
  }
  const booked = found.slice(0, BOOKED.length).toSorted();
  const after = found.slice(BOOKED.length);
  expect([...booked, ...after], id).toEqual([...BOOKED, ...(fails ? UNBOOKED : TRAVELLED)]);
}

/** Either of both, as a whole. */
export async function expectEither(stage: Stage, { id }: Cell): Promise<"completed" | "undone"> {
  const found = await stage.read(id);
  if (found.includes("send") && found.length === FORWARD.length) {
    expect(found, id).toEqual(FORWARD);
    return "completed";
  }
  // What had not begun when it turned round is not undone.
  const forward = found.filter((what) => FORWARD.includes(what));
  const back = found.filter((what) => !FORWARD.includes(what));
  expect(forward, id).toEqual(FORWARD.slice(0, forward.length));
  const undos: Record<string, string> = {
    reserve: "release",
    charge: "refund",
    label: "cancel",
  };
  const expected = forward.flatMap((what) => undos[what] ?? []).toReversed();
  // A refund of a charge that never arrived does no harm; a remote with keys answers it.
  expect(
    back.filter((what) => what !== "refund" || expected.includes("refund")),
    id,
  ).toEqual(expected);
  return "undone";
}

interface Moment {
  readonly at: string;
  readonly occurrence?: number;
  readonly fails: boolean;
  /** In a transaction: over SQLite no other process writes meanwhile. */
  readonly isInside?: boolean;
}

/** The failure matrix: kind of step, moment of the crash, direction. */
export const MATRIX: Readonly<Record<string, Moment>> = {
  "tx forward, before it begins": { at: "saga.started", fails: false },
  "tx forward, in its transaction": { at: "saga.began", fails: false, isInside: true },
  "tx forward, after its writes": { at: "saga.worked", fails: false, isInside: true },
  "tx forward, before its commit": { at: "saga.checkpointed", fails: false, isInside: true },
  "tx forward, after its commit": { at: "saga.committed", fails: false },
  "call forward, after its intent": { at: "saga.intended", fails: false },
  "call forward, its answer lost": { at: "sent charge", fails: false },
  "call forward, before its record": { at: "saga.called", fails: false },
  "call forward, after its record": { at: "saga.recorded", fails: false },
  "probe forward, after its intent": { at: "saga.intended", occurrence: 2, fails: false },
  "probe forward, its answer lost": { at: "sent label", fails: false },
  "probe forward, before its record": { at: "saga.called", occurrence: 2, fails: false },
  "probe forward, after its record": { at: "saga.recorded", occurrence: 2, fails: false },
  "the end, before its record": { at: "saga.called", occurrence: 3, fails: false },
  "the turn, before the failure is recorded": { at: "before send", fails: true },
  "probe undo, after its intent": { at: "saga.intended", occurrence: 4, fails: true },
  "probe undo, its answer lost": { at: "sent cancel", fails: true },
  "probe undo, before its record": { at: "saga.called", occurrence: 3, fails: true },
  "probe undo, after its record": { at: "saga.recorded", occurrence: 3, fails: true },
  "call undo, after its intent": { at: "saga.intended", occurrence: 5, fails: true },
  "call undo, its answer lost": { at: "sent refund", fails: true },
  "call undo, before its record": { at: "saga.called", occurrence: 4, fails: true },
  "call undo, after its record": { at: "saga.recorded", occurrence: 4, fails: true },
  "tx undo, in its transaction": { at: "saga.began", occurrence: 2, fails: true, isInside: true },
  "tx undo, after its writes": { at: "saga.worked", occurrence: 2, fails: true, isInside: true },
  "tx undo, before its commit": {
    at: "saga.checkpointed",
    occurrence: 2,
    fails: true,
    isInside: true,
  },
  "tx undo, after its commit": { at: "saga.committed", occurrence: 2, fails: true },
};
