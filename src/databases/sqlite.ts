/**
 * One SQLite connection of the user: `node:sqlite`, better-sqlite3, libsql, bun:sqlite. What sinks and ledgers share.
 *
 *   SQ1  transactions of one connection are one after the other: it has one at a time;
 *   SQ2  a database that another connection writes to is waited for, without stopping this process;
 *   SQ3  a commit that readers hold up is tried again: it is neither lost nor told as failed.
 */

import { waitingClock } from "../clock.ts";

/** A statement of any of the clients; each types the values in its own way. */
export interface SqliteStatement {
  run(...values: never[]): unknown;
  get(...values: never[]): unknown;
  all?(...values: never[]): unknown;
}

/** A connection of any of the clients. */
export interface SqliteConnection {
  exec(sql: string): unknown;
  prepare(sql: string): SqliteStatement;
}

/** What all of them take. */
export type SqliteValue = string | number | bigint | null | Uint8Array;

interface Statement {
  run(...values: readonly SqliteValue[]): unknown;
  get(...values: readonly SqliteValue[]): unknown;
  all(...values: readonly SqliteValue[]): unknown;
}

/** For ten seconds beside the client's own timeout. */
const BUSY_MS = 10;
const BUSY_ATTEMPTS = 1000;

/** The turns of each connection: two sinks or ledgers over one connection wait for each other. */
const turns = new WeakMap<SqliteConnection, Promise<unknown>>();

const sessions = new WeakMap<SqliteConnection, SqliteSession<SqliteConnection>>();

/** The turns and the prepared statements of one connection. */
export class SqliteSession<Connection extends SqliteConnection> {
  readonly connection: Connection;
  readonly #statements = new Map<string, Statement>();

  constructor(connection: Connection) {
    this.connection = connection;
  }

  /** SQ1 */
  inTurn<T>(work: () => T | Promise<T>): Promise<T> {
    const turn = (turns.get(this.connection) ?? Promise.resolve()).then(work);
    turns.set(
      this.connection,
      turn.catch(() => undefined),
    );
    return turn;
  }

  /** In its turn, at once for writing: one that reads first could be refused when it writes. */
  transaction<T>(work: () => T | Promise<T>): Promise<T> {
    return this.inTurn(async () => {
      await patiently(() => this.connection.exec("BEGIN IMMEDIATE"));
      return this.#finish(work);
    });
  }

  /** As `transaction`, but undefined, without waiting, if another connection writes. */
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

  /** Reads in its turn: never what an open transaction of this connection has written. */
  read<T>(work: () => T): Promise<T> {
    return this.inTurn(() => patiently(work));
  }

  /** Statements are prepared once; out of turn: the caller is in one. */
  prepare(sql: string): Statement {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.connection.prepare(sql) as Statement;
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  async #finish<T>(work: () => T | Promise<T>): Promise<T> {
    try {
      const result = await work();
      // SQ3: without a write-ahead log, somebody who reads at this moment holds it up. The transaction stays open.
      await patiently(() => this.connection.exec("COMMIT"));
      return result;
    } catch (error) {
      this.#rollBack();
      throw error;
    }
  }

  // SQLite has rolled back by itself after some errors; then there is nothing left to roll back.
  #rollBack(): void {
    try {
      this.connection.exec("ROLLBACK");
    } catch {
      // The error that led here is the one to tell.
    }
  }
}

/** SQ2: another connection of this process may hold it, which gets on only if this one waits aside. */
async function patiently<T>(work: () => T): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return work();
    } catch (error) {
      if (!isBusy(error) || attempt === BUSY_ATTEMPTS) throw error;
      await new Promise<void>((resolve) => void waitingClock.after(BUSY_MS, resolve));
    }
  }
}

/** The session of a connection: its statements are prepared once, whoever asks. */
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

/** Bytes of a column: libsql has a Buffer for one row and an ArrayBuffer for many, others a Uint8Array. */
export function sqliteBytes(value: unknown): Uint8Array | undefined {
  if (value === null || value === undefined) return undefined;
  if (value instanceof Uint8Array || value instanceof ArrayBuffer) return new Uint8Array(value);
  throw new TypeError(`a column with bytes has a ${typeof value}`);
}

/** Each client has its own words for SQLITE_BUSY. */
function isBusy(error: unknown): boolean {
  return error instanceof Error && /database is (locked|busy)|SQLITE_BUSY/.test(error.message);
}
