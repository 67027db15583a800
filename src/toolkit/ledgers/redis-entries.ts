/**
 * Entries in Redis: reading and writing one is one script. What looks at many is redis-scan.ts.
 */

import { HapaxError } from "../../base/errors.ts";
import { type Random, systemRandom } from "../../base/random.ts";
import { type RedisSession, replyList, replyText } from "../databases/redis.ts";
import type { Entries, Place } from "./ledger.ts";
import { requirePlace } from "./places.ts";
import { changeOf, expectationOf, readEntries, safeInteger } from "./redis-entry.ts";
import { idOfPlace, LAYOUT_VERSION, type ShardKeys, shardKeys, shardOf } from "./redis-keys.ts";
import { nextDueOf, pageShards, scanShards, sweepShards } from "./redis-scan.ts";
import { PUT_KNOWN, PUT_NEW, REMOVE } from "./redis-scripts.ts";

/** Where a ledger is. */
export interface RedisPlaces {
  readonly prefix: string;
  readonly shards: number;
  /** Whether the server may delete entries when its memory is full. */
  readonly allowEviction: boolean;
}

/** As the scripts compare it: a ledger with another number of shards would look for its entries in other places. */
export function layoutOf({ shards }: RedisPlaces): string {
  return `${LAYOUT_VERSION}/${shards}`;
}

export function redisEntries(
  session: RedisSession,
  places: RedisPlaces,
  random: Random = systemRandom,
): Entries {
  const all = Array.from({ length: places.shards }, (_, shard) => shardKeys(places.prefix, shard));
  const keysOf = (place: Place): ShardKeys => {
    requirePlace(place);
    return all[shardOf(place, places.shards)] as ShardKeys; // Cast: it is less than `shards`.
  };
  return {
    async find(place) {
      const [entry] = await readEntries(session, keysOf(place), [idOfPlace(place)]);
      return entry;
    },
    async put(place, expected, write) {
      const keys = keysOf(place);
      const script = expected.kind === "absent" ? PUT_NEW : PUT_KNOWN;
      const values = [
        ...expectationOf(place, expected),
        layoutOf(places),
        random.id(),
        ...changeOf(write),
        places.allowEviction ? "evicts" : "",
      ];
      const reply = await session.run(script, [...keysAt(keys, place), keys.ledger], values);
      return writtenOf(reply, places, place);
    },
    async remove(place, expected) {
      const keys = keysAt(keysOf(place), place);
      return Number(await session.run(REMOVE, keys, expectationOf(place, expected))) === 1;
    },
    scan: (filter) => scanShards(session, all, filter),
    page: (filter) => pageShards(session, all, filter),
    nextDue: (kinds) => nextDueOf(session, all, kinds),
    sweep: (max) => sweepShards(session, all, max),
  };
}

/** The keys that a change of an entry touches, as the scripts number them. */
function keysAt(keys: ShardKeys, place: Place): string[] {
  return [
    keys.entry(idOfPlace(place)),
    keys.due(place.kind),
    keys.expiry,
    ...keys.states(place.kind),
  ];
}

function writtenOf(
  reply: unknown,
  places: RedisPlaces,
  { scope, key }: Place,
): { readonly token: number; readonly revision: number } | undefined {
  if (reply === null || reply === undefined) return undefined;
  const [first, second] = replyList(reply);
  if (replyText(first) === "layout") throw otherLayout(second, places);
  // What it stood for may have been done: it is not given again.
  if (replyText(first) === "deleted")
    throw new HapaxError(
      "unsupported",
      `the server has deleted an entry of the ledger: set maxmemory-policy to noeviction; scope=${scope} key=${key}`,
    );
  return { token: safeInteger(first), revision: safeInteger(second) };
}

/** A ledger that is gone refuses every write: its keys would count as new. */
export function otherLayout(found: unknown, { prefix, shards }: RedisPlaces): HapaxError {
  if (found === null || found === undefined)
    return new HapaxError(
      "unsupported",
      `the server has no ledger: call migrate(). If you did, the server has lost its data; prefix=${prefix}`,
    );
  const [version = "", theirs = ""] = replyText(found).split("/");
  if (Number(version) > LAYOUT_VERSION)
    return new HapaxError(
      "schema_newer",
      `the ledger was made by a newer version; version=${version}`,
    );
  const words = `the ledger was made with another number of shards; prefix=${prefix} shards=${shards}`;
  return new HapaxError("invalid_options", `${words} made=${theirs}`);
}
