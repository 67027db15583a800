/**
 * Lends a SQLite connection to the work of a transaction (lending.ts), and counts what it changes: so a connection with which others
 * write meanwhile is found out.
 */

import { HapaxError } from "../../base/errors.ts";
import { type Lending, Loan, refuseControl } from "./lending.ts";
import type { SqliteConnection, SqliteStatement } from "./sqlite.ts";

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

/** A statement that a work has prepared. */
interface KeptStatement {
  readonly text: string;
  readonly statement: object;
  /** How many values it was run with: some clients keep those that are not given again. */
  values: number | undefined;
  /** The work that has it. Undefined: it is free, or was dropped. */
  holder: object | undefined;
}

/**
 * The statements that works have prepared. To prepare one takes as long as to run it twice. Each is lent to one work at a time, and
 * is kept as long as works only `run` it: other methods may change how it answers.
 */
export class LentStatements {
  /** By text, those that are free among them. */
  readonly #kept = new Map<string, KeptStatement>();
  /** Statements whose `run` answers how many rows it has changed. Others may answer that of an earlier one. */
  readonly #answering = new WeakMap<object, KeptStatement>();

  static isKept(text: unknown): text is string {
    if (typeof text !== "string" || text.length > TEXT_CHARS_MAX) return false;
    // A statement with rows that are not read is open, and holds the connection as long as it is kept.
    return CHANGING.test(text) && !RETURNING.test(text);
  }

  /** Whether `take` has a statement: then its text was looked at before. */
  has(text: string): boolean {
    const kept = this.#kept.get(text);
    return kept !== undefined && kept.holder === undefined;
  }

  take(text: string): object | undefined {
    const kept = this.#kept.get(text);
    return kept === undefined || kept.holder !== undefined ? undefined : kept.statement;
  }

  /** Notes which work has a statement that was prepared with this text. Returns undefined if it is not to be kept. */
  note(text: unknown, statement: object, holder: object): KeptStatement | undefined {
    let kept = this.#answering.get(statement);
    if (kept === undefined) {
      if (!LentStatements.isKept(text)) return undefined;
      kept = { text, statement, values: undefined, holder };
      this.#answering.set(statement, kept);
    }
    kept.holder = holder;
    return kept;
  }

  /** What is known of a statement. Undefined: its `run` may answer with the changes of an earlier one. */
  of(statement: object): KeptStatement | undefined {
    return this.#answering.get(statement);
  }

