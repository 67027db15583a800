/**
 * PORT. The events that business transactions leave behind, in the user's own database. The relay (toolkit/outbox/relay.ts) reads
 * them and publishes. Implementations: ledgers/*-outbox*.ts.
 *
 * Contract, held by testing/outbox-conformance.ts against every implementation:
 *   OL1  an event is there if and only if the transaction that added it was committed, whenever and in which order ever;
 *   OL2  a span names the same events, in the same order, whenever it is read, by whomever;
 *   OL3  spans that follow each other have every event once: one that commits late is in a later span, and is not waited for;
 *   OL4  events of one key are in the order of their transactions, if those excluded each other (as by the lock of a row);
 *   OL5  a batch of rows is held by one relay at a time; of one key no two batches are held at once, and they go in order;
 *   OL6  held events are kept with what failed, change with the relay's position in one transaction, and are never cleaned;
 *   OL7  `clean` deletes only what every relay is past.
 */

import type { DeadLetterReason } from "../../base/dead-letter.ts";

/**
 * How relays find the events of an outbox. `log`: as a log with positions, of which relays keep one each. `rows`: as rows
 * that relays take in batches, many at once. `decoding`: as a log, by logical decoding of the table. `messages`: as a log, by
 * logical decoding of messages, without a table.
 */
export type OutboxWay = "log" | "rows" | "decoding" | "messages";

/** What a business transaction adds. */
export interface NewOutboxEvent {
  readonly topic: string;
  /** Events of one key are published in order. Undefined: it has no order. */
  readonly key?: string;
  readonly payload: Uint8Array;
  readonly headers?: Readonly<Record<string, string>>;
}

/** An event that was committed. */
export interface OutboxEvent {
  /** Unique in this database: the idempotency key of what is published. */
  readonly id: string;
  readonly topic: string;
  readonly key: string | undefined;
  readonly payload: Uint8Array;
  readonly headers: Readonly<Record<string, string>>;
  /** When it was added, by the database's clock. */
  readonly addedAtMs: number;
}

/** A stretch of events, as text that only the log understands. The next one begins at `to`. */
export interface OutboxSpan {
  readonly from: string;
  readonly to: string;
}

/** An event that waits: behind a failure, or for an operator. */
export interface HeldEvent {
  /** Whose: every relay has its own. */
  readonly relay: string;
  readonly event: OutboxEvent;
  /** `waiting`: to be tried again when it is due. `dead`: given up. */
  readonly state: "waiting" | "dead";
  readonly attempts: number;
  /** Zero or less: due. Of the first event of a key; those behind it wait with it. */
  readonly dueInMs: number;
  /** Why the last attempt failed; undefined if the event only waits behind another. */
  readonly reason: DeadLetterReason | undefined;
}

/** A new or changed held event: `dueInMs` from now on. */
export type HeldWrite = HeldEvent;

/** Which held events: all that are named. In the order in which they were added. */
export interface HeldFilter {
  readonly relay: string;
  readonly state?: "waiting" | "dead";
  readonly key?: string;
  readonly ids?: readonly string[];
  readonly fingerprint?: string;
  /** Only those that are due. */
  readonly isDue?: boolean;
  readonly max: number;
}

/** Events that wait behind a failure, and dead letters: the same for every way. */
export interface HeldEvents {
  /** In the order in which they were held first. */
  list(filter: HeldFilter): Promise<readonly HeldEvent[]>;
  /** How many `list` would answer: without reading them. */
  count(filter: HeldFilter): Promise<number>;
  /** Those of these keys that have held events; `state`: of this state. Costs no more where very many are held. */
  keys(
    relay: string,
    among: readonly string[],
    state?: HeldEvent["state"],
  ): Promise<ReadonlySet<string>>;
  /** Inside a transaction of `ledger.in(tx)`: puts by relay and id, then removes by id. */
  change(relay: string, puts: readonly HeldWrite[], removes: readonly string[]): Promise<void>;
}

interface OutboxCommon<Tx> {
  /** Adds events to the caller's transaction, and answers their ids. */
  add(tx: Tx, events: readonly NewOutboxEvent[]): Promise<readonly string[]>;
  /** Resolves when there may be something new, and at the latest after so long. Only a hint: nothing depends on it. */
  wait(delayMs: number, signal: AbortSignal): Promise<void>;
  readonly held: HeldEvents;
  /** What is not published yet, roughly: for gauges. `position` as the relay has it. */
  lag(position: string | undefined): Promise<OutboxLag>;
}

/** How far behind a relay is. */
export interface OutboxLag {
  /** Age of the oldest event that is not published; 0 if there is none. */
  readonly oldestMs: number;
  /** What a replication slot keeps on disk; undefined without one. */
  readonly slotBytes: number | undefined;
}

/** Events as a log with positions: one relay of a name at a time, any number of names. */
export interface OutboxSpans {
  /** Where a new relay begins: before everything that is there, or behind it. */
  start(at: "beginning" | "end", relay: string): Promise<string>;
  /**
   * The next stretch of at most `max` events (one transaction at least, where they cannot be parted); undefined: nothing.
   * `from` is the position that the relay has kept: what lies far before it may be given up.
   */
  plan(from: string, max: number): Promise<OutboxSpan | undefined>;
  /** OL2 */
  read(span: OutboxSpan): Promise<readonly OutboxEvent[]>;
  /**
   * `transaction`: `clean` belongs into the transaction in which the positions were read, so that no relay begins in
   * between. `alone`: no relay needs what it deletes, and it uses connections of its own.
   */
  readonly cleansIn: "transaction" | "alone";
  /** OL7: `positions` of all relays. Deletes at most `max` events older than `keepMs`; answers how many. */
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
   * OL5. The keys of held events are left alone: `block` those of dead ones too, `continue` only those that wait to be
   * tried again.
   */
  claim(
    relay: string,
    max: number,
    leaseMs: number,
    afterDead: "block" | "continue",
  ): Promise<OutboxBatch | undefined>;
  /** Answers whether it is still held. */
  renew(batch: OutboxBatch, leaseMs: number): Promise<boolean>;
  /**
   * Inside a transaction of `ledger.in(tx)`: the batch is over. `done` names what was published, and what the same
   * transaction puts among the held ones: those rows are deleted, and the rest is free again. Answers false, and
   * changes nothing, if it was taken meanwhile.
   */
  settle(batch: OutboxBatch, done: readonly string[]): Promise<boolean>;
  /**
   * Inside a transaction of `ledger.in(tx)`: the batches of a relay that will not come back are over, and their rows free.
   * Answers false if one of them is under its lease.
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
