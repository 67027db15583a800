/**
 * One SQLite connection: `node:sqlite`, better-sqlite3, libsql, bun:sqlite, as ledgers use it.
 *
 *   - transactions of one connection are one after the other: it has one at a time;
 *   - a database that another connection writes to is waited for, without stopping this process, for a bounded time;
 *   - a commit that readers hold up is tried again: it is neither lost nor told as failed;
 *   - a turn that does not end is given up: it may be waiting for the caller who waits for it;
 *   - a ledger has a connection of its own: a second owner is refused, and so is all further use of a
 *     connection with which others wrote while one of its transactions was open.
 */

import { waitingClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Stopper } from "../../base/aborts.ts";
import { TurnLine } from "./line.ts";
import { loanOf, unlessStopped } from "./lending.ts";
import { LentStatements, SqliteLoan } from "./sqlite-lending.ts";

/** A statement of any of the clients. All of them take texts, numbers, bytes and null; other types depend on the client. */
export interface SqliteStatement {
  run(...values: unknown[]): unknown;
  get(...values: unknown[]): unknown;
  all?(...values: unknown[]): unknown;
}

/** A connection of any of the clients. */
export interface SqliteConnection {
  exec(sql: string): unknown;
  prepare(sql: string): SqliteStatement;
  close?(): unknown;
}

/** A value that all clients take. */
export type SqliteValue = string | number | bigint | null | Uint8Array;

interface Statement {
  run(...values: readonly SqliteValue[]): unknown;
  get(...values: readonly SqliteValue[]): unknown;
  all(...values: readonly SqliteValue[]): unknown;
}

/** The pause between two attempts, and the limit of all. The client's own timeout is off: it stops the process. */
const BUSY_MS = 10;
const BUSY_MS_MAX = 10_000;

/** Longer than any transaction should block a database. Other connections are refused long before. */
const TURN_MS = 60_000;

const sessions = new WeakMap<SqliteConnection, SqliteSession<SqliteConnection>>();

/** The turns and the prepared statements of one connection. */
export class SqliteSession<Connection extends SqliteConnection> {
  readonly connection: Connection;
  /** How often a ledger has written entries with the connection. */
  entryWrites = 0;
  /** Whether statements change more rows than they answer. */
  changesMore = false;
  /** What works have prepared. */
  readonly kept = new LentStatements();
  readonly #statements = new Map<string, Statement>();
  /** Two ledgers over one connection have one session, so they wait for each other. */
  readonly #line = new TurnLine(TURN_MS);
  #isLent = false;
  #shared: HapaxError | undefined;

  constructor(connection: Connection) {
    this.connection = connection;
  }

  /** Whether the work of a transaction has the connection now. */
  get isLent(): boolean {
    return this.#isLent;
  }

  /**
   * Runs the work of the open transaction, with a stand-in for the connection. If others wrote meanwhile, a success
   * commits their write too, and a failure throws an error that says it is rolled back. The session refuses all further use.
   * Answers at once if the work does: then no others ran. `begunAt`: the total of changes now, if it is known.
   */
  lend<T>(
    work: (loan: SqliteLoan<Connection>) => T | Promise<T>,
    over: Stopper | undefined,
    begunAt?: number,
  ): T | Promise<T> {
    const loan = new SqliteLoan(this.connection, this);
    this.#isLent = true;
    let result: T | Promise<T>;
    try {
      result = work(loan);
      if (!(result instanceof Promise) && !loan.isEnded) this.requireOpen();
    } catch (error) {
      this.#takeBack(loan);
      throw error;
    }
    if (result instanceof Promise) {
      loan.count.goOn(begunAt);
      return this.#lendOn(loan, result, over);
    }
    this.#takeBack(loan);
    return result;
  }

