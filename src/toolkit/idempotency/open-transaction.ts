/** A transaction that begins in one function and ends in another: hooks and middleware have no function around the work. */

import type { Ledger } from "../ledgers/ledger.ts";

export interface OpenTransaction<Tx> {
  readonly tx: Tx;
  /** Runs `last` inside the transaction and commits. Rejects if it is not committed, or if that is unknown. */
  commit(last: (tx: Tx) => Promise<void>): Promise<void>;
  /** Rolls back. Does nothing if `commit` was called before. */
  rollBack(): Promise<void>;
}

type Ending<Tx> = (tx: Tx) => Promise<void>;

/** Opens a transaction. `signal` ends it at once: its connection is free, also if the handler goes on. */
export async function openTransaction<Tx>(
  ledger: Ledger<Tx>,
  signal: AbortSignal | undefined,
): Promise<OpenTransaction<Tx>> {
  let end: (ending: Ending<Tx>) => void = () => undefined;
  const ending = new Promise<Ending<Tx>>((resolve) => (end = resolve));
  let ended: Promise<void> = Promise.resolve();
  const tx = await new Promise<Tx>((opened, failed) => {
    ended = ledger.transaction(async (open) => {
      opened(open);
      await (
        await ending
      )(open);
    }, signal);
    // It may fail before it is open.
    ended.catch(failed);
  });
  let isEnding = false;
  return {
    tx,
    async commit(last) {
      isEnding = true;
      end(last);
      await ended;
    },
    async rollBack() {
      if (isEnding) return;
      isEnding = true;
      const undo = new Error("the transaction is rolled back on purpose");
      end(() => Promise.reject(undo));
      try {
        await ended;
      } catch (error) {
        if (error !== undo && signal?.aborted !== true) throw error;
      }
    },
  };
}
