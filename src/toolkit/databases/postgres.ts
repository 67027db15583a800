/**
 * The user's own PostgreSQL client: a pool of `pg`, `postgres` (postgres.js), or a query builder over one of them, as ledgers
 * use it.
 *
 *   - a connection whose transaction failed in an unknown way is not used again;
 *   - a transaction in which a statement failed is not reported as committed, also if the work caught the error;
 *   - a connection that is lost in a transaction fails its next statement, and not the process;
 *   - a transaction whose signal aborts ends at once, also if its work goes on, and its connection is free;
 *   - a transaction waits for a connection of the pool for a bounded time: the holders of all of them may wait for it.
 *
 * The work gets a stand-in for the client: see lending.ts and postgres-lending.ts.
 */

import { isStopped, type Stopper } from "../../base/aborts.ts";
import { waitingClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { lendBuilder } from "./builder-lending.ts";
import { asError, loanOf, unlessEnded, unlessStopped } from "./lending.ts";
import { noteLost } from "./outage.ts";
import type { KeptStatements } from "./postgres-keeping.ts";
import { beginWith, type WireCall, commitWith, isWired } from "./postgres-wire.ts";
import {
  CHECK_MARK,
  explained,
  lendPgClient,
  lendPostgresTransaction,
  SET_MARK,
} from "./postgres-lending.ts";
import { type Builder, type BuilderTransactionOf, databaseError } from "./query-builders.ts";

/** One connection of `pg`. A transaction of `pg` is a connection too. */
export interface PgClient {
  query(
    text: string,
    values?: unknown[],
  ): Promise<{ readonly rows: readonly unknown[]; readonly command?: string }>;
  release(error?: Error | boolean): void;
}

/** A pool of `pg`. */
export interface PgPool<Client extends PgClient = PgClient> {
  connect(): Promise<Client>;
  query(text: string, values?: unknown[]): Promise<{ readonly rows: readonly unknown[] }>;
}

/** A transaction of `postgres`. */
export interface PostgresTransaction {
  unsafe(
    text: string,
    values?: never[],
    options?: { prepare?: boolean },
  ): PromiseLike<readonly unknown[]>;
}

/** The `sql` of `postgres`. */
export interface PostgresSql<
  Tx extends PostgresTransaction = PostgresTransaction,
> extends PostgresTransaction {
  begin<T>(work: (tx: Tx) => Promise<T>): Promise<unknown>;
}

/** The transaction type of a client, as `postgresLedger` infers it. */
export type TransactionOf<Client> = Client extends {
  connect: { (): Promise<infer Connection>; (...rest: never[]): unknown };
}
  ? Connection
  : Client extends { begin: (...values: infer Values) => unknown }
    ? Values extends [...unknown[], (tx: infer Tx) => unknown]
      ? Tx
      : never
    : BuilderTransactionOf<Client>;

export type Row = Readonly<Record<string, unknown>>;

/**
 * Runs one statement: alone, or in its transaction. `isStable`: the text is one of a few, so a client that prepares
 * statements may keep it.
 */
export interface Query {
  (text: string, values?: readonly unknown[], isStable?: boolean): Promise<readonly Row[]>;
  /** The statement runs in a transaction that has the mark. */
  readonly isMarked?: boolean;
}

/** The common form of both clients. */
export interface PostgresSession<Tx> {
  readonly query: Query;
  transaction<T>(work: (tx: Tx) => Promise<T>, signal?: AbortSignal): Promise<T>;
  /** As `transaction`, for a client that takes several statements as one text. Undefined: it does not. */
  readonly enclosed?: EnclosedTransaction<Tx>;
  /** Returns a `Query` for a transaction that the user has begun. */
  in(tx: Tx): Query;
}

/** A statement that is sent with BEGIN or COMMIT. */
export interface Enclosed {
  /** Its text, with its values inside; `isKept`: to execute what the connection has prepared. */
  readonly text: (isKept: boolean) => string;
  /** The prepared statement, where there is one, and its column. */
  readonly call?: WireCall | undefined;
  readonly column?: string;
}

/** A statement that is sent with BEGIN. It sets the mark. */
export interface First {
  readonly first: Enclosed;
  /** The statements that may be executed instead of sent. Undefined: none. */
  readonly kept?: KeptStatements;
}

/** A statement that is sent with COMMIT. It fails without the mark. */
interface Last {
  readonly last: Enclosed | undefined;
}

export type EnclosedTransaction<Tx> = <T extends Last>(
  first: First,
  work: (tx: Tx, rows: readonly Row[]) => Promise<T>,
  onBegin: () => void,
  over?: Stopper,
) => Promise<T>;

export function isPgPool(client: object): client is PgPool {
  return "connect" in client && typeof client.connect === "function";
}

export function isPostgresSql(client: object): client is PostgresSql {
  return "begin" in client && typeof client.begin === "function";
}

export function pgPoolSession<Client extends PgClient>(
  pool: PgPool<Client>,
): PostgresSession<Client> {
  const enclosed: EnclosedTransaction<Client> = async (first, work, onBegin, over) => {
    const client = await connectTo(pool);
    const stopListening = hearErrors(client);
    const loan = lendPgClient(client);
    let broken: Error | undefined;
    try {
      onBegin();
      const { rows, isKept } = await begin(client, first);
      const result = await unlessStopped(work(loan.tx, rows), over);
      // Also for late calls of the work, between this and COMMIT.
      loan.end();
      await commit(client, result.last, isKept);
      return result;
    } catch (error) {
      loan.end();
      first.kept?.areForgotten(error);
      // A ROLLBACK might never be answered.
      broken = isStopped(over) ? asError(error) : await rollBack(client);
      if (broken !== undefined) noteLost(error);
      throw error;
    } finally {
      stopListening();
      client.release(broken);
    }
  };
  return {
    in: (tx) => joined(tx, queryOf),
    query: (text, values) => queryAlone(pool, text, values),
    enclosed,
    async transaction(work, signal) {
      const run = async (tx: Client) => ({ value: await work(tx), last: undefined });
      return (await enclosed(MARKED, run, () => undefined, signal && { signal })).value;
    },
  };
}

const MARKED: First = { first: { text: () => SET_MARK } };

async function begin(
  client: PgClient,
  { first, kept }: First,
): Promise<{ readonly rows: readonly Row[]; readonly isKept: boolean }> {
  const { text, call, column = "" } = first;
  const before = kept?.before(client, waitingClock.steadyMs());
  if (before !== undefined) {
    try {
      if (call !== undefined && isWired(client)) {
        const [value] = await beginWith(
          client,
          call,
          before === "" ? [] : (kept?.statements ?? []),
        );
        return { rows: value === undefined ? [] : [{ [column]: value }], isKept: true };
      }
      const answer = await client.query(`BEGIN; ${before}${text(true)}`);
      return { rows: lastRows(answer), isKept: true };
    } catch (error) {
      if (kept?.areForgotten(error) !== true) {
        if (before !== "") kept?.bar(client);
        throw error;
      }
      await client.query("ROLLBACK");
    }
  }
  return { rows: lastRows(await client.query(`BEGIN; ${text(false)}`)), isKept: false };
}

/** Several statements have several results. */
function lastRows(answer: unknown): readonly Row[] {
  const last: unknown = Array.isArray(answer) ? answer.at(-1) : answer;
  return (Object(last) as { readonly rows?: readonly Row[] }).rows ?? [];
}

/** In a failed transaction PostgreSQL answers COMMIT without an error, but every other statement with one. */
async function commit(
  client: PgClient,
  last: Enclosed | undefined,
  isKept: boolean,
): Promise<void> {
  try {
    if (isKept && last?.call !== undefined && isWired(client)) await commitWith(client, last.call);
    else await client.query(`${last?.text(isKept) ?? CHECK_MARK}; COMMIT`);
  } catch (error) {
    throw explained(error);
  }
}

async function queryAlone(
  pool: PgPool,
  text: string,
  values?: readonly unknown[],
): Promise<readonly Row[]> {
  const client = await connectTo(pool);
  let broken: Error | undefined;
  const stopListening = hearErrors(client);
  try {
    return await queryOf(client)(text, values);
  } catch (error) {
    // As the pool does it: an error of PostgreSQL has a code, and leaves the connection as it was.
    if (!(error instanceof Error && "severity" in error)) broken = asError(error);
    throw error;
  } finally {
    stopListening();
    client.release(broken);
  }
}

export function postgresSession<Tx extends PostgresTransaction>(
  sql: PostgresSql<Tx>,
): PostgresSession<Tx> {
  return {
    query: unsafeOf(sql),
    in: (tx) => joined(tx, unsafeOf),
    async transaction<T>(work: (tx: Tx) => Promise<T>, signal?: AbortSignal): Promise<T> {
      let checked: Promise<unknown> = Promise.resolve();
      const begin = (run: (tx: Tx) => Promise<void>): Promise<unknown> => sql.begin(run);
      const result = await begun(begin, signal, async (tx) => {
        const loan = lendPostgresTransaction(tx);
        try {
          // The client sends it with the next statements, without waiting for its answer.
          const marked = handled(tx.unsafe(SET_MARK));
          const value = await unlessEnded(work(loan.tx), signal);
          loan.end();
          await marked;
          checked = handled(tx.unsafe(CHECK_MARK));
          return value;
        } finally {
          loan.end();
        }
      });
      await checked.catch((error: unknown) => {
        throw explained(error);
      });
      return result;
    },
  };
}

/** The session of a query builder. The work gets the query builder's own transaction. */
export function builderSession<Tx extends object>(builder: Builder<Tx>): PostgresSession<Tx> {
  return {
    query: builder.query,
    in: (tx) => joined(tx, (target) => builder.in(target)),
    async transaction<T>(work: (tx: Tx) => Promise<T>, signal?: AbortSignal): Promise<T> {
      let thrown: { readonly error: unknown } | undefined;
      try {
        return await begun(
          (run: (tx: Tx) => Promise<void>) => builder.begin(run),
          signal,
          async (tx) => {
            const query = builder.in(tx);
            const loan = lendBuilder(tx, builder.ending);
            try {
              await query(SET_MARK);
              const value = await unlessEnded(work(loan.tx), signal);
              loan.end();
              await unlessEnded(loan.settled(), signal);
              await query(CHECK_MARK).catch((error: unknown) => {
                throw explained(error);
              });
              return value;
            } catch (error) {
              loan.end();
              thrown = { error };
              throw error;
            }
          },
        );
      } catch (error) {
        // What it throws at COMMIT is the database's.
        if (thrown === undefined) throw databaseError(error);
        // A query builder that cannot roll back throws the reason in place of the error.
        const isLost = error !== thrown.error || builder.isLost?.(error) === true;
        if (isLost && signal?.aborted !== true) noteLost(thrown.error);
        throw thrown.error;
      }
    },
  };
}

/**
 * Runs a transaction of a client that takes the work as a function. `begin` commits when that returns, and rolls back when it
 * throws. The caller waits for the begin for a bounded time, and for no ROLLBACK once its signal has aborted.
 */
async function begun<Tx, T>(
  begin: (run: (tx: Tx) => Promise<void>) => Promise<unknown>,
  signal: AbortSignal | undefined,
  work: (tx: Tx) => Promise<T>,
): Promise<T> {
  let result: { readonly value: T } | undefined;
  const beginning = new Beginning();
  let giveUp: (error: unknown) => void = () => undefined;
  const givenUp = new Promise<never>((_, reject) => (giveUp = reject));
  const ended = begin(async (tx) => {
    beginning.reach();
    try {
      result = { value: await work(tx) };
    } catch (error) {
      // ROLLBACK may have to wait for a running statement. The caller does not.
      if (signal?.aborted === true) giveUp(error);
      throw error;
    }
  });
  void handled(givenUp);
  void ended.catch((error: unknown) => {
    if (!beginning.isReached) noteLost(error);
  });
  await patiently(
    () => Promise.race([beginning.reached, ended]),
    () => undefined,
    () => beginning.giveUp(),
  );
  await Promise.race([ended, givenUp]);
  if (result === undefined) throw new Error("a transaction ended without its result");
  return result.value;
}

/** Longer than a transaction should take. */
const CONNECT_MS = 60_000;

async function connectTo<Client extends PgClient>(pool: PgPool<Client>): Promise<Client> {
  try {
    // There is nothing to wait for.
    if (Number((pool as { readonly idleCount?: unknown }).idleCount) > 0)
      return await pool.connect();
    return await patiently(
      () => pool.connect(),
      (client) => {
        client.release();
      },
    );
  } catch (error) {
    noteLost(error);
    throw error;
  }
}

/** `late` gets a value that comes after the caller has given up. */
function patiently<T>(
  open: () => Promise<T>,
  late: (value: T) => void,
  onGiveUp: () => void = () => undefined,
): Promise<T> {
  const opening = open();
  return new Promise((resolve, reject) => {
    const cancel = waitingClock.after(CONNECT_MS, () => {
      onGiveUp();
      opening.then(late).catch(() => undefined);
      const what = `no connection of the pool was free for ${CONNECT_MS} ms`;
      const why = "a call inside a transaction that does not use ledger.in(tx) needs one more";
      reject(new HapaxError("too_many", `${what}; ${why}`));
    });
    opening.then(
      (value) => {
        cancel();
        resolve(value);
      },
      (error: unknown) => {
        cancel();
        reject(error);
      },
    );
  });
}

/** The moment at which postgres.js has a connection for a transaction. */
class Beginning {
  readonly reached: Promise<void>;
  isReached = false;
  #reach: () => void = () => undefined;
  #isGivenUp = false;

  constructor() {
    this.reached = new Promise((resolve) => {
      this.#reach = resolve;
    });
  }

  reach(): void {
    if (this.#isGivenUp) throw new Error("the caller has not waited for the transaction");
    this.isReached = true;
    this.#reach();
  }

  giveUp(): void {
    this.#isGivenUp = true;
  }
}

/** Starts the query. A failure ends no process; the caller looks at it later. */
function handled<T>(promise: PromiseLike<T>): Promise<T> {
  const started = Promise.resolve(promise);
  started.catch(() => undefined);
  return started;
}

/** Returns a `Query` for a transaction that the ledger or the caller began. */
function joined<Tx extends object>(tx: Tx, queryIn: (target: Tx) => Query): Query {
  const lent = loanOf(tx);
  if (lent === undefined) return queryIn(tx);
  lent.loan.require();
  const query = queryIn(lent.target);
  const whileOpen: Query = async (text, values, isStable) => {
    lent.loan.require();
    return query(text, values, isStable);
  };
  return Object.assign(whileOpen, { isMarked: true });
}

function queryOf(client: Pick<PgClient, "query">): Query {
  return async (text, values = []) => (await client.query(text, [...values])).rows as Row[];
}

function unsafeOf(sql: PostgresTransaction): Query {
  // postgres.js types its values by what it can serialise; all of ours are text, numbers, bytes and null.
  // An unprepared statement costs two round trips. A user behind a pooler has turned preparing off in the client.
  return async (text, values = [], isStable = false) =>
    (await sql.unsafe(text, [...values] as never[], { prepare: isStable })) as Row[];
}

/**
 * `pg` reports a lost connection by an event. Without a listener the event ends the process, and the pool listens only
 * while the connection is idle. The next statement fails with the same error.
 */
function hearErrors(client: PgClient): () => void {
  const { on, off } = client as {
    readonly on?: (event: "error", listener: () => void) => unknown;
    readonly off?: (event: "error", listener: () => void) => unknown;
  };
  if (typeof on !== "function" || typeof off !== "function") return () => undefined;
  const listener = (): void => undefined;
  on.call(client, "error", listener);
  return () => {
    off.call(client, "error", listener);
  };
}

/** Rolls back. Returns the error if the connection cannot do even that. */
async function rollBack(client: PgClient): Promise<Error | undefined> {
  try {
    await client.query("ROLLBACK");
    return undefined;
  } catch (error) {
    return asError(error);
  }
}
