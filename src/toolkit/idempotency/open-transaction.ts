/** Transactions that begin in one function and end in another: hooks and middleware have no function around the work. */

import { isStopped, LightStop, type Stoppable, type Stopper } from "../../base/aborts.ts";
import { HapaxError } from "../../base/errors.ts";
import type { EntryWrite, Ledger, Locked, LockedEnd, Place } from "../ledgers/ledger.ts";
import type { Claim, ClaimTerms } from "../once/claiming.ts";
import { acquiredBy, type AcquiredLock, inLockedTransaction } from "../once/locking.ts";
import type { ResolvedTools } from "../once/tools.ts";

export interface OpenTransaction<Tx> {
  readonly tx: Tx;
  /**
   * Runs `last` inside the transaction and commits, with the entry that it returns for a locked place. Rejects if it is not
   * committed, or if that is unknown.
   */
  commit(last: Ending<Tx>): Promise<void>;
  /** Rolls back. Does nothing if `commit` was called before. */
  rollBack(): Promise<void>;
}

type Ending<Tx> = (tx: Tx) => Promise<EntryWrite | undefined>;

/** Opens a transaction. `signal` ends it at once: its connection is free, also if the handler goes on. */
export async function openTransaction<Tx>(
  ledger: Ledger<Tx>,
  signal: AbortSignal | undefined,
): Promise<OpenTransaction<Tx>> {
  const held = new HeldOpen<Tx>(signal && { signal });
  await new Promise<void>((opened, failed) => {
    held.ended = ledger.transaction(async (tx) => {
      opened();
      await held.until(tx);
    }, signal);
    // It may fail before it is open.
    held.ended.catch(failed);
  });
  return held;
}

/** The result of `openLocked()`. Without a claim the transaction has ended. */
export type OpenedLock<Tx> =
  | {
      readonly kind: "locked";
      readonly claim: Claim<Tx>;
      readonly transaction: OpenTransaction<Tx>;
    }
  | Exclude<AcquiredLock<Tx>, { readonly kind: "locked" }>;

/** CK7: opens a transaction and claims the key in it. A claim that is lost ends the transaction; `onLost` is called then. */
export function openLocked<Tx>(
  ledger: Ledger<Tx>,
  place: Place,
  terms: ClaimTerms,
  tools: ResolvedTools,
  onLost: () => void,
): Promise<OpenedLock<Tx>> {
  const over = new LightStop();
  const transaction = new HeldOpen<Tx>(over);
  let startedMs = 0;
  const onLock = (): void => {
    startedMs = tools.clock.steadyMs();
  };
  return new Promise((opened, failed) => {
    type Refused = Exclude<AcquiredLock<Tx>, { readonly kind: "locked" }>;
    const work = async (tx: Tx, locked: Locked): Promise<LockedEnd<Refused | undefined>> => {
      const acquired = acquiredBy(locked, ledger, place, terms, tools, over, startedMs);
      if (acquired.kind !== "locked") return { value: acquired, entry: undefined };
      const { claim } = acquired;
      claim.start();
      const entry = transaction.until(tx);
      opened({ kind: "locked", claim, transaction });
      return { value: undefined, entry: await entry };
    };
    const whole = async (): Promise<void> => {
      const end = await inLockedTransaction(ledger, place, work, onLock, over);
      if (end === "late") throw overtaken(place, tools, over);
      if (end.value !== undefined) opened(end.value);
    };
    transaction.ended = whole();
    transaction.ended.catch((error: unknown) => {
      if (over.isStopped) onLost();
      failed(error); // It may fail before it is open.
    });
  });
}

/** Returns the error of work that has found the entry of another one at its end, and aborts its signal. */
function overtaken(
  { kind, scope, key }: Place,
  { meter }: ResolvedTools,
  over: Stoppable,
): HapaxError {
  meter.add("fenced_total", 1, { primitive: kind });
  const what = "another one has ended the work";
  const error = new HapaxError("lease_lost", `${what}; kind=${kind} scope=${scope} key=${key}`);
  over.abort(error);
  return error;
}

class HeldOpen<Tx> implements OpenTransaction<Tx> {
  /** Settles with the transaction. */
  ended: Promise<void> = Promise.resolve();
  readonly #over: Stopper | undefined;
  #tx: { readonly tx: Tx } | undefined;
  #end: (ending: Ending<Tx>) => void = () => undefined;
  #isEnding = false;

  /** `over`: what ends the transaction before its time. */
  constructor(over: Stopper | undefined) {
    this.#over = over;
  }

  get tx(): Tx {
    if (this.#tx === undefined) throw new Error("the transaction is not open");
    return this.#tx.tx;
  }

  /** Keeps the transaction open. Resolves with the result of its ending. */
  until(tx: Tx): Promise<EntryWrite | undefined> {
    this.#tx = { tx };
    return new Promise((resolve, reject) => {
      this.#end = (ending) => {
        ending(tx).then(resolve, reject);
      };
    });
  }

  async commit(last: Ending<Tx>): Promise<void> {
    this.#isEnding = true;
    this.#end(last);
    await this.ended;
  }

  async rollBack(): Promise<void> {
    if (this.#isEnding) return;
    this.#isEnding = true;
    const undo = new Error("the transaction is rolled back on purpose");
    this.#end(() => Promise.reject(undo));
    try {
      await this.ended;
    } catch (error) {
      if (error !== undo && !isStopped(this.#over)) throw error;
    }
  }
}
