/**
 * Entries in SQLite that were done when they were made, and are kept for long: most of all entries. They are rows of hapax_done, by the
 * day on which they are past their retention (rules/day-table.ts). hapax_days has the days that there are.
 *
 *   - a place has one entry, in hapax_entries or in hapax_done: who makes one looks in both, in a transaction that excludes all others;
 *   - a row of hapax_done never changes: an entry that is written again moves to hapax_entries;
 *   - a row is only made on a day that is in hapax_days, and a day leaves it when it has no more rows: each row is found;
 *   - an entry that is past its retention stays for a day or longer, and a claim takes it over as any other.
 */

import { systemClock } from "../../base/clock.ts";
import type { SqliteConnection, SqliteSession, SqliteValue } from "../databases/sqlite.ts";
import { changesOf } from "../databases/sqlite.ts";
import { sqliteValue } from "../databases/sqlite-bytes.ts";
import { sweepDayFor } from "../rules/day-table.ts";
import { byPlace, pageStatement } from "./entry-pages.ts";
import { DELAY_MS_MAX, moveStatement, type StatementRow, writtenOf } from "./entry-statements.ts";
import type { EntryWrite, Expected, PageFilter, Place } from "./ledger.ts";
import { sqliteDialect } from "./sqlite-dialect.ts";
import { SQLITE_NOW } from "./sqlite-schema.ts";

type Session = SqliteSession<SqliteConnection>;
type Written = ReturnType<typeof writtenOf>;

/** What is kept for a shorter time would stay for many times as long. */
const KEEP_MS_MIN = 3_600_000;
const DAY_MS = 86_400_000;

const ROWS = `SELECT kind, scope, key, token, 1 AS revision, 'done' AS state, 1 AS attempts, NULL AS lease_until, NULL AS lease_ms,
  expires_at, made_at, fingerprint, data FROM hapax_days CROSS JOIN hapax_done USING (day)`;

/** All entries, as a table to read. */
export const ALL_ENTRIES = `(SELECT kind, scope, key, token, revision, state, attempts, lease_until, lease_ms,
  expires_at, made_at, fingerprint, data FROM hapax_entries UNION ALL ${ROWS})`;

/** Rows of hapax_done as entries. */
const AS_ENTRIES = sqliteDialect(`(${ROWS})`);

/** Rows of one day of hapax_done, as a table to read. */
const OF_DAY =
  sqliteDialect(`(SELECT kind, scope, key, token, 1 AS revision, 'done' AS state, 1 AS attempts, NULL AS lease_until, NULL AS lease_ms,
  expires_at, made_at, fingerprint, data FROM hapax_done WHERE day = ?)`);

const IS_THERE = `EXISTS (SELECT 1 FROM hapax_days CROSS JOIN hapax_done USING (day) WHERE kind = ? AND scope = ? AND key = ?) AS there`;
const FIND = `SELECT ${IS_THERE}`;
const FIND_ANY = `SELECT EXISTS (SELECT 1 FROM hapax_entries WHERE kind = ? AND scope = ? AND key = ?) OR ${IS_THERE}`;
const MAKE_DAY = "INSERT INTO hapax_days (day) VALUES (?) ON CONFLICT DO NOTHING";
// `made_at` is of SQLite's clock, as that of hapax_entries: a scan has both in the order in which they were made. Without its day
// the row has none, and is ignored as one whose place is taken.
const MAKE = `INSERT OR IGNORE INTO hapax_done (kind, scope, key, token, expires_at, made_at, fingerprint, data, day)
  VALUES (?, ?, ?, ?, ?, ${SQLITE_NOW}, ?, ?, (SELECT day FROM hapax_days WHERE day = ?))`;
const MAKE_AT = MAKE.replace("day = ?", "day = ? AND total_changes() = ?");
const REMOVE = `DELETE FROM hapax_done
  WHERE day IN (SELECT day FROM hapax_days) AND kind = ? AND scope = ? AND key = ? AND token = ?`;
const OLDEST = "SELECT min(day) AS day FROM hapax_days";
const SWEEP = `DELETE FROM hapax_done WHERE (day, kind, scope, key) IN
  (SELECT day, kind, scope, key FROM hapax_done WHERE day = ? LIMIT ?)`;
const FORGET_DAY = "DELETE FROM hapax_days WHERE day = ?";

/** Returns whether a new entry belongs to hapax_done. */
export function isDoneAtOnce({ state, attempts, leaseMs, keepMs }: EntryWrite): boolean {
  const isEnd = state === "done" && attempts === 1 && leaseMs === undefined;
  return isEnd && keepMs !== undefined && keepMs >= KEEP_MS_MIN;
}

