/** What a snapshot writes and reads of where data is. A store that finds its data otherwise has none of it. */

import type { Offset, StreamId } from "../../core/types.ts";
import type { Extent, StreamExtents } from "./extents.ts";

export interface SnapshotExtents {
  readonly streams: { get(stream: StreamId): StreamExtents | undefined };
  readonly trimmed: { add(stream: StreamId): unknown };
  create(stream: StreamId, start: Offset): unknown;
  add(stream: StreamId, extent: Extent, end: Offset): void;
  remove(stream: StreamId): void;
}

const nothing = (): undefined => undefined;

export const NO_EXTENTS: SnapshotExtents = {
  streams: { get: nothing },
  trimmed: { add: nothing },
  create: nothing,
  add: nothing,
  remove: nothing,
};
