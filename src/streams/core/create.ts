/**
 * How a stream is created, also as a fork of another stream. PROTOCOL.md §3, §8.
 *
 *   - creating again with the same configuration changes nothing, for any body;
 *   - a refused creation changes nothing: it leaves no reference on a fork's source;
 *   - a fork takes over data only: no producer, no Stream-Seq, no close of its source;
 *   - the path of a deleted stream stays taken while forks need its data;
 *   - a request that wants a free path never finds a stream there, for any configuration.
 */

import type { CompactionSet, RetentionSet, StreamAppended, StreamCreated } from "./change.ts";
import { type CompactionRule, isSameCompaction } from "./compaction.ts";
import type { KeyPolicy } from "./keys.ts";
import {
  type ExpiryRule,
  type Fork,
  isSameExpiry,
  isSameMediaType,
  NEVER_EXPIRES,
  type StreamState,
} from "./stream.ts";
import { isSameRule, type RetentionRule } from "./trim.ts";
import {
  type Offset,
  OFFSET_ZERO,
  type RunId,
  type StreamId,
  type StreamName,
  type TimeMs,
} from "./types.ts";

/**
 * The longest chain of forks of forks. A read looks through the whole chain for its bytes, and so does the deletion
 * of the last fork. Without a limit a chain would cost the square of its length.
 */
export const FORK_DEPTH_MAX = 100;

/**
 * Counts the forks between a stream and the one at the root of its chain, which is no fork. Stops counting at the
 * limit.
 */
export function forkDepth(
  byId: ReadonlyMap<StreamId, StreamState>,
  state: StreamState | undefined,
): number {
  let depth = 0;
  for (let next = state; next?.fork !== undefined && depth < FORK_DEPTH_MAX; depth += 1) {
    next = byId.get(next.fork.source);
  }
  return depth;
}

export const CONTENT_TYPE_DEFAULT = "application/octet-stream";

export interface CreateCommand {
  readonly name: StreamName;
  readonly contentType: string | undefined;
  readonly expiry: ExpiryRule;
  readonly isClosed: boolean;
  readonly data: Uint8Array;
  readonly fork: ForkCommand | undefined;
  readonly keys: KeyPolicy | undefined;
  /** What the stream keeps. A request that says nothing gets the default, and is not compared with a stream that is there. */
  readonly retention?: RetentionRule | undefined;
  readonly retentionDefault?: RetentionRule | undefined;
  /** Makes the stream a changelog. A request that says nothing is not compared with a stream that is there. */
  readonly compaction?: CompactionRule | undefined;
  /** Create only if the path is free. */
  readonly isNew: boolean;
}

export interface ForkCommand {
  readonly sourceName: StreamName;
  /** Where the fork leaves its source. Undefined: at the source's tail. */
  readonly anchor: Offset | undefined;
  readonly subOffset: number;
}

/** What the engine has read of a fork's source before the decision. See `decideForkPoint`. */
export interface ForkSource {
  readonly state: StreamState | undefined;
  /** Where the fork begins. Undefined: the tail at the time of the decision. */
  readonly at: Offset | undefined;
  /** How many forks the source is away from a stream that is no fork. See `forkDepth`. */
  readonly depth: number;
}

export type CreateRefusal =
  | { readonly kind: "conflict"; readonly reason: string }
  | { readonly kind: "present"; readonly tail: Offset; readonly isClosed: boolean }
  | { readonly kind: "in_use" }
  | { readonly kind: "source_missing" }
  | { readonly kind: "source_deleted" }
  | { readonly kind: "content_type_mismatch"; readonly expected: string }
  | { readonly kind: "invalid_fork"; readonly reason: string };

