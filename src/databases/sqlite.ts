/**
 * One SQLite connection of the user: `node:sqlite`, better-sqlite3, libsql, bun:sqlite. What sinks and ledgers share.
 *
 *   SQ1  transactions of one connection are one after the other: it has one at a time;
 *   SQ2  a database that another connection writes to is waited for, without stopping this process.
 */

import { systemClock } from "../clock.ts";

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

  /** In its turn, at once for writing. */
  transaction<T>(work: () => T | Promise<T>): Promise<T> {
    return this.inTurn(async () => {
      await this.#begin();
      try {
        const result = await work();
        this.connection.exec("COMMIT");
        return result;
      } catch (error) {
        this.#rollBack();
        throw error;
      }
    });
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

  /** A transaction that reads first could be refused when it writes: it is one for writing from its beginning. */
  async #begin(): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        this.connection.exec("BEGIN IMMEDIATE");
        return;
      } catch (error) {
        if (!isBusy(error) || attempt === BUSY_ATTEMPTS) throw error;
        // Another connection of this process may hold it: it gets on only if this one waits aside.
        await new Promise<void>((resolve) => void systemClock.after(BUSY_MS, resolve));
      }
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

/** Each client has its own words for SQLITE_BUSY. */
function isBusy(error: unknown): boolean {
  return error instanceof Error && /database is (locked|busy)|SQLITE_BUSY/.test(error.message);
}
