// Failovers of a real primary with a synchronous standby, by a script, under a load: kill -9, a frozen primary, a restart while
// commits wait, a standby that is away, and a stale standby that is promoted by hand. `npm run test:crash`: 20 cycles.
import { execFileSync, spawnSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { afterEach, describe, expect, test } from "vitest";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { pgSession } from "../../src/streams/stores/postgres/clients.ts";
import { HostSessions, withPatience } from "../../src/streams/stores/postgres/hosts.ts";
import { openOnSession } from "../../src/streams/stores/postgres/postgres-store.ts";
import { systemClock } from "../../src/base/clock.ts";
import { appended, created, write } from "../../src/testing/store-case-kit.ts";
import {
  becomeStandby,
  type Cluster,
  launch,
  makeCluster,
  type RunningCluster,
} from "../databases/postgres-server.mjs";
import { whyNoPostgres } from "../databases/postgres.ts";
import { freshSchema } from "./kit.ts";

const reason =
  whyNoPostgres() ??
  (process.platform === "linux" ? undefined : "it needs ps, cp and signals of Linux");
if (reason !== undefined) console.log(`failovers under a load are not tested: ${reason}`);
const IS_LONG = process.env["HAPAX_LONG"] === "1";
const CYCLES = isCrash() ? 200 : IS_LONG ? 20 : 2;
const TYPE = { "Content-Type": "application/octet-stream" };
const SETTINGS = ["fsync=on", "synchronous_commit=on", "wal_keep_size=256MB"];

/** `npm run test:crash`, and not only the long form of this file. */
function isCrash(): boolean {
  return process.env["HAPAX_CRASH_CYCLES"] !== undefined;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

async function until(what: string, look: () => Promise<boolean> | boolean): Promise<void> {
  for (let attempt = 0; attempt < 1200; attempt += 1) {
    if (await Promise.resolve(look()).catch(() => false)) return;
    await pause(50);
  }
  throw new Error(`did not happen: ${what}`);
}

const started: Server[] = [];

/** One of two servers: now the primary, now the standby. */
class Server {
  readonly name: string;
  readonly cluster: Cluster;
  readonly pool: pg.Pool;
  readonly #names: string;
  running: RunningCluster | undefined;

  constructor(name: string, cluster: Cluster, names: string) {
    this.name = name;
    this.cluster = cluster;
    this.#names = names;
    const { folder: host } = cluster;
    const account = { user: "postgres", database: "postgres" };
    this.pool = new pg.Pool({ host, ...account, max: 8, connectionTimeoutMillis: 2000 });
    this.pool.on("error", () => undefined);
    started.push(this);
  }

  start(): void {
    const names = this.#names === "" ? [] : [`synchronous_standby_names=${this.#names}`];
    this.running = launch(this.cluster.folder, this.cluster.data, [...SETTINGS, ...names]);
  }

  follow(primary: Server): void {
    const { data } = this.cluster;
    becomeStandby(this.cluster, primary.cluster.folder, this.name);
    if (process.getuid?.() === 0) execFileSync("chown", ["-R", "65534:65534", data]);
    this.start();
  }

  /** To all of its processes. */
  signal(name: NodeJS.Signals): void {
    const pid = this.running?.pid;
    if (pid === undefined) throw new Error(`${this.name} does not run`);
    const { stdout } = spawnSync("ps", ["-o", "pid=", "--ppid", String(pid)], { encoding: "utf8" });
    for (const one of [pid, ...stdout.trim().split(/\s+/).filter(Boolean).map(Number)]) {
      try {
        process.kill(one, name);
      } catch {
        // It has just ended.
      }
    }
  }

  async end(): Promise<void> {
    const { running } = this;
    if (running === undefined) return;
    this.running = undefined;
    const ended = running.end("SIGKILL");
    await ended;
  }

  /** Made anew as a copy of the primary, while that works. */
  async rebuild(primary: Server): Promise<void> {
    const { data } = this.cluster;
    const client = await primary.pool.connect();
    try {
      await client.query("SELECT pg_backup_start('copy', true)");
      rmSync(data, { recursive: true, force: true });
      spawnSync("cp", ["-a", primary.cluster.data, data]); // Files may go meanwhile.
      const { rows } = await client.query<{ labelfile: string }>(
        "SELECT labelfile FROM pg_backup_stop(false)",
      );
      rmSync(join(data, "postmaster.pid"), { force: true });
      writeFileSync(join(data, "backup_label"), rows[0]?.labelfile ?? "");
    } finally {
      client.release();
    }
    this.follow(primary);
  }

  async isFollowed(): Promise<boolean> {
    const { rows } = await this.pool.query(
      "SELECT 1 FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')",
    );
    return rows.length > 0;
  }

  async stop(): Promise<void> {
    await this.pool.end().catch(() => undefined);
    if (this.running !== undefined) {
      this.signal("SIGCONT");
      this.signal("SIGKILL");
      await this.end();
    }
    rmSync(this.cluster.folder, { recursive: true, force: true });
  }
}

async function startTwo(names: string): Promise<[Server, Server]> {
  const first = makeCluster();
  const second = makeCluster(first.data);
  const servers: [Server, Server] = [new Server("a", first, names), new Server("b", second, names)];
  servers[0].start();
  servers[1].follow(servers[0]);
  await until("the primary answers", async () => {
    await servers[0].pool.query("SELECT 1");
    return true;
  });
  return servers;
}

function sessionOver(servers: readonly Server[]) {
  const hosts = new HostSessions(servers.map(({ pool }) => pgSession(pool)));
  return withPatience(hosts, systemClock, 2000);
}

describe.skipIf(reason !== undefined)("a primary that fails under a load", () => {
  afterEach(async () => {
    for (const server of started.splice(0)) await server.stop();
  }, 60_000);

  test(
    "G81 every append that was acknowledged over failovers is there once, in order",
    async () => {
      let [primary, standby] = await startTwo("ANY 1 (a, b)");
      const both = [primary, standby];
      await until("the standby follows", () => primary.isFollowed());
      const schema = freshSchema();
      const store = await openOnSession(sessionOver(both), {
        schema,
        takeover: "now",
        segmentBytes: 1 << 18,
      });
      const server = await startNodeServer({ store, port: 0, onAudit: () => undefined });
      const path = (id: number): string => `${server.url}/v1/stream/failover/${id}`;
      const acked = [0, 0, 0];
      const offsets = ["", "", ""];
      const problems: string[] = [];
      let isDone = false;
      const work = async (id: number): Promise<void> => {
        await fetch(path(id), { method: "PUT", headers: TYPE });
        while (!isDone) {
          const sequence = acked[id] ?? 0;
          const headers = {
            ...TYPE,
            "Producer-Id": `p${id}`,
            "Producer-Epoch": "0",
            "Producer-Seq": String(sequence),
          };
          const body = `${String(sequence).padStart(9, "0")};`;
          const answer = await fetch(path(id), { method: "POST", headers, body }).catch(
            () => undefined,
          );
          await answer?.arrayBuffer();
          if (answer?.status !== 200 && answer?.status !== 204) {
            if (answer !== undefined && answer.status !== 503)
              problems.push(`status ${answer.status}`);
            await pause(20);
            continue;
          }
          const offset = answer.headers.get("Stream-Next-Offset") ?? "";
          if (offset <= (offsets[id] ?? "")) problems.push(`${offset} after ${offsets[id]}`);
          offsets[id] = offset;
          acked[id] = sequence + 1;
        }
      };
      const total = (): number => acked.reduce((sum, count) => sum + count, 0);
      const working = acked.map((_, id) => work(id));
      const progress = async (): Promise<void> => {
        const before = total();
        await until("commits go on", () => total() >= before + 20);
      };
      const failOver = async (): Promise<void> => {
        await standby.pool.query("SELECT pg_promote(true, 60)");
        primary.signal("SIGKILL");
        await primary.end();
        [primary, standby] = [standby, primary];
        await standby.rebuild(primary);
        await until("the new standby follows", () => primary.isFollowed());
      };
      const troubles = [
        async () => {
          primary.signal("SIGKILL");
          await failOver();
        },
        async () => {
          standby.signal("SIGSTOP");
          await pause(300);
          const before = total();
          await pause(300);
          expect(total()).toBe(before); // Nothing is acknowledged that no standby has.
          // With it commits that wait become visible, and no standby has them.
          await primary.running?.end("SIGQUIT");
          primary.start();
          await pause(500);
          expect(total()).toBe(before);
          standby.signal("SIGCONT");
        },
        async () => {
          primary.signal("SIGSTOP");
          await failOver();
        },
        async () => {
          standby.signal("SIGSTOP");
          await pause(1000);
          standby.signal("SIGCONT");
        },
      ];
      let cycles = 0;
      try {
        await progress();
        for (; cycles < CYCLES; cycles += 1) {
          await troubles[cycles % troubles.length]?.();
          await progress();
        }
      } finally {
        isDone = true;
      }
      await Promise.all(working);
      const { settled, barriers } = store.stats();
      await server.stop();
      const next = await openOnSession(sessionOver(both), { schema, takeover: "now" });
      const door = await startNodeServer({ store: next, port: 0, onAudit: () => undefined });
      for (const [id, count] of acked.entries()) {
        const answer = await fetch(`${door.url}/v1/stream/failover/${id}`);
        const found = [...(await answer.text()).matchAll(/(\d{9});/g)].map(([, text]) =>
          Number(text),
        );
        expect(found).toEqual(Array.from({ length: count }, (_, at) => at));
      }
      expect(problems).toEqual([]);
      await door.stop();
      console.log(`failovers: ${JSON.stringify({ cycles, acked: total(), settled, barriers })}`);
    },
    IS_LONG ? 3_600_000 : 180_000,
  );

  test("G81 a stale standby that is promoted by hand is noticed, and nothing is written to it", async () => {
    // It is not synchronous, so it may be stale.
    const [primary, standby] = await startTwo("");
    await until("the standby follows", async () => {
      const { rows } = await primary.pool.query("SELECT 1 FROM pg_stat_replication");
      return rows.length > 0;
    });
    const schema = freshSchema();
    const store = await openOnSession(sessionOver([primary, standby]), {
      schema,
      durability: "fsync",
      takeover: "now",
      leaseMs: 60_000,
    });
    await write(store, created(1), appended(1, "both have it;"));
    const { rows } = await primary.pool.query<{ lsn: string }>(
      "SELECT pg_current_wal_flush_lsn() AS lsn",
    );
    await until("the standby has it", async () => {
      const found = await standby.pool.query<{ has: boolean }>(
        "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn AS has",
        [rows[0]?.lsn],
      );
      return found.rows[0]?.has === true;
    });
    // Cut off, and not only frozen: then it would find in its socket what it has missed.
    await standby.pool.query("ALTER SYSTEM SET primary_conninfo = ''");
    await standby.pool.query("SELECT pg_reload_conf()");
    await until("the standby is cut off", async () => {
      const { rows: found } = await primary.pool.query("SELECT 1 FROM pg_stat_replication");
      return found.length === 0;
    });
    await write(store, appended(1, "only the primary has it;"));
    primary.signal("SIGKILL");
    await primary.end();
    await standby.pool.query("SELECT pg_promote(true, 60)");
    await expect(write(store, appended(1, "more;"))).rejects.toMatchObject({
      code: "engine_went_back",
    });
    const { rows: frames } = await standby.pool.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM ${schema}.hapax_seg_0_1`,
    );
    expect(frames[0]?.count).toBe(1);
    await store.close();
  }, 180_000);
});
