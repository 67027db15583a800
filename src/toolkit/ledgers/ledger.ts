/**
 * PORT. What was claimed, done, seen and held in the user's own database, beside the user's own data and in the same
 * transactions. Adapters: memory.ts, sqlite.ts, postgres.ts and redis.ts beside it. The rules are toolkit/rules/claim.ts.
 *
 * Contract, held by testing/ledger-conformance.ts against every implementation:
 *   LG1  what a transaction wrote is there as a whole after it, or not at all; no other caller sees it before;
 *   LG2  `put` writes if the entry is as expected at that moment, and otherwise writes nothing: of many at once, one wins;
 *   LG3  a token is greater than every token that any process got before; also after entries were deleted, after restarts, and
 *        after the database was restored or failed over, as far as its clock went on. So it is not below the clock
 *        (ledgers/tokens.ts);
 *   LG4  time is the database's: what is left of a lease or of a retention is computed where the entry lives;
 *   LG5  `in(tx)` does everything inside the caller's transaction: what it wrote is committed or rolled back with that transaction;
 *   LG6  scope, key and kind are kept apart: entries of two places are never mixed up, with any characters in their names;
 *   LG7  `migrate` can be called again, and by many at once; it refuses a schema newer than itself;
 *   LG8  `sweep` deletes what is past its retention, at most so many at once, and never an entry that a caller works on; what
 *        is past its retention may be gone before, and what is kept by days goes a table at once;
 *   LG9  bytes come back as they were put;
 *   LG10 `scan` in the order `due` and `nextDue` cost as much as they answer, however many entries sleep;
 *   LG11 of the open transactions that lock an absent place, one has it, until its end. The others do not wait for it; where one
 *        transaction excludes all others, they wait for their turn instead;
 *   LG13 `page` reads no more than its page, however many entries there are, and its pages lead to every entry that stays as it is;
 *   LG12 `recover` ends the leases that an earlier life of the one holder has left, and no lease of this life. Leases of the kind
 *        `lease` stay: others know their tokens. So do those of entries without a retention: their work must be asked for.
 */

import type { Stopper } from "../../base/aborts.ts";
import type { EntryState } from "../rules/claim.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import type { OutboxLog, OutboxWay } from "../outbox/log.ts";

/** The place of an entry: its kind, scope and key. */
export interface Place extends ScopedKey {
  /** The primitive: `once`, `http`, `inbox`, `lease`, `version`, `newest`, `relay`, `pipeline`, `saga`. */
  readonly kind: string;
}

/** An entry as it was at one moment. */
export interface Entry {
  /** The token of the claim that wrote the entry. Every later claim has a greater one. */
  readonly token: number;
  /** How often the entry was written since its creation. */
  readonly revision: number;
  readonly state: EntryState;
  /** How often the entry was claimed since its creation. */
  readonly attempts: number;
  /** Milliseconds until the lease ends. Zero or less: it is over. Undefined: there is none. */
  readonly leaseLeftMs: number | undefined;
  /**
   * How long the lease was at its start, in milliseconds. If `leaseLeftMs` is greater, the database's clock was set
   * back.
   */
  readonly leaseMs?: number | undefined;
  /** Milliseconds until the entry expires. Zero or less: it has expired. Undefined: it never expires. */
  readonly keepLeftMs: number | undefined;
  /** Milliseconds since the creation of the entry. */
  readonly ageMs: number;
  /** A digest of the content that the key was claimed for. */
  readonly fingerprint: string | undefined;
  /** The data of the primitive: a result, the progress of work, a position. */
  readonly data: Uint8Array | undefined;
}

/** The new values of an entry. */
export interface EntryWrite {
  readonly state: EntryState;
  /** `next`: a new claim with a new token. `same`: the token stays. `drawn`: the token that `lock` gave for an absent place. */
  readonly token: "next" | "same" | { readonly drawn: number };
  readonly attempts: number;
  /** The lease in milliseconds, from now on. Undefined: no lease. */
  readonly leaseMs: number | undefined;
  /** The retention in milliseconds, from now on. Undefined: the entry never expires. */
  readonly keepMs: number | undefined;
  /** `same`: the value stays, also if another owner wrote it. */
  readonly fingerprint: { readonly value: string | undefined } | "same";
  readonly data: { readonly value: Uint8Array | undefined } | "same";
}

