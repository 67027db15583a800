/** Where a fork leaves its source: what must be read before a fork can be decided. PROTOCOL.md §8. */

import {
  type CreateRefusal,
  decideForkPoint,
  type ForkCommand,
  forkDepth,
  type ForkSource,
} from "../core/create.ts";
import { isJson, type StreamState } from "../core/stream.ts";
import type { Offset, StreamName } from "../core/types.ts";
import type { Store } from "../store.ts";
import { readAcrossForks } from "./reading.ts";

/** How many bytes the first records of an append have; the wire knows what a record is. */
export type RecordsEnd = (append: Uint8Array, records: number) => number | undefined;

/** What the engine lends. */
export interface ForkParts {
  readonly store: Store;
  readonly jsonRecordsEnd: RecordsEnd;
  readonly find: (name: StreamName) => StreamState | undefined;
  /** The durable tail, once everything that was decided about the stream is durable. */
  readonly durable: (name: StreamName, state: StreamState) => Promise<Offset>;
}

export async function findForkSource(
  parts: ForkParts,
  fork: ForkCommand,
): Promise<ForkSource | CreateRefusal> {
  const { sourceName, anchor, subOffset } = fork;
  const state = parts.find(sourceName);
  if (state === undefined || state.isDeleted || (anchor === undefined && subOffset === 0)) {
    return { state, at: undefined, depth: forkDepth(parts.store.world.byId, state) };
  }
  if (anchor === undefined) {
    return { kind: "invalid_fork", reason: "a sub-offset needs Stream-Fork-Offset" };
  }
  const tail = await parts.durable(sourceName, state);
  // No offset beyond what is durable was ever handed out, and only what is durable can be read.
  if (anchor > tail) return { kind: "invalid_fork", reason: "the offset is beyond the tail" };
  const page = await readAcrossForks(parts.store, state, anchor, tail, 1);
  const append = page.appends[0];
  const point = decideForkPoint(state, anchor, subOffset, {
    start: append === undefined ? undefined : page.start,
    subOffsetBytes: append === undefined ? undefined : recordsEnd(parts, state, append, subOffset),
  });
  if (point.kind !== "at") return point;
  return { state, at: point.at, depth: forkDepth(parts.store.world.byId, state) };
}

function recordsEnd(
  parts: ForkParts,
  state: StreamState,
  append: Uint8Array,
  records: number,
): number | undefined {
  if (isJson(state.contentType)) return parts.jsonRecordsEnd(append, records);
  return records <= append.length ? records : undefined;
}
