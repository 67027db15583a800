/**
 * Compares the index with the records that are really there.
 *
 * Records come in the order of the segments. Each is compared with the index at once. At the end, the entries of the
 * index without a matching record are read one by one. So a sound log is read only in order. Memory: one number
 * a stream.
 */

import type { StreamState } from "../../core/stream.ts";
import { ownEarliest } from "../../core/trim.ts";
import { OFFSET_ZERO, type Offset, type StreamId } from "../../core/types.ts";
import type { World } from "../../core/world.ts";
import { ByteReader, damaged } from "./bytes.ts";
import type { Extent, ExtentIndex, StreamExtents } from "./extents.ts";
import { type StoreProblem, storeProblem } from "./problem.ts";
import { decodeDataOnly } from "./records.ts";

/** Reads single extents of a log that may be damaged. */
export interface ExtentSource {
  /** What people know a segment by. */
  nameOf(segment: number): string;
  /** Returns fewer bytes if the segment ends before. Throws if there is no such segment. */
  read(extent: Extent): Promise<Buffer>;
  close(): Promise<void>;
}

export interface RecordPlace {
  readonly segment: number;
  readonly position: number;
  readonly bytes: number;
}

export class IndexCheck {
  readonly #world: World;
  readonly #index: ExtentIndex;
  readonly #source: ExtentSource;
  readonly #foundBytes = new Map<StreamId, number>();
  readonly #damaged = new Set<number>();
  #segmentBytes = 0;
  #misplaced: StoreProblem[] = [];
  extents = 0;

  constructor(world: World, index: ExtentIndex, source: ExtentSource) {
    this.#world = world;
    this.#index = index;
    this.#source = source;
    for (const { count } of index.streams.values()) this.extents += count;
  }

  /** Takes a valid record of a frame. It skips older copies of moved data, which are not in the index. */
  record(stream: StreamId, start: Offset, length: number, place: RecordPlace): void {
    const extents = this.#index.streams.get(stream);
    if (extents === undefined || length === 0 || start >= extents.end) return;
    const at = extents.find(start);
    if (at >= extents.count) return;
    const extent = extents.at(at);
    const into = place.position - extent.position;
    const isPointedTo =
      extent.segment === place.segment && into >= 0 && into + place.bytes <= extent.bytes;
    if (!isPointedTo) return;
    if ((into === 0) !== (start === extent.start)) {
      const what = `stream ${stream}: the record at offset ${start} is not where the index says`;
      this.#misplaced.push(indexProblem(this.#source.nameOf(place.segment), place.position, what));
    }
    this.#foundBytes.set(stream, (this.#foundBytes.get(stream) ?? 0) + length);
    this.#segmentBytes += place.bytes;
  }

  /** Says that all records of the segment have come. */
  endOfSegment(number: number, name: string, isDamaged: boolean): readonly StoreProblem[] {
    const found = this.#misplaced;
    const liveBytes = this.#index.liveBytes(number);
    if (isDamaged) this.#damaged.add(number);
    else if (liveBytes !== this.#segmentBytes) {
      const what = `the index points to ${liveBytes} bytes, and ${this.#segmentBytes} are there`;
      found.push(indexProblem(name, 0, what));
    }
    this.#misplaced = [];
    this.#segmentBytes = 0;
    return found;
  }

  /** Yields the problems of each stream. Call it after all segments. */
  async *finish(): AsyncGenerator<StoreProblem> {
    try {
      for (const state of this.#world.byId.values()) yield* this.#checkStream(state);
    } finally {
      await this.#source.close();
    }
    for (const stream of this.#index.streams.keys()) {
      if (this.#world.byId.has(stream)) continue;
      yield indexProblem("the index", 0, `stream ${stream} has data and is not known`);
    }
  }

  async *#checkStream(state: StreamState): AsyncGenerator<StoreProblem> {
    const { id, name, fork, tail } = state;
    const extents = this.#index.streams.get(id);
    if (extents === undefined) {
      yield indexProblem("the index", 0, `stream ${name} is not in it`);
      return;
    }
    const source = fork === undefined ? undefined : this.#world.byId.get(fork.source);
    if (fork !== undefined && (source?.tail ?? -1) < fork.at) {
      yield indexProblem(
        "the index",
        0,
        `stream ${name}: its source ${fork.sourceName} is too short`,
      );
    }
    const { first } = extents;
    const start = fork?.at ?? OFFSET_ZERO;
    // A trim takes whole extents, so the index begins at the earliest offset or before it.
    const isBegun = first === start || (first > start && first <= ownEarliest(state));
    if (!isBegun || extents.end !== tail) {
      const range = `${first} to ${extents.end}, not ${start} to ${tail}`;
      yield indexProblem("the index", 0, `stream ${name}: it has offsets ${range}`);
    }
    if ((this.#foundBytes.get(id) ?? 0) === extents.end - first) return;
    let isExplained = false;
    for await (const problem of unreadable(state, extents, this.#source)) {
      isExplained = true;
      yield problem;
    }
    for (let at = 0; at < extents.count && !isExplained; at += 1) {
      isExplained = this.#damaged.has(extents.at(at).segment);
    }
    if (!isExplained) {
      yield indexProblem("the index", 0, `stream ${name}: its offsets are not covered exactly`);
    }
  }
}

function indexProblem(file: string, offset: number, what: string): StoreProblem {
  const meaning =
    "index and journal do not agree: a fault of the software; keep a copy of everything";
  return storeProblem({ kind: "index", file, offset, what, meaning });
}

/** Yields the extents of a stream that a read would fail on. Joins neighbours. */
async function* unreadable(
  { id, name }: StreamState,
  extents: StreamExtents,
  source: ExtentSource,
): AsyncGenerator<StoreProblem> {
  let open: { readonly extent: Extent; readonly reason: string; to: Offset } | undefined;
  const describe = ({ extent, reason, to }: NonNullable<typeof open>): StoreProblem => {
    const what = `stream ${name}, offsets ${extent.start} to ${to}: ${reason}`;
    const meaning = "reading these offsets fails with data_damaged; the others can be read";
    const file = source.nameOf(extent.segment);
    return storeProblem({ kind: "data", file, offset: extent.position, what, meaning });
  };
  for (let at = 0; at < extents.count; at += 1) {
    const extent = extents.at(at);
    const to = at + 1 < extents.count ? extents.at(at + 1).start : extents.end;
    const reason = await findFault(id, extent, to, source);
    if (open !== undefined && reason === open.reason && open.extent.segment === extent.segment) {
      open.to = to;
      continue;
    }
    if (open !== undefined) yield describe(open);
    open = reason === undefined ? undefined : { extent, reason, to };
  }
  if (open !== undefined) yield describe(open);
}

async function findFault(
  stream: StreamId,
  extent: Extent,
  end: Offset,
  source: ExtentSource,
): Promise<string | undefined> {
  try {
    const bytes = await source.read(extent);
    const reader = new ByteReader(bytes);
    let offset: number = extent.start;
    while (reader.left > 0) {
      const record = decodeDataOnly(reader);
      if (record.stream !== stream || record.start !== offset) {
        throw damaged("another record is there");
      }
      offset += record.data.length;
    }
    if (bytes.length < extent.bytes || offset !== end) throw damaged("the file ends too early");
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
