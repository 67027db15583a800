/**
 * Reads the last records of a stream, or the last ones before an offset. PROTOCOL.md §7.10.
 *
 *   - a store reads forward only, so parts of the stream are read, each twice as large as the one behind it, until there are
 *     enough records;
 *   - the work and the memory are bounded by the page and one append, however long the stream is and however small its records;
 *   - a page has at least one record, if there is one, and otherwise no more bytes than its limit.
 */

import { isJson, type StreamState } from "../core/stream.ts";
import { advance, type Offset } from "../core/types.ts";
import type { Page, Store } from "../store.ts";
import { readAcrossForks } from "./reading.ts";
import type { Slices } from "./turn-budget.ts";

/** Returns where the JSON record that begins at this byte of a stored append ends; the wire knows what a record is. */
export type RecordEnd = (append: Uint8Array, start: number) => number;

/** The first part that is read. */
const FIRST_BYTES = 16 * 1024;
/** The time of a turn is looked at after so many bytes of records, which take a fraction of a millisecond. */
const BYTES_PER_LOOK = 16 * 1024;

/** Which records are wanted. */
export interface LastRecords {
  readonly earliest: Offset;
  /** Records that end behind this offset are not wanted. */
  readonly before: Offset;
  /** The durable tail. */
  readonly tail: Offset;
  readonly count: number;
  readonly bytesMax: number;
}

interface Found {
  readonly start: Offset;
  readonly data: Uint8Array;
}

export interface BackwardParts {
  readonly store: Store;
  readonly jsonRecordEnd: RecordEnd;
  readonly slices: Slices;
}

/** Reads backwards. The page begins with a record and ends with one. */
export async function readLast(
  parts: BackwardParts,
  state: StreamState,
  wanted: LastRecords,
): Promise<Required<Page>> {
  const { earliest, before, bytesMax } = wanted;
  const releases: (() => void)[] = [];
  const release = (): void => {
    for (const one of releases.splice(0)) one();
  };
  const taken = new Taken(parts, isJson(state.contentType), wanted);
  try {
    let end = before;
    for (let bytes = FIRST_BYTES; end > earliest && !taken.isEnough; bytes *= 2) {
      const begin = Math.max(earliest, end - Math.min(bytes, bytesMax)) as Offset;
      // Behind `before` only for the append that holds it.
      const limit = end === before ? wanted.tail : end;
      const part = await readPart(parts.store, state, begin, end, limit, releases);
      for (const found of part.toReversed()) {
        await taken.take(found);
        if (taken.isEnough) break;
      }
      end = Math.min(part[0]?.start ?? earliest, begin) as Offset;
    }
  } catch (error) {
    release();
    throw error;
  }
  return { ...taken.page(), release };
}

/** The appends that have a byte in [begin, end). */
async function readPart(
  store: Store,
  state: StreamState,
  begin: Offset,
  end: Offset,
  limit: Offset,
  releases: (() => void)[],
): Promise<readonly Found[]> {
  const part: Found[] = [];
  for (let at = begin; at < end;) {
    const page = await readAcrossForks(store, state, at, limit, end - at);
    releases.push(page.release);
    if (page.appends.length === 0) break; // It was trimmed meanwhile, or deleted.
    at = page.start;
    for (const data of page.appends) {
      if (at < end) part.push({ start: at, data });
      at = advance(at, data.length);
    }
  }
  return part;
}

/** The records that were taken so far, from the last one on. */
class Taken {
  readonly #parts: BackwardParts;
  readonly #isJson: boolean;
  readonly #wanted: LastRecords;
  /** The newest first. */
  readonly #appends: Uint8Array[] = [];
  #start: Offset;
  #records = 0;
  #bytes = 0;
  isEnough = false;

  constructor(parts: BackwardParts, isText: boolean, wanted: LastRecords) {
    this.#parts = parts;
    this.#isJson = isText;
    this.#wanted = wanted;
    this.#start = wanted.before;
  }

  /** Takes the last records of an append that lies before all that were taken. */
  async take({ start, data }: Found): Promise<void> {
    const { before, bytesMax } = this.#wanted;
    const left = this.#wanted.count - this.#records;
    const { starts, end } = await this.#recordsOf(data, left, before - start);
    let first = end;
    for (const at of starts.toReversed()) {
      // One record at least, however large.
      if (this.#records > 0 && this.#bytes + end - at > bytesMax) {
        this.isEnough = true;
        break;
      }
      first = at;
      this.#records += 1;
    }
    if (first === end) return;
    this.#appends.push(data.subarray(first, end));
    this.#bytes += end - first;
    this.#start = advance(start, first);
    if (this.#records === this.#wanted.count) this.isEnough = true;
  }

  page(): Pick<Page, "start" | "appends"> {
    return { start: this.#start, appends: this.#appends.toReversed() };
  }

  /** Where the last records of an append begin, of those that end at or before the limit, and where the last one ends. */
  async #recordsOf(
    data: Uint8Array,
    max: number,
    limit: number,
  ): Promise<{ readonly starts: readonly number[]; readonly end: number }> {
    if (!this.#isJson) {
      return data.length <= limit ? { starts: [0], end: data.length } : { starts: [], end: 0 };
    }
    const { jsonRecordEnd, slices } = this.#parts;
    // The last `max` starts: an append may have millions of records.
    let starts: number[] = [];
    let end = 0;
    let lookAt = BYTES_PER_LOOK;
    for (;;) {
      const next = jsonRecordEnd(data, end);
      if (next === -1 || next > limit) break;
      starts.push(end);
      end = next;
      if (starts.length >= 2 * max) starts = starts.slice(-max);
      if (end < lookAt) continue;
      lookAt = end + BYTES_PER_LOOK;
      if (!slices.take()) await slices.turn();
    }
    return { starts: starts.slice(-max), end };
  }
}