export type CreateDecision =
  | {
      readonly kind: "created";
      readonly changes: readonly [
        StreamCreated,
        ...(RetentionSet | CompactionSet | StreamAppended)[],
      ];
      readonly contentType: string;
      readonly tail: Offset;
      readonly isClosed: boolean;
      readonly keys: KeyPolicy | undefined;
      readonly retention?: RetentionRule | undefined;
      readonly compaction?: CompactionRule | undefined;
    }
  | {
      readonly kind: "exists";
      readonly contentType: string;
      readonly tail: Offset;
      readonly isClosed: boolean;
      readonly keys: KeyPolicy | undefined;
      readonly retention?: RetentionRule | undefined;
      readonly compaction?: CompactionRule | undefined;
    }
  | CreateRefusal;

export function decideCreate(
  existing: StreamState | undefined,
  source: ForkSource | undefined,
  command: CreateCommand,
  id: StreamId,
  run: RunId,
  atMs: TimeMs,
): CreateDecision {
  if (existing !== undefined) return decideExisting(existing, command);
  let fork: Fork | undefined;
  if (command.fork !== undefined) {
    const result = decideFork(source, command, command.fork);
    if ("kind" in result) return result;
    fork = result;
  }
  const inherited = fork === undefined ? undefined : source?.state;
  const contentType = inherited?.contentType ?? command.contentType ?? CONTENT_TYPE_DEFAULT;
  const expiry =
    inherited !== undefined && fork?.inheritsExpiry === true ? inherited.expiry : command.expiry;
  const created: StreamCreated = {
    kind: "created",
    atMs,
    stream: id,
    run,
    name: command.name,
    contentType,
    expiry,
    fork,
    keys: command.keys,
  };
  const { data, isClosed, keys, compaction, retention = command.retentionDefault } = command;
  const tail = ((fork?.at ?? OFFSET_ZERO) + data.length) as Offset;
  const rules: (RetentionSet | CompactionSet)[] = [];
  if (retention !== undefined) {
    rules.push({ kind: "retention_set", atMs, stream: id, rule: retention });
  }
  if (compaction !== undefined) {
    rules.push({ kind: "compaction_set", atMs, stream: id, rule: compaction });
  }
  const facts = { contentType, tail, isClosed, keys, retention, compaction };
  const made = { kind: "created", ...facts } as const;
  if (data.length === 0 && !isClosed) return { ...made, changes: [created, ...rules] };
  const appended: StreamAppended = {
    kind: "appended",
    atMs,
    stream: id,
    data,
    closes: isClosed,
    producer: undefined,
    streamSeq: undefined,
    key: undefined,
  };
  return { ...made, changes: [created, ...rules, appended] };
}

function decideExisting(existing: StreamState, command: CreateCommand): CreateDecision {
  if (existing.isDeleted) return { kind: "in_use" };
  const { contentType, tail, isClosed } = existing;
  if (command.isNew) return { kind: "present", tail, isClosed };
  const difference = findDifference(existing, command);
  if (difference !== undefined) return { kind: "conflict", reason: difference };
  const { keys, retained, compaction } = existing;
  const facts = { keys: keys?.policy, retention: retained?.rule, compaction };
  return { kind: "exists", contentType, tail, isClosed, ...facts };
}

function findDifference(existing: StreamState, command: CreateCommand): string | undefined {
  const { fork } = existing;
  if (fork?.sourceName !== command.fork?.sourceName) return "Stream-Forked-From";
  // A fork without a type of its own took the type of its source. A request that repeats the creation does the same.
  const contentType =
    command.contentType ?? (fork === undefined ? CONTENT_TYPE_DEFAULT : existing.contentType);
  if (!isSameMediaType(existing.contentType, contentType)) return "Content-Type";
  const expected = fork?.inheritsExpiry === true ? NEVER_EXPIRES : existing.expiry;
  if (!isSameExpiry(expected, command.expiry)) return "Stream-TTL or Stream-Expires-At";
  if (existing.isClosed !== command.isClosed) return "Stream-Closed";
  if (command.keys !== undefined) {
    const difference = findKeyDifference(existing.keys?.policy, command.keys);
    if (difference !== undefined) return difference;
  }
  const { retention, compaction } = command;
  if (compaction !== undefined && !isSameCompaction(existing.compaction, compaction)) {
    return "Stream-Compact-Key";
  }
  if (retention !== undefined && !isSameRule(existing.retained?.rule, retention)) {
    return "Stream-Retention";
  }
  if (fork === undefined || command.fork === undefined) return undefined;
  const { anchor, subOffset } = command.fork;
  if (anchor !== undefined && anchor !== fork.anchor) return "Stream-Fork-Offset";
  if (subOffset !== fork.subOffset) return "Stream-Fork-Sub-Offset";
  return undefined;
}

