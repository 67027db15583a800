/**
 * Records: changes as bytes, and back. A frame's payload is a sequence of these.
 *
 *   kind u8, then
 *     1 created       stream, time, name, content type, expiry, fork
 *     2 appended      meta length (u16); stream, flags, start, time, [producer id, epoch, sequence], [Stream-Seq];
 *                     data length, CRC-32 of the data (u32), data
 *     3 deleted   4 removed   5 touched      stream, time
 *     6 signing key   time, key
 *     7 subscription  the change as JSON text
 *     8 moved         as 2 with flags 0: data that compaction wrote again; it changes no state
 *
 * Numbers without a type are varints, texts are a varint length and UTF-8. An appended record says where it
 * starts in its stream, so that the index can be checked against it and a record applied twice is seen.
 */

import { crc32 } from "node:zlib";
import type { Appended, Change, StreamCreated } from "../../core/change.ts";
import type { Expiry, Fork } from "../../core/stream.ts";
import type { SubscriptionChange } from "../../core/subscription.ts";
import type {
  Epoch,
  Offset,
  ProducerId,
  Sequence,
  StreamId,
  StreamName,
  TimeMs,
} from "../../core/types.ts";
import { type ByteReader, type ByteWriter, damaged, share } from "./bytes.ts";

const KIND = {
  created: 1,
  appended: 2,
  deleted: 3,
  removed: 4,
  touched: 5,
  signing_key_added: 6,
  subscription: 7,
  moved: 8,
} as const;

const FLAG_CLOSES = 1;
const FLAG_PRODUCER = 2;
const FLAG_STREAM_SEQ = 4;

/** Data of a stream that compaction wrote to another place. */
export interface Moved {
  readonly kind: "moved";
  readonly stream: StreamId;
  readonly start: Offset;
  readonly data: Uint8Array;
}

export function encodeChange(writer: ByteWriter, change: Exclude<Change, Appended>): void {
  switch (change.kind) {
    case "created":
      encodeCreated(writer, change);
      return;
    case "deleted":
    case "removed":
    case "touched":
      writer.u8(KIND[change.kind]);
      writer.varint(change.stream);
      writer.varint(change.atMs);
      return;
    case "signing_key_added":
      writer.u8(KIND.signing_key_added);
      writer.varint(change.atMs);
      writer.text(change.key);
      return;
    default:
      writer.u8(KIND.subscription);
      writer.text(JSON.stringify(change));
  }
}

/** Writes everything but the data itself, which must follow at once. */
export function encodeDataRecord(
  writer: ByteWriter,
  record: Appended | Moved,
  start: Offset,
): void {
  writer.u8(KIND[record.kind]);
  const lengthAt = writer.length;
  writer.zeros(2);
  const metaAt = writer.length;
  writer.varint(record.stream);
  if (record.kind === "moved") {
    writer.u8(0);
    writer.varint(start);
    writer.varint(0);
  } else {
    const { producer, streamSeq } = record;
    writer.u8(
      (record.closes ? FLAG_CLOSES : 0) |
        (producer === undefined ? 0 : FLAG_PRODUCER) |
        (streamSeq === undefined ? 0 : FLAG_STREAM_SEQ),
    );
    writer.varint(start);
    writer.varint(record.atMs);
    if (producer !== undefined) {
      writer.text(producer.id);
      writer.varint(producer.epoch);
      writer.varint(producer.sequence);
    }
    if (streamSeq !== undefined) writer.text(streamSeq);
  }
  writer.patchU16(lengthAt, writer.length - metaAt);
  writer.varint(record.data.length);
  writer.u32(crc32(record.data));
}

export type DecodedRecord =
  | { readonly kind: "change"; readonly change: Exclude<Change, Appended> }
  | { readonly kind: "appended"; readonly change: Appended; readonly start: Offset }
  | Moved;

/** The record at the reader's position. Its data is a view into the reader's bytes, checked. */
export function decodeRecord(reader: ByteReader): DecodedRecord {
  const kind = reader.u8();
  switch (kind) {
    case KIND.appended:
    case KIND.moved:
      return decodeDataRecord(reader, kind === KIND.moved);
    case KIND.created:
      return { kind: "change", change: decodeCreated(reader) };
    case KIND.deleted:
      return { kind: "change", change: { kind: "deleted", ...decodeStreamTime(reader) } };
    case KIND.removed:
      return { kind: "change", change: { kind: "removed", ...decodeStreamTime(reader) } };
    case KIND.touched:
      return { kind: "change", change: { kind: "touched", ...decodeStreamTime(reader) } };
    case KIND.signing_key_added: {
      const atMs = reader.varint() as TimeMs;
      return { kind: "change", change: { kind: "signing_key_added", atMs, key: reader.text() } };
    }
    case KIND.subscription:
      // What this text says was written by encodeChange and is covered by the frame's checksum.
      return { kind: "change", change: JSON.parse(reader.text()) as SubscriptionChange };
    default:
      throw damaged(`a record has the unknown kind ${kind}`);
  }
}

