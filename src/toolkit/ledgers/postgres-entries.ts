/**
 * Entries in PostgreSQL. Each call is one statement and one round trip, alone or in the caller's transaction; a new token
 * costs a second one if another call drew a token at the same moment.
 *
 *   - no state of a session is used: everything works behind a pooler that changes connections between transactions;
 *   - the clock goes on inside a transaction: a lease that is taken late in it begins late;
 *   - `find` in a transaction locks the row; `put` of what is absent waits for a transaction that makes the same entry, and
 *     then finds it there, or makes it if the other was rolled back: PostgreSQL's unique index does that;
 *   - a call of its own that was refused for the sake of a serialisable default is repeated: it has done nothing;
 *   - a call of its own waits for a lock for a bounded time, and then throws `in_progress`: a holder that was cut off
 *     before its COMMIT keeps it for as long as the server does;
 *   - the server ends a transaction of the ledger that has ended its claim and does not reach its COMMIT;
 *   - a write in a transaction that its work has ended or reset throws: callers would take it for one that another came
 *     before, and try again without end;
 *   - a new token was drawn last, or is drawn again once it is in its entry: one that was drawn early and put late would
 *     be smaller than one that was given, and given back or rolled back, for the same place meanwhile.
 */

import { prefixOf, quotedText } from "../databases/quoting.ts";
import type { Query, Row } from "../databases/postgres.ts";
import { HAS_MARK, splitTransaction } from "../databases/postgres-lending.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Entries, EntryWrite, Expected, Locked, Place } from "./ledger.ts";
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
  redrawStatement,
  removeStatement,
  scanStatement,
  type Statement,
  sweepStatement,
  writtenOf,
} from "./entry-statements.ts";
import { pageOf, pageStatement } from "./entry-pages.ts";
import { requirePlace } from "./places.ts";
import { TOKEN_BEHIND_MAX } from "./postgres-schema.ts";

/** Commits take milliseconds. */
const LOCK_MS = 500;
/** Only COMMIT is missing. */
const COMMIT_MS = 10_000;

/** An option for the rest of the transaction, which may be this statement alone. */
function setting(name: string, value: number): string {
  return `set_config('${name}', '${value}', true)`;
}

/** As rows of one: it is made before rows are locked. */
function set(name: string, value: number): string {
  return `(SELECT ${setting(name, value)}) AS hapax_set`;
}

// now() would be the beginning of the transaction.
export function dialectOf(schema: string | undefined, joined: Query | undefined): Dialect {
  const isMarked = joined?.isMarked === true;
  const writing = joined === undefined ? set("lock_timeout", LOCK_MS) : "";
  const prefix = prefixOf(schema);
  return {
    entries: `${prefix}hapax_entries`,
    placeholder: (place) => `$${place}`,
    after: (placeholder) => `clock_timestamp() + ${placeholder}::float8 * interval '1 millisecond'`,
    now: "clock_timestamp()",
    // A function that changes while the statement runs is no bound for an index: this is asked once.
    soughtNow: "(SELECT clock_timestamp())",
    // In no way that an option of the session could change.
    momentText: `to_char(made_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US')`,
    momentOf: (placeholder) => `(${placeholder}::text::timestamp AT TIME ZONE 'UTC')`,
    between: (from, to) => `(extract(epoch FROM ${to} - ${from}) * 1000)::float8`,
    data: "data AS bytes",
    nextToken: nextTokenOf(prefix),
    tryLock: (...names) => `pg_try_advisory_xact_lock(${lockIdOf(prefix, names)})`,
    ofLock: "WHEN current_setting('transaction_isolation') <> 'read committed' THEN -1 ",
    // Asked when the row has it. As text, because clients differ in what they make of a boolean.
    ofDrawn: `, (token = (SELECT last_value FROM ${prefix}hapax_tokens))::text AS newest`,
    ofGiven: " RETURNING token, revision",
    lockRow: " FOR UPDATE",
    lockFree: " FOR UPDATE SKIP LOCKED",
    guard: isMarked ? ` AND ${HAS_MARK}` : "",
    writing,
    endingIf: isMarked
      ? `${setting("idle_in_transaction_session_timeout", COMMIT_MS)} <> '' AND ${HAS_MARK}`
      : "",
    endingRevision: "1",
    ending: isMarked ? set("idle_in_transaction_session_timeout", COMMIT_MS) : writing,
    textsOf: (placeholder) => `json_array_elements_text(${placeholder}::text::json)`,
    isChosen: (from) => `ctid = ANY (ARRAY(SELECT ctid ${from}))`,
  };
}

/** LG3: the next number, if the sequence is at the clock. Only if it is behind, the function has to look after it. */
function nextTokenOf(prefix: string): string {
  const tokens = quotedText(`${prefix}hapax_tokens`);
  return `(SELECT CASE WHEN drawn > date_part('epoch', clock_timestamp()) * 1000000 - ${TOKEN_BEHIND_MAX} THEN drawn
    ELSE ${prefix}hapax_next_token(${tokens}) END FROM (SELECT nextval(${tokens}) AS drawn OFFSET 0) AS drawing)`;
}

/** The number of the lock of a place. Two ledgers of one database have two tables, and so other numbers. */
function lockIdOf(prefix: string, names: readonly string[]): string {
  const seed = `${quotedText(`${prefix}hapax_entries`)}::regclass::oid::bigint`;
  return names.reduce((hash, name) => `hashtextextended(${name}, ${hash})`, seed);
}

