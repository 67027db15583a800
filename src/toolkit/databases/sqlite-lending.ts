/**
 * Lends a SQLite connection to the work of a transaction (lending.ts), and counts what it changes: so a connection with which others
 * write meanwhile is found out.
 */

import { HapaxError } from "../../base/errors.ts";
import { Loan, refuseControl } from "./lending.ts";
import type { SqliteConnection, SqliteStatement } from "./sqlite.ts";

/** The count of a loan. */
export interface Counted {
  /** The work goes on after an `await`, when others may run: from here on changes are counted. */
  goOn(): void;
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

/** Lends a connection. `session` keeps prepared statements. */
export function lendConnection<Connection extends SqliteConnection>(
  connection: Connection,
  session: { prepare(sql: string): Pick<SqliteStatement, "get"> },
): Loan<Connection> & Counted {
  const total = (): number => {
    const row = session.prepare("SELECT total_changes() AS total").get();
    return Number((row as Readonly<Record<string, unknown>>)["total"]);
  };
  let seen = 0;
  let isShared = false;
  /** Until the first `await` only the work runs: what has changed by then it has changed. */
  let isFirst = true;
  /** Since `seen` only the work has run: other code runs when the work awaits. */
  let isFresh = false;
  const count = (): void => {
    if (!isFirst && !isFresh && total() !== seen) isShared = true;
  };
  const recount = (): void => {
    if (isFirst) return;
    seen = total();
    if (isFresh) return;
    isFresh = true;
    queueMicrotask(() => {
      isFresh = false;
    });
  };
  const goOn = (): void => {
    isFirst = false;
    recount();
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
  return Object.assign(loan, { goOn, count, recount, changed, isShared: () => isShared });
}
