/**
 * What a stream is: its configuration, which never changes, and its state, which only `applyChange` (world.ts)
 * writes. Everything here is small on purpose: a server keeps a million of these in memory.
 *
 * The data itself is not here. A stream is a sequence of bytes, cut into appends; the store keeps them
 * and this state keeps the count (`tail`).
 */

import { type Incarnation, lifeIn } from "../../base/incarnation.ts";
import { mediaType } from "../../base/media-type.ts";
import type { CompactionRule } from "./compaction.ts";
import type { StreamKeys } from "./keys.ts";
import type { ProducerState } from "./producer.ts";
import type { Retained } from "./trim.ts";
import type { Offset, ProducerId, RunId, StreamId, StreamName, TimeMs } from "./types.ts";

/** How a stream ends by itself: after a time without reads and writes, at a time, or never. */
export type ExpiryRule =
  | { readonly kind: "never" }
  | { readonly kind: "ttl"; readonly seconds: number }
  | { readonly kind: "at"; readonly timeMs: number };

export const NEVER_EXPIRES: ExpiryRule = { kind: "never" };

/** Where a fork leaves its source. */
export interface Fork {
  readonly source: StreamId;
  readonly sourceName: StreamName;
  /** The offset that the request named, or the source's tail if it named none. */
  readonly anchor: Offset;
  /** Records (JSON) or bytes past the anchor, as in the request. */
  readonly subOffset: number;
  /** The first byte of the fork's own. Everything before it belongs to the source. */
  readonly at: Offset;
  /** The request gave no expiry. A request that repeats it must give none either. */
  readonly inheritsExpiry: boolean;
}

/** The state of one stream: its configuration, its tail and its producers. */
export interface StreamState {
  readonly id: StreamId;
  readonly run: RunId;
  readonly name: StreamName;
  readonly contentType: string;
  readonly expiry: ExpiryRule;
  readonly fork: Fork | undefined;
  readonly createdAtMs: TimeMs;
  readonly tail: Offset;
  readonly isClosed: boolean;
  /** Deleted or expired while forks still need the data. */
  readonly isDeleted: boolean;
  /** Forks that read from this stream. */
  readonly forkCount: number;
  readonly lastStreamSeq: string | undefined;
  readonly producers: ReadonlyMap<ProducerId, ProducerState> | undefined;
  readonly keys: StreamKeys | undefined;
  /** The last read or write, for a sliding expiry. */
  readonly accessedAtMs: TimeMs;
  /** What was trimmed, and the rule of retention. Undefined: nothing was trimmed, and there is no rule. */
  readonly retained: Retained | undefined;
  /** The rule of a changelog. */
  readonly compaction: CompactionRule | undefined;
}

/** All streams of a world, by their names. */
export type StreamsByName = ReadonlyMap<StreamName, StreamState>;

/**
 * Whether an offset cuts nothing: it is the beginning, the end of a durable append, or for JSON the end of a record.
 * The state does not know where records end, so the engine answers.
 */
export type IsBoundary = (state: StreamState, offset: Offset) => boolean;

/**
 * Returns a name for one life of a stream. A path that is deleted and created again has another life, also if the
 * server's data was restored from a copy in between. The id is unique among the streams of one run, and the run is
 * random. After a restore of the whole store every life ends in its incarnation.
 */
export function lifeOf(
  { id, run }: Pick<StreamState, "id" | "run">,
  { incarnation }: { readonly incarnation: Incarnation },
): string {
  return lifeIn(`${id.toString(36)}-${run.toString(36)}`, incarnation);
}

/** Whether the server keeps this stream for itself. Paths begin with a slash, so no request can name one. */
export function isSystemStream(name: StreamName): boolean {
  return !name.startsWith("/");
}

export function isSameMediaType(one: string, other: string): boolean {
  return one === other || mediaType(one) === mediaType(other);
}

export function isJson(contentType: string): boolean {
  return contentType === "application/json" || mediaType(contentType) === "application/json";
}

export function isSameExpiry(one: ExpiryRule, other: ExpiryRule): boolean {
  if (one.kind === "ttl") return other.kind === "ttl" && one.seconds === other.seconds;
  if (one.kind === "at") return other.kind === "at" && one.timeMs === other.timeMs;
  return other.kind === "never";
}
