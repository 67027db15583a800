/**
 * A session by URL: it opens connections of its own, finds the primary among several hosts, and finds it again after a
 * failover. `pg` and `postgres` are loaded only here, whichever is installed.
 */

import { type Clock, systemClock } from "../../../base/clock.ts";
import { HapaxError } from "../../../base/errors.ts";
import {
  type PgConnections,
  pgSession,
  type PostgresConnections,
  PostgresNotices,
  sqlSession,
} from "./clients.ts";
import { type Answer, type Session, StatementRefused } from "./session.ts";

const CONNECTIONS_MAX = 6;
/** SQLSTATE of a write on a standby. */
const READ_ONLY = "25006";
const CONNECT_MS = 5000;
/** How long to look for the primary before all hosts are asked anew. One that is frozen accepts connections, and never answers. */
const SEARCH_MS = 5000;

/** Splits the URL of several hosts into one URL for each. */
export function hostUrls(url: string): readonly string[] {
  const match = /^(postgres(?:ql)?:\/\/)([^@/?]*@)?([^/?]*)(.*)$/s.exec(url);
  if (match === null) {
    throw new HapaxError("invalid_options", "the store must be postgres://user@host/database");
  }
  const [, scheme = "", user = "", hosts = "", rest = ""] = match;
  return hosts.split(",").map((host) => `${scheme}${user}${host.trim()}${rest}`);
}

type OpenSession = (url: string, connections: number) => Session;

/** Finds a client that is installed. `pg` comes first: it needs one round trip for a statement. */
async function findClient(): Promise<OpenSession> {
  const pg = await load<PgModule>("pg");
  if (pg !== undefined) return (url, connections) => openPg(pg, url, connections);
  const postgres = await load<PostgresModule>("postgres");
  if (postgres !== undefined) {
    return (url, connections) => openPostgres(postgres, url, connections);
  }
  throw new HapaxError(
    "invalid_options",
    "install pg or postgres to keep streams in PostgreSQL: npm install pg",
  );
}

/** What the store uses of `pg`. */
interface PgModule {
  readonly Pool: new (options: object) => PgConnections & {
    on(event: "error", listener: () => void): unknown;
    end(): Promise<void>;
  };
}

/** What the store uses of `postgres`. */
type PostgresModule = (
  url: string,
  options: object,
) => PostgresConnections & { end(options: { timeout: number }): Promise<void> };

/** Loads an optional package. Its default export is the module for both clients. */
async function load<Module>(name: string): Promise<Module | undefined> {
  try {
    const module = (await import(name)) as { readonly default: Module };
    return module.default;
  } catch {
    return undefined;
  }
}

function openPg({ Pool }: PgModule, url: string, connections: number): Session {
  const pool = new Pool({
    connectionString: url,
    max: connections,
    // The only connection has a transaction.
    ...(connections === 1 ? { idleTimeoutMillis: 0 } : {}),
    keepAlive: true,
    connectionTimeoutMillis: CONNECT_MS,
    application_name: "hapax",
  });
  pool.on("error", () => undefined); // An idle connection that ends is replaced when it is needed.
  return pgSession(pool, () => pool.end());
}

function openPostgres(postgres: PostgresModule, url: string, connections: number): Session {
  const notices = new PostgresNotices();
  const sql = postgres(url, {
    max: connections,
    ...(connections === 1 ? { max_lifetime: null } : {}),
    onnotice: notices.listener,
    prepare: false,
    connect_timeout: CONNECT_MS / 1000,
  });
  return sqlSession(sql, notices, () => sql.end({ timeout: 1 }));
}

export function openHosts(url: string): Promise<Session> {
  return openWith(url, CONNECTIONS_MAX);
}

/** A session with one connection, so that its statements can be one transaction. */
export function openOneConnection(url: string): Promise<Session> {
  return openWith(url, 1);
}

async function openWith(url: string, connections: number): Promise<Session> {
  const urls = hostUrls(url);
  const open = await findClient();
  if (urls.length === 1) return open(url, connections);
  return new HostSessions(urls.map((one) => open(one, connections)));
}

/** Several hosts, of which one is the primary. */
export class HostSessions implements Session {
  readonly #hosts: readonly Session[];
  readonly #clock: Clock;
  #primary: Session | undefined;
  #search: Promise<Session> | undefined;

  constructor(hosts: readonly Session[], clock: Clock = systemClock) {
    this.#hosts = hosts;
    this.#clock = clock;
  }

  async run(text: string, values?: readonly unknown[]): Promise<Answer> {
    const host = this.#primary ?? (await this.#find());
    try {
      return await host.run(text, values);
    } catch (error) {
      // A refusal says that the host works. One that has become a standby refuses writes.
      const isGone = !(error instanceof StatementRefused) || error.state === READ_ONLY;
      if (isGone && this.#primary === host) this.#primary = undefined;
      throw error;
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#hosts.map((host) => host.close()));
  }

  #find(): Promise<Session> {
    this.#search ??= this.#ask().finally(() => (this.#search = undefined));
    return this.#search;
  }

  /** Asks all hosts at once: one that does not answer must not hold up the others. */
  async #ask(): Promise<Session> {
    const asked = this.#hosts.map(async (host) => {
      const { rows } = await host.run("SELECT pg_is_in_recovery() AS is_standby", []);
      if (rows[0]?.["is_standby"] !== false) throw new Error("it is a standby");
      return host;
    });
    let cancel = (): void => undefined;
    const tooLong = new Promise<never>((_, reject) => {
      cancel = this.#clock.after(SEARCH_MS, () => {
        reject(new Error(`no primary has answered for ${SEARCH_MS} ms`));
      });
    });
    try {
      this.#primary = await Promise.race([Promise.any(asked), tooLong]);
      return this.#primary;
    } catch (error) {
      const reasons =
        error instanceof AggregateError ? error.errors.map(String).join("; ") : String(error);
      throw new Error(`none of the hosts is a primary: ${reasons}`, { cause: error });
    } finally {
      cancel();
    }
  }
}

/**
 * Bounds the wait for an answer. After that the statement counts as lost, and may still be executed; the time doubles with each
 * loss in a row, so that a server that holds every statement (its standby is away) does not collect connections.
 */
export function withPatience(inner: Session, clock: Clock, answerMs: number): Session {
  let lossesInRow = 0;
  return {
    run: (text, values) =>
      new Promise((resolve, reject) => {
        const waitMs = answerMs * 2 ** Math.min(lossesInRow, 5);
        const cancel = clock.after(waitMs, () => {
          lossesInRow += 1;
          reject(new Error(`the database has not answered for ${waitMs} ms`));
        });
        inner.run(text, values).then(
          (answer) => {
            lossesInRow = 0;
            cancel();
            resolve(answer);
          },
          (error: unknown) => {
            cancel();
            reject(error instanceof Error ? error : new Error(String(error)));
          },
        );
      }),
    close: () => inner.close(),
  };
}
