/**
 * Encodes what a stream keeps, for records and snapshots.
 *
 *   rule      flags u8 (1 seconds, 2 bytes, 4 drops what is needed, 8 there is a rule), [seconds], [bytes]
 *   retained  earliest, rule, time of the last append, count of marks, then of each: offset less the offset before, time
 *             less the time before
 *
 * Numbers without a type are varints. The first mark is counted from the earliest offset and from the time 0.
 */

import type { Retained, RetentionRule, TrimMark } from "../../core/trim.ts";
import { MARKS_MAX } from "../../core/trim.ts";
import type { Offset, TimeMs } from "../../core/types.ts";
import { type ByteReader, type ByteWriter, damaged } from "./bytes.ts";

const FLAG_SECONDS = 1;
const FLAG_BYTES = 2;
const FLAG_DROPS = 4;
const FLAG_RULE = 8;
const FLAGS_KNOWN = FLAG_SECONDS | FLAG_BYTES | FLAG_DROPS | FLAG_RULE;

export function encodeRule(writer: ByteWriter, rule: RetentionRule | undefined): void {
  const { seconds, bytes, dropsNeeded = false } = rule ?? {};
  writer.u8(
    (seconds === undefined ? 0 : FLAG_SECONDS) |
      (bytes === undefined ? 0 : FLAG_BYTES) |
      (dropsNeeded ? FLAG_DROPS : 0) |
      (rule === undefined ? 0 : FLAG_RULE),
  );
  if (seconds !== undefined) writer.varint(seconds);
  if (bytes !== undefined) writer.varint(bytes);
}

export function decodeRule(reader: ByteReader): RetentionRule | undefined {
  const flags = reader.u8();
  const isRule = (flags & FLAG_RULE) !== 0;
  if ((flags & ~FLAGS_KNOWN) !== 0 || (flags !== 0 && !isRule)) {
    throw damaged(`a rule of retention has the unknown flags ${flags}`);
  }
  const seconds = (flags & FLAG_SECONDS) === 0 ? undefined : reader.varint();
  const bytes = (flags & FLAG_BYTES) === 0 ? undefined : reader.varint();
  return isRule ? { seconds, bytes, dropsNeeded: (flags & FLAG_DROPS) !== 0 } : undefined;
}

export function encodeRetained(writer: ByteWriter, retained: Retained): void {
  const { earliest, rule, marks, lastAtMs } = retained;
  writer.varint(earliest);
  encodeRule(writer, rule);
  writer.varint(lastAtMs);
  writer.varint(marks.length);
  let before: TrimMark = { offset: earliest, atMs: 0 as TimeMs };
  for (const mark of marks) {
    writer.varint(mark.offset - before.offset);
    writer.varint(mark.atMs - before.atMs);
    before = mark;
  }
}

export function decodeRetained(reader: ByteReader): Retained {
  const earliest = reader.varint() as Offset;
  const rule = decodeRule(reader);
  const lastAtMs = reader.varint() as TimeMs;
  const count = reader.varint();
  if (count > MARKS_MAX) throw damaged(`a stream has ${count} marks of retention`);
  const marks: TrimMark[] = [];
  let [offset, atMs] = [earliest as number, 0];
  for (let taken = 0; taken < count; taken += 1) {
    offset += reader.varint();
    atMs += reader.varint();
    marks.push({ offset: offset as Offset, atMs: atMs as TimeMs });
  }
  return { earliest, rule, marks, lastAtMs };
}
