/**
 * Where a relay is in the log of events, as text.
 *
 *   last     a snapshot: everything that is visible in it is past;
 *   next     a later snapshot, if the relay is on its way to it: what is visible in it, and not in `last`, is being
 *            passed in the order of ids, up to `after`;
 *   since    before the first id of that difference, if it is a large one: see postgres-outbox-spans.ts;
 *   cluster, origin   whose transaction ids these are; `cluster` is for people.
 *
 *   - a position of other transaction ids (a dump that was restored anywhere, another server) is refused: new events would
 *     have numbers that it takes for past ones, and the target has seen the numbers of its next batches;
 *   - a snapshot that is taken inside a transaction counts that transaction as one that is not committed.
 */

import type { Query } from "../databases/postgres.ts";
import { HapaxError } from "../../base/errors.ts";
import type { OutboxSpan } from "../outbox/log.ts";
import { optionalText, type OutboxTables, text } from "./postgres-outbox-tables.ts";

/** Whose transaction ids a position has. */
export interface ServerNumbers {
  /** The system identifier; undefined if the user may not see it. Every cluster has its own, also after pg_upgrade. */
  readonly cluster: string | undefined;
  /** The transaction that wrote the first row of the origin. */
  readonly origin: string;
}

export interface OutboxPosition extends ServerNumbers {
  readonly last: string;
  readonly next?: string;
  readonly after?: string;
  readonly since?: string;
}

/** The events of a span: visible in `next`, not in `last`, with ids above `after` and up to `upTo`. */
export interface Difference {
  readonly last: string;
  readonly next: string;
  readonly after: string;
  readonly upTo: string;
  readonly isLarge: boolean;
}

/** What the database says of itself now. */
export interface Moment {
  readonly snapshot: string;
  readonly server: ServerNumbers;
  /**
   * Whether the rows of the origin were written by the transactions that they name: so it is after pg_upgrade, which keeps
   * transaction ids. A restore or a replica writes the rows again, in other transactions. A dump writes both rows in
   * one transaction, so that a server whose counter happens to have the same number is found out too.
   */
  readonly isOriginal: boolean;
}

/** Nothing is visible in it. */
export const EMPTY_SNAPSHOT = "1:1:";
/** Before and behind every id. */
export const FIRST_ID = "0";
export const LAST_ID = "9223372036854775807";

const SNAPSHOT = /^\d{1,20}:\d{1,20}:(\d{1,20}(,\d{1,20})*)?$/;
const XID = /^\d{1,20}$/;
const ID = /^\d{1,19}$/;

/** By session. The identifier itself is asked for every time: the address of a server may lead to another one. */
const rights = new WeakMap<object, Promise<boolean>>();

export async function takeMoment(
  query: Query,
  { origin }: OutboxTables,
  session: object,
): Promise<Moment> {
  const cluster = (await maySeeCluster(query, session))
    ? "(SELECT system_identifier::text FROM pg_control_system())"
    : "NULL";
  const [row] = await query(
    `SELECT pg_current_snapshot()::text AS snapshot, pg_current_xact_id_if_assigned()::text AS own,
       pg_is_in_recovery()::text AS standby, ${cluster} AS cluster,
       COALESCE((SELECT tx::text FROM ${origin} WHERE place = 1), '0') AS origin,
       (SELECT count(DISTINCT tx) = 2 AND bool_and(tx::xid = xmin) FROM ${origin})::text AS original`,
  );
  if (row === undefined) throw new Error("PostgreSQL answered no row");
  // A standby sees commits later than others do: a span would miss what it names.
  if (text(row, "standby") === "true")
    throw new HapaxError("unsupported", "the outbox is read from the primary, not from a standby");
  return {
    snapshot: withoutOwn(text(row, "snapshot"), optionalText(row, "own")),
    server: { cluster: optionalText(row, "cluster"), origin: text(row, "origin") },
    isOriginal: text(row, "original") === "true",
  };
}

// A statement of its own: PostgreSQL checks the right before it looks whether the function is called at all.
function maySeeCluster(query: Query, session: object): Promise<boolean> {
  const known = rights.get(session);
  if (known !== undefined) return known;
  const asked = query(
    "SELECT has_function_privilege('pg_control_system()', 'execute')::text AS may",
  ).then(([row]) => text(row, "may") === "true");
  rights.set(session, asked);
  asked.catch(() => rights.delete(session));
  return asked;
}

