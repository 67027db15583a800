/**
 * PORT. The outbox of a database: the events that business transactions have added. The relay (toolkit/outbox/relay.ts)
 * reads and publishes them. Implementations: ledgers/*-outbox*.ts. testing/outbox-conformance.ts holds every
 * implementation to this contract:
 *
 *   - OL1: an event exists if and only if the transaction that added it was committed, in any order of commits;
 *   - OL2: a span names the same events, in the same order, for every reader at every time;
 *   - OL3: consecutive spans have every event once. An event that commits late is in a later span, and no reader waits
 *     for it;
 *   - OL4: events of one key are in the order of their transactions, if those excluded each other, for example by the
 *     lock of a row;
 *   - OL5: one relay at a time holds a batch of rows. No two batches with events of one key are held at once, and the
 *     batches go in order;
 *   - OL6: a held event is kept with the reason of its failure, changes with the relay's position in one transaction,
 *     and is never cleaned;
 *   - OL7: `clean` deletes only events that every relay has passed.
 */

import type { DeadLetterReason } from "../../base/dead-letter.ts";

/**
 * Says how relays find the events of an outbox. `log`: as a log, in which each relay keeps a position. `rows`: as rows,
 * which many relays take in batches at once. `decoding`: as a log, by logical decoding of the table. `messages`: as a
 * log, by logical decoding of messages, without a table.
 */
export type OutboxWay = "log" | "rows" | "decoding" | "messages";

/** An event that a transaction of your own adds to the outbox. */
export interface NewOutboxEvent {
  readonly topic: string;
  /** Events of one key are published in order. Undefined: it has no order. */
  readonly key?: string;
  readonly payload: Uint8Array;
  readonly headers?: Readonly<Record<string, string>>;
}

/** An event that was committed. */
export interface OutboxEvent {
  /** Unique in this database. Use it as the idempotency key of the published message. */
  readonly id: string;
  readonly topic: string;
  readonly key: string | undefined;
  readonly payload: Uint8Array;
  readonly headers: Readonly<Record<string, string>>;
  /** When the event was added, by the database's clock, in milliseconds since 1970. */
  readonly addedAtMs: number;
}

/** Names a run of events, as text that only the log understands. The next span begins at `to`. */
export interface OutboxSpan {
  readonly from: string;
  readonly to: string;
}

/** An event that the relay has put aside: it waits for its next attempt, behind a failed event of its key, or for an operator. */
export interface HeldEvent {
  /** The relay that holds the event. Every relay holds its own events. */
  readonly relay: string;
  readonly event: OutboxEvent;
  /** `waiting`: the relay tries it again when it is due. `dead`: the relay has given it up. */
  readonly state: "waiting" | "dead";
  readonly attempts: number;
  /** Milliseconds until the next attempt. Zero or less: it is due. Later events of the same key wait for the first one. */
  readonly dueInMs: number;
  /** Why the last attempt failed. Undefined if the event only waits for another one. */
  readonly reason: DeadLetterReason | undefined;
}

/** A new or changed held event: `dueInMs` from now on. */
export type HeldWrite = HeldEvent;

/** Selects held events. An event must match all given members. */
export interface HeldFilter {
  readonly relay: string;
  readonly state?: "waiting" | "dead";
  readonly key?: string;
  readonly ids?: readonly string[];
  readonly fingerprint?: string;
  /** True: only events that are due. */
  readonly isDue?: boolean;
  readonly max: number;
}

/** The events that wait behind a failure, and the dead letters. */
export interface HeldEvents {
  /** Returns events in the order in which they were held first. */
  list(filter: HeldFilter): Promise<readonly HeldEvent[]>;
  /** Returns how many events `list` would return, without reading them. */
  count(filter: HeldFilter): Promise<number>;
  /**
   * Returns which of these keys have held events, only of this `state` if it is given. The cost does not grow with the
   * number of held events.
   */
  keys(
    relay: string,
    among: readonly string[],
    state?: HeldEvent["state"],
  ): Promise<ReadonlySet<string>>;
  /**
   * Stores events by relay and id, and then removes events by id. Call it inside a transaction, through
   * `ledger.in(tx)`.
   */
  change(relay: string, puts: readonly HeldWrite[], removes: readonly string[]): Promise<void>;
}

