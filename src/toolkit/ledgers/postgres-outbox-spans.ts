/**
 * The log of events by differences of snapshots, as PgQ did it first. Every event has the id of the transaction that added
 * it. A snapshot says of each transaction whether it was over when the snapshot was taken; so those between two snapshots
 * are exactly those that ended in between, in any order of their ids.
 *
 *   - an event is in the first difference whose `next` sees its transaction: one that commits late is in a later one,
 *     and no transaction is waited for, neither of events nor of anything else;
 *   - snapshots never change, so a span names the same events whenever it is read;
 *   - a difference is passed in the order of ids. Two transactions that excluded each other before they added (by the
 *     lock of a row) have ids in the order of their commits, and no snapshot sees the later one alone: so events of
 *     their key come in that order. Transaction ids would not do: they are given at the first write of any kind;
 *   - only what every relay has passed is deleted; without a relay, nothing.
 *
 * What is not visible in `last` has a transaction id from xmax(last) on, or is one of those that ran then. Both are looked
 * up in the index by transaction: what was passed while an old transaction is open costs nothing. A difference that is
 * large (a backlog) is read along the ids instead, from its first one on, so that each page costs what it contains.
 *
 * A relay that has committed a plan before it publishes (with synchronous_commit, as is the default) publishes nothing
 * that a crash of the database could undo: the events are in the journal before the plan is.
 */

import type { PostgresSession, Query, Row } from "../databases/postgres.ts";
import type { LogOutbox, OutboxLag, OutboxSpan } from "../outbox/log.ts";
import {
  type Difference,
  differenceOf,
  EMPTY_SNAPSHOT,
  encodePosition,
  FIRST_ID,
  type Moment,
  type OutboxPosition,
  parsePosition,
  requireOwnNumbers,
  requireSameServer,
  type ServerNumbers,
  takeMoment,
  writeOrigin,
} from "./postgres-outbox-position.ts";
import {
  EVENT_COLUMNS,
  eventOf,
  number,
  type OutboxTables,
  text,
} from "./postgres-outbox-tables.ts";

type Log<Tx> = Pick<LogOutbox<Tx>, "way" | "spans" | "lag">;

/** A difference of so many events is sorted for every page of it: about a millisecond. */
const SMALL_MAX = 5000;
/** How many events `clean` looks at for each that it may delete: those in front may wait for a slow relay. */
const LOOKED_AT_PER_DELETED = 4;

export function createPostgresSpans<Tx>(
  session: PostgresSession<Tx>,
  query: Query,
  tables: OutboxTables,
): Log<Tx> {
  const now = (): Promise<Moment> => takeMoment(query, tables, session);
  const checked = async (position: OutboxPosition): Promise<Moment> => {
    const moment = await now();
    requireSameServer(position, moment, tables);
    return moment;
  };
  return {
    way: "log",
    spans: {
      cleansIn: "transaction",
      async start(at) {
        await requireOwnNumbers(query, tables);
        await writeOrigin(session.query, tables);
        const { server, snapshot } = await now();
        return encodePosition({ ...server, last: at === "end" ? snapshot : EMPTY_SNAPSHOT });
      },
      async plan(from, max) {
        const position = parsePosition(from);
        return plan(query, tables, from, position, await checked(position), max);
      },
      async read(span) {
        return (await query(...readStatement(tables, differenceOf(span)))).map(eventOf);
      },
      async clean(positions, keepMs, max) {
        const parsed = positions.map(parsePosition);
        for (const position of parsed) await checked(position);
        return parsed.length === 0 ? 0 : clean(query, tables, parsed, keepMs, max);
      },
    },
    async lag(position) {
      return lag(query, tables, position === undefined ? undefined : parsePosition(position));
    },
  };
}

async function plan(
  query: Query,
  tables: OutboxTables,
  from: string,
  position: OutboxPosition,
  { server, snapshot }: Moment,
  max: number,
): Promise<OutboxSpan | undefined> {
  const { last, next, after = FIRST_ID, since } = position;
  if (next !== undefined) {
    const to = await nextPage(query, tables, { server, last, next, since }, after, max);
    if (to !== undefined) return { from, to };
  }
  const begun = { server, last: next ?? last, next: snapshot, since: undefined };
  if (begun.last === begun.next) return undefined;
  const to = await firstPage(query, tables, begun, max);
  return to === undefined ? undefined : { from, to };
}

interface Underway {
  readonly server: ServerNumbers;
  readonly last: string;
  readonly next: string;
  /** Before its first id, if it is large. */
  readonly since: string | undefined;
}

/** The position at the end of the first page of a difference, in one statement if it is small; undefined: it is empty. */
async function firstPage(
  query: Query,
  tables: OutboxTables,
  begun: Underway,
  max: number,
): Promise<string | undefined> {
  const { last, next } = begun;
  const smallMax = Math.max(SMALL_MAX, max);
  const source = byTransaction(tables.outbox, "id");
  const [row] = await query(
    `WITH all_ids AS MATERIALIZED (SELECT id FROM ${source} LIMIT $3)
     SELECT (SELECT count(*) FROM all_ids)::text AS size, count(*)::text AS count, max(id)::text AS upto
     FROM (SELECT id FROM all_ids ORDER BY id LIMIT $4) AS page`,
    [last, next, smallMax + 1, max],
  );
  if (number(row, "size") <= smallMax) return endOfPage(begun, row, max);
  const [least] = await query(`SELECT (min(id) - 1)::text AS before FROM ${source}`, [last, next]);
  const since = text(least, "before");
  return nextPage(query, tables, { ...begun, since }, since, max);
}

