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
import { Line } from "./line.ts";
import { Loan, loanOf, refuseControl, unlessEnded } from "./lending.ts";

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

/** Of each connection: two ledgers over one connection wait for each other. */
const lines = new WeakMap<SqliteConnection, Line>();

const sessions = new WeakMap<SqliteConnection, SqliteSession<SqliteConnection>>();

/** The turns and the prepared statements of one connection. */
export class SqliteSession<Connection extends SqliteConnection> {
  readonly connection: Connection;
  readonly #statements = new Map<string, Statement>();
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
   * `total` is how many changes the connection has made so far.
   */
  async lend<T>(
    work: (tx: Connection) => T | Promise<T>,
    signal: AbortSignal | undefined,
    total: number,
  ): Promise<T> {
    const loan = lendConnection(this, total);
    this.#isLent = true;
    try {
      const result = await unlessEnded(Promise.resolve(work(loan.tx)), signal);
      loan.count();
      if (!mayHaveTransaction(this.connection))
        throw new HapaxError("invalid_request", "the transaction was ended before its work was");
      return result;
    } catch (error) {
      loan.count();
      if (loan.isShared()) throw sharedConnection("is rolled back with it", error);
      throw error;
    } finally {
      if (loan.isShared()) this.#shared = sharedConnection("was committed with it", undefined);
      this.#isLent = false;
      loan.end();
    }
  }

  async inTurn<T>(work: () => T | Promise<T>): Promise<T> {
    if (this.#shared !== undefined) throw this.#shared;
    return lineOf(this.connection).take(work);
  }

  /**
   * Runs a transaction in its turn. It is for writing from its begin: one that reads first may be refused a write. `onEnd` hears
   * in the same turn whether it was committed.
   */
  transaction<T>(work: () => T | Promise<T>, onEnd?: (isCommitted: boolean) => void): Promise<T> {
    return this.inTurn(async () => {
      await patiently(() => this.connection.exec("BEGIN IMMEDIATE"));
      return this.#finish(work, onEnd);
    });
  }

  /** As `transaction`, but returns undefined, without waiting, if another connection writes. */
  tryTransaction<T>(work: () => T | Promise<T>): Promise<T | undefined> {
    return this.inTurn(async () => {
      try {
        this.connection.exec("BEGIN IMMEDIATE");
      } catch (error) {
        if (isBusy(error)) return undefined;
        throw error;
      }
      return this.#finish(work);
    });
  }

  /** Reads in its turn, so it never sees the writes of an open transaction of this connection. */
  read<T>(work: () => T): Promise<T> {
    return this.inTurn(() => patiently(work));
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

  async #finish<T>(work: () => T | Promise<T>, onEnd?: (isCommitted: boolean) => void): Promise<T> {
    try {
      const result = await work();
      // Without a write-ahead log, a reader can hold COMMIT up. The transaction stays open meanwhile.
      await patiently(() => this.connection.exec("COMMIT"));
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

function lineOf(connection: SqliteConnection): Line {
  let line = lines.get(connection);
  if (line === undefined) {
    line = new Line(TURN_MS);
    lines.set(connection, line);
  }
  return line;
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
  /** Runs one statement that changes one row or none. Returns whether it changed one. */
  one(this: void, statement: () => unknown): boolean;
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
    return {
      session,
      run: Object.assign(run, {
        read: run,
        one: (statement: () => unknown) => changesOf(statement()) > 0,
      }),
    };
  }
  const loan = lent.loan as Loan<object> & Partial<Counted>;
  loan.require();
  return {
    session: sqliteSessionOf(lent.target),
    run: Object.assign(
      <T>(work: () => T): T => {
        loan.require();
        loan.count?.();
        try {
          return work();
        } finally {
          loan.recount?.();
        }
      },
      {
        read: <T>(work: () => T): T => {
          loan.require();
          return work();
        },
        one: (statement: () => unknown): boolean => {
          loan.require();
          const changes = changesOf(statement());
          loan.changed?.(changes);
          return changes > 0;
        },
      },
    ),
  };
}

/** Returns whether both are the same connection, each as itself or as a stand-in. */
export function isSameConnection(one: SqliteConnection, other: SqliteConnection): boolean {
  return (loanOf(one)?.target ?? one) === (loanOf(other)?.target ?? other);
}

interface Counted {
  /** Looks for changes that did not come through the loan. */
  count(): void;
  /** Takes all changes since `count` as changes through the loan. */
  recount(): void;
  /** Takes so many changes as changes through the loan. */
  changed(changes: number): void;
  isShared(): boolean;
}

/** Returns whether a result may write: statements and functions that run in a transaction. Rows and bytes are data. */
function mayWrite(result: object): boolean {
  if (typeof result === "function") return true;
  if (Array.isArray(result) || ArrayBuffer.isView(result) || result instanceof Promise)
    return false;
  const prototype: unknown = Reflect.getPrototypeOf(result);
  return prototype !== null && prototype !== Object.prototype;
}

/** Methods of statements that return rows one by one: the statement may write when the caller takes the first row. */
const ITERATING: ReadonlySet<PropertyKey> = new Set(["iterate", Symbol.iterator]);

function lendConnection<Connection extends SqliteConnection>(
  session: SqliteSession<Connection>,
  before: number,
): Loan<Connection> & Counted {
  const { connection } = session;
  const total = (): number => {
    const row = session.prepare("SELECT total_changes() AS total").get();
    return Number((row as Readonly<Record<string, unknown>>)["total"]);
  };
  let seen = before;
  let isShared = false;
  /** Since `seen` only the work has run: other code runs when the work awaits. */
  let isFresh = false;
  const freshen = (): void => {
    if (isFresh) return;
    isFresh = true;
    queueMicrotask(() => {
      isFresh = false;
    });
  };
  freshen();
  const count = (): void => {
    if (!isFresh && total() !== seen) isShared = true;
  };
  const recount = (): void => {
    seen = total();
    freshen();
  };
  const changed = (changes: number): void => {
    seen += changes;
  };
  const loan = new Loan(connection, {
    before(name, args, isOutermost) {
      if (isOutermost && typeof args[0] === "string") refuseControl(args[0]);
      if (name === "close")
        throw new HapaxError("invalid_request", "the connection is the ledger's: do not close it");
      if (name !== "prepare") count();
    },
    after(name) {
      if (name !== "prepare") recount();
    },
    answer: (name, result, lend, isOutermost) =>
      (isOutermost ? mayWrite(result) : ITERATING.has(name)) ? lend(result) : result,
  });
  return Object.assign(loan, { count, recount, changed, isShared: () => isShared });
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
