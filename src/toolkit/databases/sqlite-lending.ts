/**
 * Lends a SQLite connection to the work of a transaction (lending.ts), and counts what it changes: so a connection with which others
 * write meanwhile is found out.
 */

import { HapaxError } from "../../base/errors.ts";
import { Loan, refuseControl } from "./lending.ts";
import type { SqliteConnection, SqliteStatement } from "./sqlite.ts";

/** The count of a loan. */
export interface Counted {
  /** The work goes on after an `await`, when others may run: from here on changes are counted. `begunAt`: the total at its begin, if it is known. */
  goOn(begunAt: number | undefined): void;
  /** Looks for changes that did not come through the loan. */
  count(): void;
  /** Takes all changes since `count` as changes through the loan. */
  recount(): void;
  /** Takes so many changes as changes through the loan. */
  changed(changes: number): void;
  /** The total of changes if others have made none. Undefined: nothing needs to be counted. */
  expected(): number | undefined;
  /** The last statement has found the expected total: nothing more is counted. */
  verified(): void;
  isShared(): boolean;
}

/** What a session does for its loans. */
export interface LendingSession {
  prepare(sql: string): Pick<SqliteStatement, "get">;
  readonly kept: LentStatements;
  /** Throws if the transaction is over: SQLite ends one by itself when the disk is full. What came next would be committed alone. */
  requireOpen(): void;
  /** Whether a statement may change more than it answers: there are triggers, actions of foreign keys, or virtual tables. */
  changesMore: boolean;
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

/** Statements that change rows and answer none: those that are kept when the work has prepared them. */
const CHANGING = /^\s*(?:insert|update|delete|replace)\b/i;
const RETURNING = /\breturning\b/i;
const TEXT_CHARS_MAX = 4_096;
const KEPT_MAX = 64;

/**
 * The statements that works have prepared. To prepare one takes as long as to run it twice. Each is lent to one work at a time, and
 * is kept as long as works only `run` it: other methods may change how it answers.
 */
export class LentStatements {
  readonly #free = new Map<string, object>();
  /** Statements whose `run` answers how many rows it has changed. Others may answer that of an earlier one. */
  readonly #answering = new WeakSet();
  /** How many values a statement was run with: some clients keep those that are not given again. */
  readonly #counts = new WeakMap<object, number>();

  /** Returns whether the statement was run with as many values each time. */
  isAsBefore(statement: object, args: readonly unknown[]): boolean {
    const isPlain = (arg: unknown): boolean => Object(arg) !== arg || ArrayBuffer.isView(arg);
    if (!args.every(isPlain)) return false;
    const known = this.#counts.get(statement);
    if (known === undefined) this.#counts.set(statement, args.length);
    return known === undefined || known === args.length;
  }

  static isKept(text: unknown): text is string {
    if (typeof text !== "string" || text.length > TEXT_CHARS_MAX) return false;
    // A statement with rows that are not read is open, and holds the connection as long as it is kept.
    return CHANGING.test(text) && !RETURNING.test(text);
  }

  take(text: string): object | undefined {
    const statement = this.#free.get(text);
    if (statement !== undefined) this.#free.delete(text);
    return statement;
  }

  note(statement: object): void {
    this.#answering.add(statement);
  }

  isAnswering(statement: object): boolean {
    return this.#answering.has(statement);
  }

  giveBack(text: string, statement: object): void {
    this.#free.set(text, statement);
    if (this.#free.size <= KEPT_MAX) return;
    const [oldest] = this.#free.keys();
    if (oldest !== undefined) this.#free.delete(oldest);
  }
}

const MORE = `SELECT 1 FROM (SELECT type, sql FROM sqlite_master UNION ALL SELECT type, sql FROM sqlite_temp_master)
  WHERE type = 'trigger' OR (type = 'table' AND
    (sql LIKE 'CREATE VIRTUAL%' OR sql LIKE '%ON%DELETE%' OR sql LIKE '%ON%UPDATE%'))
  UNION ALL SELECT 1 FROM pragma_database_list WHERE name NOT IN ('main', 'temp') LIMIT 1`;

/** Counts what changes outside of a loan. */
class Count implements Counted {
  readonly #session: LendingSession;
  #seen = 0;
  #isShared = false;
  /** Until the first `await` only the work runs: what has changed by then it has changed. */
  isFirst = true;
  /** Changes through the loan until the first `await`. Undefined: it is not known how many. */
  #first: number | undefined = 0;
  /** Since `#seen` only the work has run: other code runs when the work awaits. */
  #isFresh = false;
  #isVerified = false;

