/**
 * The replication slot of a relay: PostgreSQL's own note of what a relay has not passed yet, for which it keeps the journal.
 *
 * It is used by SQL functions over the user's own pool, not by a replication connection: that works with every client and
 * behind every pooler, needs no second protocol, and slows down by itself when the relay does. The price: it is polled, and
 * every look decodes anew from where the slot stands (`restart_lsn`), so the slot has to follow its relay closely.
 *
 *   - a slot is made once, also if many ask; one that is missing, invalid, or ahead of a position is an error, and
 *     nothing is skipped;
 *   - it moves only to a position of its relay: neither beyond it nor back;
 *   - a slot has one user at a time: the others wait for their turn;
 *   - what it keeps on disk can be asked for, and whether there is a limit to it.
 */

import type { OutboxWay } from "../outbox/log.ts";
import { type Clock, waitingClock } from "../../base/clock.ts";
import { formatLsn, parseLsn } from "../rules/pgoutput.ts";
import {
  isPgPool,
  type PgPool,
  pgPoolSession,
  type PostgresSql,
  postgresSession,
  type Query,
} from "../databases/postgres.ts";
import { HapaxError } from "../../base/errors.ts";

/** Codes of PostgreSQL. */
const DUPLICATE = "42710";
const UNDEFINED = "42704";
const FORBIDDEN = "42501";
const NOT_READY = "55000";
const IN_USE = "55006";

const PAUSE_MS = 20;
/** Ten seconds: no look takes that long, unless another user has taken the slot for good. */
const TURNS_MAX = 500;

const FACTS = `SELECT s.confirmed_flush_lsn::text AS confirmed, s.restart_lsn::text AS restart, s.wal_status AS status,
    s.safe_wal_size::text AS safe, pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::text AS retained,
    pg_current_wal_flush_lsn()::text AS flushed, current_setting('max_slot_wal_keep_size') AS keep,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint::text AS now, (s.slot_name IS NOT NULL)::text AS present
  FROM (SELECT 1) AS one LEFT JOIN pg_replication_slots s
    ON s.slot_name = $1 AND s.slot_type = 'logical' AND s.database = current_database()`;

const ADVANCE = "SELECT 1 AS one FROM pg_replication_slot_advance($1, $2::text::pg_lsn)";

/** A slot as it was at one moment. */
export interface SlotFacts {
  /** Everything before is given up; undefined while the slot is being made. */
  readonly confirmedLsn: bigint | undefined;
  readonly isLost: boolean;
  /** How far the journal is on disk: what can be decoded. */
  readonly flushedLsn: bigint;
  readonly retainedBytes: number;
  readonly walStatus: string;
  readonly safeWalBytes: number | undefined;
  readonly isUnlimited: boolean;
  /** By the database's clock. */
  readonly nowMs: number;
}

/** Undefined: there is none of this name in this database. */
export async function findSlot(query: Query, slot: string): Promise<SlotFacts | undefined> {
  const [row = {}] = await query(FACTS, [slot]);
  if (row["present"] !== "true") return undefined;
  const text = (name: string): string | undefined =>
    typeof row[name] === "string" ? row[name] : undefined;
  const safe = text("safe");
  const confirmed = text("confirmed");
  const walStatus = text("status") ?? "unknown";
  return {
    confirmedLsn: confirmed === undefined ? undefined : parseLsn(confirmed),
    isLost: walStatus === "lost",
    flushedLsn: parseLsn(text("flushed") ?? ""),
    retainedBytes: Number(text("retained") ?? 0),
    walStatus,
    safeWalBytes: safe === undefined ? undefined : Number(safe),
    isUnlimited: text("keep") === "-1",
    nowMs: Number(text("now")),
  };
}

/** The slot if everything behind `lsn` can still be decoded; throws otherwise. */
export async function requireSlot(query: Query, slot: string, lsn: bigint): Promise<SlotFacts> {
  const facts = await findSlot(query, slot);
  if (facts === undefined) throw lost(slot, "it does not exist any more");
  if (facts.isLost) throw lost(slot, "PostgreSQL has invalidated it");
  if (facts.confirmedLsn === undefined || facts.confirmedLsn > lsn) {
    throw lost(slot, "it is ahead of the position: it was made anew, or another relay has gone on");
  }
  if (lsn > facts.flushedLsn) {
    throw lost(slot, "the journal has never reached the position: this is another database");
  }
  return facts;
}