  giveBack(kept: KeptStatement): void {
    kept.holder = undefined;
    const { text } = kept;
    if (this.#kept.get(text) === kept) return;
    this.#kept.set(text, kept);
    if (this.#kept.size <= KEPT_MAX) return;
    const [oldest] = this.#kept.keys();
    if (oldest !== undefined) this.#kept.delete(oldest);
  }

  /** The work has changed how the statement answers, or may have: no other gets it. */
  drop(kept: KeptStatement): void {
    kept.holder = undefined;
    if (this.#kept.get(kept.text) === kept) this.#kept.delete(kept.text);
  }
}

/** Returns whether the statement is run with as many values as before. */
function isAsBefore(kept: KeptStatement, args: readonly unknown[]): boolean {
  for (const arg of args)
    if (
      typeof arg === "function" ||
      (typeof arg === "object" && arg !== null && !ArrayBuffer.isView(arg))
    )
      return false;
  kept.values ??= args.length;
  return kept.values === args.length;
}

const MORE = `SELECT 1 FROM (SELECT type, sql FROM sqlite_master UNION ALL SELECT type, sql FROM sqlite_temp_master)
  WHERE type = 'trigger' OR (type = 'table' AND
    (sql LIKE 'CREATE VIRTUAL%' OR sql LIKE '%ON%DELETE%' OR sql LIKE '%ON%UPDATE%'))
  UNION ALL SELECT 1 FROM pragma_database_list WHERE name NOT IN ('main', 'temp') LIMIT 1`;

/** Finds out whether others change something with a connection that is lent. */
export class Count {
  readonly #session: LendingSession;
  #seen = 0;
  /** Whether others have changed something. */
  isShared = false;
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

  /** The work goes on after an `await`, when others may run: from here on changes are counted. `begunAt`: the total at its begin, if it is known. */
  goOn(begunAt: number | undefined): void {
    this.isFirst = false;
    if (begunAt === undefined || this.#first === undefined || this.#session.changesMore)
      this.recount();
    else this.#seen = begunAt + this.#first;
  }

  /** Looks for changes that did not come through the loan. */
  look(): void {
    if (this.isFirst || this.#isFresh || this.#isVerified) return;
    const total = this.#total();
    if (total === this.#seen) return;
    if (this.#isExplained()) this.#seen = total;
    else this.isShared = true;
  }

  /** Takes all changes since `look` as changes through the loan. */
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

  /** Takes so many changes as changes through the loan. */
  changed(changes: number): void {
    if (this.#session.changesMore) this.recount();
    else if (!this.isFirst) this.#seen += changes;
    else if (this.#first !== undefined) this.#first += changes;
  }

  /** The total of changes if others have made none. Undefined: nothing needs to be counted. */
  expected(): number | undefined {
    return this.#session.changesMore || this.isFirst || this.#isFresh || this.isShared
      ? undefined
      : this.#seen;
  }

  /** The last statement has found the expected total: nothing more is counted. */
  verified(): void {
    this.#isVerified = true;
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

/** A connection that is lent for one transaction. `session` keeps prepared statements. */
export class SqliteLoan<Connection extends SqliteConnection> extends Loan<Connection> {
  readonly count: Count;
  /** Whether the end of the transaction is written. It was open then, and nothing else has run since. */
  isEnded = false;

  constructor(connection: Connection, session: LendingSession) {
    const lending = new ConnectionLending(connection, session);
    super(connection, lending);
    this.count = lending.count;
  }
}

/** The rules under which a connection is lent. A class: what each transaction would make anew is made once. */
class ConnectionLending implements Lending {
  readonly count: Count;
  readonly #connection: SqliteConnection;
  readonly #session: LendingSession;
  /** The statements that this work has, and that may be kept. */
  readonly #taken: KeptStatement[] = [];

  constructor(connection: SqliteConnection, session: LendingSession) {
    this.#connection = connection;
    this.#session = session;
    this.count = new Count(session);
  }

  before(name: PropertyKey, args: readonly unknown[], isOutermost: boolean, target: object): void {
    const [text] = args;
    const isPreparing = name === "prepare" && isOutermost;
    // A statement that is kept was looked at when it was made.
    if (isOutermost && typeof text === "string" && !(isPreparing && this.#session.kept.has(text)))
      refuseControl(text);
    if (name === "close")
      throw new HapaxError("invalid_request", "the connection is the ledger's: do not close it");
    // To prepare a statement changes nothing.
    if (isPreparing) return;
    this.#session.requireOpen();
    if (name === "prepare") return;
    if (name !== "run") this.changed(target);
    if (!this.#answers(name, target)) this.count.look();
  }

  instead(
    name: PropertyKey,
    args: readonly unknown[],
    isOutermost: boolean,
    target: object,
  ): unknown {
    if (name === "run") {
      const kept = this.#session.kept.of(target);
      // Some clients keep the values of an earlier run that a later one does not give.
      if (kept?.holder !== this || isAsBefore(kept, args)) return undefined;
      this.changed(target);
      return this.#connection.prepare(kept.text).run(...args);
    }
    const [text] = args;
    return name === "prepare" && isOutermost && args.length === 1 && typeof text === "string"
      ? this.#session.kept.take(text)
      : undefined;
  }

  after(
    name: PropertyKey,
    args: readonly unknown[],
    isOutermost: boolean,
    result: unknown,
    target: object,
  ): void {
    if (name === "prepare") {
      if (!isOutermost || args.length !== 1) return;
      const kept = this.#session.kept.note(args[0], Object(result) as object, this);
      if (kept !== undefined) this.#taken.push(kept);
      return;
    }
    const changes = this.#answers(name, target) ? changesIn(result) : undefined;
    if (changes === undefined) this.count.recount();
    else this.count.changed(changes);
  }

  changed(target: object): void {
    const kept = this.#session.kept.of(target);
    if (kept?.holder === this) this.#session.kept.drop(kept);
  }

  end(): void {
    for (const kept of this.#taken) if (kept.holder === this) this.#session.kept.giveBack(kept);
  }

  answer(
    name: PropertyKey,
    result: object,
    lend: (target: object) => object,
    isOutermost: boolean,
  ): unknown {
    return (isOutermost ? mayWrite(result) : ITERATING.has(name)) ? lend(result) : result;
  }

  /** Whether a call answers how many rows it has changed, so that nothing is looked up. */
  #answers(name: PropertyKey, target: object): boolean {
    const { changesMore, kept } = this.#session;
    return name === "run" && !changesMore && kept.of(target) !== undefined;
  }
}

function changesIn(result: unknown): number | undefined {
  const { changes } = Object(result) as { readonly changes?: unknown };
  return typeof changes === "number" || typeof changes === "bigint" ? Number(changes) : undefined;
}