// A setting that the request leaves out is not compared: the client may know nothing of keys.
function findKeyDifference(existing: KeyPolicy | undefined, asked: KeyPolicy): string | undefined {
  const { windowSeconds, countMax, overflow } = asked;
  if (windowSeconds !== undefined && windowSeconds !== existing?.windowSeconds) {
    return "Stream-Key-Window";
  }
  if (countMax !== undefined && countMax !== existing?.countMax) return "Stream-Key-Max";
  if (overflow !== undefined && overflow !== existing?.overflow) return "Stream-Key-Overflow";
  if (asked.isFromContent && existing?.isFromContent !== true) return "Stream-Key-From";
  return undefined;
}

function decideFork(
  source: ForkSource | undefined,
  command: CreateCommand,
  fork: ForkCommand,
): Fork | CreateRefusal {
  const state = source?.state;
  if (source === undefined || state === undefined) return { kind: "source_missing" };
  if (state.isDeleted) return { kind: "source_deleted" };
  if (
    command.contentType !== undefined &&
    !isSameMediaType(command.contentType, state.contentType)
  ) {
    return { kind: "content_type_mismatch", expected: state.contentType };
  }
  if (source.depth >= FORK_DEPTH_MAX) {
    const reason = `the source is a fork of a fork, ${FORK_DEPTH_MAX} deep; fork an earlier one, or copy it`;
    return { kind: "invalid_fork", reason };
  }
  const anchor = fork.anchor ?? state.tail;
  return {
    source: state.id,
    sourceName: fork.sourceName,
    anchor,
    subOffset: fork.subOffset,
    at: source.at ?? state.tail,
    inheritsExpiry: command.expiry.kind === "never",
  };
}

/** The first append at or after a fork's anchor, as the engine read it from the store. */
export interface AnchoredAppend {
  /** Where the append that holds the anchor starts. Undefined if the anchor is the tail. */
  readonly start: Offset | undefined;
  /** Byte length of its first `subOffset` records or bytes. Undefined if it has fewer. */
  readonly subOffsetBytes: number | undefined;
}

export type ForkPoint =
  | { readonly kind: "at"; readonly at: Offset }
  | { readonly kind: "invalid_fork"; readonly reason: string };

/** Decides where a fork with a named anchor begins. That is always between two records. */
export function decideForkPoint(
  source: StreamState,
  anchor: Offset,
  subOffset: number,
  append: AnchoredAppend,
  earliest = OFFSET_ZERO,
): ForkPoint {
  if (anchor < earliest) {
    return { kind: "invalid_fork", reason: "the data at the offset was trimmed" };
  }
  if (anchor > source.tail)
    return { kind: "invalid_fork", reason: "the offset is beyond the tail" };
  if (append.start !== undefined && append.start !== anchor) {
    return { kind: "invalid_fork", reason: "the offset is not one that this server handed out" };
  }
  if (subOffset === 0) return { kind: "at", at: anchor };
  if (append.start === undefined) {
    return { kind: "invalid_fork", reason: "there is no append after the offset" };
  }
  if (append.subOffsetBytes === undefined) {
    return { kind: "invalid_fork", reason: "the sub-offset is larger than the append after it" };
  }
  return { kind: "at", at: (anchor + append.subOffsetBytes) as Offset };
}