function lost(slot: string, why: string): HapaxError {
  const remedy =
    "events behind the position may be lost: compare with the business data, then start a relay under a new name";
  return new HapaxError("position_lost", `the slot of the relay: ${why}; ${remedy}; slot=${slot}`);
}

/** The slot as it is, or as it was just made. Making it waits for the transactions that are open then. */
export async function ensureSlot(
  query: Query,
  slot: string,
  clock: Clock = waitingClock,
): Promise<SlotFacts> {
  for (;;) {
    const facts = await findSlot(query, slot);
    if (facts?.isLost === true) throw lost(slot, "PostgreSQL has invalidated it");
    if (facts?.confirmedLsn !== undefined) return facts;
    // Another call is making it.
    if (facts !== undefined) await pause(clock);
    else await makeSlot(query, slot);
  }
}

async function makeSlot(query: Query, slot: string): Promise<void> {
  const [row] = await query("SELECT current_setting('server_version_num') AS version");
  // From version 17 on a standby may take the slot over, if it is set up to.
  const more = Number(row?.["version"]) >= 170_000 ? ", failover => true" : "";
  const make = `SELECT 1 AS one FROM pg_create_logical_replication_slot($1, 'pgoutput'${more})`;
  try {
    await query(make, [slot]);
  } catch (error) {
    if (codeOf(error) === DUPLICATE) {
      await requireOurs(query, slot, error);
      return;
    }
    throw await explainSlotError(query, error);
  }
}

/** Names of slots are shared by all databases of a server. */
async function requireOurs(query: Query, slot: string, error: unknown): Promise<void> {
  const [row] = await query(
    "SELECT 1 AS one FROM pg_replication_slots WHERE slot_name = $1 AND database IS DISTINCT FROM current_database()",
    [slot],
  );
  if (row === undefined) return;
  const words = `the slot is used by another database; slot=${slot}`;
  throw new HapaxError("unsupported", words, { cause: error });
}

/** What PostgreSQL refuses for a reason that the operator can remove. */
export async function explainSlotError(query: Query, error: unknown): Promise<unknown> {
  const code = codeOf(error);
  if (code === FORBIDDEN) {
    const needs =
      "logical decoding needs a role with REPLICATION (ALTER ROLE … REPLICATION) that may create publications (GRANT CREATE ON DATABASE …)";
    return new HapaxError("unsupported", needs, { cause: error });
  }
  if (code !== NOT_READY) return error;
  const [row] = await query("SELECT current_setting('wal_level') AS level");
  if (row?.["level"] === "logical") return error;
  const needs = `logical decoding needs wal_level = logical: ALTER SYSTEM SET wal_level = logical, and restart PostgreSQL; wal_level=${String(row?.["level"])}`;
  return new HapaxError("unsupported", needs, { cause: error });
}

/** Moves the slot, and answers whether it moved. A slot that is gone stays gone: its relay gets the error when it reads. */
export async function advanceSlot(query: Query, slot: string, to: bigint): Promise<boolean> {
  const isBehind = async (): Promise<boolean> => {
    const facts = await findSlot(query, slot);
    if (facts?.confirmedLsn === undefined || facts.isLost) return false;
    return facts.confirmedLsn < to && to <= facts.flushedLsn;
  };
  return inTurn(async () => {
    if (!(await isBehind())) return false;
    try {
      await query(ADVANCE, [slot, formatLsn(to)]);
      return true;
    } catch (error) {
      // Another call may have moved it further, between the look and the step.
      if (codeOf(error) !== NOT_READY || (await isBehind())) throw error;
      return false;
    }
  });
}

export async function inTurn<T>(work: () => Promise<T>, clock: Clock = waitingClock): Promise<T> {
  for (let turn = 1; ; turn += 1) {
    try {
      return await work();
    } catch (error) {
      if (codeOf(error) !== IN_USE || turn === TURNS_MAX) throw error;
      await pause(clock);
    }
  }
}

function pause(clock: Clock): Promise<void> {
  return new Promise((resolve) => void clock.after(PAUSE_MS, resolve));
}

