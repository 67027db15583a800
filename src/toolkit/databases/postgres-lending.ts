/**
 * The clients of PostgreSQL as the work of a transaction gets them, and how a transaction that was ended from inside is
 * found out.
 *
 *   PS5  a transaction has a mark that goes with it. The statement that ends a claim looks for it, and so does the last one
 *        before COMMIT: work that was split by a COMMIT or ROLLBACK of its own is not told as done.
 */

import { HapaxError } from "../../base/errors.ts";
import { Loan, refuseControl } from "./lending.ts";
import type { PgClient, PostgresTransaction } from "./postgres.ts";

/** The mark. Local to the transaction: PostgreSQL takes it back at its end, whoever ends it. */
export const SET_MARK = "SET LOCAL hapax.transaction = 'open'";
/** Whether the transaction is the one that was begun. */
export const HAS_MARK = "current_setting('hapax.transaction', true) = 'open'";
const LOST = "hapax: the transaction was ended by its work";
/** Fails without the mark. */
export const CHECK_MARK = `SELECT CAST(CASE WHEN ${HAS_MARK} THEN '1' ELSE '${LOST}' END AS integer) AS mark`;

/** What the failure of the last statements means to the caller. */
export function explained(error: unknown): unknown {
  const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
  if (typeof message === "string" && message.includes(LOST))
    return new HapaxError(
      "invalid_request",
      "the work ended the transaction that it was given, or began another one: it is committed when the work returns",
      { cause: error },
    );
  // in_failed_sql_transaction
  if (code === "25P02")
    return new Error("a statement failed: the transaction is undone", { cause: error });
  return error;
}

/** Members of an event emitter, which touch no transaction. */
const LISTENING: ReadonlySet<PropertyKey> = new Set([
  ...["on", "once", "off", "addListener", "removeListener", "removeAllListeners"],
  ...["listeners", "listenerCount", "setMaxListeners", "getMaxListeners"],
]);

export function lendPgClient<Client extends PgClient>(client: Client): Loan<Client> {
  return new Loan(client, {
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
  });
}

/** A query, a cursor or a stream that the user has made: it, and no promise, tells what becomes of it. */
interface Submittable {
  submit(connection: unknown): unknown;
  handleError(error: unknown): void;
}

/** As `pg` tells a query that cannot be sent. Ends no process if nobody listens. */
function tell(query: Submittable, error: unknown): void {
  try {
    query.handleError(error);
  } catch {
    // It has thrown what it was told.
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

/** What postgres.js has for a query: it is sent when it is first waited for. */
interface LazyQuery {
  readonly strings?: unknown;
  handler?: unknown;
  reject?: unknown;
}

export function lendPostgresTransaction<Tx extends PostgresTransaction>(tx: Tx): Loan<Tx> {
  const loan: Loan<Tx> = new Loan(tx, {
    before(name, args) {
      const [first] = args;
      if (name === "unsafe" && typeof first === "string") refuseControl(first);
    },
    refuse(error, name, args) {
      if (name === "unsafe" || name === "file" || isTemplate(args[0])) return refused(error);
      throw error;
    },
    // A savepoint is a transaction of its own for its work.
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
            // Not before: what is never sent is a part of another query, and may be no more than END.
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

/** A rejection that ends no process: the work that comes too late may have nobody left who waits for it. */
function refused(error: unknown): Promise<never> {
  const rejection = Promise.reject(error);
  rejection.catch(() => undefined);
  return rejection;
}