  async #lendOn<T>(
    loan: SqliteLoan<Connection>,
    working: Promise<T>,
    over: Stopper | undefined,
  ): Promise<T> {
    try {
      const result = await unlessStopped(working, over);
      loan.count.look();
      this.requireOpen();
      return result;
    } catch (error) {
      loan.count.look();
      if (loan.count.isShared) throw sharedConnection("is rolled back with it", error);
      throw error;
    } finally {
      if (loan.count.isShared) this.#shared = sharedConnection("was committed with it", undefined);
      this.#takeBack(loan);
    }
  }

  /** Throws if the connection has no transaction any more, as far as the client can tell. */
  requireOpen(): void {
    if (!mayHaveTransaction(this.connection))
      throw new HapaxError("invalid_request", "the transaction was ended before its work was");
  }

  #takeBack(loan: SqliteLoan<Connection>): void {
    this.#isLent = false;
    loan.end();
  }

  inTurn<T>(work: () => T | Promise<T>): Promise<T> {
    if (this.#shared !== undefined) return Promise.reject(this.#shared);
    return this.#line.take(work);
  }

  /**
   * Runs a transaction in its turn. It is for writing from its begin: one that reads first may be refused a write. `onEnd` hears
   * in the same turn whether it was committed. Work that does not await runs in one turn with its begin and its end.
   */
  transaction<T>(work: () => T | Promise<T>, onEnd?: (isCommitted: boolean) => void): Promise<T> {
    return this.inTurn(() => {
      const begun = atOnce(this.#begin);
      return begun instanceof Promise
        ? begun.then(() => this.#finish(work, onEnd))
        : this.#finish(work, onEnd);
    });
  }

  /** As `transaction`, but returns undefined, without waiting, if another connection writes. */
  tryTransaction<T>(work: () => T | Promise<T>): Promise<T | undefined> {
    return this.inTurn(async () => {
      try {
        this.#begin();
      } catch (error) {
        if (isBusy(error)) return undefined;
        throw error;
      }
      return this.#finish(work, undefined);
    });
  }

  /** Reads in its turn, so it never sees the writes of an open transaction of this connection. */
  read<T>(work: () => T): Promise<T> {
    return this.inTurn(() => atOnce(work));
  }

  /** Returns a prepared statement, and keeps it. Takes no turn: the caller has one. */
  prepare(sql: string): Statement {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.connection.prepare(sql) as Statement;
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  #finish<T>(
    work: () => T | Promise<T>,
    onEnd: ((isCommitted: boolean) => void) | undefined,
  ): T | Promise<T> {
    try {
      const result = work();
      if (result instanceof Promise)
        return this.#ended(
          result.then((value) => this.#commit(value)),
          onEnd,
        );
      const committed = this.#commit(result);
      if (committed instanceof Promise) return this.#ended(committed, onEnd);
      onEnd?.(true);
      return committed;
    } catch (error) {
      this.#rollBack();
      onEnd?.(false);
      throw error;
    }
  }

  /** Without a write-ahead log, a reader can hold COMMIT up. The transaction stays open meanwhile. */
  #commit<T>(result: T): T | Promise<T> {
    try {
      this.prepare("COMMIT").run();
      return result;
    } catch (error) {
      if (!isBusy(error)) throw error;
      return patiently(() => {
        this.prepare("COMMIT").run();
        return result;
      });
    }
  }

  // Prepared, as all that is run often: to parse a text costs more than to begin.
  readonly #begin = (): void => {
    this.prepare("BEGIN IMMEDIATE").run();
  };

  async #ended<T>(
    committing: Promise<T>,
    onEnd: ((isCommitted: boolean) => void) | undefined,
  ): Promise<T> {
    try {
      const result = await committing;
      onEnd?.(true);
      return result;
    } catch (error) {
      this.#rollBack();
      onEnd?.(false);
      throw error;
    }
  }

  // After some errors SQLite has rolled back by itself. Then nothing is left to roll back.
  #rollBack(): void {
    try {
      this.connection.exec("ROLLBACK");
    } catch {
      // The caller gets the error that led here.
    }
  }
}

/** Tries at once, and again while the database is busy: then it answers with a promise. */
function atOnce<T>(work: () => T): T | Promise<T> {
  try {
    return work();
  } catch (error) {
    if (!isBusy(error)) throw error;
    return patiently(work);
  }
}

/** Tries again while the database is busy. The holder may be a connection of this process, so the wait is async. */
async function patiently<T>(work: () => T): Promise<T> {
  const endMs = waitingClock.steadyMs() + BUSY_MS_MAX;
  for (;;) {
    try {
      return work();
    } catch (error) {
      if (!isBusy(error) || waitingClock.steadyMs() >= endMs) throw error;
      await new Promise<void>((resolve) => void waitingClock.after(BUSY_MS, resolve));
    }
  }
}

/** How a ledger opens its connection: `() => new Database(path)`. */
export type OpenSqlite<Connection extends SqliteConnection> = () => Connection;

const owned = new WeakSet<SqliteConnection>();