function decodeDataRecord(reader: ByteReader, isMoved: boolean): DecodedRecord {
  const metaEnd = reader.u16() + reader.position;
  const stream = reader.varint() as StreamId;
  const flags = reader.u8();
  const start = reader.varint() as Offset;
  const atMs = reader.varint() as TimeMs;
  let producer: Appended["producer"];
  if ((flags & FLAG_PRODUCER) !== 0) {
    const id = reader.text() as ProducerId;
    const epoch = reader.varint() as Epoch;
    producer = { id, epoch, sequence: reader.varint() as Sequence };
  }
  const streamSeq = (flags & FLAG_STREAM_SEQ) === 0 ? undefined : reader.text();
  if (reader.position !== metaEnd) throw damaged("the meta part of a record has another length");
  const data = decodeData(reader);
  if (isMoved) return { kind: "moved", stream, start, data };
  const closes = (flags & FLAG_CLOSES) !== 0;
  return {
    kind: "appended",
    start,
    change: { kind: "appended", atMs, stream, data, closes, producer, streamSeq },
  };
}

function decodeData(reader: ByteReader): Buffer {
  const length = reader.varint();
  const crc = reader.u32();
  const data = reader.raw(length);
  if (crc32(data) !== crc) throw damaged("the data of a record does not match its checksum");
  return data;
}

/** Only what a read needs: which stream, where it starts, and the checked data. */
export function decodeDataOnly(reader: ByteReader): {
  readonly stream: StreamId;
  readonly start: Offset;
  readonly data: Buffer;
} {
  const kind = reader.u8();
  if (kind !== KIND.appended && kind !== KIND.moved) throw damaged("it is not a data record");
  const metaEnd = reader.u16() + reader.position;
  const stream = reader.varint() as StreamId;
  reader.u8();
  const start = reader.varint() as Offset;
  reader.position = metaEnd;
  return { stream, start, data: decodeData(reader) };
}

function decodeStreamTime(reader: ByteReader): {
  readonly stream: StreamId;
  readonly atMs: TimeMs;
} {
  const stream = reader.varint() as StreamId;
  return { stream, atMs: reader.varint() as TimeMs };
}

function encodeCreated(writer: ByteWriter, change: StreamCreated): void {
  writer.u8(KIND.created);
  writer.varint(change.stream);
  writer.varint(change.atMs);
  writer.text(change.name);
  writer.text(change.contentType);
  encodeExpiry(writer, change.expiry);
  encodeFork(writer, change.fork);
}

function decodeCreated(reader: ByteReader): StreamCreated {
  const stream = reader.varint() as StreamId;
  const atMs = reader.varint() as TimeMs;
  const name = reader.text() as StreamName;
  const contentType = share(reader.text());
  const expiry = decodeExpiry(reader);
  return { kind: "created", atMs, stream, name, contentType, expiry, fork: decodeFork(reader) };
}

const NEVER: Expiry = { kind: "never" };

export function encodeExpiry(writer: ByteWriter, expiry: Expiry): void {
  if (expiry.kind === "never") {
    writer.u8(0);
  } else if (expiry.kind === "ttl") {
    writer.u8(1);
    writer.varint(expiry.seconds);
  } else {
    // Times before 1970 are allowed, and long over.
    writer.u8(expiry.timeMs < 0 ? 3 : 2);
    writer.varint(Math.abs(expiry.timeMs));
  }
}

export function decodeExpiry(reader: ByteReader): Expiry {
  const kind = reader.u8();
  if (kind === 0) return NEVER;
  const value = reader.varint();
  if (kind === 1) return { kind: "ttl", seconds: value };
  if (kind === 2 || kind === 3) return { kind: "at", timeMs: kind === 3 ? -value : value };
  throw damaged(`an expiry has the unknown kind ${kind}`);
}

export function encodeFork(writer: ByteWriter, fork: Fork | undefined): void {
  if (fork === undefined) {
    writer.u8(0);
    return;
  }
  writer.u8(fork.inheritsExpiry ? 2 : 1);
  writer.varint(fork.source);
  writer.text(fork.sourceName);
  writer.varint(fork.anchor);
  writer.varint(fork.subOffset);
  writer.varint(fork.at);
}

export function decodeFork(reader: ByteReader): Fork | undefined {
  const kind = reader.u8();
  if (kind === 0) return undefined;
  if (kind > 2) throw damaged(`a fork has the unknown kind ${kind}`);
  const source = reader.varint() as StreamId;
  const sourceName = reader.text() as StreamName;
  const anchor = reader.varint() as Offset;
  const subOffset = reader.varint();
  const at = reader.varint() as Offset;
  return { source, sourceName, anchor, subOffset, at, inheritsExpiry: kind === 2 };
}