/**
 * The condition of a write. `absent`: there is no entry. `unchanged`: the entry was not written since it was read.
 * `owned`: the entry is running under this token; writes of the owner in between do not matter.
 */
export type Expected =
  | { readonly kind: "absent" }
  | { readonly kind: "unchanged"; readonly token: number; readonly revision: number }
  | { readonly kind: "owned"; readonly token: number };

/** The result of `Entries.lock()`. */
export type Locked =
  /** There is no entry, and no other transaction can lock the place before this one ends. The token is for the new entry. */
  | { readonly kind: "absent"; readonly token: number }
  /** There is an entry. It is not locked. */
  | { readonly kind: "found"; readonly entry: Entry }
  /** Another open transaction has locked the place for this long. Undefined: the role of the connection may not see how long. */
  | { readonly kind: "held"; readonly heldMs: number | undefined }
  /** This transaction would not see what others commit after it began, so it could not detect that it is stale. */
  | { readonly kind: "stale" };

/** The result of work under a lock. */
export interface LockedEnd<T> {
  readonly value: T;
  /** The entry for the locked place. Its token is the one that `lock` gave. Undefined: no entry. */
  readonly entry: EntryWrite | undefined;
}

/** An entry with its place. */
export interface PlacedEntry extends Entry {
  readonly place: Place;
}

/** Selects the entries of a `scan`. */
export interface EntryFilter {
  readonly kind: string;
  readonly scope?: string;
  readonly state?: EntryState;
  /** True: only entries whose lease is over. */
  readonly isAbandoned?: boolean;
  /**
   * `made` (default): oldest first. `due`: the first lease to end comes first, and entries without a lease are left
   * out; use it with the state `running`.
   */
  readonly order?: "made" | "due";
  readonly max: number;
}

/**
 * Selects the entries of a `page`: all of a kind, those of one scope, or those in one state. `from` is the `next` of
 * the page before.
 */
export type PageFilter = {
  readonly kind: string;
  readonly from?: string | undefined;
  /** The most entries that the page reads. */
  readonly max: number;
  /** True: the entries come without `data`. */
  readonly isBare?: boolean;
} & (
  | { readonly scope?: string | undefined; readonly state?: undefined }
  | { readonly state: Exclude<EntryState, "done">; readonly scope?: undefined }
);

/** A page of entries. It may be empty although other pages follow, because not every entry that was read matches. */
export interface EntryPage {
  readonly entries: readonly PlacedEntry[];
  /** The start of the next page, as text that only the ledger understands. Undefined: this was the last page. */
  readonly next: string | undefined;
}

/** Reads and writes entries. Each call is a transaction of its own, or all calls are inside one transaction. */
export interface Entries {
  /** Reads an entry. Inside a transaction it also locks the entry until the end: no other transaction writes it meanwhile. */
  find(place: Place): Promise<Entry | undefined>;
  /**
   * Locks a place without an entry until the end of the transaction, without waiting. Call it inside a transaction. It
   * is for work whose effect is in the same transaction: the entry is written at the end, and a lost connection frees
   * the place. The lock is only a hint: the `put` of an absent entry decides. Only some ledgers have it.
   */
  lock?(place: Place): Promise<Locked>;
  /**
   * Writes an entry if it is as expected. Returns its new token and revision; undefined if it was not as expected and
   * nothing was written.
   */
  put(
    place: Place,
    expected: Expected,
    write: EntryWrite,
  ): Promise<{ readonly token: number; readonly revision: number } | undefined>;
  /** Deletes the entry if it is as expected. */
  remove(place: Place, expected: Expected): Promise<boolean>;
  scan(filter: EntryFilter): Promise<readonly PlacedEntry[]>;
  /** Returns one page of entries, for tools that list all entries. The order is that of the ledger. */
  page(filter: PageFilter): Promise<EntryPage>;
  /**
   * Milliseconds until the first lease of a running entry of these kinds ends. Zero or less: one is over. Undefined: no
   * running entry of these kinds has a lease.
   */
  nextDue(kinds: readonly string[]): Promise<number | undefined>;
  /** Deletes at most `max` entries that are past their retention. Returns how many. Running entries under a lease stay. */
  sweep(max: number): Promise<number>;
}