/** Opens a connection for one owner. Throws `invalid_options`. */
export function ownSqliteSession<Connection extends SqliteConnection>(
  open: OpenSqlite<Connection>,
): SqliteSession<Connection> {
  const way = "sqliteLedger(() => new Database(path))";
  if (typeof open !== "function")
    throw new HapaxError(
      "invalid_options",
      `sqliteLedger takes a function that opens a connection for it alone: ${way}`,
    );
  const connection = open();
  // Callers without types may hand over a promise.
  if (typeof (connection as Partial<SqliteConnection> | undefined)?.exec !== "function")
    throw new HapaxError("invalid_options", `${way}: the function must return the connection`);
  if (owned.has(connection))
    throw new HapaxError(
      "invalid_options",
      `the connection belongs to another ledger; open one for each: ${way}`,
    );
  owned.add(connection);
  connection.exec("PRAGMA busy_timeout = 0");
  return sqliteSessionOf(connection);
}

/** Closes the connection of an owner. */
export function closeSqlite({ connection }: SqliteSession<SqliteConnection>): void {
  owned.delete(connection);
  connection.close?.();
}

/** Runs statements in the open transaction of a caller. */
export interface RunJoined {
  <T>(work: () => T): T;
  /** As the call, for work that changes nothing: there is nothing to count. */
  read<T>(this: void, work: () => T): T;
}

/** Returns the session of the caller's transaction: of a stand-in, or of a connection on which the caller began one. */
export function joinSqlite<Connection extends SqliteConnection>(
  tx: Connection,
): { readonly session: SqliteSession<Connection>; readonly run: RunJoined } {
  const lent = loanOf(tx);
  if (lent === undefined) {
    if (!mayHaveTransaction(tx))
      throw new HapaxError("invalid_request", "the connection has no transaction: begin one first");
    const session = sqliteSessionOf(tx);
    if (session.isLent)
      throw new HapaxError(
        "invalid_request",
        "a transaction of the ledger is open on the connection: use the tx that its work was given",
      );
    const run = <T>(work: () => T): T => work();
    return { session, run: Object.assign(run, { read: run }) };
  }
  const { target, loan } = lent;
  const session = sqliteSessionOf(target);
  const count = loan instanceof SqliteLoan ? loan.count : undefined;
  const require = (): void => {
    loan.require();
    session.requireOpen();
  };
  require();
  return {
    session,
    run: Object.assign(
      <T>(work: () => T): T => {
        require();
        count?.look();
        try {
          return work();
        } finally {
          count?.recount();
        }
      },
      {
        read: <T>(work: () => T): T => {
          require();
          return work();
        },
      },
    ),
  };
}

/** Returns whether both are the same connection, each as itself or as a stand-in. */
export function isSameConnection(one: SqliteConnection, other: SqliteConnection): boolean {
  return (loanOf(one)?.target ?? one) === (loanOf(other)?.target ?? other);
}

function sharedConnection(what: string, cause: unknown): HapaxError {
  const problem = `others wrote with the connection while a transaction was open; their write ${what}`;
  const next = "Open a connection for the ledger alone: () => new Database(path)";
  return new HapaxError("invalid_options", `${problem}. ${next}`, { cause });
}

/** better-sqlite3, libsql and Bun have `inTransaction`, Node has `isTransaction`. A client with neither may have one. */
function mayHaveTransaction(connection: SqliteConnection): boolean {
  const { inTransaction, isTransaction } = connection as {
    readonly inTransaction?: unknown;
    readonly isTransaction?: unknown;
  };
  return inTransaction !== false && isTransaction !== false;
}

/** Returns the one session of a connection, so that all callers share its prepared statements. */
export function sqliteSessionOf<Connection extends SqliteConnection>(
  connection: Connection,
): SqliteSession<Connection> {
  // A session has the type of the connection that it was made with.
  let session = sessions.get(connection) as SqliteSession<Connection> | undefined;
  if (session === undefined) {
    session = new SqliteSession(connection);
    sessions.set(connection, session);
  }
  return session;
}

/** Returns how many rows a statement has changed: all clients answer `run` with it. */
export function changesOf(result: unknown): number {
  const { changes } = Object(result) as { readonly changes?: unknown };
  if (typeof changes !== "number" && typeof changes !== "bigint")
    throw new TypeError("run() of the SQLite client does not answer how many rows it changed");
  return Number(changes);
}

/** Each client has its own message for SQLITE_BUSY. */
function isBusy(error: unknown): boolean {
  return error instanceof Error && /database is (locked|busy)|SQLITE_BUSY/.test(error.message);
}
