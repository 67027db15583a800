/**
 * The tables of days of a Durable Object: they are made when the first entry of their days ends, and dropped when the last one is
 * past its retention. A dropped table writes no rows, however many entries it had.
 *
 *   - what is in its retention is never dropped: a table goes an hour after its end, so that clocks that differ do no harm;
 *   - a rollback may take a table back: what is known of tables is read again then.
 */

import type { ObjectSession, ObjectStorage } from "../databases/durable-object.ts";
import { type DayTable, dayTableFor, parseDayTable } from "../rules/day-table.ts";
import { dayTableSql } from "./durable-object-schema.ts";
import { DELAY_MS_MAX, integerOf, textOf } from "./entry-statements.ts";

/** What is kept for a shorter time is no matter for a table that stays for a day. */
export const DAY_KEEP_MS_MIN = 3_600_000;
/** More than the clocks of two machines differ. */
const LATE_MS = 3_600_000;

const TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'hapax_done_*'";

export class DayTables {
  readonly #session: ObjectSession<ObjectStorage>;
  #known: Map<string, DayTable> | undefined;

  constructor(session: ObjectSession<ObjectStorage>) {
    this.#session = session;
  }

  /** Reads again which tables there are. */
  forget = (): void => {
    this.#known = undefined;
  };

  /** The names of the tables that may have entries in their retention. */
  live(nowMs: number): readonly string[] {
    return [...this.#tables().values()]
      .filter(({ endMs }) => endMs + LATE_MS > nowMs)
      .map(({ name }) => name);
  }

  /** Returns the name of the table for an entry, and makes the table if it is not there. */
  tableFor(nowMs: number, keepMs: number): string {
    const table = dayTableFor(nowMs, Math.min(keepMs, DELAY_MS_MAX));
    const tables = this.#tables();
    if (!tables.has(table.name)) {
      this.#session.rows(dayTableSql(table.name));
      this.#session.onUndo(this.forget);
      tables.set(table.name, table);
    }
    return table.name;
  }

  /** Drops the tables whose entries are all past their retention. Returns how many entries they had. */
  drop(nowMs: number): number {
    const tables = this.#tables();
    let count = 0;
    for (const { name, endMs } of tables.values()) {
      if (endMs + LATE_MS > nowMs) continue;
      const [row] = this.#session.rows(`SELECT count(*) AS count FROM ${name}`);
      count += integerOf(row?.["count"]);
      this.#session.rows(`DROP TABLE ${name}`);
      this.#session.onUndo(this.forget);
      tables.delete(name);
    }
    return count;
  }

  #tables(): Map<string, DayTable> {
    this.#known ??= new Map(
      this.#session
        .rows(TABLES)
        .map(({ name }) => parseDayTable(textOf(name)))
        .filter((table) => table !== undefined)
        .map((table) => [table.name, table] as const),
    );
    return this.#known;
  }
}
