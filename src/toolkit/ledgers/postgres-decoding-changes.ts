/**
 * What the journal has behind a position: transactions with their events, as a slot decodes them. The rules are those of
 * postgres-decoding.ts.
 */

import { quotedName } from "../databases/quoting.ts";
import { formatLsn, type PgoutputMessage, parsePgoutput } from "../rules/pgoutput.ts";
import type { Query, Row } from "../databases/postgres.ts";
import { inTurn } from "./postgres-slot.ts";

/** What is decoded. */
export interface ChangeSource {
  readonly slot: string;
  /** What the slot looks at. */
  readonly publication: string;
  /** Of messages; undefined: events are rows. */
  readonly prefix: string | undefined;
}

/** A transaction that has events. */
export interface PendingTransaction {
  readonly xid: string;
  /** Where its commit ends. */
  readonly endLsn: bigint;
  readonly events: number;
  readonly committedAtMs: number;
}

export interface PendingPage {
  readonly transactions: readonly PendingTransaction[];
  /** Everything up to the end was looked at. */
  readonly isWhole: boolean;
}

const TAG = { commit: 67, insert: 73, message: 77, relation: 82 } as const;
/** A change more than that per look would not be a look any more. */
const CHANGES_MAX = 2_000_000_000;

/**
 * The changes of a slot up to an end, each with the transaction that it belongs to. Sorted and grouped, never joined:
 * PostgreSQL takes them for a thousand rows, however many they are.
 */
const CHANGES = `(SELECT lsn, xid::text AS xid, data, place, get_byte(data, 0) AS tag
  FROM pg_logical_slot_peek_binary_changes($1, $2::text::pg_lsn, $3::text::integer, VARIADIC
    ARRAY['proto_version', '1', 'binary', 'true', 'messages', $5::text, 'publication_names', $6::text])
    WITH ORDINALITY AS c(lsn, xid, data, place)) AS changes`;

/** A transaction is where its commit ends; changes of it may lie before the position, and count. */
const END = `max(lsn) FILTER (WHERE tag = ${TAG.commit})`;

const EVENT_OF = {
  rows: `tag = ${TAG.insert} AND $7::bytea IS NULL`,
  // One that is not transactional has no commit, and comes also from transactions that rolled back.
  messages: `tag = ${TAG.message} AND get_byte(data, 1) & 1 = 1 AND substring(data FROM 11 FOR octet_length($7::bytea)) = $7::bytea`,
} as const;

/** Transactions with events that end behind `from`: the first ones, until `changesMax` changes were decoded. */
export async function findPending(
  query: Query,
  source: ChangeSource,
  from: bigint,
  upto: bigint,
  changesMax: number,
): Promise<PendingPage> {
  let limit = changesMax;
  for (;;) {
    const page = await findWithin(query, source, from, upto, limit);
    if (page.transactions.length > 0 || page.isWhole) return page;
    // All of them were passed, or not ours: the look has to go further.
    limit = Math.min(limit * 8, CHANGES_MAX);
  }
}

async function findWithin(
  query: Query,
  source: ChangeSource,
  from: bigint,
  upto: bigint,
  limit: number,
): Promise<PendingPage> {
  const isEvent = source.prefix === undefined ? EVENT_OF.rows : EVENT_OF.messages;
  const statement = `WITH groups AS MATERIALIZED (
      SELECT xid, ${END} AS "end", count(*) AS changes, count(*) FILTER (WHERE ${isEvent}) AS events,
        (array_agg(data) FILTER (WHERE tag = ${TAG.commit}))[1] AS commit
      FROM ${CHANGES} GROUP BY xid)
    SELECT total.changes::text AS total, pending.xid, pending.commit, pending.events::text AS events
    FROM (SELECT COALESCE(sum(changes), 0) AS changes FROM groups) AS total
      LEFT JOIN (SELECT * FROM groups WHERE "end" > $4::text::pg_lsn AND events > 0) AS pending ON true
    ORDER BY pending."end"`;
  const rows = await inTurn(() => query(statement, valuesOf(source, from, upto, limit)));
  return {
    transactions: rows.filter((row) => row["xid"] !== null).map(pendingOf),
    isWhole: Number(rows[0]?.["total"]) < limit,
  };
}

function pendingOf(row: Row): PendingTransaction {
  const commit = parsePgoutput(bytesOf(row, "commit"));
  if (commit.kind !== "commit") throw new Error(`a transaction without a commit: ${commit.kind}`);
  const { endLsn, committedAtMs } = commit;
  return { xid: String(row["xid"]), endLsn, events: Number(row["events"]), committedAtMs };
}

/** The events, as messages, of the transactions that end behind `from` and not behind `to`, in their order. */
export async function readChanges(
  query: Query,
  source: ChangeSource,
  from: bigint,
  to: bigint,
): Promise<readonly PgoutputMessage[]> {
  const isEvent = source.prefix === undefined ? EVENT_OF.rows : EVENT_OF.messages;
  // PostgreSQL sends a relation once, in the first transaction that uses it: also in one that is skipped here.
  const statement = `SELECT data FROM (
      SELECT data, place, tag, ${END} OVER (PARTITION BY xid) AS "end" FROM ${CHANGES}) AS ended
    WHERE tag = ${TAG.relation} OR ("end" > $4::text::pg_lsn AND "end" <= $2::text::pg_lsn AND (${isEvent}))
    ORDER BY place`;
  const rows = await inTurn(() => query(statement, valuesOf(source, from, to, undefined)));
  return rows.map((row) => parsePgoutput(bytesOf(row, "data")));
}

function valuesOf(
  { slot, publication, prefix }: ChangeSource,
  from: bigint,
  upto: bigint,
  limit: number | undefined,
): readonly unknown[] {
  return [
    slot,
    formatLsn(upto),
    limit === undefined ? null : String(limit),
    formatLsn(from),
    String(prefix !== undefined),
    quotedName(publication),
    prefix === undefined ? null : new TextEncoder().encode(`${prefix}\0`),
  ];
}

function bytesOf(row: Row, name: string): Uint8Array {
  const value = row[name];
  if (value instanceof Uint8Array) return value;
  throw new Error(`PostgreSQL answered no bytes column=${name}`);
}
