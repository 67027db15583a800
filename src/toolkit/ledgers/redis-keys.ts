/** The names of a ledger's keys in Redis, and which shard a place belongs to. The layout is drawn in redis-scripts.ts. */

import { FNV_START, fnvStep } from "../../base/fnv.ts";
import type { EntryState } from "../rules/claim.ts";
import type { Place } from "./ledger.ts";

/** The version of the layout of keys and fields. */
export const LAYOUT_VERSION = 1;

/** In the order in which the scripts expect their sets. */
export const STATES: readonly EntryState[] = ["running", "released", "done", "failed"];

/** The names of the keys of one shard. */
export interface ShardKeys {
  readonly ledger: string;
  readonly expiry: string;
  entry(id: string): string;
  due(kind: string): string;
  state(state: EntryState, kind: string): string;
  /** All four, as the scripts number them. */
  states(kind: string): string[];
}

export function shardKeys(prefix: string, shard: number): ShardKeys {
  // The braces are a hash tag: a cluster keeps all keys with the same one together.
  const tag = `{${prefix}:${shard}}`;
  const state = (one: EntryState, kind: string): string => `${tag}:${one}:${kind}`;
  return {
    ledger: `${tag}:ledger`,
    expiry: `${tag}:expiry`,
    entry: (id) => `${tag}:entry:${id}`,
    due: (kind) => `${tag}:due:${kind}`,
    state,
    states: (kind) => STATES.map((one) => state(one, kind)),
  };
}

/** LG6: no two places have the same id. */
export function idOfPlace({ kind, scope, key }: Place): string {
  return JSON.stringify([kind, scope, key]);
}

export function placeOfId(id: string): Place {
  // Cast: only `idOfPlace` makes ids.
  const [kind, scope, key] = JSON.parse(id) as [string, string, string];
  return { kind, scope, key };
}

/** Not by kind: a primitive may change the kind of its entries. */
export function shardOf({ scope, key }: Place, shards: number): number {
  if (shards === 1) return 0;
  let hash = FNV_START;
  const text = JSON.stringify([scope, key]);
  for (let at = 0; at < text.length; at += 1) hash = fnvStep(hash, text.charCodeAt(at));
  return (hash >>> 0) % shards;
}
