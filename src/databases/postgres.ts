/**
 * The user's own PostgreSQL client: a pool of `pg`, or `postgres` (postgres.js). What sinks and ledgers share.
 *
 *   PS2  a connection whose transaction failed in an unknown way is not used again.
 */

/** One connection of `pg`: also what a transaction is. */
export interface PgClient {
  query(text: string, values?: unknown[]): Promise<{ readonly rows: readonly unknown[] }>;
  release(error?: Error | boolean): void;
}

/** A pool of `pg`. */
export interface PgPool<Client extends PgClient = PgClient> {
  connect(): Promise<Client>;
}

/** Transactions on connections of a pool. */
export function pgSession<Client extends PgClient>(
  pool: PgPool<Client>,
): { transaction<T>(work: (tx: Client) => Promise<T>): Promise<T> } {
  return {
    async transaction(work) {
      const client = await pool.connect();
      let broken: Error | undefined;
      try {
        await client.query("BEGIN");
        const result = await work(client);
        await client.query("COMMIT");
        return result;
      } catch (error) {
        broken = await rollBack(client);
        throw error;
      } finally {
        client.release(broken);
      }
    },
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
