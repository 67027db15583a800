/**
 * Entries in SQLite. Every call is in the connection's turn, in a transaction of its own if it writes, or in the caller's.
 *
 *   - a call of its own never sees or joins an open transaction of the same connection;
 *   - the counter of tokens moves with the entry; a token that was given in a transaction and rolled back is not given
 *     again over the same connection, and if the transaction was the ledger's own, over no other either;
 *   - `find` in a transaction takes the lock for writing first, also if the caller began it only for reading.
 */

import {
  type RunJoined,
  sqliteBytes,
  type SqliteConnection,
  type SqliteSession,
  type SqliteValue,
} from "../databases/sqlite.ts";
import type { Entries } from "./ledger.ts";
import {
  type Dialect,
  entryOf,
  findStatement,
  integerOf,
  leftOf,
  lockStatement,
  nextDueStatement,
  placedOf,
  putStatement,
  removeStatement,
  scanStatement,
  type Statement,
  sweepStatement,
  writtenOf,
} from "./entry-statements.ts";
import { requirePlace } from "./places.ts";
import { SQLITE_NOW } from "./sqlite-schema.ts";
import { TOKEN_CLOCK_MAX } from "./tokens.ts";

type Row = Readonly<Record<string, unknown>>;

/** The greatest token that was given over a connection. */
interface GivenTokens {
  max: number;
}

const givenOf = new WeakMap<SqliteConnection, GivenTokens>();

// It has to begin a transaction for writing, not to write.
const LOCK = "UPDATE hapax_tokens SET last = last WHERE id = 0";
const RAISE = "UPDATE hapax_tokens SET last = ? WHERE id = 1 AND last < ?";

// A writer has the whole database: rows are not locked.
const dialectOf = (given: GivenTokens): Dialect => ({
  entries: "hapax_entries",
  placeholder: () => "?",
  after: (placeholder) => `(${SQLITE_NOW} + ${placeholder})`,
  now: SQLITE_NOW,
  soughtNow: SQLITE_NOW,
  between: (from, to) => `(${to} - ${from})`,
  // libsql ends the process over a list of rows with bytes that are empty.
  data: "NULLIF(data, x'') AS bytes, data = x'' AS isempty",
  // Beyond those that were given and rolled back, too.
  nextToken: (
    bind,
  ) => `(SELECT max(last + 1, ${bind(given.max + 1)}, min(${SQLITE_NOW} * 1000, ${TOKEN_CLOCK_MAX}))
    FROM hapax_tokens WHERE id = 1)`,
  tryLock: undefined,
  ofLock: "",
  ofDrawn: "",
  lockRow: "",
  lockFree: "",
  guard: "",
  writing: "",
  ending: "",
  endingIf: "",
  textsOf: (placeholder) => `json_each(${placeholder})`,
  isChosen: (from) => `rowid IN (SELECT rowid ${from})`,
});

/** `joined`: the caller has begun a transaction on this connection. */
export function sqliteEntries(
  session: SqliteSession<SqliteConnection>,
  joined: RunJoined | undefined,
): Entries {
  const isJoined = joined !== undefined;
  const given = tokensOf(session.connection);
  const dialect = dialectOf(given);
  const all = ({ text, values }: Statement): readonly Row[] =>
    session.prepare(text).all(...(values as readonly SqliteValue[])) as readonly Row[];
  // Always a promise: what is wrong is a rejection.
  const reading = async <T>(work: () => T): Promise<T> =>
    joined === undefined ? session.read(work) : joined.read(work);
  const writing = async <T>(work: () => T): Promise<T> =>
    joined === undefined ? session.transaction(work) : joined(work);
  return {
    find: (place) =>
      reading(() => {
        requirePlace(place);
        if (isJoined) session.prepare(LOCK).run();
        const [row] = all(findStatement(dialect, place, isJoined));
        return row === undefined ? undefined : entryOf(row, sqliteBytes);
      }),
    lock: (place) =>
      reading(() => {
        requirePlace(place);
        const [row] = all(lockStatement(dialect, place));
        if (row === undefined) throw new Error("LG11 a lock has an answer");
        const token = integerOf(row["drawn"]);
        const [there] = token === 0 ? all(findStatement(dialect, place, false)) : [];
        if (there !== undefined) return { kind: "found", entry: entryOf(there, sqliteBytes) };
        // It may be known outside from now on, also if the transaction is rolled back.
        given.max = token;
        return { kind: "absent", token };
      }),
    put: (place, expected, write) =>
      writing(() => {
        requirePlace(place);
        const isNext = write.token !== "same" || expected.kind === "absent";
        const [row] = all(putStatement(dialect, place, expected, write));
        if (row === undefined) return undefined;
        const written = writtenOf(row);
        if (isNext) {
          raise(session, written.token);
          given.max = written.token;
        }
        return written;
      }),
    remove: (place, expected) =>
      writing(() => {
        requirePlace(place);
        return (
          expected.kind !== "absent" && all(removeStatement(dialect, place, expected)).length > 0
        );
      }),
    scan: (filter) =>
      reading(() => all(scanStatement(dialect, filter)).map((row) => placedOf(row, sqliteBytes))),
    nextDue: (kinds) => reading(() => leftOf(all(nextDueStatement(dialect, kinds))[0]?.["due"])),
    // LG8: while another transaction writes there is nothing to gain from waiting; the next sweep finds it.
    sweep: async (max) => {
      const sweep = (): number => all(sweepStatement(dialect, max)).length;
      return joined === undefined ? ((await session.tryTransaction(sweep)) ?? 0) : joined(sweep);
    },
  };
}

/**
 * Does the work of a transaction of its own. When it fails, all is taken back but the tokens that it gave: they may
 * be known outside.
 */
export async function keepingTokens<T, Connection extends SqliteConnection>(
  session: SqliteSession<Connection>,
  work: (tx: Connection) => T | Promise<T>,
  signal: AbortSignal | undefined,
): Promise<T> {
  let failure: { readonly error: unknown } | undefined;
  try {
    const end = await session.transaction(async () => {
      const given = tokensOf(session.connection);
      const before = given.max;
      session.connection.exec("SAVEPOINT hapax_work");
      try {
        return { value: await session.lend(work, signal) };
      } catch (error) {
        failure = { error };
        if (given.max === before) throw error;
        session.connection.exec("ROLLBACK TO hapax_work");
        raise(session, given.max);
        return failure;
      }
    });
    if ("value" in end) return end.value;
    throw end.error;
  } catch (error) {
    // What went wrong first is what the caller wants to know, also if the tokens could not be kept.
    throw failure === undefined ? error : failure.error;
  }
}

function tokensOf(connection: SqliteConnection): GivenTokens {
  const given = givenOf.get(connection) ?? { max: 0 };
  givenOf.set(connection, given);
  return given;
}

function raise(session: SqliteSession<SqliteConnection>, token: number): void {
  session.prepare(RAISE).run(token, token);
}