/** A snapshot never lists its own transaction as one that runs, because that one sees itself. */
function withoutOwn(snapshot: string, own: string | undefined): string {
  const [xmin = "", xmax = "", list = ""] = snapshot.split(":");
  if (own === undefined || BigInt(own) >= BigInt(xmax)) return snapshot;
  const running = new Set(list.split(",").filter((id) => id !== ""));
  const sorted = [...running.add(own)].toSorted((one, other) =>
    BigInt(one) < BigInt(other) ? -1 : 1,
  );
  return `${BigInt(own) < BigInt(xmin) ? own : xmin}:${xmax}:${sorted.join()}`;
}

export function encodePosition(position: OutboxPosition): string {
  return JSON.stringify(position);
}

export function parsePosition(encoded: string): OutboxPosition {
  const value = parseJson(encoded);
  const { cluster, origin, last, next, after, since } = value ?? {};
  const isGood =
    (cluster === undefined || typeof cluster === "string") &&
    isText(origin, XID) &&
    isText(last, SNAPSHOT) &&
    (next === undefined ? after === undefined : isText(next, SNAPSHOT) && isText(after, ID)) &&
    (since === undefined || isText(since, ID));
  if (!isGood)
    throw new HapaxError("invalid_request", `this is no position of the log: ${encoded}`);
  return {
    cluster,
    origin,
    last,
    ...(isText(next, SNAPSHOT) && isText(after, ID) ? { next, after } : {}),
    ...(isText(since, ID) ? { since } : {}),
  };
}

function parseJson(encoded: string): Readonly<Record<string, unknown>> | undefined {
  try {
    return Object(JSON.parse(encoded)) as Readonly<Record<string, unknown>>;
  } catch {
    return undefined;
  }
}

function isText(value: unknown, pattern: RegExp): value is string {
  return typeof value === "string" && pattern.test(value);
}

/**
 * All three: a server that was restored may have passed the ids of the position meanwhile. That the cluster is the same
 * says nothing: a dump can be restored into the cluster that it came from.
 */
export function requireSameServer(
  position: OutboxPosition,
  now: Moment,
  { origin: table }: OutboxTables,
): void {
  const { cluster, origin, last, next } = position;
  const isReached = xmaxOf(next ?? last) <= xmaxOf(now.snapshot);
  if (now.isOriginal && isReached && origin === now.server.origin) return;
  throw new HapaxError(
    "position_lost",
    `the position of the relay has transaction ids that are not this server's, as after a restore from a dump: run \
DELETE FROM ${table}, and start the relay under a new name; position=${last} now=${now.snapshot} \
cluster=${String(cluster)} this=${String(now.server.cluster)}`,
  );
}

function xmaxOf(snapshot: string): bigint {
  return BigInt(snapshot.split(":")[1] ?? 0);
}

/** Two transactions, so neither may be the caller's. */
export async function writeOrigin(alone: Query, { origin }: OutboxTables): Promise<void> {
  for (const place of [1, 2])
    await alone(`INSERT INTO ${origin} (place) VALUES ($1) ON CONFLICT DO NOTHING`, [place]);
}

/**
 * Rows that were restored from a dump keep numbers that this server has not given yet, and would come only when it
 * has. Nothing that is committed here is beyond the snapshot of the statement that sees it, but what the own transaction
 * has added.
 */
export async function requireOwnNumbers(query: Query, { outbox }: OutboxTables): Promise<void> {
  const rows = await query(
    `SELECT 1 AS one FROM ${outbox} WHERE tx >= pg_snapshot_xmax(pg_current_snapshot())
       AND tx IS DISTINCT FROM pg_current_xact_id_if_assigned() LIMIT 1`,
  );
  if (rows.length > 0)
    throw new HapaxError(
      "position_lost",
      `events have transaction ids that this server has not given yet, as after a restore from a dump: delete those that \
were published, run UPDATE ${outbox} SET tx = DEFAULT, and start the relay again`,
    );
}

/** What lies between two positions of which the second was planned from the first. */
export function differenceOf(span: OutboxSpan): Difference {
  const from = parsePosition(span.from);
  const to = parsePosition(span.to);
  const next = to.next ?? to.last;
  const isLarge = to.since !== undefined;
  const upTo = to.after ?? LAST_ID;
  // It goes on within a difference, or it begins one where the last has ended.
  return from.next === next
    ? { last: from.last, next, after: from.after ?? FIRST_ID, upTo, isLarge }
    : { last: from.next ?? from.last, next, after: to.since ?? FIRST_ID, upTo, isLarge };
}
