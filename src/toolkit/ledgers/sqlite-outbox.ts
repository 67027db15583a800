/**
 * The outbox on SQLite, for a connection and for the storage of a Durable Object. One transaction writes at a time, so ids are
 * committed in their order: a position is the id of the last event before it.
 *
 * An event that is added through the connection of the relay wakes it at once; those of other connections and processes
 * are found by polling.
 */

import { utf8Of } from "../../base/bytes.ts";
import { waitingClock } from "../../base/clock.ts";
import {
  isSameConnection,
  joinSqlite,
  type RunJoined,
  type SqliteConnection,
  type SqliteSession,
} from "../databases/sqlite.ts";
import { sqliteBytes, sqliteValue } from "../databases/sqlite-bytes.ts";
import { HapaxError } from "../../base/errors.ts";
import type {
  HeldEvent,
  HeldEvents,
  HeldFilter,
  HeldWrite,
  NewOutboxEvent,
  OutboxEvent,
  LogOutbox,
} from "../outbox/log.ts";
import { untilWoken } from "./outbox-hints.ts";
import { SQLITE_NOW } from "./sqlite-schema.ts";

type Row = Readonly<Record<string, unknown>>;

const NOW_MS = SQLITE_NOW;
/** With NULL for its id, an event gets the next one of the table. */
const ADD = `INSERT INTO hapax_outbox (id, topic, key, payload, headers, added_at)
  VALUES (?, ?, ?, ?, ?, ${NOW_MS}) RETURNING id`;
const END = "SELECT COALESCE(MAX(seq), 0) AS last FROM sqlite_sequence WHERE name = 'hapax_outbox'";
const PLAN = `SELECT MAX(id) AS last FROM
  (SELECT id FROM hapax_outbox WHERE id > ? ORDER BY id LIMIT ?)`;
/** libsql ends the process over a list of rows with bytes that are empty: NULL stands for them. */
const BYTES = "NULLIF(payload, x'') AS bytes";
const READ = `SELECT CAST(id AS TEXT) AS event_id, topic, key, ${BYTES}, headers, added_at FROM hapax_outbox
  WHERE id > ? AND id <= ? ORDER BY id`;
const CLEAN = `DELETE FROM hapax_outbox WHERE id IN (SELECT id FROM hapax_outbox
  WHERE id <= ? AND added_at <= ${NOW_MS} - ? ORDER BY id LIMIT ?) RETURNING id`;
const LAG = `SELECT ${NOW_MS} - added_at AS age FROM hapax_outbox WHERE id > ? ORDER BY id LIMIT 1`;
/** Key by key through the index: one key may have very many. */
const HELD_KEYS = `SELECT value AS key FROM json_each(?) WHERE EXISTS
  (SELECT 1 FROM hapax_outbox_held AS held WHERE held.relay = ? AND held.key = value AND held.state IN (?, ?))`;
const HOLD = `INSERT INTO hapax_outbox_held
    (relay, event_id, topic, key, payload, headers, added_at, state, attempts, due_at, fingerprint, message)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ${NOW_MS} + ?, ?, ?)
  ON CONFLICT (relay, event_id) DO UPDATE SET state = excluded.state, attempts = excluded.attempts,
    due_at = excluded.due_at, fingerprint = excluded.fingerprint, message = excluded.message`;
const HELD = `SELECT relay, event_id, topic, key, ${BYTES}, headers, added_at, state, attempts,
  due_at - ${NOW_MS} AS due_in, fingerprint, message FROM hapax_outbox_held`;
const RELEASE = "DELETE FROM hapax_outbox_held WHERE relay = ? AND event_id = ?";

/** Who waits for events of a database, and how often some were added: also by transactions that failed. */
interface Hints {
  count: number;
  readonly waiting: Set<() => void>;
}

const hintsOf = new WeakMap<object, Hints>();

/** How what belongs to the ledger is run: in its turn, or in the caller's transaction. */
type Run = <T>(work: () => T) => Promise<T>;

