/**
 * The ledger in the SQLite of a Durable Object. How the storage is used is toolkit/databases/durable-object.ts, where entries are
 * is durable-object-entries.ts.
 *
 *   - work that is done once writes one row, which is claim and result; no row is deleted when it is past its retention.
 */

import {
  joinObject,
  ObjectSession,
  type ObjectStorage,
  TRANSACTION_MS_MAX,
} from "../databases/durable-object.ts";
import type { NewOutboxEvent, OutboxLog } from "../outbox/log.ts";
import { OBJECT_PARTS } from "./durable-object-schema.ts";
import { bookOf, ObjectEntries, requireRowBytes } from "./durable-object-entries.ts";
import { integerOf, textOf } from "./entry-statements.ts";
import type {
  Entries,
  Entry,
  EntryWrite,
  Expected,
  Ledger,
  LedgerSupport,
  Place,
} from "./ledger.ts";
import { pendingSteps } from "./migrations.ts";
import { insertEvents, createSqlOutbox } from "./sqlite-outbox.ts";
import { SQLITE_APPLIED, SQLITE_APPLY, SQLITE_MIGRATIONS_TABLE } from "./sqlite-schema.ts";

/** Entries and events of an open transaction, without promises. */
export interface SyncEntries {
  find(place: Place): Entry | undefined;
  /** As `Entries.put`. */
  put(
    place: Place,
    expected: Expected,
    write: EntryWrite,
  ): { readonly token: number; readonly revision: number } | undefined;
  /** Adds events to the outbox. Returns their ids. */
  add(events: readonly NewOutboxEvent[]): readonly string[];
}

/** A ledger in a Durable Object. */
export interface DurableObjectLedger<Storage extends ObjectStorage> extends Ledger<Storage> {
  transactionSync<T>(work: (tx: Storage) => T): T;
  /** As `transactionSync`, but waits for its turn: other transactions may be open. */
  inTurnSync<T>(work: (tx: Storage) => T): Promise<T>;
  /** Returns the entries and events of a transaction, for work that does not await. */
  sync(tx: Storage): SyncEntries;
  recover(): Promise<number>;
}

const SUPPORTS: LedgerSupport = {
  transactions: true,
  isExclusive: true,
  durability: "database",
  transactionMsMax: TRANSACTION_MS_MAX,
  absorbsResumed: true,
  outbox: ["log"],
};

const OUTBOX_END = "SELECT COALESCE(MAX(id), 0) AS last FROM hapax_outbox";

/** `shiftMs`: how far its clock is ahead of the machine's, for tests. */
export function objectLedgerAt<Storage extends ObjectStorage>(
  storage: Storage,
  shiftMs: number,
): DurableObjectLedger<Storage> {
  const session = ObjectSession.of(storage);
  const entries = new ObjectEntries(bookOf(session), shiftMs);
  return ledgerOf({ session, entries }, undefined);
}

interface Parts<Storage extends ObjectStorage> {
  readonly session: ObjectSession<Storage>;
  readonly entries: ObjectEntries;
}

/** `tx`: the transaction of the caller, and how what belongs to it is run. */
interface Joined<Storage> {
  readonly tx: Storage;
  readonly run: <T>(work: () => T) => T;
}

function ledgerOf<Storage extends ObjectStorage>(
  parts: Parts<Storage>,
  joined: Joined<Storage> | undefined,
): DurableObjectLedger<Storage> {
  const { session, entries } = parts;
  let outbox: OutboxLog<Storage> | undefined;
  const reserve = (): void => {
    entries.reserve();
  };
  const none = (): void => undefined;
  const join = (tx: Storage): Joined<Storage> => ({ tx, run: joinObject(session, tx) });
  // Always a promise: what is wrong is a rejection.
  const reading = async <T>(work: () => T): Promise<T> =>
    joined === undefined ? session.read(work) : joined.run(work);
  const writing = async <T>(work: () => T, before: () => void = none): Promise<T> =>
    joined === undefined ? session.write(work, before) : joined.run(work);
  return {
    name: "durable-object",
    supports: SUPPORTS,
    isJoined: joined !== undefined,
    entries: entriesOf(entries, reading, (work) => writing(work, reserve)),
    get outbox() {
      outbox ??= outboxOf(parts, reading, writing);
      return outbox;
    },
    migrate: () => writing(() => migrate(session)),
    recover: () => writing(() => entries.recover()),
    transaction: async (work, signal) =>
      joined === undefined ? session.transaction(work, signal, reserve) : work(joined.tx),
    transactionSync: (work) =>
      joined === undefined
        ? session.transactionSync(work, reserve)
        : joined.run(() => work(joined.tx)),
    inTurnSync: async (work) =>
      joined === undefined ? session.inTurnSync(work, reserve) : joined.run(() => work(joined.tx)),
    sync: (tx) => syncOf(parts, join(tx).run),
    in: (tx) => ledgerOf(parts, join(tx)),
  };
}

type Run = <T>(work: () => T) => Promise<T>;

function entriesOf(entries: ObjectEntries, reading: Run, writing: Run): Entries {
  return {
    find: (place) => reading(() => entries.find(place)),
    lock: (place) => writing(() => entries.lock(place)),
    put: (place, expected, write) => writing(() => entries.put(place, expected, write)),
    remove: (place, expected) => writing(() => entries.remove(place, expected)),
    scan: (filter) => reading(() => entries.scan(filter)),
    page: (filter) => reading(() => entries.page(filter)),
    nextDue: (kinds) => reading(() => entries.nextDue(kinds)),
    sweep: (max) => writing(() => entries.sweep(max)),
  };
}

function syncOf<Storage extends ObjectStorage>(
  { session, entries }: Parts<Storage>,
  run: Joined<Storage>["run"],
): SyncEntries {
  return {
    find: (place) => run(() => entries.find(place)),
    put: (place, expected, write) => run(() => entries.put(place, expected, write)),
    add: (events) => run(() => insertEvents(eventsOf(session, entries), events)),
  };
}

/** The ids of events are tokens. */
function eventsOf<Storage extends ObjectStorage>(
  session: ObjectSession<Storage>,
  entries: ObjectEntries,
): Parameters<typeof insertEvents>[0] {
  return {
    all: (sql, ...values) => session.rows(sql, ...values),
    nextId: () => entries.drawToken(),
    requireSize: requireRowBytes,
  };
}

function outboxOf<Storage extends ObjectStorage>(
  { session, entries }: Parts<Storage>,
  reading: Run,
  writing: Run,
): OutboxLog<Storage> {
  return createSqlOutbox<Storage>({
    ...eventsOf(session, entries),
    owner: session,
    run: (sql, ...values) => session.rows(sql, ...values),
    reading,
    writing,
    join: (tx) => joinObject(session, tx),
    // A relay that waits would go on inside the transaction.
    onAdded: (tell) => {
      session.onEnd(tell);
    },
    end: OUTBOX_END,
  });
}

/** LG7. The object is the only one with this storage. */
function migrate<Storage extends ObjectStorage>(session: ObjectSession<Storage>): void {
  session.rows(SQLITE_MIGRATIONS_TABLE);
  const applied = new Map(
    session
      .rows(SQLITE_APPLIED)
      .map(({ part, version }) => [textOf(part), integerOf(version)] as const),
  );
  for (const { part, version, sql } of pendingSteps(OBJECT_PARTS, applied)) {
    for (const text of sql) session.rows(text);
    session.rows(SQLITE_APPLY, part, version);
  }
  // The tables may be others than before: the object was emptied, or restored.
  bookOf(session).days.forget();
}