/** Both clients put PostgreSQL's code there. */
export function codeOf(error: unknown): string | undefined {
  if (typeof error !== "object" || error === null || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}

/** Runs a statement that makes something, and is content if it is there. */
export async function makeOnce(query: Query, statement: string): Promise<void> {
  try {
    await query(statement);
  } catch (error) {
    if (codeOf(error) !== DUPLICATE) throw await explainSlotError(query, error);
  }
}

/** Names the outbox of a slot. One database may have several. */
export interface SlotOptions {
  readonly way: Extract<OutboxWay, "decoding" | "messages">;
  /** The same as in the options of the ledger. */
  readonly schema?: string;
}

/** Makes a name that is readable, and distinct for every database, way, schema and relay. Their characters do not matter. */
export async function slotNameOf(
  query: Query,
  relay: string,
  options: SlotOptions,
): Promise<string> {
  const readable = relay
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "_")
    .slice(0, 40);
  const identity = JSON.stringify([options.way, options.schema ?? "", relay]);
  const [row] = await query(
    "SELECT left(encode(sha256(convert_to($1::text || current_database(), 'UTF8')), 'hex'), 12) AS digest",
    [identity],
  );
  return `hapax_${readable}_${String(row?.["digest"])}`;
}

/** Describes how much disk a replication slot uses on the server. */
export interface SlotDescription {
  readonly slot: string;
  /** The bytes of journal that PostgreSQL keeps for the slot. */
  readonly retainedBytes: number;
  /** `reserved`, `extended`, `unreserved` or `lost`, as in pg_replication_slots. */
  readonly walStatus: string;
  /**
   * How many more bytes can be written before PostgreSQL gives the slot up. Undefined: there is no limit, or the slot
   * is lost.
   */
  readonly safeWalBytes: number | undefined;
  /** True: while its relay does not run, the journal grows until the disk is full. Set max_slot_wal_keep_size. */
  readonly isUnlimited: boolean;
}

/**
 * Returns how much the slot of a relay keeps on disk. Returns undefined if there is no slot.
 *
 * ```ts
 * import pg from "pg";
 * import { describeSlot } from "hapax/ledgers/postgres";
 *
 * const pool = new pg.Pool(); // Reads PGHOST, PGUSER and PGDATABASE.
 * const slot = await describeSlot(pool, "mail", { way: "decoding" });
 * const isInDanger = slot !== undefined && (slot.walStatus !== "reserved" || slot.isUnlimited);
 * console.assert(!isInDanger); // The relay has never run: it has no slot.
 * await pool.end();
 * ```
 */
export async function describeSlot(
  client: PgPool | PostgresSql,
  relay: string,
  options: SlotOptions,
): Promise<SlotDescription | undefined> {
  const query = queryOf(client);
  const slot = await slotNameOf(query, relay, options);
  const facts = await findSlot(query, slot);
  if (facts === undefined) return undefined;
  const { retainedBytes, walStatus, safeWalBytes, isUnlimited } = facts;
  return { slot, retainedBytes, walStatus, safeWalBytes, isUnlimited };
}

/**
 * Drops the slot of a relay that will not run again, so that PostgreSQL keeps no journal for it. Events that it has not
 * published are lost. Returns whether there was a slot.
 *
 * ```ts
 * import pg from "pg";
 * import { dropSlot } from "hapax/ledgers/postgres";
 *
 * const pool = new pg.Pool(); // Reads PGHOST, PGUSER and PGDATABASE.
 * const isDropped = await dropSlot(pool, "old mail", { way: "decoding" });
 * console.assert(!isDropped); // There was none.
 * await pool.end();
 * ```
 */
export async function dropSlot(
  client: PgPool | PostgresSql,
  relay: string,
  options: SlotOptions,
): Promise<boolean> {
  const query = queryOf(client);
  const slot = await slotNameOf(query, relay, options);
  return inTurn(async () => {
    try {
      await query("SELECT pg_drop_replication_slot($1)", [slot]);
      return true;
    } catch (error) {
      if (codeOf(error) === UNDEFINED) return false;
      throw error;
    }
  });
}

function queryOf(client: PgPool | PostgresSql): Query {
  return isPgPool(client) ? pgPoolSession(client).query : postgresSession(client).query;
}
