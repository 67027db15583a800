/**
 * Entries in SQLite. Every call is in the connection's turn, in a transaction of its own if it writes, or in the caller's.
 *
 *   - a call of its own never sees or joins an open transaction of the same connection;
 *   - sqlite-tokens.ts draws the tokens;
 *   - `find` in a transaction takes the lock for writing first, also if the caller began it only for reading.
 */

import {
  changesOf,
  joinSqlite,
  type RunJoined,
  type SqliteConnection,
  type SqliteSession,
  type SqliteValue,
} from "../databases/sqlite.ts";
import { sqliteBytes, sqliteValue } from "../databases/sqlite-bytes.ts";
import type { SqliteLoan } from "../databases/sqlite-lending.ts";
import type { Entries, EntryWrite, Expected, Ledger, Place } from "./ledger.ts";
import {
  entryOf,
  findStatement,
  integerOf,
  leftOf,
  nextDueStatement,
  placedOf,
  putStatement,
  removeStatement,
  scanStatement,
  type Statement,
  sweepStatement,
  writtenOf,
} from "./entry-statements.ts";
import { pageOf, pageStatement } from "./entry-pages.ts";
import { requirePlace } from "./places.ts";
import {
  ALL_ENTRIES,
  DoneStatement,
  hasDone,
  hasEntry,
  isDoneAtOnce,
  makeDone,
  moveDone,
  removeDone,
  sweepDone,
  withDonePages,
} from "./sqlite-done.ts";
import { sqliteDialect } from "./sqlite-dialect.ts";
import { drawsFreely, drawToken, keepingTokens, reserving } from "./sqlite-tokens.ts";

type Row = Readonly<Record<string, unknown>>;
type Written = ReturnType<typeof writtenOf>;

const ABSENT: Expected = { kind: "absent" };

// It has to begin a transaction for writing, not to write.
const LOCK = "UPDATE hapax_tokens SET last = last WHERE id = 0";

const DIALECT = sqliteDialect("hapax_entries");
const ALL = sqliteDialect(ALL_ENTRIES);

/** `joined`: the caller has begun a transaction on this connection. */
export function sqliteEntries(
  session: SqliteSession<SqliteConnection>,
  joined: RunJoined | undefined,
): Entries {
  const isJoined = joined !== undefined;
  const all = ({ text, values }: Statement): readonly Row[] =>
    session.prepare(text).all(...asValues(values)) as readonly Row[];
  const one = (statement: Statement): Row | undefined => rowOf(session, statement);
  // Always a promise: what is wrong is a rejection.
  const reading = async <T>(work: () => T): Promise<T> =>
    joined === undefined ? session.read(work) : joined.read(work);
  const writing = async <T>(work: () => T): Promise<T> => {
    session.entryWrites += 1;
    return joined === undefined ? session.transaction(work) : joined(work);
  };
  return {
    find: (place) =>
      reading(() => {
        requirePlace(place);
        if (isJoined) session.prepare(LOCK).run();
        const row = one(findStatement(ALL, place, isJoined));
        return row === undefined ? undefined : entryOf(row, sqliteBytes);
      }),
    lock: (place) =>
      (drawsFreely(session) ? reading : writing)(() => {
        requirePlace(place);
        const row = one(findStatement(ALL, place, false));
        if (row !== undefined) return { kind: "found", entry: entryOf(row, sqliteBytes) };
        return { kind: "absent", token: drawToken(session) };
      }),
    async put(place, expected, write) {
      requirePlace(place);
      return expected.kind === "absent" || write.token === "next"
        ? await putAnew(session, joined, place, expected, write)
        : await writing(() => writtenBy(session, place, expected, write));
    },
    remove: (place, expected) =>
      writing(() => {
        requirePlace(place);
        return (
          expected.kind !== "absent" &&
          (all(removeStatement(DIALECT, place, expected)).length > 0 ||
            removeDone(session, place, expected))
        );
      }),
    scan: (filter) =>
      reading(() => {
        const { state, isAbandoned, order } = filter;
        const mayBeDone = state === undefined || state === "done";
        const dialect = mayBeDone && isAbandoned !== true && order !== "due" ? ALL : DIALECT;
        return all(scanStatement(dialect, filter)).map((row) => placedOf(row, sqliteBytes));
      }),
    page: (filter) =>
      reading(() => {
        const rows = all(pageStatement(DIALECT, filter));
        return pageOf(withDonePages(session, filter, rows), filter, sqliteBytes);
      }),
    nextDue: (kinds) => reading(() => leftOf(all(nextDueStatement(DIALECT, kinds))[0]?.["due"])),
    // LG8: while another transaction writes there is nothing to gain from waiting; the next sweep finds it.
    sweep: async (max) => {
      const sweep = (): number => {
        const swept = all(sweepStatement(DIALECT, max)).length;
        return swept < max ? swept + sweepDone(session, max - swept) : swept;
      };
      return joined === undefined ? ((await session.tryTransaction(sweep)) ?? 0) : joined(sweep);
    },
  };
}

/** Some clients answer null if there is none. */
function rowOf(
  session: SqliteSession<SqliteConnection>,
  { text, values }: Statement,
): Row | undefined {
  return (session.prepare(text).get(...asValues(values)) ?? undefined) as Row | undefined;
}

