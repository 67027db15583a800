/**
 * The outbox by logical decoding: events are read from PostgreSQL's journal, where transactions stand in the order of their
 * commits. Two ways: `decoding`, rows inserted into hapax_outbox, which may be deleted in the same transaction; and
 * `messages`, which writes into the journal alone and needs no table for events. Each relay has a slot: postgres-slot.ts.
 *
 * A position is a slot and an LSN: every transaction whose commit ends there or before is passed. A relay begins where its
 * slot was made, also "from the beginning": rows from before are in the table, and not seen.
 *
 *   - a transaction is seen whole or not at all, in the order of commits: none is split, not even by the size of a page;
 *   - what is planned is what is read: rows of the outbox, or messages of its prefix in transactions, nothing else;
 *   - a slot follows its relay only to positions that are durable, so what is not published can always be read again;
 *   - where only others write, the position moves on over what they wrote: their journal is not kept for this outbox;
 *   - a publication that does not have the table is an error: without it, events would be skipped in silence;
 *   - rows are deleted only when every relay is past them, though no relay needs them: a lost slot leaves them.
 */

import { quotedName } from "../databases/quoting.ts";
import { waitingClock } from "../../base/clock.ts";
import {
  formatLsn,
  int64Of,
  parseLsn,
  type PgoutputMessage,
  type PgoutputValue,
  timeMsOf,
} from "../rules/pgoutput.ts";
import type { PostgresSession, Query } from "../databases/postgres.ts";
import { HapaxError } from "../../base/errors.ts";
import type { LogOutbox, NewOutboxEvent, OutboxEvent, OutboxLag } from "../outbox/log.ts";
import { type ChangeSource, findPending, readChanges } from "./postgres-decoding-changes.ts";
import { createPostgresHeld } from "./postgres-outbox-held.ts";
import { waitForHint } from "./postgres-outbox-hint.ts";
import type { PostgresOutboxOptions } from "./postgres-outbox-options.ts";
import {
  addEvents,
  boundedMs,
  OUTBOX_CHANNEL,
  type OutboxTables,
  outboxTables,
  requireStorable,
} from "./postgres-outbox-tables.ts";
import {
  advanceSlot,
  ensureSlot,
  findSlot,
  makeOnce,
  requireSlot,
  type SlotFacts,
  slotNameOf,
  type SlotOptions,
} from "./postgres-slot.ts";

/** Distances in the journal that are worth a write. */
export interface DecodingDistances {
  /** The slot follows when it is so far behind its relay. Every look decodes that much in vain. */
  readonly advanceBytes: number;
  /** The position moves over so much that others wrote. */
  readonly heartbeatBytes: number;
}

/** One mebibyte is decoded in a few milliseconds, and is a sixteenth of the smallest part of the journal on disk. */
const DISTANCES: DecodingDistances = { advanceBytes: 1_048_576, heartbeatBytes: 1_048_576 };

/** Of a look for the next events; it grows if they are further away. Three changes are the least of a transaction. */
const CHANGES_PER_EVENT = 3;
const CHANGES_MIN = 1000;
const MESSAGES_PER_STATEMENT = 500;
const MESSAGE_PREFIX = "hapax.outbox";
const NEW_LINE = 10;

interface Position {
  readonly slot: string;
  readonly lsn: bigint;
}

/** What the functions of this file share. */
interface Log {
  /** Always alone: a slot belongs to no transaction. */
  readonly query: Query;
  readonly tables: OutboxTables;
  readonly way: SlotOptions["way"];
  readonly schema: string | undefined;
  readonly publication: string;
  readonly prefix: string | undefined;
  readonly distances: DecodingDistances;
}