/** What the outbox needs of its database. */
export interface SqlOutboxBase<Tx> {
  /** All outboxes of one database have the same: their events wake each other. */
  readonly owner: object;
  /** Runs a statement that answers rows, and one that answers none. */
  readonly all: (sql: string, ...values: readonly OutboxValue[]) => readonly Row[];
  readonly run: (sql: string, ...values: readonly OutboxValue[]) => unknown;
  readonly reading: Run;
  readonly writing: Run;
  /** Returns how to run work in this transaction. Throws `invalid_request` if it is of another database. */
  readonly join: (tx: Tx) => <T>(work: () => T) => T;
  /** Calls it when others may learn of what the open transaction has added. */
  readonly onAdded: (tell: () => void) => void;
  /** Gives an id for an event, greater than all before it. Undefined: the table gives them. */
  readonly nextId?: () => number;
  /** The id of the last event that was ever added; smaller, if it was cleaned and the table gives no ids. */
  readonly end?: string;
  /** Throws if an event with so many bytes of payload and headers is too large for a row. */
  readonly requireSize?: (bytes: number) => void;
}

type OutboxValue = string | number | null | Uint8Array;

/** `joined`: inside a transaction of the caller, whose turn it is. */
export function createSqliteOutbox<Connection extends SqliteConnection>(
  session: SqliteSession<Connection>,
  joined: RunJoined | undefined,
): LogOutbox<Connection> {
  return createSqlOutbox<Connection>({
    owner: session.connection,
    all: (sql, ...values) => session.prepare(sql).all(...values.map(sqliteValue)) as readonly Row[],
    run: (sql, ...values) => session.prepare(sql).run(...values.map(sqliteValue)),
    reading: async (work) => (joined === undefined ? session.read(work) : joined(work)),
    writing: async (work) => (joined === undefined ? session.transaction(work) : joined(work)),
    join: (tx) => ownTransaction(session.connection, tx),
    onAdded: (tell) => {
      tell();
    },
  });
}

export function createSqlOutbox<Tx>(base: SqlOutboxBase<Tx>): LogOutbox<Tx> {
  const { all, reading, writing } = base;
  const hints = hintsOf.get(base.owner) ?? { count: 0, waiting: new Set() };
  hintsOf.set(base.owner, hints);
  let hintsSeen = 0;
  return {
    way: "log",
    add: async (tx, events) => {
      const ids = base.join(tx)(() => insertEvents(base, events));
      base.onAdded(() => {
        hints.count += 1;
        for (const wake of [...hints.waiting]) wake();
      });
      return ids;
    },
    wait: (delayMs, signal) => {
      if (hints.count === hintsSeen)
        return untilWoken(hints.waiting, waitingClock, delayMs, signal);
      hintsSeen = hints.count;
      return Promise.resolve();
    },
    spans: {
      cleansIn: "transaction",
      start: (at) =>
        reading(() => (at === "end" ? String(numberOf(all(base.end ?? END)[0]?.["last"])) : "0")),
      plan: (from, max) =>
        reading(() => {
          // In its turn: the transaction that gave the hint has committed.
          hintsSeen = hints.count;
          const last = all(PLAN, Number(from), max)[0]?.["last"] ?? undefined;
          return last === undefined ? undefined : { from, to: String(numberOf(last)) };
        }),
      read: ({ from, to }) => reading(() => all(READ, Number(from), Number(to)).map(eventOf)),
      clean: (positions, keepMs, max) =>
        writing(() => {
          if (positions.length === 0) return 0;
          return all(CLEAN, Math.min(...positions.map(Number)), keepMs, max).length;
        }),
    },
    held: heldEvents(base),
    lag: (position) =>
      reading(() => {
        const age = all(LAG, Number(position ?? 0))[0]?.["age"];
        return { oldestMs: Math.max(0, numberOf(age ?? 0)), slotBytes: undefined };
      }),
  };
}

/** Adds events, in the open transaction. Returns their ids. */
export function insertEvents<Tx>(
  { all, nextId, requireSize }: Pick<SqlOutboxBase<Tx>, "all" | "nextId" | "requireSize">,
  events: readonly NewOutboxEvent[],
): readonly string[] {
  return events.map(({ topic, key, payload, headers = {} }) => {
    const kept = JSON.stringify(headers);
    requireSize?.(payload.length + utf8Of(kept).length);
    const told = [topic, key ?? null, payload, kept];
    return String(all(ADD, nextId?.() ?? null, ...told)[0]?.["id"]);
  });
}

