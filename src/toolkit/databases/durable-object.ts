/**
 * The storage of a Durable Object, as a ledger uses it.
 *
 *   - transactions are one after the other, in a line of their own: the platform would nest one in another, if a promise that
 *     the first resolves resumes the caller of the second. The second would be rolled back with the first;
 *   - others learn of a transaction after its end: what its work resumes would run inside it;
 *   - the platform resets the whole object when a transaction is open for 30 s, so it is rolled back before that;
 *   - a transaction gets a stand-in for the storage, which refuses every call after the end.
 *
 * The types are those of the platform as far as they are used here: `ctx.storage` fits.
 */

import { waitingClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { TurnLine } from "./line.ts";
import { Loan, loanOf, unlessEnded } from "./lending.ts";

/** The result of a statement. */
interface ObjectCursor {
  toArray(): readonly Readonly<Record<string, unknown>>[];
}

/** `ctx.storage` of a Durable Object that keeps its data in SQLite. */
export interface ObjectStorage {
  readonly sql: { exec(query: string, ...bindings: unknown[]): ObjectCursor };
  transaction<T>(work: () => Promise<T>): Promise<T>;
  transactionSync<T>(work: () => T): T;
}

/** A value that a statement takes. Others are refused by the platform (bigint), or become something else (booleans). */
export type ObjectValue = string | number | null | Uint8Array;

type Row = Readonly<Record<string, unknown>>;

/** The platform resets the object at 30 s. */
export const TRANSACTION_MS_MAX = 30_000;
/** Rolled back by ourselves at this age: a reset would end all other work of the object too. */
const GIVEN_UP_MS = 29_000;
/** Before that, so that a call that waits for its own transaction gets the error, and not the transaction. */
const TURN_MS = 25_000;

/** Members of the storage that are not for the work of a transaction. */
const REFUSED: ReadonlySet<PropertyKey> = new Set(["transaction", "deleteAll"]);

const sessions = new WeakMap<ObjectStorage, ObjectSession<ObjectStorage>>();

/** Callbacks of one open transaction. */
interface Open {
  readonly ends: (() => void)[];
  readonly undos: (() => void)[];
}

/** The turns and transactions of one storage, in one life of its object. */
export class ObjectSession<Storage extends ObjectStorage> {
  readonly storage: Storage;
  readonly #line = new TurnLine(TURN_MS);
  #open: Open | undefined;

  private constructor(storage: Storage) {
    this.storage = storage;
  }

  /** Returns the one session of a storage: two ledgers over it wait for each other. */
  static of<Storage extends ObjectStorage>(storage: Storage): ObjectSession<Storage> {
    // A session has the type of the storage that it was made with.
    let session = sessions.get(storage) as ObjectSession<Storage> | undefined;
    if (session === undefined) {
      session = new ObjectSession(storage);
      sessions.set(storage, session);
    }
    return session;
  }

  /** Runs one statement. The caller has the turn. All rows are read: an open cursor would see later writes. */
  rows(sql: string, ...values: readonly ObjectValue[]): readonly Row[] {
    return this.storage.sql.exec(sql, ...values).toArray();
  }

  /** Reads in its turn, so it never sees the writes of an open transaction. */
  read<T>(work: () => T): Promise<T> {
    return this.#line.take(work);
  }

  /** Runs a transaction of the ledger's own in its turn. `before` runs outside of it. */
  write<T>(work: () => T, before: () => void): Promise<T> {
    return this.#line.take(() => {
      before();
      return this.#sync(work);
    });
  }

  /** Runs a transaction in its turn, with work that may await. `before` runs outside of it. */
  transaction<T>(
    work: (tx: Storage) => Promise<T>,
    signal: AbortSignal | undefined,
    before: () => void,
  ): Promise<T> {
    return this.#line.take(async () => {
      before();
      const open: Open = { ends: [], undos: [] };
      try {
        return await this.storage.transaction(() => {
          this.#open = open;
          return this.#lend(work, signal);
        });
      } catch (error) {
        this.#open = undefined;
        for (const undo of open.undos) undo();
        throw error;
      } finally {
        this.#open = undefined;
        for (const end of open.ends) end();
      }
    });
  }

  /** Runs a transaction at once. Throws `in_progress` while another one is open. `before` runs outside of it. */
  transactionSync<T>(work: (tx: Storage) => T, before: () => void): T {
    if (!this.#line.isFree)
      throw new HapaxError("in_progress", "another transaction of the ledger is open");
    before();
    return this.#lendSync(work);
  }

  /** As `transactionSync`, but waits for its turn. */
  inTurnSync<T>(work: (tx: Storage) => T, before: () => void): Promise<T> {
    return this.#line.take(() => {
      before();
      return this.#lendSync(work);
    });
  }

  /** Calls `run` when the open transaction has ended, or now. */
  onEnd(run: () => void): void {
    if (this.#open === undefined) run();
    else this.#open.ends.push(run);
  }

  /** Calls `run` if the open transaction is rolled back, after that. May call it more than once. */
  onUndo(run: () => void): void {
    this.#open?.undos.push(run);
  }

  async #lend<T>(work: (tx: Storage) => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    const loan = this.#loan();
    const over = new AbortController();
    // Set inside the transaction: timers from outside wait for its end.
    const cancel = waitingClock.after(GIVEN_UP_MS, () => {
      const what = `the transaction was open for ${GIVEN_UP_MS} ms, and is rolled back`;
      over.abort(new HapaxError("too_many", `${what}: the platform would reset the object`));
    });
    try {
      const done = unlessEnded(Promise.resolve(work(loan.tx)), signal);
      return await unlessEnded(done, over.signal);
    } finally {
      cancel();
      loan.end();
    }
  }

  #lendSync<T>(work: (tx: Storage) => T): T {
    const loan = this.#loan();
    try {
      return this.#sync(() => {
        const result = work(loan.tx);
        // The platform would commit here, and what follows the first await would be outside of the transaction.
        if (isThenable(result))
          throw new HapaxError("invalid_request", "the work of transactionSync must not be async");
        return result;
      });
    } finally {
      loan.end();
    }
  }

  #sync<T>(work: () => T): T {
    const open: Open = { ends: [], undos: [] };
    this.#open = open;
    try {
      return this.storage.transactionSync(work);
    } catch (error) {
      this.#open = undefined;
      for (const undo of open.undos) undo();
      throw error;
    } finally {
      this.#open = undefined;
      for (const end of open.ends) end();
    }
  }

  #loan(): Loan<Storage> {
    return new Loan(this.storage, {
      before(name, _args, isOutermost) {
        if (isOutermost && REFUSED.has(name))
          throw new HapaxError(
            "invalid_request",
            `${String(name)} inside a transaction is refused`,
          );
      },
      // What it undoes is undone for the ledger too.
      prepare: (name, args) => (name === "transactionSync" ? [this.#undoing(args[0])] : args),
      member: (value, lend) => lend(value),
    });
  }

  /** A part of the work that may be rolled back alone. */
  #undoing(work: unknown): () => unknown {
    return () => {
      try {
        // Cast: the platform refuses what is no function.
        return (work as () => unknown)();
      } catch (error) {
        for (const undo of this.#open?.undos ?? []) undo();
        throw error;
      }
    };
  }
}

/** Runs work in the open transaction that `tx` stands for. Throws `invalid_request` if it is not one of this storage. */
export function joinObject<Storage extends ObjectStorage>(
  session: ObjectSession<Storage>,
  tx: Storage,
): <T>(work: () => T) => T {
  const lent = loanOf(tx);
  if (lent?.target !== session.storage) {
    const what = "this is no open transaction of the ledger";
    throw new HapaxError("invalid_request", `${what}: use the tx that its work was given`);
  }
  lent.loan.require();
  return (work) => {
    lent.loan.require();
    return work();
  };
}

function isThenable(value: unknown): boolean {
  return typeof (Object(value) as { readonly then?: unknown }).then === "function";
}
