/**
 * Encodes idempotency keys for records and snapshots.
 *
 *   mark    24 bytes: six u32, four of the key's digest and two of the body's
 *   policy  flags u8 (1 seconds, 2 count, 4 evict, 8 reject, 16 from content), [seconds], [count]
 *   record  mark, ordinal, how many entries stay before it: the ordinal less `evictTo`
 *   keys    first, from less first, count, then of each: mark, end less the end before, time less the time before
 *
 * Numbers without a type are varints. In `keys`, the end and the time before the first ones are 0; neither goes
 * back, because entries are in the order of their appends.
 */

import type { KeyMark, KeyWindowView } from "../../../base/key-window.ts";
import type { KeyOverflow, KeyPolicy, StoredKey } from "../../core/keys.ts";
import type { KeyImage } from "../../core/restore.ts";
import type { Offset, TimeMs } from "../../core/types.ts";
import { type ByteReader, type ByteWriter, damaged } from "./bytes.ts";

const MARK_WORDS = 6;
const FLAG_SECONDS = 1;
const FLAG_COUNT = 2;
const FLAG_EVICT = 4;
const FLAG_REJECT = 8;
const FLAG_CONTENT = 16;
const FLAGS_KNOWN = FLAG_SECONDS | FLAG_COUNT | FLAG_EVICT | FLAG_REJECT | FLAG_CONTENT;

export function encodeKeyPolicy(writer: ByteWriter, policy: KeyPolicy): void {
  const { windowSeconds, countMax, overflow, isFromContent } = policy;
  writer.u8(
    (windowSeconds === undefined ? 0 : FLAG_SECONDS) |
      (countMax === undefined ? 0 : FLAG_COUNT) |
      (overflow === "evict" ? FLAG_EVICT : 0) |
      (overflow === "reject" ? FLAG_REJECT : 0) |
      (isFromContent ? FLAG_CONTENT : 0),
  );
  if (windowSeconds !== undefined) writer.varint(windowSeconds);
  if (countMax !== undefined) writer.varint(countMax);
}

export function decodeKeyPolicy(reader: ByteReader): KeyPolicy {
  const flags = reader.u8();
  if ((flags & ~FLAGS_KNOWN) !== 0) throw damaged(`a key policy has the unknown flags ${flags}`);
  const overflow = decodeOverflow(flags);
  const windowSeconds = (flags & FLAG_SECONDS) === 0 ? undefined : reader.varint();
  const countMax = (flags & FLAG_COUNT) === 0 ? undefined : reader.varint();
  return { windowSeconds, countMax, overflow, isFromContent: (flags & FLAG_CONTENT) !== 0 };
}

function decodeOverflow(flags: number): KeyOverflow | undefined {
  const isEvict = (flags & FLAG_EVICT) !== 0;
  if ((flags & FLAG_REJECT) === 0) return isEvict ? "evict" : undefined;
  if (isEvict) throw damaged("a key policy both evicts and rejects");
  return "reject";
}

export function encodeStoredKey(writer: ByteWriter, key: StoredKey): void {
  encodeMark(writer, key.mark);
  writer.varint(key.ordinal);
  writer.varint(key.ordinal - key.evictTo);
}

export function decodeStoredKey(reader: ByteReader): StoredKey {
  const mark = decodeMark(reader);
  const ordinal = reader.varint();
  const evictTo = ordinal - reader.varint();
  if (evictTo < 0) throw damaged("a key evicts to before the first one");
  return { mark, ordinal, evictTo };
}

/**
 * Encodes at most so many entries from this ordinal on. The ordinal is in the window or is its end. Returns where
 * they end.
 */
export function encodeKeys(
  writer: ByteWriter,
  window: KeyWindowView,
  from: number,
  countMax: number,
): number {
  const to = Math.min(window.next, from + countMax);
  writer.varint(window.first);
  writer.varint(from - window.first);
  writer.varint(to - from);
  let end = 0;
  let atMs = 0;
  for (let ordinal = from; ordinal < to; ordinal += 1) {
    encodeMark(writer, window.markOf(ordinal));
    const nextEnd = window.endOf(ordinal);
    const nextAtMs = window.timeOf(ordinal);
    writer.varint(nextEnd - end);
    writer.varint(nextAtMs - atMs);
    end = nextEnd;
    atMs = nextAtMs;
  }
  return to;
}

export interface DecodedKeys {
  readonly first: number;
  readonly from: number;
  readonly entries: readonly KeyImage[];
}

export function decodeKeys(reader: ByteReader): DecodedKeys {
  const first = reader.varint();
  const from = first + reader.varint();
  const count = reader.varint();
  const entries: KeyImage[] = [];
  let end = 0;
  let atMs = 0;
  for (let taken = 0; taken < count; taken += 1) {
    const mark = decodeMark(reader);
    end += reader.varint();
    atMs += reader.varint();
    entries.push({ mark, end: end as Offset, atMs: atMs as TimeMs });
  }
  return { first, from, entries };
}

function encodeMark(writer: ByteWriter, mark: KeyMark): void {
  for (let word = 0; word < MARK_WORDS; word += 1) writer.u32(mark[word] ?? 0);
}

function decodeMark(reader: ByteReader): KeyMark {
  const mark = new Uint32Array(MARK_WORDS);
  for (let word = 0; word < MARK_WORDS; word += 1) mark[word] = reader.u32();
  return mark;
}
