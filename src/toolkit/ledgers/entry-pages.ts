/** Pages of entries in SQL (LG13): the statement, what its rows mean, and where the next one begins. */

import { HapaxError } from "../../base/errors.ts";
import {
  columnsOf,
  type Dialect,
  StatementDraft,
  ORDERS,
  placedOf,
  type StatementRow,
  type Statement,
  STATES,
  textOf,
} from "./entry-statements.ts";
import type { EntryPage, PageFilter } from "./ledger.ts";

const utf8 = new TextEncoder();

/**
 * LG13: by the primary key, or by the index of a state, from the place on where the page before has ended. One entry more than the
 * page has says that another one follows.
 */
export function pageStatement(dialect: Dialect, filter: PageFilter): Statement {
  const draft = new StatementDraft(dialect);
  const { kind, scope, state, from, max, isBare } = filter;
  const where = [`kind = ${draft.bind(kind)}`];
  let order = "scope, key";
  if (state !== undefined) {
    where.push(`state = '${STATES[state]}'`);
    order = ORDERS.made;
    if (from !== undefined) {
      const [made, token] = placeInPages(from);
      // The first condition is for the index, which does not have the token.
      where.push(
        `made_at >= ${dialect.momentOf(draft.bind(made))}`,
        `(made_at, token) > (${dialect.momentOf(draft.bind(made))}, CAST(${draft.bind(token)} AS BIGINT))`,
      );
    }
  } else {
    if (scope !== undefined) where.push(`scope = ${draft.bind(scope)}`);
    if (from !== undefined) {
      const [after, key] = placeInPages(from);
      where.push(
        scope === undefined
          ? `(scope, key) > (${draft.bind(after)}, ${draft.bind(key)})`
          : `key > ${draft.bind(key)}`,
      );
    }
  }
  const columns = columnsOf(isBare === true ? { ...dialect, data: "NULL AS bytes" } : dialect);
  return draft.end(`SELECT kind, scope, key, ${columns}, ${dialect.momentText} AS made
  FROM ${dialect.entries} WHERE ${where.join(" AND ")} ORDER BY ${order} LIMIT ${draft.bind(max + 1)}`);
}

/** The page of rows that `pageStatement` has found. */
export function pageOf(
  rows: readonly StatementRow[],
  { max, state }: PageFilter,
  bytesOf: (value: unknown) => Uint8Array | undefined,
): EntryPage {
  const entries = rows.slice(0, max).map((row) => placedOf(row, bytesOf));
  const last = rows[max - 1];
  if (rows.length <= max || last === undefined) return { entries, next: undefined };
  const { scope, key, made, token } = last;
  const names = state === undefined ? [scope, key] : [made, token];
  return { entries, next: JSON.stringify(names.map(String)) };
}

/** Parses the `next` of a page. Throws `invalid_request` if no page has given it. */
export function placeInPages(from: string): readonly [string, string] {
  try {
    const parsed: unknown = JSON.parse(from);
    const [one, other, ...more]: readonly unknown[] = Array.isArray(parsed) ? parsed : [];
    if (typeof one === "string" && typeof other === "string" && more.length === 0)
      return [one, other];
  } catch {
    // It is refused below.
  }
  throw new HapaxError("invalid_request", "no page has led here: pass the `next` of a page");
}

/** Compares the places of two rows as SQLite orders texts: by their bytes. */
export function byPlace(one: StatementRow, other: StatementRow): number {
  return byBytes(one["scope"], other["scope"]) || byBytes(one["key"], other["key"]);
}

function byBytes(one: unknown, other: unknown): number {
  const [ours, theirs] = [one, other].map((text) => utf8.encode(textOf(text)));
  return ours === undefined || theirs === undefined ? 0 : compareBytes(ours, theirs);
}

function compareBytes(one: Uint8Array, other: Uint8Array): number {
  const at = one.findIndex((byte, index) => byte !== other[index]);
  if (at === -1) return one.length - other.length;
  return (one[at] ?? 0) - (other[at] ?? -1);
}
