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
import type { Entries, EntryWrite, Expected, Ledger, Place } from "./ledger.ts";
import {
  entryOf,
  findStatement,
  leftOf,
  nextDueStatement,
  placedOf,
  putStatement,
  removeStatement,
  scanStatement,
  type Statement,
  sweepStatement,
  textOf,
  writtenOf,
} from "./entry-statements.ts";
import { pageOf, pageStatement } from "./entry-pages.ts";
import { requirePlace } from "./places.ts";
import {
  ALL_ENTRIES,
  doneStatement,
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
function isMadeAtEnd(
  session: SqliteSession<SqliteConnection>,
  run: RunJoined,
  place: Place,
  write: EntryWrite,
  isUntouched: boolean,
): boolean {
  const token = typeof write.token === "string" ? 0 : write.token.drawn;
  if (!isUntouched || !isDoneAtOnce(write)) return run(() => isMade(session, place, token, write));
  const made = doneStatement(session, place, token, write);
  const total = run.expected();
  if (total === undefined ? run.one(made.run) : run.one(() => made.runAt(total))) {
    if (total !== undefined) run.verified();
    return true;
  }
  // The day is not there yet, or the total is another one: that is looked at after this.
  run(made.makeDay);
  return run.one(made.run);
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

// One text: to answer three columns takes as long as to find them.
const LOCKED = `SELECT last || '/' || total_changes() || '/' || (
  EXISTS (SELECT 1 FROM hapax_entries AS e WHERE e.kind = p.kind AND e.scope = p.scope AND e.key = p.key) OR
  EXISTS (SELECT 1 FROM hapax_days AS t CROSS JOIN hapax_done AS d
    WHERE d.day = t.day AND d.kind = p.kind AND d.scope = p.scope AND d.key = p.key)) AS seen
  FROM hapax_tokens, (SELECT ? AS kind, ? AS scope, ? AS key) AS p WHERE id = 1`;

/** LG11: one look at the beginning says whether there is an entry, what the last token is, and how much was changed before. */
export function sqliteLocked<Connection extends SqliteConnection>(
  session: SqliteSession<Connection>,
): NonNullable<Ledger<Connection>["lockedTransaction"]> {
  return async (place, work, onLock, over) => {
    requirePlace(place);
    const { kind, scope, key } = place;
    let isThere = true;
    let isLate = false;
    let writes = 0;
    const begun = (): { readonly last: number; readonly total: number } => {
      onLock();
      writes = session.entryWrites;
      const row = session.prepare(LOCKED).get(kind, scope, key) as Row | undefined;
      if (row === undefined) throw new Error("LG3 hapax_tokens has no row");
      const [last, total, there] = textOf(row["seen"]).split("/");
      isThere = there !== "0";
      return { last: Number(last), total: Number(total) };
    };
    type End = Awaited<ReturnType<typeof work>>;
    const inside = (tx: Connection): End | Promise<End> => {
      const { run } = joinSqlite(tx);
      const finish = (end: End): End => {
        if (end.entry === undefined) return end;
        isLate = !isMadeAtEnd(session, run, place, end.entry, session.entryWrites === writes);
        if (isLate) throw new Error("LG11 a place that was locked has an entry");
        return end;
      };
      const end =
        !isThere && drawsFreely(session)
          ? work(tx, { kind: "absent", token: drawToken(session) })
          : workLocked(sqliteEntries(session, run), tx);
      return end instanceof Promise ? end.then(finish) : finish(end);
    };
    const workLocked = async (entries: Entries, tx: Connection): Promise<End> =>
      work(tx, (await entries.lock?.(place)) ?? { kind: "stale" });
    try {
      return await keepingTokens(session, inside, over, begun);
    } catch (error) {
      if (isLate) return "late";
      throw error;
    }
  };
}

function asValues(values: Statement["values"]): readonly SqliteValue[] {
  return values.map(sqliteValue);
}
