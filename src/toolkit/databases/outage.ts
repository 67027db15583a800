/**
 * Which errors of a transaction are an outage of the database and no fault of the work, over all clients that ledgers take.
 * PostgreSQL says it by SQLSTATE, SQLite in words. Whether a connection was lost is known only to the session that had it:
 * it says so with `noteLost`.
 */

import { HapaxError } from "../../base/errors.ts";
import { databaseError } from "./query-builders.ts";

const lost = new WeakSet<object>();

/** Notes that the transaction which failed with this error had no connection, or lost it. */
export function noteLost(error: unknown): void {
  if (typeof error === "object" && error !== null) lost.add(error);
}

/** SQLSTATE: what may succeed when it is tried again. Deadlock, serialization, no resources, a restart, a connection. */
const PASSING = /^(40001|40P01|08|53|57P)/;
const DISK_FULL = "53100";
/** What no retry can cure: the user, the password or the database. */
const HOPELESS = /^(28|3D000)/;
/** What postgres.js says of its own connections. */
const CLOSED = /^CONNECT(ION_(CLOSED|ENDED|DESTROYED)|_TIMEOUT)$/;
/** The clients have the words of SQLite, or the names of its codes. */
const FULL_WORDS = /database or disk is full|SQLITE_FULL/;
const PASSING_WORDS = /database is (locked|busy)|SQLITE_BUSY|disk I\/O error|SQLITE_IOERR/;

/**
 * What an error of a transaction means if it is no fault of its work; undefined: it is the work's. `unreachable`: the same
 * may succeed later. `store_full`: the database has no room. `invalid_options`: it refuses the user, the password or the name.
 */
export function outageOf(error: unknown): HapaxError | undefined {
  // The error that the work threw may be the cause of the one that undid the transaction.
  const errors = [error, error instanceof Error ? error.cause : undefined];
  // A query builder has the error of the database inside its own.
  const inner = databaseError(error);
  if (!errors.includes(inner)) errors.push(inner);
  const codes = errors.map(codeOf);
  const words = errors.map((one) => (one instanceof Error ? one.message : "")).join("; ");
  if (codes.some((code) => isSqlState(code) && HOPELESS.test(code)))
    return new HapaxError("invalid_options", `the database refuses: ${words}`, { cause: error });
  if (codes.includes(DISK_FULL) || FULL_WORDS.test(words))
    return new HapaxError("store_full", `the database has no room: ${words}`, { cause: error });
  const isPassing =
    lost.has(Object(error) as object) ||
    codes.some((code) => (isSqlState(code) && PASSING.test(code)) || CLOSED.test(code)) ||
    PASSING_WORDS.test(words);
  if (!isPassing) return undefined;
  return new HapaxError("unreachable", `the database could not do it now: ${words}`, {
    cause: error,
  });
}

/** Codes of Node have another length; those of this project are words. */
function isSqlState(code: string): boolean {
  return code.length === 5;
}

function codeOf(error: unknown): string {
  const code: unknown = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : "";
}