function heldEvents<Tx>({ all, run, reading, writing }: SqlOutboxBase<Tx>): HeldEvents {
  return {
    list: (filter) =>
      reading(() => {
        const { where, values } = heldWhere(filter);
        const sql = `${HELD} WHERE ${where} ORDER BY number LIMIT ?`;
        return all(sql, ...values, filter.max).map(heldOf);
      }),
    count: (filter) =>
      reading(() => {
        const { where, values } = heldWhere(filter);
        return numberOf(all(countOf(where), ...values, filter.max)[0]?.["count"]);
      }),
    keys: (...asked) =>
      reading(() => new Set(all(HELD_KEYS, ...keyValues(...asked)).map(({ key }) => String(key)))),
    change: (relay, puts, removes) =>
      writing(() => {
        for (const put of puts) run(HOLD, ...holdValues(relay, put));
        for (const id of removes) run(RELEASE, relay, id);
      }),
  };
}

function ownTransaction(connection: SqliteConnection, tx: SqliteConnection): RunJoined {
  if (isSameConnection(tx, connection)) return joinSqlite(tx).run;
  const words = "the transaction is of another connection than the ledger's";
  throw new HapaxError("invalid_request", words);
}

function heldWhere(filter: HeldFilter): {
  readonly where: string;
  readonly values: readonly OutboxValue[];
} {
  const { relay, state, key, ids, fingerprint, isDue } = filter;
  const conditions = ["relay = ?"];
  const values: OutboxValue[] = [relay];
  const require = (column: string, value: string | undefined): void => {
    if (value === undefined) return;
    conditions.push(`${column} = ?`);
    values.push(value);
  };
  require("state", state);
  require("key", key);
  require("fingerprint", fingerprint);
  if (ids !== undefined) {
    // One value for all: the number of values of a statement has a limit.
    conditions.push("event_id IN (SELECT value FROM json_each(?))");
    values.push(JSON.stringify(ids));
  }
  if (isDue === true) conditions.push(`due_at <= ${NOW_MS}`);
  return { where: conditions.join(" AND "), values };
}

function countOf(where: string): string {
  return `SELECT COUNT(*) AS count FROM (SELECT 1 FROM hapax_outbox_held WHERE ${where} LIMIT ?)`;
}

function keyValues(
  relay: string,
  among: readonly string[],
  state?: HeldEvent["state"],
): readonly OutboxValue[] {
  const states = state === undefined ? ["waiting", "dead"] : [state, state];
  return [JSON.stringify([...new Set(among)]), relay, ...states];
}

function holdValues(relay: string, put: HeldWrite): readonly OutboxValue[] {
  const { event, state, attempts, dueInMs, reason } = put;
  const { id, topic, key, payload, headers, addedAtMs } = event;
  const told = [reason?.fingerprint ?? null, reason?.message ?? null];
  const what = [relay, id, topic, key ?? null, payload, JSON.stringify(headers), addedAtMs];
  return [...what, state, attempts, Math.round(dueInMs), ...told];
}

function eventOf(row: Row): OutboxEvent {
  const { event_id: id, topic, key, bytes, headers, added_at: addedAt } = row;
  return {
    id: String(id),
    topic: String(topic),
    key: textOf(key),
    payload: sqliteBytes(bytes) ?? new Uint8Array(0),
    headers: JSON.parse(String(headers)) as Readonly<Record<string, string>>,
    addedAtMs: numberOf(addedAt),
  };
}

function heldOf(row: Row): HeldEvent {
  const { relay, state, attempts, due_in: dueIn } = row;
  const fingerprint = textOf(row["fingerprint"]);
  return {
    relay: String(relay),
    event: eventOf(row),
    state: state === "dead" ? "dead" : "waiting",
    attempts: numberOf(attempts),
    dueInMs: numberOf(dueIn),
    reason:
      fingerprint === undefined
        ? undefined
        : { fingerprint, message: textOf(row["message"]) ?? "" },
  };
}

/** Clients can be told to answer integers as bigint. */
function numberOf(value: unknown): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number)) throw new Error(`not an exact integer: ${String(value)}`);
  return number;
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