/** `joined` is the caller's transaction, if there is one. `options.way` says which of the two ways. */
export function createPostgresDecoding<Tx>(
  session: PostgresSession<Tx>,
  joined: Query | undefined,
  options: PostgresOutboxOptions,
  distances: DecodingDistances = DISTANCES,
): LogOutbox<Tx> {
  const { schema, notify, clock = waitingClock } = options;
  const way = options.way === "messages" ? "messages" : "decoding";
  const suffix = schema === undefined ? "" : `_${schema}`;
  const log: Log = {
    query: session.query,
    tables: outboxTables(schema),
    way,
    schema,
    publication: way === "messages" ? "hapax_messages" : `hapax_outbox${suffix}`,
    prefix: way === "messages" ? `${MESSAGE_PREFIX}${suffix}` : undefined,
    distances,
  };
  return {
    way,
    held: createPostgresHeld(joined ?? session.query, log.tables, false),
    add: (tx, events) =>
      log.prefix === undefined
        ? addEvents(session.in(tx), log.tables, events, notify !== undefined)
        : addMessages(session.in(tx), log.prefix, events, notify !== undefined),
    wait: (delayMs, signal) => waitForHint(delayMs, signal, clock, notify),
    spans: {
      cleansIn: "alone",
      start: (at, relay) => start(log, at, relay),
      plan: (from, max) => plan(log, from, max),
      read: (span) => read(log, span),
      clean: (positions, keepMs, max) => clean(log, positions, keepMs, max),
    },
    lag: (position) => lag(log, position),
  };
}

async function start(log: Log, at: "beginning" | "end", relay: string): Promise<string> {
  const { query, way, schema, publication, tables } = log;
  // Before the slot: a slot cannot decode what was written before there was the publication.
  if ((await findPublication(log)) === undefined) {
    const what = way === "messages" ? "" : ` FOR TABLE ${tables.outbox} WITH (publish = 'insert')`;
    await makeOnce(query, `CREATE PUBLICATION ${quotedName(publication)}${what}`);
  }
  await requirePublication(log);
  const scope = schema === undefined ? { way } : { way, schema };
  const slot = await slotNameOf(query, relay, scope);
  const { confirmedLsn = 0n, flushedLsn } = await ensureSlot(query, slot);
  const lsn = at === "end" && flushedLsn > confirmedLsn ? flushedLsn : confirmedLsn;
  return formatPosition({ slot, lsn });
}

/** Whether it has what relays need; undefined: there is none. Only an owner may make one, but everybody may look. */
async function findPublication(log: Log): Promise<boolean | undefined> {
  const [row] = await log.query(
    `SELECT p.pubinsert::text AS inserts,
       (SELECT count(*) FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = to_regclass($2))::text AS tables
     FROM pg_publication p WHERE p.pubname = $1`,
    [log.publication, log.tables.outbox],
  );
  if (row === undefined) return undefined;
  return log.way === "messages" || (row["inserts"] === "true" && row["tables"] === "1");
}

async function requirePublication(log: Log): Promise<void> {
  if ((await findPublication(log)) === true) return;
  const words = `a publication does not have what relays need; publication=${log.publication}`;
  throw new HapaxError("invalid_options", `${words} table=${log.tables.outbox} publish=insert`);
}

async function plan(
  log: Log,
  from: string,
  max: number,
): Promise<{ readonly from: string; readonly to: string } | undefined> {
  const { slot, lsn } = parsePosition(from);
  const facts = await requireSlot(log.query, slot, lsn);
  await follow(log, slot, lsn, facts);
  const { flushedLsn } = facts;
  if (flushedLsn === lsn) return undefined;
  await requirePublication(log);
  const limit = Math.max(max * CHANGES_PER_EVENT, CHANGES_MIN);
  const { transactions } = await findPending(
    log.query,
    sourceOf(log, slot),
    lsn,
    flushedLsn,
    limit,
  );
  let to: bigint | undefined;
  let count = 0;
  for (const { endLsn, events } of transactions) {
    count += events;
    if (to !== undefined && count > max) break;
    to = endLsn;
  }
  if (to !== undefined) return { from, to: formatPosition({ slot, lsn: to }) };
  // All of it was looked at, and nothing is ours.
  const isFar = flushedLsn - lsn >= BigInt(log.distances.heartbeatBytes);
  return isFar ? { from, to: formatPosition({ slot, lsn: flushedLsn }) } : undefined;
}

async function read(
  log: Log,
  span: { readonly from: string; readonly to: string },
): Promise<readonly OutboxEvent[]> {
  const [from, to] = [parsePosition(span.from), parsePosition(span.to)];
  if (from.slot !== to.slot) throw new HapaxError("invalid_request", "a span is of one slot");
  await requireSlot(log.query, from.slot, from.lsn);
  const messages = await readChanges(log.query, sourceOf(log, from.slot), from.lsn, to.lsn);
  return eventsOf(messages);
}

