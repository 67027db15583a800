/**
 * How a changelog stays small: a stream with a rule keeps the newest record of each key. PROTOCOL.md §26.
 *
 * The oldest records go, as with every trim. The newest record of a key is appended again before: in the change that trims
 * it, so that both are stored or neither is. No record is ever taken out of the middle, and no offset changes.
 *
 *   - a reader that has read from the beginning of the stream to its tail has the newest record of each key, at any moment;
 *   - a record that a newer one of its key has replaced is never appended again;
 *   - a deletion goes only with everything that was before it: a reader that has missed it is refused, and not left with
 *     the old value;
 *   - what a group, a subscription or a fork needs stays, and what is younger than the lag.
 *
 * A record without a text at the path has no key. Such records are all kept, and appended again like newest ones.
 */

import type { CompactionSet, StreamAppended, StreamTrimmed } from "./change.ts";
import { isJson, type StreamState } from "./stream.ts";
import { decideTrim, earliestOf, neededFrom } from "./trim.ts";
import { type Offset, OFFSET_ZERO, type TimeMs } from "./types.ts";
import type { MutableStream, World } from "./world.ts";

/** What makes a stream of JSON a changelog. */
export interface CompactionRule {
  /** The path of the member that is the key: names with dots between them. */
  readonly key: string;
  /** A record in which the member at this path is missing or null deletes its key. Undefined: no record does. */
  readonly tombstone: string | undefined;
  /** What is younger stays as it was appended. */
  readonly lagSeconds: number;
}

/** What a rule sees of a record. */
export interface RecordKey {
  /** Undefined: the record has no text at the path. */
  readonly key: string | undefined;
  readonly isTombstone: boolean;
}

/** A record at its place. */
export interface KeyedRecord extends RecordKey {
  readonly at: Offset;
  /** As it is stored. */
  readonly data: Uint8Array;
}

export type SliceDecision =
  | {
      readonly kind: "compacted";
      readonly changes: readonly (StreamAppended | StreamTrimmed)[];
      readonly droppedRecords: number;
      readonly repeatedBytes: number;
    }
  /** A group, a subscription or a fork needs it by now. */
  | { readonly kind: "needed" };

export function isSameCompaction(one: CompactionRule | undefined, other: CompactionRule): boolean {
  return (
    one?.key === other.key &&
    one.tombstone === other.tombstone &&
    one.lagSeconds === other.lagSeconds
  );
}

export function applyCompactionRule(stream: MutableStream, { rule }: CompactionSet): void {
  stream.compaction = rule;
}

/** Whether compaction may do anything at all: the stream is a changelog that still grows. */
export function isCompactable(state: StreamState): boolean {
  const { compaction, isClosed, isDeleted, contentType } = state;
  return compaction !== undefined && !isClosed && !isDeleted && isJson(contentType);
}

/** The bytes that a reader gets from the beginning to the tail. */
export function compactableBytes(world: World, state: StreamState): number {
  return state.tail - earliestOf(world, state);
}

/** Where compaction must end. `agedTo`: everything before it is older than the lag. */
export function compactionEnd(world: World, state: StreamState, agedTo: Offset): Offset {
  const needed = neededFrom(world, state)?.from ?? state.tail;
  return Math.min(agedTo, needed, state.tail) as Offset;
}

/**
 * The newest record of each key that was collected. Keys are collected from the oldest records, as many as there is room for.
 * Later records are only compared with them.
 */
export class NewestRecords {
  readonly #newest = new Map<string, Offset>();
  readonly #keysMax: number;
  readonly #charsMax: number;
  #chars = 0;
  /** The newest record that was collected. */
  #collectedTo: Offset = OFFSET_ZERO;
  /** Collected records that a newer one of their key has replaced. */
  replaced = 0;

  constructor(keysMax: number, charsMax: number) {
    this.#keysMax = keysMax;
    this.#charsMax = charsMax;
  }

  get size(): number {
    return this.#newest.size;
  }

