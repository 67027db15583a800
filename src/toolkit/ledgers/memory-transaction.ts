/** What a ledger in memory and its outbox both know of a transaction. */

/** A transaction in memory: business data that lives in the same process says how it is taken back. */
export interface MemoryTransaction {
  /** Called, last first, if the transaction fails. */
  undo(work: () => void): void;
}
