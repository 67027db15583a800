/**
 * `hapax/ledgers/redis`: the ledger in your own Redis or Valkey, for work whose effect is in another system. Takes a client of
 * ioredis, iovalkey, node-redis, Valkey GLIDE or Bun.
 *
 *   - how it uses the client is in toolkit/databases/redis.ts;
 *   - one server decides: of many claims at once one wins, and tokens rise, also above those of a server that is lost (LG3);
 *   - there are no transactions with the user's data, and no outbox: what needs them is refused by name;
 *   - a server that has lost the ledger as a whole refuses every write.
 */

import { HapaxError } from "../../base/errors.ts";
import { OptionsCheck } from "../../base/options-check.ts";
import {
  type RedisClient,
  type RedisSession,
  redisSession,
  replyText,
} from "../databases/redis.ts";
import type { Ledger } from "./ledger.ts";
import { layoutOf, otherLayout, redisEntries, type RedisPlaces } from "./redis-entries.ts";
import { shardKeys } from "./redis-keys.ts";
import { BEGIN } from "./redis-scripts.ts";
import {
  inspectServers,
  promisesOf,
  type RedisNeeds,
  type RedisPromises,
  requireServers,
} from "./redis-server.ts";
import { confirming } from "./redis-confirming.ts";

/** Options of a ledger in Redis. All have defaults. */
export interface RedisLedgerOptions {
  /** The prefix of all keys. Two ledgers with the same prefix are the same ledger. Default `hapax`. */
  readonly prefix?: string;
  /**
   * The number of cluster slots over which the entries are spread, from 1 to 256. Every process must use the same
   * number for as long as the ledger exists. Default 1.
   */
  readonly shards?: number;
  /**
   * How durable the server must be; `migrate` refuses a server that is less durable. `fsync`: it writes to its disk
   * before it answers (`appendfsync always`). `waitaof`: the ledger has the server confirm every write, which blocks the
   * connection: pass a client that nothing else uses. Default: what the server is set to.
   */
  readonly durability?: "fsync" | "waitaof";
  /** With `durability: "waitaof"`: how many replicas must have a write on their disks. Default 0. */
  readonly replicas?: number;
  /** Accepts a server that deletes entries when its memory is full. Default false: `migrate` refuses it. */
  readonly allowEviction?: boolean;
}

/** A ledger in Redis. It has no transactions. */
export interface RedisLedger extends Ledger<never> {
  /** Asks the server for its settings, and explains what they mean for claims. */
  describe(): Promise<RedisPromises>;
}

const SHARDS_MAX = 256;
const PREFIX_CHARS_MAX = 64;
const REPLICAS_MAX = 64;

/**
 * Creates a ledger in Redis 7 or newer, or Valkey. Use it for effects in other systems: `processOnce` with `effect:
 * "repeatable"` or `"probed"`, idempotency keys in phases, an inbox, leases. `migrate` throws `unsupported` for a server
 * that deletes entries when its memory is full, for a replica, and for an old version. Throws `invalid_options`.
 *
 * A failover of Redis may lose claims that were answered; then work may be done again. `supports.durability` is `server`
 * for that reason.
 *
 * ```ts
 * import { Redis } from "ioredis"; // Or createClient of redis, and others.
 * import { GLOBAL, processOnce } from "hapax/ledger";
 * import { redisLedger } from "hapax/ledgers/redis";
 *
 * const client = new Redis(process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379");
 * const ledger = redisLedger(client, { prefix: "shop" });
 * await ledger.migrate();
 * let charges = 0;
 * const charge = () =>
 *   processOnce(
 *     ledger,
 *     { scope: GLOBAL, key: "charge order 17" },
 *     ({ key }) => {
 *       charges += 1; // Call the payment provider here, with `key` as its idempotency key.
 *       return { receipt: key };
 *     },
 *     { effect: "repeatable" },
 *   );
 * const [first, second] = [await charge(), await charge()];
 * console.assert(charges === 1 && second.isDuplicate && first.result.receipt === second.result.receipt);
 * await client.quit();
 * ```
 */
export function redisLedger(client: RedisClient, options: RedisLedgerOptions = {}): RedisLedger {
  const { places, needs, replicas } = resolve(options);
  const session = redisSession(client);
  const writing = needs.durability === "waitaof" ? confirming(session, replicas) : session;
  const ledgers = Array.from(
    { length: places.shards },
    (_, shard) => shardKeys(places.prefix, shard).ledger,
  );
  return {
    name: "redis",
    supports: { transactions: false, isExclusive: false, durability: "server", outbox: [] },
    isJoined: false,
    entries: redisEntries(writing, places),
    get outbox(): never {
      throw new HapaxError("unsupported", "the ledger has no outbox; ledger=redis");
    },
    async migrate() {
      requireServers(await inspectServers(session, ledgers), needs);
      await begin(session, ledgers, places);
    },
    async describe() {
      return promisesOf(await inspectServers(session, ledgers), needs);
    },
    transaction: () => Promise.reject(noTransactions()),
    in() {
      throw noTransactions();
    },
  };
}

function noTransactions(): HapaxError {
  return new HapaxError("unsupported", "ledger=redis has no transactions");
}

/** LG7: the first one makes the ledger, and all others find it. */
async function begin(
  session: RedisSession,
  ledgers: readonly string[],
  places: RedisPlaces,
): Promise<void> {
  const layout = layoutOf(places);
  const beginAt = async (ledger: string): Promise<void> => {
    const found = await session.run(BEGIN, [ledger], [layout]);
    if (replyText(found) !== layout) throw otherLayout(found, places);
  };
  const [first = "", ...others] = ledgers;
  // The first one decides: a ledger with fewer shards has it too, and no other may be made beside it.
  await beginAt(first);
  await Promise.all(others.map((ledger) => beginAt(ledger)));
}

interface Resolved {
  readonly places: RedisPlaces;
  readonly needs: RedisNeeds;
  readonly replicas: number;
}

function resolve(options: RedisLedgerOptions): Resolved {
  const { prefix = "hapax", shards = 1, durability, replicas = 0, allowEviction = false } = options;
  const check = new OptionsCheck(HapaxError);
  if (!/^[\w.:/-]+$/.test(prefix) || prefix.length > PREFIX_CHARS_MAX)
    check.problem(
      `prefix is 1 to ${PREFIX_CHARS_MAX} letters, digits and . : / _ -; prefix=${prefix}`,
    );
  for (const [name, value, min, max] of [
    ["shards", shards, 1, SHARDS_MAX],
    ["replicas", replicas, 0, REPLICAS_MAX],
  ] as const)
    if (!Number.isInteger(check.number(name, value, value, min, max)))
      check.problem(`${name}=${value} is not a whole number`);
  if (durability !== undefined && !["fsync", "waitaof"].includes(durability))
    check.problem(`durability=${String(durability)} is none of fsync, waitaof`);
  if (replicas > 0 && durability !== "waitaof") check.problem("replicas needs durability=waitaof");
  check.end();
  return {
    places: { prefix, shards, allowEviction },
    needs: { durability, allowEviction },
    replicas,
  };
}
