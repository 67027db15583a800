/**
 * Reads data records from the journal. One call reads several extents that lie close together.
 *
 *   - returned data was checked: right stream, right offset, right checksum.
 */

import { advance, type Offset, type StreamId, type TimeMs } from "../../core/types.ts";
import type { Page } from "../../store.ts";
import { ByteReader, damage, damaged } from "./bytes.ts";
import type { Extent, StreamExtents } from "./extents.ts";
import { decodeDataOnly } from "./records.ts";
import type { SegmentReader } from "./segment-log.ts";

/** Up to this gap between two extents, reading it is cheaper than skipping it. */
const GAP_BYTES_MAX = 8 * 1024;
const SPAN_BYTES_MAX = 2 * 1024 * 1024;

export async function readExtents(
  segments: SegmentReader,
  stream: StreamId,
  extents: StreamExtents,
  from: Offset,
  to: Offset,
  bytesMax: number,
): Promise<Page> {
  const appends: Uint8Array[] = [];
  const lent: Buffer[] = [];
  const release = (): void => {
    for (const buffer of lent.splice(0)) segments.buffers.give(buffer);
  };
  let start: Offset | undefined;
  let bytes = 0;
  let position = from;
  while (position < to && (start === undefined || bytes < bytesMax)) {
    // Look up anew each time: compaction may have cut the stream into other extents meanwhile.
    const index = extents.find(position);
    if (index === extents.count) break;
    // The data was trimmed, perhaps just now. A page has no holes.
    if (extents.first > position) break;
    const span = takeSpan(extents, index, to, bytesMax - bytes);
    const into = segments.buffers.take(spanBytes(span));
    if (into !== undefined) lent.push(into);
    for (const { offset, data } of await readSpan(segments, stream, span, into)) {
      const end = advance(offset, data.length);
      if (end <= position) continue;
      if (offset >= to || (bytes > 0 && bytes + data.length > bytesMax)) {
        return { start: start ?? from, appends, release };
      }
      start ??= offset;
      appends.push(end <= to ? data : data.subarray(0, to - offset));
      bytes += data.length;
      position = end;
    }
  }
  return { start: start ?? from, appends, release };
}

/** Takes extents that follow each other on disk, as many as the page may need. */
function takeSpan(
  extents: StreamExtents,
  index: number,
  to: Offset,
  bytesMax: number,
): readonly Extent[] {
  const first = extents.at(index);
  const span = [first];
  let end = first.position + first.bytes;
  for (let next = index + 1; next < extents.count; next += 1) {
    const extent = extents.at(next);
    const gap = extent.position - end;
    const isClose = extent.segment === first.segment && gap >= 0 && gap <= GAP_BYTES_MAX;
    const length = extent.position + extent.bytes - first.position;
    if (!isClose || length > SPAN_BYTES_MAX || extent.start >= to) break;
    if (extent.start - first.start >= bytesMax) break;
    span.push(extent);
    end = extent.position + extent.bytes;
  }
  return span;
}

function spanBytes(span: readonly Extent[]): number {
  const [first] = span;
  const last = span.at(-1);
  return first === undefined || last === undefined
    ? 0
    : last.position + last.bytes - first.position;
}

interface FoundAppend {
  readonly offset: Offset;
  readonly atMs: TimeMs;
  readonly data: Uint8Array;
}

async function readSpan(
  segments: SegmentReader,
  stream: StreamId,
  span: readonly Extent[],
  into?: Buffer,
): Promise<readonly FoundAppend[]> {
  const [first] = span;
  if (first === undefined) return [];
  const bytes = await segments.read(first.segment, first.position, spanBytes(span), into);
  const found: FoundAppend[] = [];
  for (const extent of span) {
    const at = extent.position - first.position;
    try {
      readExtent(bytes, at, extent, stream, found);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw damage(segments.nameOf(extent.segment), extent.position, reason, error);
    }
  }
  return found;
}

function readExtent(
  bytes: Buffer,
  at: number,
  extent: Extent,
  stream: StreamId,
  found: FoundAppend[],
): void {
  const reader = new ByteReader(bytes.subarray(at, at + extent.bytes));
  if (reader.left < extent.bytes) throw damaged("the file ends too early");
  let offset = extent.start;
  while (reader.left > 0) {
    const record = decodeDataOnly(reader);
    if (record.stream !== stream || record.start !== offset) {
      throw damaged(`a record of stream ${stream} at ${offset} is not where the index says`);
    }
    found.push({ offset, atMs: record.atMs, data: record.data });
    offset = advance(offset, record.data.length);
  }
}

/** Reads the data of some extents of a stream, to move them. */
export async function readForMove(
  segments: SegmentReader,
  stream: StreamId,
  extents: readonly Extent[],
): Promise<readonly FoundAppend[]> {
  const found: FoundAppend[] = [];
  for (const extent of extents) found.push(...(await readSpan(segments, stream, [extent])));
  return found;
}