  /** Takes a record of the part that is to be compacted. False: there is no room for its key. `isFirst`: it is taken anyway. */
  collect(key: string, at: Offset, isFirst = false): boolean {
    if (!this.#newest.has(key)) {
      const isFull = this.#newest.size >= this.#keysMax || this.#chars >= this.#charsMax;
      if (isFull && !isFirst) return false;
      this.#collectedTo = at;
      this.#chars += key.length;
      this.#newest.set(key, at);
      return true;
    }
    this.#collectedTo = at;
    this.see(key, at);
    return true;
  }

  /** Takes a record that may be newer than a collected one. Keys that were not collected are of no interest. */
  see(key: string, at: Offset): void {
    const newest = this.#newest.get(key);
    if (newest === undefined || newest >= at) return;
    if (newest <= this.#collectedTo) this.replaced += 1;
    this.#newest.set(key, at);
  }

  isNewest({ key, at }: Pick<KeyedRecord, "key" | "at">): boolean {
    return key === undefined || this.#newest.get(key) === at;
  }
}

/**
 * The records of a slice that may stay, copied together: an append can have millions of records, and most of them go. A record that
 * was replaced is never newest again. What has no key stays in any case, so what comes together of it counts as one record here.
 */
export class SliceRecords {
  readonly #newest: NewestRecords;
  readonly #bytes: Uint8Array;
  readonly #kept: KeyedRecord[] = [];
  #end = 0;
  /** Records that are known to go. */
  dropped = 0;

  constructor(newest: NewestRecords, bytesMax: number) {
    this.#newest = newest;
    this.#bytes = new Uint8Array(bytesMax);
  }

  get kept(): readonly KeyedRecord[] {
    return this.#kept;
  }

  add(record: KeyedRecord): void {
    if (!this.#newest.isNewest(record)) {
      this.dropped += 1;
      return;
    }
    const begin = this.#end;
    this.#bytes.set(record.data, begin);
    this.#end += record.data.length;
    const last = this.#kept.at(-1);
    if (last === undefined || last.key !== undefined || record.key !== undefined) {
      this.#kept.push({ ...record, data: this.#bytes.subarray(begin, this.#end) });
      return;
    }
    const data = this.#bytes.subarray(begin - last.data.length, this.#end);
    this.#kept[this.#kept.length - 1] = { ...last, data };
  }
}

/** Decides what becomes of the oldest records of a stream, which end at `to`, between two appends. */
export function decideSlice(
  world: World,
  state: StreamState,
  records: readonly KeyedRecord[],
  to: Offset,
  newest: NewestRecords,
  atMs: TimeMs,
): SliceDecision {
  const trim = decideTrim(world, state, to, false, atMs);
  if (trim.kind !== "trimmed") return { kind: "needed" };
  const kept = records.filter((record) => newest.isNewest(record) && !isOver(record));
  const droppedRecords = records.length - kept.length;
  const data = joined(kept);
  const repeatedBytes = data.length;
  if (repeatedBytes === 0) {
    return { kind: "compacted", changes: [trim.change], droppedRecords, repeatedBytes };
  }
  const appended: StreamAppended = {
    kind: "appended",
    atMs,
    stream: state.id,
    data,
    closes: false,
    producer: undefined,
    streamSeq: undefined,
    key: undefined,
  };
  return { kind: "compacted", changes: [appended, trim.change], droppedRecords, repeatedBytes };
}

/** Everything before a deletion goes with it, so nothing of its key is left that it would have to delete. */
function isOver({ key, isTombstone }: RecordKey): boolean {
  return isTombstone && key !== undefined;
}

/** Neighbours in memory are copied in one piece: there may be very many. */
function joined(records: readonly KeyedRecord[]): Uint8Array {
  const joint = new Uint8Array(records.reduce((bytes, { data }) => bytes + data.length, 0));
  let at = 0;
  for (let first = 0, next = 0; first < records.length; first = next) {
    const begin = records[first]?.data ?? joint;
    let { length } = begin;
    for (next = first + 1; next < records.length; next += 1) {
      const data = records[next]?.data;
      if (data?.buffer !== begin.buffer || data.byteOffset !== begin.byteOffset + length) break;
      length += data.length;
    }
    joint.set(new Uint8Array(begin.buffer, begin.byteOffset, length), at);
    at += length;
  }
  return joint;
}
