/**
 * Entries in a Durable Object, without promises: the caller has the turn, and a transaction if it writes.
 *
 *   - a place has one entry in its retention, in hapax_open or in a table of days; of two, which a clock that was set back may
 *     bring about, the one with the greater token counts;
 *   - an entry that ends is written once, with its result: in the table of the days in which its retention ends;
 *   - what a table of days still has past its retention is not found: LG8 allows it to be gone;
 *   - a row that the platform would refuse is refused here, also where a local workerd takes it.
 */

import { systemClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { sqliteBytes } from "../databases/sqlite-bytes.ts";
import type { ObjectSession, ObjectStorage } from "../databases/durable-object.ts";
import { DAY_KEEP_MS_MIN, DayTables } from "./durable-object-days.ts";
import { OPEN_TABLE } from "./durable-object-schema.ts";
import { ObjectTokens } from "./durable-object-tokens.ts";
import {
  type Dialect,
  entryOf,
  findStatement,
  integerOf,
  leftOf,
  moveStatement,
  nextDueStatement,
  placedOf,
  putStatement,
  removeStatement,
  scanStatement,
  type Statement,
  sweepStatement,
  writtenOf,
} from "./entry-statements.ts";
import { byPlace, pageOf, pageStatement } from "./entry-pages.ts";
import type {
  Entry,
  EntryFilter,
  EntryPage,
  EntryWrite,
  Expected,
  Locked,
  PageFilter,
  Place,
  PlacedEntry,
} from "./ledger.ts";
import { requirePlace } from "./places.ts";
import { sqliteDialect } from "./sqlite-dialect.ts";
import { SQLITE_NOW } from "./sqlite-schema.ts";

type Row = Readonly<Record<string, unknown>>;
type Written = ReturnType<typeof writtenOf>;

/** A row has at most 2 MB. The rest is for the place, the fingerprint and what SQLite adds. */
const DATA_BYTES_MAX = 2_000_000 - 8 * 1024;

const ABSENT: Expected = { kind: "absent" };

/** What all ledgers over one storage share, in one life of its object. */
export interface ObjectBook {
  readonly session: ObjectSession<ObjectStorage>;
  readonly tokens: ObjectTokens;
  readonly days: DayTables;
}

const books = new WeakMap<ObjectSession<ObjectStorage>, ObjectBook>();

export function bookOf(session: ObjectSession<ObjectStorage>): ObjectBook {
  let book = books.get(session);
  if (book === undefined) {
    book = { session, tokens: new ObjectTokens(session), days: new DayTables(session) };
    books.set(session, book);
  }
  return book;
}

/** Throws `invalid_request` for bytes that no row of the platform could have. */
export function requireRowBytes(bytes: number): void {
  if (bytes <= DATA_BYTES_MAX) return;
  const facts = `bytes=${bytes} max=${DATA_BYTES_MAX}`;
  throw new HapaxError("invalid_request", `too large for a row of a Durable Object; ${facts}`);
}

/** One table, as it is read and as it is written. */
interface Table {
  readonly name: string;
  readonly reads: Dialect;
  readonly writes: Dialect;
}

export class ObjectEntries {
  readonly #book: ObjectBook;
  readonly #nowMs: () => number;
  readonly #now: string;
  readonly #open: Table;
  readonly #tables = new Map<string, Table>();

  /** `shiftMs`: how far its clock is ahead of the machine's. */
  constructor(book: ObjectBook, shiftMs: number) {
    this.#book = book;
    this.#now = shiftMs === 0 ? SQLITE_NOW : `(${SQLITE_NOW} + ${shiftMs})`;
    this.#nowMs = () => systemClock.nowMs() + shiftMs;
    const writes = this.#dialect(OPEN_TABLE);
    this.#open = { name: OPEN_TABLE, reads: writes, writes };
  }

  /** Call it outside of transactions, before one that may draw tokens. */
  reserve(): void {
    this.#book.tokens.reserve(this.#nowMs());
  }

  drawToken(): number {
    return this.#book.tokens.draw(this.#nowMs());
  }

  find(place: Place): Entry | undefined {
    requirePlace(place);
    return this.#locate(place)?.entry;
  }

  lock(place: Place): Locked {
    const entry = this.find(place);
    return entry === undefined
      ? { kind: "absent", token: this.drawToken() }
      : { kind: "found", entry };
  }

  put(place: Place, expected: Expected, write: EntryWrite): Written | undefined {
    requirePlace(place);
    if (write.data !== "same" && write.data.value !== undefined)
      requireRowBytes(write.data.value.byteLength);
    const found = this.#locate(place);
    if ((found === undefined) !== (expected.kind === "absent")) return undefined;
    const to = this.#tableFor(write);
    if (found === undefined || expected.kind === "absent") return this.#make(to, place, write);
    const isSame = write.token === "same";
    const given = isSame ? write : { ...write, token: { drawn: this.#given(write) } };
    const { table } = found;
    if (table === to) {
      const [row] = this.#rows(putStatement(to.writes, place, expected, given));
      return row === undefined ? undefined : writtenOf(row);
    }
    const [row] = this.#rows(moveStatement(table.writes, to.name, place, expected, given));
    if (row === undefined) return undefined;
    this.#delete(table, place);
    return writtenOf(row);
  }

  remove(place: Place, expected: Expected): boolean {
    requirePlace(place);
    const table = this.#locate(place)?.table;
    if (table === undefined || expected.kind === "absent") return false;
    return this.#rows(removeStatement(table.writes, place, expected)).length > 0;
  }

  scan(filter: EntryFilter): readonly PlacedEntry[] {
    const { state, order } = filter;
    // Only those have leases, and only they can be abandoned.
    const isOpen = state === "running" || state === "released" || order === "due";
    const tables = isOpen || filter.isAbandoned === true ? [this.#open] : this.#all();
    const rows = tables.flatMap(({ reads }) => this.#rows(scanStatement(reads, filter)));
    const ordered = tables.length === 1 ? rows : rows.toSorted(byAge).slice(0, filter.max);
    return ordered.map((row) => placedOf(row, sqliteBytes));
  }

  /** LG13: in the order of places, also those of one state: an index would be one more row for each write. */
  page(filter: PageFilter): EntryPage {
    const { kind, scope, state, from, max, isBare = false } = filter;
    const sought = { kind, scope, from, max, isBare };
    const found = new Map<string, Row>();
    for (const { reads } of this.#all())
      for (const row of this.#rows(pageStatement(reads, sought))) {
        const id = JSON.stringify([row["scope"], row["key"]]);
        const known = found.get(id);
        if (known === undefined || integerOf(known["token"]) < integerOf(row["token"]))
          found.set(id, row);
      }
    const rows = [...found.values()].toSorted(byPlace).slice(0, max + 1);
    const { entries, next } = pageOf(rows, sought, sqliteBytes);
    return { entries: entries.filter((one) => state === undefined || one.state === state), next };
  }

  nextDue(kinds: readonly string[]): number | undefined {
    return leftOf(this.#rows(nextDueStatement(this.#open.reads, kinds))[0]?.["due"]);
  }

  /** A table of days goes as a whole. */
  sweep(max: number): number {
    const swept = this.#rows(sweepStatement(this.#open.writes, max)).length;
    return swept < max ? swept + this.#book.days.drop(this.#nowMs()) : swept;
  }

  /** LG12 */
  recover(): number {
    const { tokens } = this.#book;
    const sql = `UPDATE ${OPEN_TABLE} SET lease_until = ${this.#now}, revision = revision + 1
  WHERE expires_at IS NOT NULL AND state = 'running' AND kind <> 'lease' AND lease_until > ${this.#now} AND token < ?
  RETURNING token`;
    return this.#book.session.rows(sql, tokens.first ?? Number.MAX_SAFE_INTEGER).length;
  }

  #locate(place: Place): { readonly entry: Entry; readonly table: Table } | undefined {
    let found: { readonly entry: Entry; readonly table: Table } | undefined;
    for (const table of this.#all()) {
      const [row] = this.#rows(findStatement(table.reads, place, false));
      if (row === undefined || (found?.entry.token ?? 0) > integerOf(row["token"])) continue;
      found = { entry: entryOf(row, sqliteBytes), table };
    }
    return found;
  }

  #make(to: Table, place: Place, write: EntryWrite): Written {
    const token = this.#given(write);
    const statement = putStatement(to.writes, place, ABSENT, { ...write, token: { drawn: token } });
    if (this.#rows(statement).length === 0) {
      // One that is past its retention is in the way.
      this.#delete(to, place);
      this.#rows(statement);
    }
    return { token, revision: 1 };
  }

  #given({ token }: EntryWrite): number {
    return typeof token === "string" ? this.drawToken() : token.drawn;
  }

  #delete({ name }: Table, { kind, scope, key }: Place): void {
    const sql = `DELETE FROM ${name} WHERE kind = ? AND scope = ? AND key = ?`;
    this.#book.session.rows(sql, kind, scope, key);
  }

  /** What has ended, and is kept for long, has a table of days. */
  #tableFor({ state, keepMs }: EntryWrite): Table {
    const isOver = state === "done" || state === "failed";
    if (!isOver || keepMs === undefined || keepMs < DAY_KEEP_MS_MIN) return this.#open;
    return this.#dayTable(this.#book.days.tableFor(this.#nowMs(), keepMs));
  }

  #all(): readonly Table[] {
    const days = this.#book.days.live(this.#nowMs());
    return [this.#open, ...days.map((name) => this.#dayTable(name))];
  }

  #dayTable(name: string): Table {
    let table = this.#tables.get(name);
    if (table === undefined) {
      const live = `(SELECT * FROM ${name} WHERE expires_at > ${this.#now})`;
      table = { name, reads: this.#dialect(live), writes: this.#dialect(name) };
      this.#tables.set(name, table);
    }
    return table;
  }

  #dialect(entries: string): Dialect {
    const dialect = sqliteDialect(entries, this.#now);
    return { ...dialect, data: `${dialect.data}, made_at`, ofGiven: " RETURNING token" };
  }

  #rows({ text, values }: Statement): readonly Row[] {
    return this.#book.session.rows(text, ...values);
  }
}

function byAge(one: Row, other: Row): number {
  const made = integerOf(one["made_at"]) - integerOf(other["made_at"]);
  return made === 0 ? integerOf(one["token"]) - integerOf(other["token"]) : made;
}
