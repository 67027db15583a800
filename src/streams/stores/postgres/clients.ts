/** The user's own client of PostgreSQL as a session: a pool of `pg`, or `sql` of `postgres`. */

import { HapaxError } from "../../../base/errors.ts";
import { type Answer, asRefusal, isDoubt, type SqlRow, type Session } from "./session.ts";

/** A connection of `pg`, as far as the store uses it. */
export interface PgConnection {
  query(text: string, values?: unknown[]): Promise<unknown>;
  on(event: "notice" | "error", listener: (value: unknown) => void): unknown;
  off(event: "notice" | "error", listener: (value: unknown) => void): unknown;
  release(error?: Error | boolean): void;
}

/** A pool of `pg`, as far as the store uses it. It needs at least two connections. */
export interface PgConnections {
  connect(): Promise<PgConnection>;
}

/** The `sql` of `postgres`, as far as the store uses it. */
export interface PostgresConnections {
  readonly options: { readonly onnotice?: unknown };
  unsafe(
    text: string,
    values?: never[],
    options?: { prepare?: boolean },
  ): PromiseLike<readonly unknown[]>;
}

/**
 * Receives the warnings of the server from a client of `postgres`, which reports those of all its connections in one
 * place.
 *
 * ```ts
 * import { PostgresNotices } from "hapax/stores/postgres";
 *
 * const notices = new PostgresNotices();
 * const options = { onnotice: notices.listener }; // const sql = postgres(url, options)
 * console.assert(typeof options.onnotice === "function");
 * ```
 */
export class PostgresNotices {
  /** How many warnings came after which the answer to a commit may be wrong. */
  doubts = 0;
  /** Give it to `postgres` as `onnotice`. */
  readonly listener = (notice: unknown): void => {
    if (isDoubt(notice)) this.doubts += 1;
  };
}

export function isPgConnections(client: object): client is PgConnections {
  return "connect" in client && typeof client.connect === "function";
}

export function isPostgresConnections(client: object): client is PostgresConnections {
  return "unsafe" in client && typeof client.unsafe === "function";
}

/** A session over a pool of `pg`. Each statement takes a connection, and gives it back. */
export function pgSession(pool: PgConnections, end?: () => Promise<unknown>): Session {
  return {
    run: (text, values) => runOnPg(pool, text, values),
    async close() {
      await end?.();
    },
  };
}

async function runOnPg(
  pool: PgConnections,
  text: string,
  values: readonly unknown[] | undefined,
): Promise<Answer> {
  const connection = await pool.connect().catch((error: unknown) => {
    throw asRefusal(error); // Without a connection nothing was sent; the caller repeats in both cases.
  });
  let isSure = true;
  let broken: Error | undefined;
  const onNotice = (notice: unknown): void => {
    if (isDoubt(notice)) isSure = false;
  };
  // Without a listener a lost connection would end the process. The statement fails with the same error.
  const onError = (): void => undefined;
  connection.on("notice", onNotice);
  connection.on("error", onError);
  try {
    const answer = await (values === undefined
      ? connection.query(text)
      : connection.query(text, [...values]));
    return { rows: rowsOf(answer), isSure };
  } catch (error) {
    const refusal = asRefusal(error);
    // A connection with an unknown state is not used again.
    if (refusal === error) broken = error instanceof Error ? error : new Error(String(error));
    throw refusal;
  } finally {
    connection.off("notice", onNotice);
    connection.off("error", onError);
    connection.release(broken);
  }
}

/** Several statements have several results: the last one counts. */
function rowsOf(answer: unknown): readonly SqlRow[] {
  const last: unknown = Array.isArray(answer) ? answer.at(-1) : answer;
  return (Object(last) as { readonly rows?: readonly SqlRow[] }).rows ?? [];
}

/** A session over `sql` of `postgres`. */
export function sqlSession(
  sql: PostgresConnections,
  notices: PostgresNotices | undefined,
  end?: () => Promise<unknown>,
): Session {
  if (notices === undefined || sql.options.onnotice !== notices.listener) {
    throw new HapaxError(
      "invalid_options",
      "the store cannot hear the warnings of the server: make a `new PostgresNotices()`, give its listener to " +
        "postgres(url, { onnotice: notices.listener }), and give it to the store as `notices`",
    );
  }
  return {
    async run(text, values) {
      const before = notices.doubts;
      try {
        // Only the statement of a commit is repeated often enough to be kept. A user behind a pooler has turned
        // preparing off in the client, and that counts more.
        const found = await (values === undefined
          ? sql.unsafe(text)
          : sql.unsafe(text, [...values] as never[], { prepare: true }));
        const isSure = notices.doubts === before;
        return { rows: lastResult(found), isSure };
      } catch (error) {
        throw asRefusal(error);
      }
    },
    async close() {
      await end?.();
    },
  };
}

function lastResult(found: readonly unknown[]): readonly SqlRow[] {
  // Several statements answer a list of lists.
  const last = found.at(-1);
  return (Array.isArray(last) ? last : found) as readonly SqlRow[];
}
