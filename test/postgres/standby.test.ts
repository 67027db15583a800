// A primary with a synchronous standby, for real: a restart while a commit waits, and a failover.
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { pgSession } from "../../src/streams/stores/postgres/clients.ts";
import { readSettings, requireSettings } from "../../src/streams/stores/postgres/engine-checks.ts";
import { HostSessions } from "../../src/streams/stores/postgres/hosts.ts";
import { openOnSession } from "../../src/streams/stores/postgres/postgres-store.ts";
import { openPostgresStore, type PostgresStore } from "../../src/streams/stores/postgres.ts";
import { appended, created, readAll, write } from "../../src/testing/store-case-kit.ts";
import {
  becomeStandby,
  type Cluster,
  launch,
  makeCluster,
  type RunningCluster,
} from "../databases/postgres-server.mjs";
import { whyNoPostgres } from "../databases/postgres.ts";
import { freshSchema } from "./kit.ts";

const reason = whyNoPostgres();
if (reason !== undefined) console.log(`failovers are not tested: ${reason}`);

const PRIMARY = ["fsync=on", "synchronous_commit=on", "wal_keep_size=64MB"];

async function until<T>(
  what: string,
  look: () => Promise<T | undefined> | T | undefined,
): Promise<T> {
  for (let attempt = 0; attempt < 600; attempt += 1) {
    const found = await Promise.resolve(look()).catch(() => undefined);
    if (found !== undefined) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`did not happen: ${what}`);
}

/** Two servers, of which the second follows the first. */
class Pair {
  readonly pools: pg.Pool[] = [];
  readonly first: Cluster;
  readonly second: Cluster;
  primary: RunningCluster;
  standby: RunningCluster;

  constructor() {
    this.first = makeCluster();
    this.second = makeCluster(this.first.data);
    becomeStandby(this.second, this.first.folder, "second");
    this.primary = this.startPrimary();
    this.standby = this.startStandby();
  }

  startPrimary(): RunningCluster {
    const names = "synchronous_standby_names=second";
    return launch(this.first.folder, this.first.data, [...PRIMARY, names]);
  }

  startStandby(): RunningCluster {
    return launch(this.second.folder, this.second.data, []);
  }

  pool({ folder }: Cluster): pg.Pool {
    const pool = new pg.Pool({ host: folder, user: "postgres", database: "postgres", max: 8 });
    pool.on("error", () => undefined);
    this.pools.push(pool);
    return pool;
  }

  async ready(): Promise<void> {
    const pool = this.pool(this.first);
    await until("the standby follows", async () => {
      const { rows } = await pool.query(
        "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'",
      );
      return rows[0] as object | undefined;
    });
  }

  async stop(): Promise<void> {
    for (const pool of this.pools) await pool.end().catch(() => undefined);
    await this.standby.end("SIGQUIT");
    await this.primary.end("SIGQUIT");
    for (const { folder } of [this.first, this.second])
      rmSync(folder, { recursive: true, force: true });
  }
}

function signal(cluster: RunningCluster, name: NodeJS.Signals): void {
  if (cluster.pid === undefined) throw new Error("it does not run");
  // All processes of the server: the one that takes WAL must stop too.
  const children = execFileSync("ps", ["-o", "pid=", "--ppid", String(cluster.pid)], {
    encoding: "utf8",
  });
  for (const pid of [cluster.pid, ...children.trim().split(/\s+/).map(Number)])
    process.kill(pid, name);
}

describe.skipIf(reason !== undefined)("a primary with a synchronous standby", () => {
  let pair: Pair;

  beforeAll(async () => {
    pair = new Pair();
    await pair.ready();
  }, 120_000);

  afterAll(async () => {
    await pair.stop();
  }, 60_000);

  const open = async (schema: string): Promise<PostgresStore> => {
    const hosts = [pair.first, pair.second].map((cluster) => pgSession(pair.pool(cluster)));
    const session = new HostSessions(hosts);
    requireSettings(await readSettings(session), {}, () => undefined);
    return openOnSession(session, {
      schema,
      takeover: "now",
      leaseMs: 60_000,
      segmentBytes: 1 << 20,
    });
  };

  test("G81 a commit that became visible by a restart is acknowledged only when the standby has it; then a failover keeps it", async () => {
    const schema = freshSchema();
    const store = await open(schema);
    await write(store, created(1), appended(1, "one;"));
    // The standby is stopped: a commit waits for it, and cannot be seen.
    signal(pair.standby, "SIGSTOP");
    let isAcknowledged = false;
    const writing = write(store, appended(1, "two;")).then(() => (isAcknowledged = true));
    const look = pair.pool(pair.first);
    const count = async (): Promise<number> => {
      const { rows } = await look.query<{ count: number }>(
        `SELECT count(*)::int AS count FROM ${schema}.hapax_seg_0_1`,
      );
      return rows[0]?.count ?? 0;
    };
    await until("the commit waits", async () => {
      const { rows } = await look.query(
        "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
      );
      return rows[0] as object | undefined;
    });
    const before = await count();
    // The primary restarts at once, as after a crash: now everyone can see the frame, and no standby has it.
    await pair.primary.end("SIGQUIT");
    pair.primary = pair.startPrimary();
    await until("the frame is visible", async () => ((await count()) > before ? true : undefined));
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(isAcknowledged).toBe(false);
    signal(pair.standby, "SIGCONT");
    await writing;
    expect(store.stats().barriers).toBeGreaterThan(0);
    // The primary dies, and the standby takes its place. It has no standby of its own, so that the operator asks for less.
    await store.close();
    await pair.primary.end("SIGKILL");
    const second = pair.pool(pair.second);
    await second.query("SELECT pg_promote(true, 30)");
    await expect(open(schema)).rejects.toMatchObject({ code: "invalid_options" });
    const next = await openPostgresStore(second, { schema, takeover: "now", durability: "fsync" });
    const tail = next.world.byId.get(1 as never)?.tail ?? 0;
    expect(Buffer.concat(await readAll(next, 1, 0, tail)).toString()).toBe("one;two;");
    await next.close();
  }, 120_000);
});
