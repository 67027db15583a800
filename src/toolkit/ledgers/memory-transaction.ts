/** What a ledger in memory and its outbox both know of a transaction. */

/** A transaction in memory. Your own data in the same process can register how to undo its changes. */
export interface MemoryTransaction {
  /** Registers a function that undoes a change. If the transaction fails, the functions run, the last one first. */
  undo(work: () => void): void;
}
