/**
 * What a Redis or Valkey server promises for a ledger, from what it says of itself, and what a ledger refuses: a server that
 * deletes entries when its memory is full, a replica, a version without the scripts that a ledger needs.
 */

import { HapaxError } from "../../base/errors.ts";
import { type RedisSession, replyList, replyText } from "../databases/redis.ts";
import { INSPECT } from "./redis-scripts.ts";

/** The promises of the server that keeps the entries. For a cluster: the weakest promise of its servers. */
export interface RedisPromises {
  readonly server: "redis" | "valkey";
  readonly version: string;
  /**
   * When a write is on the server's disk. `always`: before it is answered. `everysec`: about a second later. `no`: when the
   * system writes it. `off`: there is no log of writes. `unknown`: the server does not say.
   */
  readonly appendfsync: "always" | "everysec" | "no" | "off" | "unknown";
  /** Whether the server can confirm that a write is on disk: `durability: "waitaof"`. */
  readonly canWaitAof: boolean;
  /** How many replicas are connected. */
  readonly replicas: number;
  readonly isCluster: boolean;
  readonly maxmemoryPolicy: string;
  /** What this means for claims, in sentences for people. */
  readonly sentences: readonly string[];
}

/** What a ledger needs of its server. */
export interface RedisNeeds {
  readonly allowEviction: boolean;
  readonly durability: "fsync" | "waitaof" | undefined;
}

type Facts = Omit<RedisPromises, "sentences"> & { readonly role: string };

const VERSION_MIN = 7;
/** From the strongest promise to the weakest. */
const FSYNCS = ["always", "everysec", "no", "unknown", "off"] as const;

/** Asks the servers that have these keys. */
export function inspectServers(
  session: RedisSession,
  keys: readonly string[],
): Promise<readonly Facts[]> {
  return Promise.all(
    keys.map(async (key) => {
      const info = infoOf(replyText(await session.run(INSPECT, [key], [])));
      return factsOf(info, await appendfsyncOf(session, key, info));
    }),
  );
}

function infoOf(text: string): ReadonlyMap<string, string> {
  const lines = text.split(/\r?\n/).map((line) => line.split(/:(.*)/, 2));
  return new Map(lines.map(([name = "", value = ""]) => [name, value]));
}

function factsOf(info: ReadonlyMap<string, string>, fsync: Facts["appendfsync"]): Facts {
  const valkey = info.get("valkey_version");
  const version = valkey ?? info.get("redis_version") ?? "0";
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return {
    server: valkey === undefined ? "redis" : "valkey",
    version,
    appendfsync: fsync,
    canWaitAof: fsync !== "off" && (major > 7 || (major === 7 && minor >= 2)),
    replicas: Number(info.get("connected_slaves") ?? 0),
    isCluster: info.get("cluster_enabled") === "1",
    maxmemoryPolicy: info.get("maxmemory_policy") ?? "unknown",
    role: info.get("role") ?? "unknown",
  };
}

/** Services that others run often do not let anybody read their configuration. */
async function appendfsyncOf(
  session: RedisSession,
  key: string,
  info: ReadonlyMap<string, string>,
): Promise<Facts["appendfsync"]> {
  if (info.get("aof_enabled") !== "1") return "off";
  try {
    // In a cluster, clients that cannot see a key in this command ask any of its servers.
    const value = valueOf(await session.command(key, ["CONFIG", "GET", "appendfsync"]));
    return FSYNCS.find((known) => known === value) ?? "unknown";
  } catch {
    return "unknown";
  }
}

/** A list of name and value, or what a client makes of it: an object, a map. GLIDE has a list of objects. */
function valueOf(reply: unknown): string {
  if (reply instanceof Map) return replyText([...reply.values()][0]);
  if (!Array.isArray(reply)) return replyText(Object.values(Object(reply) as object)[0]);
  const [first, second] = replyList(reply);
  if (typeof first !== "object" || first instanceof Uint8Array) return replyText(second);
  return replyText((first as { readonly value?: unknown } | null)?.value);
}

/** Throws `unsupported` for a server that would lose entries by design, or cannot run the scripts. */
export function requireServers(all: readonly Facts[], needs: RedisNeeds): void {
  const problems = new Set(all.flatMap((facts) => problemsOf(facts, needs)));
  if (problems.size > 0) throw new HapaxError("unsupported", [...problems].join("; "));
}

function problemsOf(facts: Facts, { allowEviction, durability }: RedisNeeds): string[] {
  const { version, role, maxmemoryPolicy, appendfsync, canWaitAof, isCluster } = facts;
  const problems: string[] = [];
  if (!(Number(version.split(".")[0]) >= VERSION_MIN))
    problems.push(`the server is too old: use version ${VERSION_MIN} or newer; version=${version}`);
  if (role !== "master")
    problems.push(`the server is a replica: connect to its primary; role=${role}`);
  if (maxmemoryPolicy !== "noeviction" && !allowEviction)
    problems.push(
      `the server may delete entries when its memory is full: set maxmemory-policy to noeviction; maxmemory-policy=${maxmemoryPolicy}`,
    );
  if (durability === "fsync" && appendfsync !== "always")
    problems.push(`durability=fsync needs appendfsync always; appendfsync=${appendfsync}`);
  if (durability === "waitaof" && !canWaitAof)
    problems.push(`durability=waitaof needs version 7.2 and appendonly yes; version=${version}`);
  if (durability === "waitaof" && isCluster)
    problems.push("durability=waitaof is for one server, not for a cluster");
  return problems;
}

/** The weakest promise of all. */
export function promisesOf(all: readonly Facts[], needs: RedisNeeds): RedisPromises {
  const weakest = <T>(value: (facts: Facts) => number, of: (facts: Facts) => T): T => {
    const [first] = all.toSorted((one, other) => value(one) - value(other));
    if (first === undefined) throw new Error("a ledger has a shard");
    return of(first);
  };
  const appendfsync = weakest(
    (facts) => -FSYNCS.indexOf(facts.appendfsync),
    (facts) => facts.appendfsync,
  );
  const promises = {
    server: weakest(
      () => 0,
      (facts) => facts.server,
    ),
    version: weakest(
      (facts) => Number.parseFloat(facts.version),
      (facts) => facts.version,
    ),
    appendfsync,
    canWaitAof: all.every((facts) => facts.canWaitAof),
    replicas: Math.min(...all.map((facts) => facts.replicas)),
    isCluster: all.some((facts) => facts.isCluster),
    maxmemoryPolicy: weakest(
      (facts) => (facts.maxmemoryPolicy === "noeviction" ? 1 : 0),
      (facts) => facts.maxmemoryPolicy,
    ),
  };
  return { ...promises, sentences: sentencesOf(promises, needs) };
}

const ON_DISK = {
  always: "A claim that was answered is on the server's disk.",
  everysec: "A power cut loses the claims of about the last second.",
  no: "A power cut loses the claims that the system has not written yet.",
  off: "The server keeps no log of writes: a restart loses claims, perhaps all of them.",
  unknown: "The server does not say when a claim is on its disk.",
} as const;

function sentencesOf(
  { appendfsync, maxmemoryPolicy }: Omit<RedisPromises, "sentences">,
  { durability }: RedisNeeds,
): readonly string[] {
  return [
    durability === "waitaof" ? ON_DISK.always : ON_DISK[appendfsync],
    "A failover may lose claims that were answered: their work can be done again.",
    "There is no transaction with data of yours: work needs a key that its receiver knows, or a way to ask.",
    ...(maxmemoryPolicy === "noeviction"
      ? []
      : ["The server may delete claims when its memory is full."]),
  ];
}