interface OutboxCommon<Tx> {
  /** Adds events to the caller's transaction. Returns their ids. */
  add(tx: Tx, events: readonly NewOutboxEvent[]): Promise<readonly string[]>;
  /**
   * Resolves when there may be new events, and at the latest after `delayMs`. It is only a hint: relays stay correct
   * without it.
   */
  wait(delayMs: number, signal: AbortSignal): Promise<void>;
  readonly held: HeldEvents;
  /** Estimates how much is not published yet, for gauges. `position` is that of the relay. */
  lag(position: string | undefined): Promise<OutboxLag>;
}

/** How far behind a relay is. */
export interface OutboxLag {
  /** The age of the oldest event that is not published, in milliseconds. 0: all are published. */
  readonly oldestMs: number;
  /** The bytes that a replication slot keeps on disk. Undefined: there is no slot. */
  readonly slotBytes: number | undefined;
}

/** Reads an outbox as a log with positions. One relay of a name runs at a time; there may be any number of names. */
export interface OutboxSpans {
  /** Returns the position at which a new relay begins: before all stored events, or after them. */
  start(at: "beginning" | "end", relay: string): Promise<string>;
  /**
   * Returns the next span of at most `max` events; undefined if there are none. It may be longer where the events of
   * one transaction cannot be divided. `from` is the position that the relay has stored: the log may give up what lies
   * far before it.
   */
  plan(from: string, max: number): Promise<OutboxSpan | undefined>;
  /** Returns the events of a span: the same ones in the same order, every time. */
  read(span: OutboxSpan): Promise<readonly OutboxEvent[]>;
  /**
   * `transaction`: call `clean` in the transaction that has read the positions, so that no new relay begins in between.
   * `alone`: call it outside of transactions; it uses connections of its own.
   */
  readonly cleansIn: "transaction" | "alone";
  /**
   * Deletes at most `max` events that are older than `keepMs` and that every relay has passed. Returns how many.
   * `positions` has the positions of all relays.
   */
  clean(positions: readonly string[], keepMs: number, max: number): Promise<number>;
}

/** A batch of rows under a lease. A batch that was lost comes again with the same rows and the same id. */
export interface OutboxBatch {
  readonly id: number;
  readonly token: number;
  readonly isTakeover: boolean;
  readonly events: readonly OutboxEvent[];
  /** How many of its rows were deleted by hand since it was taken first. */
  readonly missing: number;
}

/** Events as rows that relays take in batches: many relays of one name at once. */
export interface OutboxRows {
  /**
   * Takes a batch under a lease; undefined if there is none. Leaves out the keys of held events: with `block` also
   * those of dead events, with `continue` only those of events that will be tried again.
   */
  claim(
    relay: string,
    max: number,
    leaseMs: number,
    afterDead: "block" | "continue",
  ): Promise<OutboxBatch | undefined>;
  /** Extends the lease. Returns false if another relay has taken the batch. */
  renew(batch: OutboxBatch, leaseMs: number): Promise<boolean>;
  /**
   * Ends the batch. Call it inside a transaction, through `ledger.in(tx)`. Deletes the rows that `done` names:
   * published events, and events that the same transaction stores as held. The other rows are free again. Returns
   * false, and changes nothing, if another relay has taken the batch.
   */
  settle(batch: OutboxBatch, done: readonly string[]): Promise<boolean>;
  /**
   * Ends the batches of a relay that will not run again, and frees their rows. Call it inside a transaction, through
   * `ledger.in(tx)`. Returns false if a batch is still under its lease.
   */
  giveUp(relay: string): Promise<boolean>;
}

/** An outbox that is read as a log. */
export interface LogOutbox<Tx> extends OutboxCommon<Tx> {
  readonly way: Exclude<OutboxWay, "rows">;
  readonly spans: OutboxSpans;
}

/** An outbox whose rows are taken in batches. */
export interface RowsOutbox<Tx> extends OutboxCommon<Tx> {
  readonly way: "rows";
  readonly rows: OutboxRows;
}

/** The outbox of a ledger. `way` tells which of the two it is. */
export type OutboxLog<Tx> = LogOutbox<Tx> | RowsOutbox<Tx>;
