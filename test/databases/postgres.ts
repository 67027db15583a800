/** The PostgreSQL of postgres-server.mjs with pools of `pg`, for tests. */

import pg from "pg";
import { findBinaries, startPostgresServer } from "./postgres-server.mjs";

export interface TestPostgres {
  /** The folder of its socket: what a client of another process needs to know. */
  readonly host: string;
  readonly pool: pg.Pool;
  /** Another pool on the same database, as another process would have it. */
  openPool(): pg.Pool;
  stop(): Promise<void>;
}

/** Why there is none here; undefined if there is. */
export function whyNoPostgres(): string | undefined {
  return findBinaries() === undefined
    ? `no PostgreSQL binaries for ${process.platform} ${process.arch}`
    : undefined;
}

export async function startPostgres(): Promise<TestPostgres> {
  const server = startPostgresServer({ fsync: false });
  const pools: pg.Pool[] = [];
  const openPool = (): pg.Pool => {
    const { host } = server;
    const pool = new pg.Pool({ host, user: "postgres", database: "postgres", max: 10 });
    pool.on("error", () => undefined); // Idle connections end when the server does.
    pools.push(pool);
    return pool;
  };
  const pool = openPool();
  await untilReady(pool, () => server.log());
  return {
    host: server.host,
    pool,
    openPool,
    async stop() {
      await Promise.all(pools.map((one) => one.end()));
      await server.stop();
    },
  };
}

async function untilReady(pool: pg.Pool, log: () => string): Promise<void> {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    try {
      await pool.query("SELECT 1");
      return;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
  throw new Error(`PostgreSQL did not start:\n${log()}`);
}