/** LG13: adds what hapax_done has to a page of hapax_entries. Each day is read by its key, one entry more than the page has. */
export function withDonePages(
  session: Session,
  filter: PageFilter,
  rows: readonly StatementRow[],
): readonly StatementRow[] {
  // What is done is in no other state.
  if (filter.state !== undefined) return rows;
  const { text, values } = pageStatement(OF_DAY, filter);
  const read = (sql: string, given: readonly SqliteValue[]): readonly StatementRow[] =>
    session.prepare(sql).all(...given) as readonly StatementRow[];
  const ofDays = read("SELECT day FROM hapax_days", []).flatMap(({ day }) =>
    read(text, [day as SqliteValue, ...values.map(sqliteValue)]),
  );
  if (ofDays.length === 0) return rows;
  return [...rows, ...ofDays].toSorted(byPlace).slice(0, filter.max + 1);
}

/** Returns whether hapax_done has an entry at the place. */
export function hasDone(session: Session, { kind, scope, key }: Place): boolean {
  return isThere(session.prepare(FIND).get(kind, scope, key));
}

/** Returns whether the place has an entry. */
export function hasEntry(session: Session, { kind, scope, key }: Place): boolean {
  return isThere(session.prepare(FIND_ANY).get(kind, scope, key, kind, scope, key));
}

function isThere(row: unknown): boolean {
  return Number((row as Readonly<Record<string, unknown>>)["there"]) === 1;
}

/** Makes an entry, if its day is there. The place has no entry. */
export class DoneStatement {
  readonly #session: Session;
  readonly #day: number;
  readonly #values: readonly SqliteValue[];

  constructor(
    session: Session,
    { kind, scope, key }: Place,
    token: number,
    { keepMs = 0, fingerprint, data }: EntryWrite,
  ) {
    // SQLite has no other clock than that of the machine.
    const nowMs = systemClock.nowMs();
    const keptMs = Math.min(keepMs, DELAY_MS_MAX);
    const endMs = Math.ceil(nowMs + keptMs);
    const print = fingerprint === "same" ? null : (fingerprint.value ?? null);
    const bytes = data === "same" ? null : sqliteValue(data.value ?? null);
    this.#session = session;
    this.#day = sweepDayFor(nowMs, keptMs);
    this.#values = [kind, scope, key, token, endMs, print, bytes, this.#day];
  }

  /** Returns how many rows it has changed: none if the day is not there. */
  run(): number {
    return changesOf(this.#session.prepare(MAKE).run(...this.#values));
  }

  /** As `run`, if the connection has changed so many rows until now. */
  runAt(total: number): number {
    return changesOf(this.#session.prepare(MAKE_AT).run(...this.#values, total));
  }

  makeDay(): void {
    this.#session.prepare(MAKE_DAY).run(this.#day);
  }
}

/** Makes an entry of hapax_done. The place has none. */
export function makeDone(session: Session, place: Place, token: number, write: EntryWrite): void {
  const made = new DoneStatement(session, place, token, write);
  if (made.run() > 0) return;
  made.makeDay();
  if (made.run() === 0) throw new Error("LG2 a place without an entry has one");
}

/** Writes an entry of hapax_done again: it moves to hapax_entries. */
export function moveDone(
  session: Session,
  place: Place,
  expected: Expected,
  write: EntryWrite,
): Written | undefined {
  if (expected.kind !== "unchanged" || expected.revision !== 1) return undefined;
  const { text, values } = moveStatement(AS_ENTRIES, "hapax_entries", place, expected, write);
  const row = session.prepare(text).get(...values.map(sqliteValue));
  if (row === undefined || row === null) return undefined;
  removeDone(session, place, expected);
  return writtenOf(row as Readonly<Record<string, unknown>>);
}

export function removeDone(
  session: Session,
  { kind, scope, key }: Place,
  expected: Expected,
): boolean {
  if (expected.kind !== "unchanged" || expected.revision !== 1) return false;
  return changesOf(session.prepare(REMOVE).run(kind, scope, key, expected.token)) > 0;
}

/** LG8: deletes entries of the oldest day, if that has come. */
export function sweepDone(session: Session, max: number): number {
  let swept = 0;
  while (swept < max) {
    const { day } = session.prepare(OLDEST).get() as { readonly day: SqliteValue };
    if (day === null || Number(day) * DAY_MS > systemClock.nowMs()) return swept;
    const left = max - swept;
    const count = changesOf(session.prepare(SWEEP).run(day, left));
    swept += count;
    if (count < left) session.prepare(FORGET_DAY).run(day);
  }
  return swept;
}