  constructor(session: LendingSession) {
    this.#session = session;
  }

  goOn(begunAt: number | undefined): void {
    this.isFirst = false;
    if (begunAt === undefined || this.#first === undefined || this.#session.changesMore)
      this.recount();
    else this.#seen = begunAt + this.#first;
  }

  count(): void {
    if (this.isFirst || this.#isFresh || this.#isVerified) return;
    const total = this.#total();
    if (total === this.#seen) return;
    if (this.#isExplained()) this.#seen = total;
    else this.#isShared = true;
  }

  recount(): void {
    if (this.isFirst) {
      this.#first = undefined;
      return;
    }
    this.#seen = this.#total();
    if (this.#isFresh) return;
    this.#isFresh = true;
    queueMicrotask(() => {
      this.#isFresh = false;
    });
  }

  changed(changes: number): void {
    if (this.#session.changesMore) this.recount();
    else if (!this.isFirst) this.#seen += changes;
    else if (this.#first !== undefined) this.#first += changes;
  }

  expected(): number | undefined {
    return this.#session.changesMore || this.isFirst || this.#isFresh || this.#isShared
      ? undefined
      : this.#seen;
  }

  verified(): void {
    this.#isVerified = true;
  }

  isShared(): boolean {
    return this.#isShared;
  }

  /** More has changed than statements have answered. It is so at their first time where they change more; from then on all is looked up. */
  #isExplained(): boolean {
    if (this.#session.changesMore) return false;
    this.#session.changesMore = Boolean(this.#session.prepare(MORE).get());
    return this.#session.changesMore;
  }

  #total(): number {
    const row = this.#session.prepare("SELECT total_changes() AS total").get();
    return Number((row as Readonly<Record<string, unknown>>)["total"]);
  }
}

/** Lends a connection. `session` keeps prepared statements. */
export function lendConnection<Connection extends SqliteConnection>(
  connection: Connection,
  session: LendingSession,
): Loan<Connection> & Counted {
  const count = new Count(session);
  /** The kept statements that this work has. */
  const taken = new Map<object, string>();
  /** Whether a call answers how many rows it has changed, so that nothing is looked up. */
  const answers = (name: PropertyKey, target: object): boolean =>
    name === "run" && !session.changesMore && session.kept.isAnswering(target);
  const loan = new Loan(connection, {
    before(name, args, isOutermost, target) {
      if (isOutermost && typeof args[0] === "string") refuseControl(args[0]);
      if (name === "close")
        throw new HapaxError("invalid_request", "the connection is the ledger's: do not close it");
      session.requireOpen();
      if (name === "prepare") return;
      if (name !== "run") taken.delete(target);
      if (!answers(name, target)) count.count();
    },
    instead: (name, args, isOutermost, target) => {
      // Some clients keep the values of an earlier run that a later one does not give.
      const text = name === "run" ? taken.get(target) : undefined;
      if (text !== undefined && !session.kept.isAsBefore(target, args)) {
        taken.delete(target);
        return connection.prepare(text).run(...args);
      }
      return name === "prepare" && isOutermost && args.length === 1 && typeof args[0] === "string"
        ? session.kept.take(args[0])
        : undefined;
    },
    after(name, args, isOutermost, result, target) {
      if (name === "prepare") {
        if (!isOutermost || args.length !== 1 || !LentStatements.isKept(args[0])) return;
        const statement = Object(result) as object;
        session.kept.note(statement);
        taken.set(statement, args[0]);
        return;
      }
      const changes = answers(name, target) ? changesIn(result) : undefined;
      if (changes === undefined) count.recount();
      else count.changed(changes);
    },
    changed(target) {
      taken.delete(target);
    },
    end() {
      for (const [statement, text] of taken) session.kept.giveBack(text, statement);
    },
    answer: (name, result, lend, isOutermost) =>
      (isOutermost ? mayWrite(result) : ITERATING.has(name)) ? lend(result) : result,
  });
  return Object.assign(loan, {
    goOn: (begunAt: number | undefined) => {
      count.goOn(begunAt);
    },
    count: () => {
      count.count();
    },
    recount: () => {
      count.recount();
    },
    changed: (changes: number) => {
      count.changed(changes);
    },
    expected: () => count.expected(),
    verified: () => {
      count.verified();
    },
    isShared: () => count.isShared(),
  });
}

function changesIn(result: unknown): number | undefined {
  const { changes } = Object(result) as { readonly changes?: unknown };
  return typeof changes === "number" || typeof changes === "bigint" ? Number(changes) : undefined;
}
