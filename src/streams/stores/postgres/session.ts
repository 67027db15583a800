/**
 * PORT, inside the PostgreSQL store: a database that runs one statement at a time, each in a transaction of its own. It
 * keeps no state of a connection, so every statement may go over another one: a pooler of transactions may stand in
 * between.
 *
 *   - a statement that was answered has been committed on the server;
 *   - `isSure` is false if the server has given up the wait for its standby: what was committed may still be lost;
 *   - a statement that rejects with `StatementRefused` has changed nothing, and will not;
 *   - any other rejection leaves the outcome open: the statement was executed, or not, or will be.
 */

export type SqlRow = Readonly<Record<string, unknown>>;

export interface Answer {
  readonly rows: readonly SqlRow[];
  readonly isSure: boolean;
}

export interface Session {
  /** Runs a statement. A text without values may have several statements: they are one transaction. */
  run(text: string, values?: readonly unknown[]): Promise<Answer>;
  /** Ends the connections that the store has opened. Those of the user's own client stay. */
  close(): Promise<void>;
}

/** The server has refused a statement. Nothing of it was done. */
export class StatementRefused extends Error {
  /** SQLSTATE. */
  readonly state: string;

  constructor(state: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.state = state;
  }
}

/** SQLSTATE of errors that end a connection: whether the statement was done is not known. */
const ENDING = /^(08|57P0[1-5]|25P0[34]|XX)/;

/** Makes an error of PostgreSQL a `StatementRefused`, and leaves every other error as it is. */
export function asRefusal(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const { code, severity, severity_local: local } = error as Error & Record<string, unknown>;
  if (typeof code !== "string" || !/^[0-9A-Z]{5}$/.test(code)) return error;
  const level = severity ?? local;
  // FATAL and PANIC end the connection. The words of other languages are not looked at: the codes say it too.
  if (level === "FATAL" || level === "PANIC" || ENDING.test(code)) return error;
  return new StatementRefused(code, error.message, { cause: error });
}

/** SQLSTATE of a warning without a code of its own. The server warns so when it gives up the wait for its standby. */
const WARNING = "01000";

/**
 * Whether a notice may say that the wait for the standby was given up. Its words depend on the language of the server, so
 * every warning without a code of its own counts: the statement is then confirmed, which does no harm.
 */
export function isDoubt(notice: unknown): boolean {
  const { code, severity } = Object(notice) as Record<string, unknown>;
  return code === WARNING || code === "57P01" || (code === undefined && severity === "WARNING");
}
