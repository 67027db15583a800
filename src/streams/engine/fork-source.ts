/** Where a fork leaves its source: what must be read before a fork can be decided. PROTOCOL.md §8. */

import {
  type CreateRefusal,
  decideForkPoint,
  type ForkCommand,
  forkDepth,
  type ForkSource,
} from "../core/create.ts";
import { isJson, type StreamState } from "../core/stream.ts";
import { earliestOf } from "../core/trim.ts";
import { readAcrossForks } from "./reading.ts";
import type { Writer } from "./writer.ts";

/** How many bytes the first records of an append have; the wire knows what a record is. */
export type RecordsEnd = (append: Uint8Array, records: number) => number | undefined;

export async function findForkSource(
  writer: Writer,
  jsonRecordsEnd: RecordsEnd,
  fork: ForkCommand,
): Promise<ForkSource | CreateRefusal> {
  const { sourceName, anchor, subOffset } = fork;
  const state = writer.find(sourceName);
  if (state === undefined || state.isDeleted || (anchor === undefined && subOffset === 0)) {
    return { state, at: undefined, depth: forkDepth(writer.world.byId, state) };
  }
  if (anchor === undefined) {
    return { kind: "invalid_fork", reason: "a sub-offset needs Stream-Fork-Offset" };
  }
  await writer.answer(sourceName, state, undefined);
  const tail = writer.durableTail(state);
  // No offset beyond what is durable was ever handed out, and only what is durable can be read.
  if (anchor > tail) return { kind: "invalid_fork", reason: "the offset is beyond the tail" };
  const page = await readAcrossForks(writer.store, state, anchor, tail, 1);
  const append = page.appends[0];
  const point = decideForkPoint(
    state,
    anchor,
    subOffset,
    {
      start: append === undefined ? undefined : page.start,
      subOffsetBytes:
        append === undefined ? undefined : recordsEnd(jsonRecordsEnd, state, append, subOffset),
    },
    earliestOf(writer.world, state),
  );
  if (point.kind !== "at") return point;
  return { state, at: point.at, depth: forkDepth(writer.world.byId, state) };
}

function recordsEnd(
  jsonRecordsEnd: RecordsEnd,
  state: StreamState,
  append: Uint8Array,
  records: number,
): number | undefined {
  if (isJson(state.contentType)) return jsonRecordsEnd(append, records);
  return records <= append.length ? records : undefined;
}