/** Since when another transaction has the lock. Roles do not see when those of others began. */
function heldStatement(schema: string | undefined, place: Place): Statement {
  const id = lockIdOf(prefixOf(schema), ["$1", "$2", "$3"]);
  return {
    text: `SELECT (extract(epoch FROM clock_timestamp() - min(xact_start)) * 1000)::float8 AS held
  FROM pg_locks JOIN pg_stat_activity USING (pid), (SELECT ${id} AS id) AS sought
  WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pg_locks.database = datid
    AND classid::bigint = (id >> 32) & 4294967295 AND objid::bigint = id & 4294967295 AND pid <> pg_backend_pid()
    AND datname = current_database()`,
    values: [place.kind, place.scope, place.key],
  };
}

/** Says what a row of `lockStatement` means. Undefined: another statement has to tell. */
export function lockedAtOnce(row: Row | undefined): Locked | undefined {
  if (row === undefined) throw new Error("LG11 a lock has an answer");
  const token = row["drawn"] === null ? 0 : integerOf(row["drawn"]);
  if (token < 0) return { kind: "stale" };
  return token > 0 ? { kind: "absent", token } : undefined;
}

async function lockedOf(
  row: Row | undefined,
  place: Place,
  all: (statement: Statement) => Promise<readonly Row[]>,
  { dialect, schema }: { readonly dialect: Dialect; readonly schema: string | undefined },
): Promise<Locked> {
  const locked = lockedAtOnce(row);
  if (locked !== undefined) return locked;
  const isThere = row?.["drawn"] !== null;
  const [there] = isThere ? await all(findStatement(dialect, place, false)) : [];
  if (there !== undefined) return { kind: "found", entry: entryOf(there, bytesOf) };
  const [holder] = await all(heldStatement(schema, place));
  return { kind: "held", heldMs: leftOf(holder?.["held"]) };
}

/** As `Entries.lock`, for a row that has come with BEGIN. */
export function lockedBy(
  row: Row | undefined,
  place: Place,
  joined: Query,
  schema: string | undefined,
): Promise<Locked> {
  const all = ({ text, values }: Statement): Promise<readonly Row[]> => joined(text, values, true);
  return lockedOf(row, place, all, { dialect: dialectOf(schema, joined), schema });
}

/** `joined`: of the caller's transaction. */
export function postgresEntries(
  query: Query,
  joined: Query | undefined,
  schema: string | undefined,
): Entries {
  const dialect = dialectOf(schema, joined);
  const isJoined = joined !== undefined;
  const all = ({ text, values }: Statement): Promise<readonly Row[]> =>
    joined === undefined ? repeating(() => query(text, values, true)) : joined(text, values, true);
  const requireMark = async (): Promise<void> => {
    if (joined?.isMarked !== true) return;
    if ((await joined(`SELECT 1 AS one WHERE ${HAS_MARK}`, [], true)).length === 0)
      throw splitTransaction();
  };
  return {
    async find(place) {
      requirePlace(place);
      const [row] = await all(findStatement(dialect, place, isJoined));
      return row === undefined ? undefined : entryOf(row, bytesOf);
    },
    async lock(place) {
      requirePlace(place);
      const [row] = await all(lockStatement(dialect, place));
      return lockedOf(row, place, all, { dialect, schema });
    },
    async put(place, expected, write) {
      requirePlace(place);
      const [row] = await all(putStatement(dialect, place, expected, write));
      if (row === undefined) {
        if (looksForMark(expected, write)) await requireMark();
        return undefined;
      }
      const written = writtenOf(row);
      const isDrawn =
        write.token === "next" || (expected.kind === "absent" && write.token === "same");
      if (!isDrawn || row["newest"] === "true") return written;
      // Nothing comes back if it was taken meanwhile, its lease being that short.
      const [again] = await all(redrawStatement(dialect, place, written));
      return again === undefined ? undefined : writtenOf(again);
    },
    async remove(place, expected) {
      requirePlace(place);
      if (expected.kind === "absent") return false;
      const isRemoved = (await all(removeStatement(dialect, place, expected))).length > 0;
      if (!isRemoved) await requireMark();
      return isRemoved;
    },
    async scan(filter) {
      return (await all(scanStatement(dialect, filter))).map((row) => placedOf(row, bytesOf));
    },
    async page(filter) {
      return pageOf(await all(pageStatement(dialect, filter)), filter, bytesOf);
    },
    async nextDue(kinds) {
      return leftOf((await all(nextDueStatement(dialect, kinds)))[0]?.["due"]);
    },
    async sweep(max) {
      return (await all(sweepStatement(dialect, max))).length;
    },
  };
}

/** Whether the statement of a put writes nothing without the mark: changes do, and the entry that ends a lock. */
function looksForMark(expected: Expected, { token, state }: EntryWrite): boolean {
  return expected.kind !== "absent" || (typeof token !== "string" && state !== "running");
}

/** The most repeats of one call. Before each of them another transaction got on. */
const REPEATS_MAX = 100;

async function repeating<T>(work: () => Promise<T>): Promise<T> {
  for (let repeats = 0; ; repeats += 1) {
    try {
      return await work();
    } catch (error) {
      if (isLockTimeout(error))
        throw new HapaxError(
          "in_progress",
          "a transaction that has not ended keeps the entry locked; repeat the call later",
          { cause: error, status: 409 },
        );
      if (repeats === REPEATS_MAX || !isSerializationFailure(error)) throw error;
    }
  }
}

/** SQLSTATE serialization_failure. */
function isSerializationFailure(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "40001";
}

/** SQLSTATE lock_not_available. */
function isLockTimeout(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "55P03";
}

/** A copy: clients answer windows into buffers that are much larger. */
function bytesOf(value: unknown): Uint8Array | undefined {
  if (value === null || value === undefined) return undefined;
  if (value instanceof Uint8Array) return new Uint8Array(value);
  throw new TypeError(`a column with bytes has a ${typeof value}`);
}