/** The position at the end of the next page of a difference; undefined: there is nothing left of it. */
async function nextPage(
  query: Query,
  { outbox }: OutboxTables,
  underway: Underway,
  after: string,
  max: number,
): Promise<string | undefined> {
  const { last, next, since } = underway;
  const source = since === undefined ? byTransaction(outbox, "id") : byId(outbox, "id");
  const [row] = await query(
    `SELECT count(*)::text AS count, max(id)::text AS upto FROM
       (SELECT id FROM ${source} WHERE id > $3::text::bigint ORDER BY id LIMIT $4) AS page`,
    [last, next, after, max],
  );
  return endOfPage(underway, row, max);
}

function endOfPage(
  { server, last, next, since }: Underway,
  page: Row | undefined,
  max: number,
): string | undefined {
  const count = number(page, "count");
  if (count === 0) return undefined;
  // The end of a large one is found by the plan after it: so its last page can be read within its ids, too.
  if (since === undefined && count < max) return encodePosition({ ...server, last: next });
  const after = text(page, "upto");
  return encodePosition({
    ...server,
    last,
    next,
    after,
    ...(since === undefined ? {} : { since }),
  });
}

function readStatement(
  { outbox }: OutboxTables,
  { last, next, after, upTo, isLarge }: Difference,
): [string, readonly string[]] {
  const columns = "id, topic, key, payload, headers, added_at";
  const source = isLarge ? byId(outbox, columns) : byTransaction(outbox, columns);
  return [
    `SELECT ${EVENT_COLUMNS} FROM ${source} WHERE id > $3::text::bigint AND id <= $4::text::bigint
     ORDER BY found.id`,
    [last, next, after, upTo],
  ];
}

/**
 * By the index of transactions. Those that run in both snapshots are left out: neither of the two sees their rows. OFFSET 0
 * keeps PostgreSQL from going along the ids here, where everything that is past would be on the way.
 */
function byTransaction(outbox: string, columns: string): string {
  const [last, next] = ["$1::text::pg_snapshot", "$2::text::pg_snapshot"];
  return `(SELECT ${columns} FROM ${outbox}
      WHERE tx >= pg_snapshot_xmax(${last}) AND tx < pg_snapshot_xmax(${next}) AND pg_visible_in_snapshot(tx, ${next})
    UNION ALL
    SELECT ${columns} FROM ${outbox}
      WHERE tx = ANY(ARRAY(SELECT pg_snapshot_xip(${last}) EXCEPT SELECT pg_snapshot_xip(${next})))
        AND pg_visible_in_snapshot(tx, ${next})
    OFFSET 0) AS found`;
}

/** Along the ids. */
function byId(outbox: string, columns: string): string {
  return `(SELECT ${columns} FROM ${outbox} WHERE pg_visible_in_snapshot(tx, $2::text::pg_snapshot)
    AND NOT pg_visible_in_snapshot(tx, $1::text::pg_snapshot)) AS found`;
}

/** The oldest ones, as far as all are past them. */
async function clean(
  query: Query,
  { outbox }: OutboxTables,
  positions: readonly OutboxPosition[],
  keepMs: number,
  max: number,
): Promise<number> {
  const values: (string | number)[] = [String(keepMs), max, max * LOOKED_AT_PER_DELETED];
  const isPast = positions.map(({ last, next, after }) => {
    const seen = (snapshot: string): string =>
      `pg_visible_in_snapshot(tx, $${values.push(snapshot)}::text::pg_snapshot)`;
    if (next === undefined || after === undefined) return seen(last);
    return `(${seen(last)} OR ${seen(next)} AND id <= $${values.push(after)}::text::bigint)`;
  });
  const rows = await query(
    `DELETE FROM ${outbox} WHERE id IN (SELECT id FROM ${outbox} WHERE id IN (
       SELECT id FROM (SELECT id, tx, added_at FROM ${outbox} ORDER BY id LIMIT $3) AS oldest
       WHERE added_at <= clock_timestamp() - $1::text::float8 * interval '1 millisecond' AND ${isPast.join(" AND ")}
       ORDER BY id LIMIT $2) FOR UPDATE SKIP LOCKED)
     RETURNING 1 AS one`,
    values,
  );
  return rows.length;
}

/** The first by transaction, or by id, is not always the oldest: a gauge may be off by a transaction's time. */
async function lag(
  query: Query,
  { outbox }: OutboxTables,
  position: OutboxPosition | undefined,
): Promise<OutboxLag> {
  const { last = EMPTY_SNAPSHOT, next, after, since } = position ?? {};
  const isNotPast =
    "NOT (id <= $3::text::bigint AND pg_visible_in_snapshot(tx, $2::text::pg_snapshot))";
  const source =
    since !== undefined
      ? `(SELECT added_at FROM ${outbox} WHERE id > $3::text::bigint
           AND NOT pg_visible_in_snapshot(tx, $1::text::pg_snapshot) AND ${isNotPast} ORDER BY id LIMIT 1)`
      : `(SELECT added_at FROM ${outbox} WHERE tx >= pg_snapshot_xmax($1::text::pg_snapshot) AND ${isNotPast}
           ORDER BY tx, id LIMIT 1)
         UNION ALL
         (SELECT added_at FROM ${outbox} WHERE tx = ANY(ARRAY(SELECT pg_snapshot_xip($1::text::pg_snapshot)))
           AND ${isNotPast} ORDER BY tx, id LIMIT 1)`;
  const [row] = await query(
    `SELECT COALESCE(extract(epoch FROM clock_timestamp() - min(added_at)) * 1000, 0)::text AS age
     FROM (${source}) AS oldest`,
    [last, next ?? EMPTY_SNAPSHOT, after ?? FIRST_ID],
  );
  return { oldestMs: Math.max(0, number(row, "age")), slotBytes: undefined };
}
