/**
 * How a stream ends: by deletion or by its expiry. PROTOCOL.md §6, §9.
 *
 *   - a stream that forks read from is deleted softly: gone for its users, kept for the forks;
 *   - when the last fork of a softly deleted stream goes, the stream goes too, and so on upwards;
 *   - a sliding expiry counts from the last read or write; an absolute one never moves;
 *   - a stream with live readers does not expire by its sliding expiry.
 */

import type { StreamDeleted, StreamRemoved, StreamTouched } from "./change.ts";
import type { StreamState } from "./stream.ts";
import type { StreamId, TimeMs } from "./types.ts";

export type StreamEnding = readonly (StreamDeleted | StreamRemoved)[];

/** Returns the changes that remove a stream, and the sources that only this stream kept. */
export function decideEnding(
  byId: ReadonlyMap<StreamId, StreamState>,
  state: StreamState,
  atMs: TimeMs,
): StreamEnding {
  if (state.forkCount > 0) return [{ kind: "deleted", atMs, stream: state.id }];
  const changes: StreamRemoved[] = [];
  let next: StreamState | undefined = state;
  while (next !== undefined) {
    changes.push({ kind: "removed", atMs, stream: next.id });
    const source: StreamState | undefined =
      next.fork === undefined ? undefined : byId.get(next.fork.source);
    const isLastFork: boolean = source !== undefined && source.isDeleted && source.forkCount === 1;
    next = isLastFork ? source : undefined;
  }
  return changes;
}

/**
 * A read is written down only if the last one is older than this share of the TTL, so that reads do not write all the
 * time. The deadline is later by the same share: never early, at most a 16th late.
 */
const TOUCH_SHARE = 16;
const TOUCH_MS_MAX = 60_000;

function touchGrainMs(ttlSeconds: number): number {
  return Math.min(Math.ceil((ttlSeconds * 1000) / TOUCH_SHARE), TOUCH_MS_MAX);
}

/** Returns the time from which a stream counts as gone. Undefined: it does not end by itself. */
export function expiresAtMs(state: StreamState): TimeMs | undefined {
  const { expiry, accessedAtMs } = state;
  if (expiry.kind === "at") return expiry.timeMs as TimeMs;
  if (expiry.kind === "never") return undefined;
  return (accessedAtMs + expiry.seconds * 1000 + touchGrainMs(expiry.seconds)) as TimeMs;
}

export function isExpired(state: StreamState, nowMs: TimeMs, hasLiveReaders: boolean): boolean {
  if (state.expiry.kind === "never" || state.isDeleted) return false;
  if (state.expiry.kind === "ttl" && hasLiveReaders) return false;
  const deadline = expiresAtMs(state);
  return deadline !== undefined && nowMs >= deadline;
}

/** Decides whether a read or a refused write moves a sliding expiry. Undefined: there is nothing to write down. */
export function decideTouch(state: StreamState, atMs: TimeMs): StreamTouched | undefined {
  if (state.expiry.kind !== "ttl" || state.isDeleted) return undefined;
  if (atMs - state.accessedAtMs <= touchGrainMs(state.expiry.seconds)) return undefined;
  return { kind: "touched", atMs, stream: state.id };
}