function sourceOf({ publication, prefix }: Log, slot: string): ChangeSource {
  return { slot, publication, prefix };
}

async function lag(log: Log, position: string | undefined): Promise<OutboxLag> {
  if (position === undefined) return { oldestMs: 0, slotBytes: undefined };
  const { slot, lsn } = parsePosition(position);
  const { flushedLsn, retainedBytes, nowMs } = await requireSlot(log.query, slot, lsn);
  if (flushedLsn === lsn) return { oldestMs: 0, slotBytes: retainedBytes };
  const source = sourceOf(log, slot);
  const { transactions } = await findPending(log.query, source, lsn, flushedLsn, CHANGES_MIN);
  const [first] = transactions;
  // The clock of the database may have been set back.
  const oldestMs = first === undefined ? 0 : Math.max(0, nowMs - first.committedAtMs);
  return { oldestMs, slotBytes: retainedBytes };
}

async function clean(
  log: Log,
  positions: readonly string[],
  keepMs: number,
  max: number,
): Promise<number> {
  const known = positions.map(tryPosition).filter((one) => one !== undefined);
  const bySlot = new Map<string, bigint>();
  for (const { slot, lsn } of known) {
    const other = bySlot.get(slot);
    if (other === undefined || lsn < other) bySlot.set(slot, lsn);
  }
  for (const [slot, lsn] of bySlot) {
    await follow(log, slot, lsn, await findSlot(log.query, slot));
  }
  // Relays of another way need the rows, and their positions mean nothing here.
  if (log.way === "messages" || known.length === 0 || known.length < positions.length) return 0;
  return deleteRows(log, bySlot, keepMs, max);
}

/** Moves the slot to the position. Planning and cleaning have it from the ledger, so it is durable. */
async function follow(
  { query, distances }: Log,
  slot: string,
  lsn: bigint,
  facts: SlotFacts | undefined,
): Promise<void> {
  if (facts?.confirmedLsn === undefined) return;
  if (lsn - facts.confirmedLsn < BigInt(distances.advanceBytes)) return;
  await advanceSlot(query, slot, lsn);
}

async function deleteRows(
  log: Log,
  bySlot: ReadonlyMap<string, bigint>,
  keepMs: number,
  max: number,
): Promise<number> {
  const { query, tables } = log;
  // What is visible now is on disk, and found below if it is not passed; what comes later is not looked at.
  const [taken] = await query("SELECT pg_current_snapshot()::text AS snapshot");
  const pending: string[] = [];
  for (const [slot, lsn] of bySlot) {
    const facts = await findSlot(query, slot);
    if (facts?.confirmedLsn === undefined || facts.isLost || facts.confirmedLsn > lsn) return 0;
    const source = sourceOf(log, slot);
    const page = await findPending(query, source, lsn, facts.flushedLsn, CHANGES_MIN);
    // A relay far behind: its rows are too many to name. They wait.
    if (!page.isWhole) return 0;
    pending.push(...page.transactions.map(({ xid }) => xid));
  }
  const rows = await query(
    `DELETE FROM ${tables.outbox} WHERE id IN (
       SELECT id FROM ${tables.outbox}
       WHERE added_at <= clock_timestamp() - $1::text::float8 * interval '1 millisecond'
         AND pg_visible_in_snapshot(tx, $2::text::pg_snapshot) AND NOT tx::xid = ANY ($3::text::xid[])
       ORDER BY id LIMIT $4::text::integer FOR UPDATE SKIP LOCKED) RETURNING 1 AS one`,
    [String(boundedMs(keepMs)), taken?.["snapshot"], `{${pending.join()}}`, String(max)],
  );
  return rows.length;
}

