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
import { sqliteDialect } from "./sqlite-dialect.ts";
import { drawsFreely, drawToken, keepingTokens, reserving } from "./sqlite-tokens.ts";

type Row = Readonly<Record<string, unknown>>;
type Written = ReturnType<typeof writtenOf>;

const ABSENT: Expected = { kind: "absent" };

// It has to begin a transaction for writing, not to write.
const LOCK = "UPDATE hapax_tokens SET last = last WHERE id = 0";

const DIALECT = sqliteDialect("hapax_entries");

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
  const writing = async <T>(work: () => T): Promise<T> =>
    joined === undefined ? session.transaction(work) : joined(work);
  return {
    find: (place) =>
      reading(() => {
        requirePlace(place);
        if (isJoined) session.prepare(LOCK).run();
        const row = one(findStatement(DIALECT, place, isJoined));
        return row === undefined ? undefined : entryOf(row, sqliteBytes);
      }),
    lock: (place) =>
      (drawsFreely(session) ? reading : writing)(() => {
        requirePlace(place);
        const row = one(findStatement(DIALECT, place, false));
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
          expected.kind !== "absent" && all(removeStatement(DIALECT, place, expected)).length > 0
        );
      }),
    scan: (filter) =>
      reading(() => all(scanStatement(DIALECT, filter)).map((row) => placedOf(row, sqliteBytes))),
    page: (filter) =>
      reading(() => pageOf(all(pageStatement(DIALECT, filter)), filter, sqliteBytes)),
    nextDue: (kinds) => reading(() => leftOf(all(nextDueStatement(DIALECT, kinds))[0]?.["due"])),
    // LG8: while another transaction writes there is nothing to gain from waiting; the next sweep finds it.
    sweep: async (max) => {
      const sweep = (): number => all(sweepStatement(DIALECT, max)).length;
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
  if (typeof write.token !== "string") {
    const { drawn: token } = write.token;
    const isMade =
      joined === undefined
        ? await session.transaction(() => isMadeDrawn(session, undefined, place, write))
        : isMadeDrawn(session, joined, place, write);
    return isMade ? { token, revision: 1 } : undefined;
  }
  const put = (): Written | undefined => {
    const token = drawToken(session);
    const given = { ...write, token: { drawn: token } };
    if (expected.kind !== "absent") return writtenBy(session, place, expected, given);
    const { text, values } = putStatement(DIALECT, place, expected, given);
    const changes = changesOf(session.prepare(text).run(...asValues(values)));
    return changes > 0 ? { token, revision: 1 } : undefined;
  };
  return joined === undefined ? await reserving(session, put) : joined(put);
}

/** Makes an entry with a token that was drawn before. One row or none: there is nothing to look up before and after it. */
function isMadeDrawn(
  session: SqliteSession<SqliteConnection>,
  joined: RunJoined | undefined,
  place: Place,
  write: EntryWrite,
): boolean {
  const { text, values } = putStatement(DIALECT, place, ABSENT, write);
  const run = (): unknown => session.prepare(text).run(...asValues(values));
  return joined === undefined ? changesOf(run()) > 0 : joined.one(run);
}

function writtenBy(
  session: SqliteSession<SqliteConnection>,
  place: Place,
  expected: Expected,
  write: EntryWrite,
): Written | undefined {
  const row = rowOf(session, putStatement(DIALECT, place, expected, write));
  return row === undefined ? undefined : writtenOf(row);
}

// One text: to answer three columns takes as long as to find them.
const LOCKED = `SELECT last || EXISTS (SELECT 1 FROM hapax_entries WHERE kind = ? AND scope = ? AND key = ?) AS seen
  FROM hapax_tokens WHERE id = 1`;

/** LG11: one look at the beginning says whether there is an entry, and what the last token is. */
export function sqliteLocked<Connection extends SqliteConnection>(
  session: SqliteSession<Connection>,
): NonNullable<Ledger<Connection>["lockedTransaction"]> {
  return async (place, work, onLock, over) => {
    requirePlace(place);
    const { kind, scope, key } = place;
    let isThere = true;
    let isLate = false;
    const begun = (): number => {
      onLock();
      const row = session.prepare(LOCKED).get(kind, scope, key) as Row | undefined;
      if (row === undefined) throw new Error("LG3 hapax_tokens has no row");
      const seen = textOf(row["seen"]);
      isThere = seen.endsWith("1");
      return Number(seen.slice(0, -1));
    };
    type End = Awaited<ReturnType<typeof work>>;
    const inside = (tx: Connection): End | Promise<End> => {
      const { run } = joinSqlite(tx);
      const finish = (end: End): End => {
        if (end.entry === undefined) return end;
        isLate = !isMadeDrawn(session, run, place, end.entry);
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
