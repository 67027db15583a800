/**
 * One SQLite connection of the user: `node:sqlite`, better-sqlite3, libsql, bun:sqlite. What sinks and ledgers share.
 *
 *   SQ1  transactions of one connection are one after the other: it has one at a time;
 *   SQ2  a database that another connection writes to is waited for, without stopping this process;
 *   SQ3  a commit that readers hold up is tried again: it is neither lost nor told as failed;
 *   SQ4  nobody waits for ever for a turn that does not end: it may be waiting for whoever waits for it.
 */

import { waitingClock } from "../clock.ts";
import { HapaxError } from "../errors.ts";

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

/** SQ4: longer than anybody should keep a database from all others, who are refused long before. */
const TURN_MS = 60_000;

/** Those who want to use a connection, one after the other. */
interface Line {
  /** The end of the last turn. */
  last: Promise<unknown>;
  /** Turns that were begun. */
  begun: number;
  /** Turns that are not over, begun or not. */
  open: number;
}

/** Of each connection: two sinks or ledgers over one connection wait for each other. */
const lines = new WeakMap<SqliteConnection, Line>();

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
    const line = lineOf(this.connection);
    const patience = line.open > 0 ? patienceIn(line) : undefined;
    line.open += 1;
    const turn = line.last.then(() => {
      patience?.end();
      line.begun += 1;
      return work();
    });
    const over = (): void => {
      line.open -= 1;
    };
    line.last = turn.then(over, over);
    return patience === undefined ? turn : Promise.race([turn, patience.lost]);
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

function lineOf(connection: SqliteConnection): Line {
  let line = lines.get(connection);
  if (line === undefined) {
    line = { last: Promise.resolve(), begun: 0, open: 0 };
    lines.set(connection, line);
  }
  return line;
}

/** SQ4: `lost` rejects when one turn has lasted too long. `end`, at the caller's own turn, throws if it had given up. */
function patienceIn(line: Line): { readonly lost: Promise<never>; readonly end: () => void } {
  let cancel: () => void = () => undefined;
  let error: HapaxError | undefined;
  const lost = new Promise<never>((_, reject) => {
    const wait = (begun: number): void => {
      cancel = waitingClock.after(TURN_MS, () => {
        if (line.begun !== begun) {
          wait(line.begun);
          return;
        }
        const what = `one transaction of the connection is open for more than ${TURN_MS} ms`;
        const why = "a call inside it that does not use ledger.in(tx) waits for its end";
        error = new HapaxError("too_many", `${what}; ${why}`);
        reject(error);
      });
    };
    wait(line.begun);
  });
  const end = (): void => {
    cancel();
    if (error !== undefined) throw error;
  };
  return { lost, end };
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