/** `messages`: the id is made here, because a message has none before it is decoded. Facts, a line feed, the payload. */
async function addMessages(
  query: Query,
  prefix: string,
  events: readonly NewOutboxEvent[],
  notifies: boolean,
): Promise<readonly string[]> {
  const ids: string[] = [];
  for (let at = 0; at < events.length; at += MESSAGES_PER_STATEMENT) {
    const some = events.slice(at, at + MESSAGES_PER_STATEMENT);
    const values = some.map((_, index) => `($${index * 2 + 2}::text, $${index * 2 + 3}::bytea)`);
    const rows = await query(
      `WITH events AS MATERIALIZED (
         SELECT gen_random_uuid()::text AS id, floor(extract(epoch FROM clock_timestamp()) * 1000) AS added, facts, payload
         FROM (VALUES ${values.join(", ")}) AS given(facts, payload))
       SELECT id, pg_logical_emit_message(true, $1, convert_to(json_build_array(id, added, facts::json)::text, 'UTF8')
         || '\\x0a'::bytea || payload)::text AS lsn FROM events`,
      [prefix, ...some.flatMap((event) => [factsOf(event), event.payload])],
    );
    ids.push(...rows.map((row) => String(row["id"])));
  }
  if (notifies && ids.length > 0) await query("SELECT pg_notify($1, '')", [OUTBOX_CHANNEL]);
  return ids;
}

function factsOf(event: NewOutboxEvent): string {
  requireStorable(event);
  const { topic, key, headers = {} } = event;
  return JSON.stringify({ topic, key, headers });
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The events in the order of the journal. Everything else of a transaction was left out by the query. */
function eventsOf(messages: readonly PgoutputMessage[]): readonly OutboxEvent[] {
  const columnsOf = new Map<number, readonly string[]>();
  const events: OutboxEvent[] = [];
  for (const message of messages) {
    if (message.kind === "relation") columnsOf.set(message.id, message.columns);
    if (message.kind === "insert") {
      events.push(eventOfRow(columnsOf.get(message.relation) ?? [], message.values));
    }
    if (message.kind === "message") events.push(eventOfMessage(message.content));
  }
  return events;
}

function eventOfRow(columns: readonly string[], values: readonly PgoutputValue[]): OutboxEvent {
  const optional = (name: string): Uint8Array | undefined => {
    const value = values[columns.indexOf(name)];
    if (value?.format === "text") throw new Error(`a value is not binary; column=${name}`);
    return value?.bytes;
  };
  const bytes = (name: string): Uint8Array => {
    const value = optional(name);
    if (value === undefined) throw new Error(`a row without a value; column=${name}`);
    return value;
  };
  const key = optional("key");
  return {
    id: String(int64Of(bytes("id"))),
    topic: decoder.decode(bytes("topic")),
    key: key === undefined ? undefined : decoder.decode(key),
    // A copy: the client answers a window into a buffer that is much larger.
    payload: new Uint8Array(bytes("payload")),
    // The binary form of jsonb is a version of one byte, and text.
    headers: JSON.parse(decoder.decode(bytes("headers").subarray(1))) as Record<string, string>,
    addedAtMs: timeMsOf(bytes("added_at")),
  };
}

/** As `addMessages` has put it together. */
function eventOfMessage(content: Uint8Array): OutboxEvent {
  const end = content.indexOf(NEW_LINE);
  const [id, addedAtMs, facts] = JSON.parse(decoder.decode(content.subarray(0, end))) as [
    string,
    number,
    Pick<OutboxEvent, "topic" | "key" | "headers">,
  ];
  const { topic, key, headers } = facts;
  return { id, topic, key, payload: new Uint8Array(content.subarray(end + 1)), headers, addedAtMs };
}

function formatPosition({ slot, lsn }: Position): string {
  return JSON.stringify({ slot, lsn: formatLsn(lsn) });
}

function parsePosition(text: string): Position {
  const position = tryPosition(text);
  if (position !== undefined) return position;
  const words =
    "the position is not one of logical decoding: was the outbox of another way before?";
  throw new HapaxError("invalid_request", `${words} position=${text}`);
}

function tryPosition(text: string): Position | undefined {
  const fields = new Map<string, unknown>(Object.entries((tryJson(text) ?? {}) as object));
  const [slot, lsn] = [fields.get("slot"), fields.get("lsn")];
  if (typeof slot !== "string" || typeof lsn !== "string") return undefined;
  return { slot, lsn: parseLsn(lsn) };
}

function tryJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // Positions of other ways need not be JSON.
    return undefined;
  }
}
