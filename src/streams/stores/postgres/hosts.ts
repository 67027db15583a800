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
const SEARCH_MS = 2000;
/** How long a statement goes without an answer before the other hosts are asked whether one of them has become the primary. */
const SILENCE_MS = 2000;
/** A promotion begins the next timeline: eight digits, the same for all who follow it. */
const ASK =
  "SELECT pg_is_in_recovery() AS is_standby, CASE WHEN NOT pg_is_in_recovery() THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END AS timeline";
/** For servers that do not show their WAL. */
const ASK_LESS = "SELECT pg_is_in_recovery() AS is_standby, NULL AS timeline";

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

/** A host that says it is the primary. */
interface Primary {
  readonly host: Session;
  /** Empty if the server does not show it. */
  readonly timeline: string;
}

/**
 * Several hosts, of which one is the primary. One that was replaced may not know it yet: a frozen server that wakes up still takes
 * itself for the primary. Its timeline is earlier than that of its successor, and no session goes back to an earlier timeline.
 */
export class HostSessions implements Session {
  readonly #hosts: readonly Session[];
  readonly #clock: Clock;
  #primary: Primary | undefined;
  #search: Promise<Primary> | undefined;
  #otherSearch: Promise<void> | undefined;
  /** The latest that a primary has had. */
  #timeline = "";

  constructor(hosts: readonly Session[], clock: Clock = systemClock) {
    this.#hosts = hosts;
    this.#clock = clock;
  }

  async run(text: string, values?: readonly unknown[]): Promise<Answer> {
    if (this.#primary !== undefined && this.#isEarlier(this.#primary)) this.#primary = undefined;
    const primary = this.#primary ?? (await this.#find());
    try {
      return await this.#untilReplaced(primary, primary.host.run(text, values));
    } catch (error) {
      // A refusal says that the host works. One that has become a standby refuses writes.
      const isGone = !(error instanceof StatementRefused) || error.state === READ_ONLY;
      if (isGone && this.#primary?.host === primary.host) this.#primary = undefined;
      throw error;
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#hosts.map((host) => host.close()));
  }

  /** Waits for an answer. It counts as lost when another host has taken the place of the primary. */
  #untilReplaced(primary: Primary, answer: Promise<Answer>): Promise<Answer> {
    return new Promise((resolve, reject) => {
      let cancel = (): void => undefined;
      const wait = (): void => {
        cancel = this.#clock.after(SILENCE_MS, () => void look());
      };
      let isOver = false;
      const look = async (): Promise<void> => {
        if (await this.#isReplaced(primary)) {
          reject(new Error("the primary has not answered, and another host has taken its place"));
        } else if (!isOver) wait();
      };
      const end = (): void => {
        isOver = true;
        cancel();
      };
      wait();
      answer.finally(end).then(resolve, reject);
    });
  }

  async #isReplaced(primary: Primary): Promise<boolean> {
    if (this.#primary === undefined || this.#primary.host === primary.host) {
      await this.#findOther(primary).catch(() => undefined);
    }
    return this.#isEarlier(primary);
  }

  /** Asks all but the one that is silent: its answer would be waited for. */
  #findOther(primary: Primary): Promise<void> {
    const others = this.#hosts.filter((host) => host !== primary.host);
    this.#otherSearch ??= this.#ask(others)
      .then((found) => {
        const isLater = primary.timeline !== "" && found.timeline > primary.timeline;
        if (isLater) this.#primary = found;
      })
      .finally(() => (this.#otherSearch = undefined));
    return this.#otherSearch;
  }

  #isEarlier({ timeline }: Primary): boolean {
    return timeline !== "" && timeline < this.#timeline;
  }

  #find(): Promise<Primary> {
    this.#search ??= this.#ask(this.#hosts)
      .then((found) => (this.#primary = found))
      .finally(() => (this.#search = undefined));
    return this.#search;
  }

  /** Asks all these hosts at once: one that does not answer must not hold up the others. */
  async #ask(hosts: readonly Session[]): Promise<Primary> {
    const asked = hosts.map((host) => this.#askOne(host));
    let cancel = (): void => undefined;
    const tooLong = new Promise<never>((_, reject) => {
      cancel = this.#clock.after(SEARCH_MS, () => {
        reject(new Error(`no primary has answered for ${SEARCH_MS} ms`));
      });
    });
    try {
      return await Promise.race([Promise.any(asked), tooLong]);
    } catch (error) {
      const reasons =
        error instanceof AggregateError ? error.errors.map(String).join("; ") : String(error);
      throw new Error(`none of the hosts is a primary: ${reasons}`, { cause: error });
    } finally {
      cancel();
    }
  }

  async #askOne(host: Session): Promise<Primary> {
    const { rows } = await host.run(ASK, []).catch((error: unknown) => {
      if (error instanceof StatementRefused) return host.run(ASK_LESS, []);
      throw error;
    });
    const { is_standby: isStandby, timeline } = rows[0] ?? {};
    if (isStandby !== false) throw new Error("it is a standby");
    const primary = { host, timeline: typeof timeline === "string" ? timeline : "" };
    if (this.#isEarlier(primary)) {
      const latest = this.#timeline;
      throw new Error(
        `another host has replaced it: timeline=${primary.timeline}, latest=${latest}`,
      );
    }
    if (primary.timeline !== "") this.#timeline = primary.timeline;
    return primary;
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
