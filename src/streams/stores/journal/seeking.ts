/**
 * Finds the first append of a stream that was stored at a time or later. There is no index of times: each record has its own, times
 * never go back within a stream, and the extents say where the records are. So a search reads the heads of a few records.
 *
 *   - it takes no memory and costs appends nothing;
 *   - it reads one head for each halving of the extents, and one extent of at most EXTENT_BYTES_MAX in the end.
 */

import { advance, type Offset, type StreamId, type TimeMs } from "../../core/types.ts";
import { ByteReader, damage, damaged } from "./bytes.ts";
import { type Extent, EXTENT_BYTES_MAX, type StreamExtents } from "./extents.ts";
import { DATA_HEAD_BYTES, decodeDataHead, decodeDataOnly } from "./records.ts";
import type { SegmentReader } from "./segment-log.ts";

/** Returns the offset of the first append from `from` on with this time or a later one, or `to` if there is none before it. */
export async function seekExtents(
  segments: SegmentReader,
  stream: StreamId,
  extents: StreamExtents,
  from: Offset,
  to: Offset,
  atMs: TimeMs,
): Promise<Offset> {
  // Offsets and not places in the index: compaction may cut the stream into other extents meanwhile.
  let older: Offset | undefined;
  let newer: Offset | undefined;
  for (;;) {
    const low = older === undefined ? extents.find(from) : extents.find(older) + 1;
    const high = newer === undefined ? extents.count : extents.find(newer);
    if (low >= high) break;
    const extent = extents.at((low + high) >>> 1);
    if ((await timeOf(segments, stream, extent)) < atMs) older = extent.start;
    else newer = extent.start;
  }
  // An extent that begins before `from` has nothing to say about what is behind it.
  const end = Math.min(to, newer !== undefined && newer > from ? newer : to) as Offset;
  for (let position = older ?? from; position < end;) {
    const index = extents.find(position);
    if (index === extents.count) break;
    const found = await seekInside(segments, stream, extents.at(index), from, atMs);
    if (found !== undefined && found < end) return found;
    position = index + 1 === extents.count ? extents.end : extents.at(index + 1).start;
  }
  return end;
}

/** The first append of the extent that is at `from` or behind it, and not older than the time. */
async function seekInside(
  segments: SegmentReader,
  stream: StreamId,
  extent: Extent,
  from: Offset,
  atMs: TimeMs,
): Promise<Offset | undefined> {
  // A larger extent is one append.
  if (extent.bytes > EXTENT_BYTES_MAX) {
    const isFound = extent.start >= from && (await timeOf(segments, stream, extent)) >= atMs;
    return isFound ? extent.start : undefined;
  }
  const { segment, position, bytes } = extent;
  const reader = new ByteReader(await segments.read(segment, position, bytes));
  try {
    if (reader.left < bytes) throw damaged("the file ends too early");
    for (let offset = extent.start; reader.left > 0;) {
      const record = decodeDataOnly(reader);
      requirePlace(record, stream, offset);
      if (offset >= from && record.atMs >= atMs) return offset;
      offset = advance(offset, record.data.length);
    }
    return undefined;
  } catch (error) {
    throw damageAt(segments, extent, error);
  }
}

/** The time of the first record of an extent. */
async function timeOf(segments: SegmentReader, stream: StreamId, extent: Extent): Promise<TimeMs> {
  const { segment, position, bytes, start } = extent;
  const head = await segments.read(segment, position, Math.min(bytes, DATA_HEAD_BYTES));
  try {
    const record = decodeDataHead(new ByteReader(head));
    requirePlace(record, stream, start);
    return record.atMs;
  } catch (error) {
    throw damageAt(segments, extent, error);
  }
}

function requirePlace(
  record: { readonly stream: StreamId; readonly start: Offset },
  stream: StreamId,
  offset: Offset,
): void {
  if (record.stream === stream && record.start === offset) return;
  throw damaged(`a record of stream ${stream} at ${offset} is not where the index says`);
}

function damageAt(segments: SegmentReader, extent: Extent, error: unknown): Error {
  const reason = error instanceof Error ? error.message : String(error);
  return damage(segments.nameOf(extent.segment), extent.position, reason, error);
}
