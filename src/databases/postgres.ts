/**
 * The user's own PostgreSQL client: a pool of `pg`, or `postgres` (postgres.js). What sinks and ledgers share.
 *
 *   PS2  a connection whose transaction failed in an unknown way is not used again;
 *   PS3  a transaction in which a statement failed is not told as committed, whoever caught the error;
 *   PS4  a connection that is lost in a transaction fails its next statement, and not the process.
 */

/** One connection of `pg`: also what a transaction is. */
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

export type Row = Readonly<Record<string, unknown>>;

/**
 * Runs one statement: alone, or in the transaction that it belongs to. `isStable`: its text is one of a few, so that a
 * client that prepares statements may keep it.
 */
export type Query = (
  text: string,
  values?: readonly unknown[],
  isStable?: boolean,
) => Promise<readonly Row[]>;

/** What both clients come to. */
export interface PostgresSession<Tx> {
  readonly query: Query;
  transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Statements in a transaction that the user has begun. */
  in(tx: Tx): Query;
}

export function isPgPool(client: object): client is PgPool {
  return "connect" in client && typeof client.connect === "function";
}

/** Only transactions, for whoever needs no more of a pool. */
export function pgSession<Client extends PgClient>(
  pool: Pick<PgPool<Client>, "connect">,
): Pick<PostgresSession<Client>, "transaction" | "in"> {
  return {
    in: queryOf,
    async transaction(work) {
      const client = await pool.connect();
      const stopListening = hearErrors(client);
      let broken: Error | undefined;
      try {
        await client.query("BEGIN");
        const result = await work(client);
        // PS3: PostgreSQL answers the COMMIT of a transaction that has failed without an error.
        const { command } = await client.query("COMMIT");
        if (command === "ROLLBACK")
          throw new Error("a statement failed: the transaction is undone");
        return result;
      } catch (error) {
        broken = await rollBack(client);
        throw error;
      } finally {
        stopListening();
        client.release(broken);
      }
    },
  };
}

export function pgPoolSession<Client extends PgClient>(
  pool: PgPool<Client>,
): PostgresSession<Client> {
  return { ...pgSession(pool), query: queryOf(pool) };
}

export function postgresSession<Tx extends PostgresTransaction>(
  sql: PostgresSql<Tx>,
): PostgresSession<Tx> {
  return {
    query: unsafeOf(sql),
    in: unsafeOf,
    async transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T> {
      let result: { readonly value: T } | undefined;
      await sql.begin(async (tx) => {
        result = { value: await work(tx) };
      });
      if (result === undefined) throw new Error("a transaction ended without its result");
      return result.value;
    },
  };
}

function queryOf(client: Pick<PgClient, "query">): Query {
  return async (text, values = []) => (await client.query(text, [...values])).rows as Row[];
}

function unsafeOf(sql: PostgresTransaction): Query {
  // postgres.js types its values by what it can serialise; all of ours are text, numbers, bytes and null.
  // Without being prepared each statement costs two round trips. A user behind a pooler has turned it off in the client.
  return async (text, values = [], isStable = false) =>
    (await sql.unsafe(text, [...values] as never[], { prepare: isStable })) as Row[];
}

/**
 * PS4: `pg` tells of a lost connection by an event, which ends the process if nobody listens, and its pool listens only
 * while the connection is idle. The statement that comes next says the same.
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

/** PS2: the error if the connection cannot even roll back. */
async function rollBack(client: PgClient): Promise<Error | undefined> {
  try {
    await client.query("ROLLBACK");
    return undefined;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}
