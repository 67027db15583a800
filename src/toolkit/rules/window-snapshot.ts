/**
 * The snapshot of a window: what it knew at one moment, so that a recovery reads only the rest of the log.
 *
 *   bytes   0 to 7   "HAPAXWIN"
 *   byte    8        version of the format, 1
 *   bytes   9 to 12  length of the rest, u32
 *   bytes  13 to 16  CRC-32 of the rest, u32
 *   the rest         durationMs, keysMax, time up to which ids were forgotten + 1, time of the newest entry;
 *                    who began the last segment: length, UTF-16 units;
 *                    count of watermarks, then of each: segment, entry + 1, start, sealed (0 or 1);
 *                    count of ids, then of each: mark (24 bytes), segment and entry less those before (signed), time less
 *                    the time before
 *
 * Numbers without a type are varints.
 *
 *   WD4  a snapshot that is torn, changed, or of another format is not used: an older one or none makes the same window.
 *
 * Ids that are being written are not in it: if they were stored, the log has them. Pure.
 */

import { crc32Of } from "../../base/crc32.ts";
import type { KeyMark } from "../../base/key-window.ts";
import { PackedReader, PackedWriter, Unreadable } from "../../base/packed.ts";
import { type Watermark, type WindowBounds, WindowState } from "./window.ts";

const MAGIC = [0x48, 0x41, 0x50, 0x41, 0x58, 0x57, 0x49, 0x4e]; // HAPAXWIN
const VERSION = 1;
const MARK_WORDS = 6;
const ID_BYTES = 30; // about what an id needs

export function encodeWindow(state: WindowState): Uint8Array {
  const rest = new PackedWriter(64 + state.size * ID_BYTES);
  rest.varint(state.bounds.durationMs);
  rest.varint(state.bounds.keysMax);
  rest.varint(state.forgottenToMs + 1);
  rest.varint(state.newestMs);
  rest.varint(state.writer.length);
  for (let at = 0; at < state.writer.length; at += 1) rest.varint(state.writer.charCodeAt(at));
  rest.varint(state.watermarks.size);
  for (const { segment, entry, start, isSealed } of state.watermarks.values()) {
    rest.varint(segment);
    rest.varint(entry + 1);
    rest.varint(start);
    rest.u8(isSealed ? 1 : 0);
  }
  encodeIds(rest, state);
  const payload = rest.bytes();
  const whole = new PackedWriter(payload.length + 17);
  for (const byte of MAGIC) whole.u8(byte);
  whole.u8(VERSION);
  whole.u32(payload.length);
  whole.u32(crc32Of(payload));
  whole.raw(payload);
  return whole.bytes();
}

function encodeIds(rest: PackedWriter, state: WindowState): void {
  const { keys } = state;
  rest.varint(state.size);
  let [segment, entry, atMs] = [0, 0, 0];
  for (let ordinal = keys.first; ordinal < keys.next; ordinal += 1) {
    const mark = keys.markOf(ordinal);
    for (let word = 0; word < MARK_WORDS; word += 1) rest.u32(mark[word] ?? 0);
    const position = state.positionOf(ordinal);
    const timeMs = keys.timeOf(ordinal);
    rest.signed(position.segment - segment);
    rest.signed(position.entry - entry);
    rest.varint(timeMs - atMs);
    ({ segment, entry } = position);
    atMs = timeMs;
  }
}

/**
 * Returns the window of a snapshot; undefined if it cannot be used (WD4). One that was made under tighter bounds has forgotten
 * what the window should have, and is not used either.
 */
export function decodeWindow(bytes: Uint8Array, bounds: WindowBounds): WindowState | undefined {
  try {
    return decoded(bytes, bounds);
  } catch (error) {
    if (error instanceof Unreadable) return undefined;
    throw error;
  }
}

function decoded(bytes: Uint8Array, bounds: WindowBounds): WindowState | undefined {
  const head = new PackedReader(bytes);
  for (const byte of MAGIC) if (head.u8() !== byte) return undefined;
  if (head.u8() !== VERSION) return undefined;
  const length = head.u32();
  const crc = head.u32();
  if (head.left !== length) return undefined;
  const payload = head.raw(length);
  if (crc32Of(payload) !== crc) return undefined;
  const rest = new PackedReader(payload);
  const [durationMs, keysMax] = [rest.varint(), rest.varint()];
  const forgottenToMs = rest.varint() - 1;
  const isTighter = durationMs < bounds.durationMs || keysMax < bounds.keysMax;
  if (isTighter && forgottenToMs >= 0) return undefined;
  const state = new WindowState(bounds);
  state.applyForgotten(forgottenToMs);
  const newestMs = rest.varint();
  const units = rest.varint();
  for (let at = 0; at < units; at += 1) state.writer += String.fromCharCode(rest.varint());
  for (const watermark of decodeWatermarks(rest))
    state.watermarks.set(watermark.segment, watermark);
  decodeIds(rest, state);
  state.applyTime(newestMs);
  return rest.left === 0 ? state : undefined;
}

function decodeWatermarks(rest: PackedReader): Watermark[] {
  return Array.from({ length: rest.varint() }, () => {
    const segment = rest.varint();
    const entry = rest.varint() - 1;
    const start = rest.varint();
    return { segment, entry, start, isSealed: rest.u8() === 1 };
  });
}

function decodeIds(rest: PackedReader, state: WindowState): void {
  const count = rest.varint();
  let [segment, entry, atMs] = [0, 0, 0];
  // The window copies it.
  const mark: KeyMark = new Uint32Array(MARK_WORDS);
  for (let taken = 0; taken < count; taken += 1) {
    for (let word = 0; word < MARK_WORDS; word += 1) mark[word] = rest.u32();
    segment += rest.signed();
    entry += rest.signed();
    atMs += rest.varint();
    state.applyStored({ mark, segment, entry, atMs });
  }
}