/** The abilities of a ledger. A function that needs more throws `unsupported`, and names what is missing. */
export interface LedgerSupport {
  /** Whether your data and the entries can change in one transaction. */
  readonly transactions: boolean;
  /** Whether only one transaction runs at a time, over all processes. While one is open, no other call claims anything. */
  readonly isExclusive: boolean;
  /**
   * `memory`: gone with the process. `database`: as durable as the user's data. `server`: kept by one server; writes that
   * it has answered may be lost when another server takes over.
   */
  readonly durability: "memory" | "database" | "server";
  /** The longest that a transaction may be open. Primitives refuse leases that are longer. Undefined: no limit. */
  readonly transactionMsMax?: number;
  /**
   * Whether code that continues because the work resolves a promise still runs inside the transaction. If so,
   * primitives tell others of their work only after its end.
   */
  readonly absorbsResumed?: boolean;
  /** The ways in which relays can read the outbox. Empty: there is no outbox. */
  readonly outbox: readonly OutboxWay[];
}

/**
 * Your database as a ledger. `Tx` is the transaction type of its client. Every implementation must pass
 * `ledgerConformance` of `hapax/testing`.
 */
export interface Ledger<Tx> {
  readonly name: string;
  readonly supports: LedgerSupport;
  /**
   * True for a ledger that `in` has returned. Its `transaction` runs in the caller's transaction and does not commit
   * it.
   */
  readonly isJoined: boolean;
  readonly entries: Entries;
  /** The events of the outbox. Throws `unsupported` if `supports.outbox` is empty. */
  readonly outbox: OutboxLog<Tx>;
  /**
   * Creates the tables, or brings them up to date. May be called again, and by many processes at once. Throws
   * `schema_newer` if a newer version of Hapax has made them.
   */
  migrate(): Promise<void>;
  /**
   * Runs `work` in a transaction. Commits when it is done, and rolls back when it throws. When `signal` aborts, the
   * transaction is rolled back at once, without waiting for the work, and the call rejects with the signal's reason.
   * `tx` refuses every call after the end.
   */
  transaction<T>(work: (tx: Tx) => Promise<T>, signal?: AbortSignal): Promise<T>;
  /**
   * Does the same as `transaction` for work under a lock. It locks an absent place first, and at the end it creates the
   * entry that the work returns, in as few round trips as the client allows. Returns `late`, and commits nothing, if
   * there is an entry by then. It calls `onLock` just before it asks for the lock. Work that returns no promise is not
   * awaited. Only some ledgers have it; for the others the primitives do the single steps.
   */
  lockedTransaction?<T>(
    place: Place,
    work: (tx: Tx, locked: Locked) => LockedEnd<T> | Promise<LockedEnd<T>>,
    onLock: () => void,
    over?: Stopper,
  ): Promise<LockedEnd<T> | "late">;
  /**
   * Does the same as `transaction` for work that does not await, so that no other code runs meanwhile. Throws
   * `in_progress` while another transaction of the ledger is open, and `invalid_request` if the work returns a promise.
   * Only some ledgers have it.
   */
  transactionSync?<T>(work: (tx: Tx) => T): T;
  /**
   * Ends the claims from before a restart. Call it when the only process that uses the database starts again, as a
   * Durable Object does when it wakes: work that it had begun before can then be claimed at once, and not only when
   * its lease ends. Returns how many claims it ended. Only ledgers with a single holder have it.
   */
  recover?(): Promise<number>;
  /** Returns this ledger inside a transaction that the caller has begun and will end. */
  in(tx: Tx): Ledger<Tx>;
}