/** Writes an entry that gets its token with the write. */
async function putAnew(
  session: SqliteSession<SqliteConnection>,
  joined: RunJoined | undefined,
  place: Place,
  expected: Expected,
  write: EntryWrite,
): Promise<Written | undefined> {
  session.entryWrites += 1;
  if (typeof write.token !== "string") {
    const { drawn: token } = write.token;
    const make = (): boolean => isMade(session, place, token, write);
    const made = joined === undefined ? await session.transaction(make) : joined(make);
    return made ? { token, revision: 1 } : undefined;
  }
  const put = (): Written | undefined => {
    const token = drawToken(session);
    const given = { ...write, token: { drawn: token } };
    if (expected.kind !== "absent") return writtenBy(session, place, expected, given);
    return isMade(session, place, token, given) ? { token, revision: 1 } : undefined;
  };
  return joined === undefined ? await reserving(session, put) : joined(put);
}

/** Makes an entry with a token that was drawn before. */
function isMade(
  session: SqliteSession<SqliteConnection>,
  place: Place,
  token: number,
  write: EntryWrite,
): boolean {
  if (isDoneAtOnce(write)) {
    if (hasEntry(session, place)) return false;
    makeDone(session, place, token, write);
    return true;
  }
  if (hasDone(session, place)) return false;
  const { text, values } = putStatement(DIALECT, place, ABSENT, write);
  return changesOf(session.prepare(text).run(...asValues(values))) > 0;
}

/**
 * Makes the entry that ends a lock. `isUntouched`: nothing has written entries since the place was looked at, so it still has none:
 * one row or none is made, and there is nothing to look up before and after it.
 */
function isMadeAtEnd<Connection extends SqliteConnection>(
  session: SqliteSession<Connection>,
  loan: SqliteLoan<Connection>,
  place: Place,
  write: EntryWrite,
  isUntouched: boolean,
): boolean {
  const token = typeof write.token === "string" ? 0 : write.token.drawn;
  if (!isUntouched || !isDoneAtOnce(write))
    return joinSqlite(loan.tx).run(() => isMade(session, place, token, write));
  loan.require();
  session.requireOpen();
  const made = new DoneStatement(session, place, token, write);
  const { count } = loan;
  const total = count.expected();
  const changes = total === undefined ? made.run() : made.runAt(total);
  count.changed(changes);
  if (changes > 0) {
    if (total !== undefined) count.verified();
    loan.isEnded = true;
    return true;
  }
  // The day is not there yet, or the total is another one: that is looked at after this.
  joinSqlite(loan.tx).run(() => {
    made.makeDay();
  });
  const again = made.run();
  count.changed(again);
  return again > 0;
}

function writtenBy(
  session: SqliteSession<SqliteConnection>,
  place: Place,
  expected: Exclude<Expected, { readonly kind: "absent" }>,
  write: EntryWrite,
): Written | undefined {
  const row = rowOf(session, putStatement(DIALECT, place, expected, write));
  return row === undefined ? moveDone(session, place, expected, write) : writtenOf(row);
}

// Numbers, and few: a client takes longer to make a text or a column than SQLite to find it. Tokens count microseconds since 1970, so
// twice a token is exact until the year 2112.
const LOCKED = `SELECT last * 2 + (
  EXISTS (SELECT 1 FROM hapax_entries WHERE kind = ?1 AND scope = ?2 AND key = ?3) OR
  EXISTS (SELECT 1 FROM hapax_days CROSS JOIN hapax_done USING (day) WHERE kind = ?1 AND scope = ?2 AND key = ?3)) AS seen,
  total_changes() AS total FROM hapax_tokens WHERE id = 1`;

/** LG11: one look at the beginning says whether there is an entry, what the last token is, and how much was changed before. */
export function sqliteLocked<Connection extends SqliteConnection>(
  session: SqliteSession<Connection>,
): NonNullable<Ledger<Connection>["lockedTransaction"]> {
  return (place, work, onLock, over) => {
    const { kind, scope, key } = place;
    let isThere = true;
    let isLate = false;
    let writes = 0;
    const begun = (): { readonly last: number; readonly total: number } => {
      requirePlace(place);
      onLock();
      writes = session.entryWrites;
      const row = session.prepare(LOCKED).get(kind, scope, key) as Row | undefined;
      if (row === undefined) throw new Error("LG3 hapax_tokens has no row");
      const seen = integerOf(row["seen"]);
      isThere = seen % 2 === 1;
      return { last: Math.floor(seen / 2), total: integerOf(row["total"]) };
    };
    type End = Awaited<ReturnType<typeof work>>;
    const inside = (loan: SqliteLoan<Connection>): End | Promise<End> => {
      const finish = (end: End): End => {
        if (end.entry === undefined) return end;
        isLate = !isMadeAtEnd(session, loan, place, end.entry, session.entryWrites === writes);
        if (isLate) throw new Error("LG11 a place that was locked has an entry");
        return end;
      };
      const { tx } = loan;
      const end =
        !isThere && drawsFreely(session)
          ? work(tx, { kind: "absent", token: drawToken(session) })
          : workLocked(sqliteEntries(session, joinSqlite(tx).run), tx);
      return end instanceof Promise ? end.then(finish) : finish(end);
    };
    const workLocked = async (entries: Entries, tx: Connection): Promise<End> =>
      work(tx, (await entries.lock?.(place)) ?? { kind: "stale" });
    return keepingTokens<End | "late", Connection>(session, inside, over, begun, (error) => {
      if (isLate) return "late";
      throw error;
    });
  };
}

function asValues(values: Statement["values"]): readonly SqliteValue[] {
  return values.map(sqliteValue);
}
