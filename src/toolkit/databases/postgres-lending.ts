/**
 * Lends the clients of PostgreSQL to the work of a transaction, and detects when the work has ended that transaction itself.
 *
 *   - a transaction has a mark that ends with it. The statement that ends a claim looks for it, and so does the last one
 *     before COMMIT: work that was split by its own COMMIT or ROLLBACK is never reported as done.
 */

import { HapaxError } from "../../base/errors.ts";
import { type Lending, Loan, refuseControl } from "./lending.ts";
import type { PgClient, PostgresTransaction } from "./postgres.ts";

/** Sets the mark. It is local to the transaction: PostgreSQL removes it at every end of the transaction. */
export const SET_MARK = "SET LOCAL hapax.transaction = 'open'";
/** True in SQL if the transaction is still the one that the session began. */
export const HAS_MARK = "current_setting('hapax.transaction', true) = 'open'";
const LOST = "hapax: the transaction was ended by its work";
/** Sets the mark, as a part of another statement. */
export const MARKS = "set_config('hapax.transaction', 'open', true)";
/** 1 in SQL. Fails without the mark. */
export const IF_MARKED = `CAST(CASE WHEN ${HAS_MARK} THEN '1' ELSE '${LOST}' END AS integer)`;
export const CHECK_MARK = `SELECT ${IF_MARKED} AS mark`;

/** Returns the error of work whose transaction is no longer the one that the ledger began. */
export function splitTransaction(cause?: unknown): HapaxError {
  return new HapaxError(
    "invalid_request",
    "the work ended the transaction that it was given, or began another one, or reset its settings: it is committed when the work returns",
    cause === undefined ? {} : { cause },
  );
}

/** Returns the error for the caller when one of the last statements fails. */
export function explained(error: unknown): unknown {
  const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
  // in_failed_sql_transaction
  if (code === "25P02")
    return new Error("a statement failed: the transaction is undone", { cause: error });
  if (typeof message === "string" && message.includes(LOST)) return splitTransaction(error);
  return error;
}

/** Members of an event emitter, which touch no transaction. */
const LISTENING: ReadonlySet<PropertyKey> = new Set([
  ...["on", "once", "off", "addListener", "removeListener", "removeAllListeners"],
  ...["listeners", "listenerCount", "setMaxListeners", "getMaxListeners"],
]);

const PG_LENDING: Lending = {
  isFree: (name) => LISTENING.has(name),
  before(name, args) {
    if (name === "release" || name === "end")
      throw new HapaxError(
        "invalid_request",
        "the connection is given back when the work returns: do not release it",
      );
    const text = name === "query" ? textOf(args[0]) : undefined;
    if (text !== undefined) refuseControl(text);
  },
  refuse(error, name, args) {
    if (name !== "query") throw error;
    const [query] = args;
    if (isSubmittable(query)) {
      queueMicrotask(() => {
        tell(query, error);
      });
      return query;
    }
    const callback = args.at(-1);
    if (typeof callback !== "function") return refused(error);
    queueMicrotask(() => {
      callback(error);
    });
    return undefined;
  },
};

export function lendPgClient<Client extends PgClient>(client: Client): Loan<Client> {
  return new Loan(client, PG_LENDING);
}

/** A query, a cursor or a stream that the user has made. It reports its result itself, without a promise. */
interface Submittable {
  submit(connection: unknown): unknown;
  handleError(error: unknown): void;
}

/** Gives the error to the query, as `pg` does for a query that it cannot send. A missing listener ends no process. */
function tell(query: Submittable, error: unknown): void {
  try {
    query.handleError(error);
  } catch {
    // It has thrown the error that it got.
  }
}

function isSubmittable(query: unknown): query is Submittable {
  const { submit, handleError } = (query ?? {}) as Partial<Submittable>;
  return typeof submit === "function" && typeof handleError === "function";
}

function textOf(query: unknown): string | undefined {
  if (typeof query === "string") return query;
  const { text } = (query ?? {}) as { readonly text?: unknown };
  return typeof text === "string" ? text : undefined;
}

/** A query of postgres.js. The client sends it at the first `await`. */
interface LazyQuery {
  readonly strings?: unknown;
  handler?: unknown;
  reject?: unknown;
}

export function lendPostgresTransaction<Tx extends PostgresTransaction>(tx: Tx): Loan<Tx> {
  const loan: Loan<Tx> = new Loan(tx, {
    before(name, args) {
      const [first] = args;
      // The client reads it later, so that a COMMIT in it would not be seen.
      if (name === "file")
        throw new HapaxError(
          "invalid_request",
          "a file is not sent in the transaction that the work was given: read it, and pass its text to unsafe",
        );
      if (name === "unsafe" && typeof first === "string") refuseControl(first);
    },
    refuse(error, name, args) {
      if (name === "unsafe" || name === "file" || isTemplate(args[0])) return refused(error);
      throw error;
    },
    // The work of a savepoint gets a stand-in of its own.
    prepare: (name, args) =>
      name === "savepoint"
        ? args.map((arg) =>
            typeof arg === "function" ? (inner: object) => arg(loan.lend(inner)) : arg,
          )
        : args,
    answer(_name, result) {
      const query = result as LazyQuery;
      const { handler, reject } = query;
      if (typeof handler === "function" && typeof reject === "function") {
        query.handler = (...values: unknown[]) => {
          try {
            loan.require();
            // Not earlier: a query that is never sent is a part of another query, and may be no more than END.
            if (isTemplate(query.strings)) refuseControl(query.strings.join(" ? "));
            return handler.apply(query, values);
          } catch (error) {
            return reject.call(query, error);
          }
        };
      }
      return result;
    },
  });
  return loan;
}

function isTemplate(value: unknown): value is readonly string[] {
  return Array.isArray(value) && "raw" in value;
}

/** Returns a rejection that ends no process: late work may have no caller that still waits for it. */
function refused(error: unknown): Promise<never> {
  const rejection = Promise.reject(error);
  rejection.catch(() => undefined);
  return rejection;
}
