/**
 * Where a stream belongs. A placement is a text that follows from the name of a stream alone; all streams of one placement are in
 * one shard. PROTOCOL.md §24.1.
 *
 *   - PL1 only the first segment counts: that below `/v1/stream/`, or that of a name elsewhere. So a namespace, and a pattern
 *     that begins with a whole segment, are of one placement;
 *   - PL2 text in the first pair of braces in that segment, if there is some, takes its place;
 *   - PL3 the shard of a placement follows from its text and the number of shards, and never changes.
 */

import { assert } from "../../base/assert.ts";
import { FNV_START, fnvStep } from "../../base/fnv.ts";
import type { StreamName } from "./types.ts";

/** The number of a shard, from 0. */
export type ShardId = number & { readonly brand: "ShardId" };

export const SHARDS_MAX = 256;

const ROOT = "/v1/stream/";

/** The placement of a stream. */
export function placementOf(name: StreamName): string {
  const start = name.startsWith(ROOT) ? ROOT.length : 1;
  const end = name.indexOf("/", start);
  return tagOf(end === -1 ? name.slice(start) : name.slice(start, end));
}

/** The placement of all names that a pattern can match. Undefined: they have several. A star is a whole segment. */
export function placementOfPattern(pattern: string): string | undefined {
  const star = pattern.indexOf("*");
  if (star === -1) return placementOf(pattern as StreamName);
  const fixed = pattern.slice(0, star);
  if (ROOT.startsWith(fixed)) return undefined;
  const start = fixed.startsWith(ROOT) ? ROOT.length : 1;
  const end = fixed.indexOf("/", start);
  return end === -1 ? undefined : tagOf(fixed.slice(start, end));
}

/** As in other systems with such tags: empty braces are a part of the name. */
function tagOf(segment: string): string {
  const open = segment.indexOf("{");
  const close = segment.indexOf("}", open + 1);
  return open !== -1 && close > open + 1 ? segment.slice(open + 1, close) : segment;
}

/** The shard of a placement. */
export function shardOfPlacement(placement: string, shards: number): ShardId {
  assert(shards >= 1 && shards <= SHARDS_MAX, "a cluster has 1 to 256 shards");
  return (hashText(placement) % shards) as ShardId;
}

/**
 * FNV-1a of the UTF-16 code units, low byte first, with the last mixing step of MurmurHash3: FNV alone leaves short texts close
 * to each other. The result is stored in no table, but data lies where it says: it never changes.
 */
export function hashText(text: string): number {
  let hash = FNV_START;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    hash = fnvStep(fnvStep(hash, unit & 0xff), unit >>> 8);
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
