/**
 * Encodes changes as records, and back. A frame's payload is a sequence of records.
 *
 *   kind u8, then
 *     1 created       stream, run, time, name, content type, expiry, fork
 *     2 appended      meta length (u16); stream, flags (u8: 1 closes, 2 producer, 4 Stream-Seq, 8 session, 16 resets,
 *                     32 key), start, time, [producer id, epoch, sequence, digest (u32), [session], [resets]], [Stream-Seq],
 *                     [key: mark (24 bytes), ordinal, ordinal less evictTo];
 *                     data length, CRC-32 of the data (u32), data
 *     3 deleted   4 removed   5 touched      stream, time
 *     6 signing key   time, key
 *     7 subscription  the change as JSON text
 *     8 moved         as 2 with flags 0: data that compaction wrote again, with the time of its append; it changes no state
 *     9 created with keys    as 1, then the key policy (key-format.ts)
 *     10 producer reset      stream, time, producer id, resets
 *     11 keys evicted        stream, time, evictTo
 *     12 group               the change as JSON text
 *     13 trimmed             stream, time, offset
 *     14 retention set       stream, time, rule (retention-format.ts)
 *     15 incarnation begun   time, number, mark (u32)
 *     16 compaction set      stream, time, rule (compaction-format.ts)
 *
 * Numbers without a type are varints, texts are a varint length and UTF-8. An appended record says where it
 * starts in its stream, so that the index can be checked against it and a record applied twice is seen.
 */

import { crc32 } from "node:zlib";
import type { StreamAppended, Change, ProducerReset, StreamCreated } from "../../core/change.ts";
import type { ProducerMark } from "../../core/producer.ts";
import type { GroupChange } from "../../core/group-state.ts";
import type { ExpiryRule, Fork } from "../../core/stream.ts";
import type { SubscriptionChange } from "../../core/subscription.ts";
import type {
  Epoch,
  Offset,
  ProducerId,
  RunId,
  Sequence,
  SessionNonce,
  StreamId,
  StreamName,
  TimeMs,
} from "../../core/types.ts";
import { type ByteReader, type ByteWriter, damaged, share } from "./bytes.ts";
import { decodeCompaction, encodeCompaction } from "./compaction-format.ts";
import {
  decodeKeyPolicy,
  decodeStoredKey,
  encodeKeyPolicy,
  encodeStoredKey,
} from "./key-format.ts";
import { decodeRule, encodeRule } from "./retention-format.ts";

const KIND = {
  created: 1,
  appended: 2,
  deleted: 3,
  removed: 4,
  touched: 5,
  signing_key_added: 6,
  subscription: 7,
  moved: 8,
  created_with_keys: 9,
  producer_reset: 10,
  keys_evicted: 11,
  group: 12,
  trimmed: 13,
  retention_set: 14,
  incarnation_begun: 15,
  compaction_set: 16,
} as const;

const FLAG_CLOSES = 1;
const FLAG_PRODUCER = 2;
const FLAG_STREAM_SEQ = 4;
const FLAG_SESSION = 8;
const FLAG_RESETS = 16;
const FLAG_KEY = 32;
const FLAGS_OF_PRODUCER = FLAG_SESSION | FLAG_RESETS;
const FLAGS_KNOWN = FLAG_CLOSES | FLAG_PRODUCER | FLAG_STREAM_SEQ | FLAGS_OF_PRODUCER | FLAG_KEY;

/** Data of a stream that compaction wrote to another place. */
export interface Moved {
  readonly kind: "moved";
  /** The time of its append. */
  readonly atMs: TimeMs;
  readonly stream: StreamId;
  readonly start: Offset;
  readonly data: Uint8Array;
}

export function encodeChange(writer: ByteWriter, change: Exclude<Change, StreamAppended>): void {
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
    case "producer_reset":
      writer.u8(KIND.producer_reset);
      writer.varint(change.stream);
      writer.varint(change.atMs);
      writer.text(change.producer);
      writer.varint(change.resets);
      return;
    case "keys_evicted":
      writer.u8(KIND.keys_evicted);
      writer.varint(change.stream);
      writer.varint(change.atMs);
      writer.varint(change.evictTo);
      return;
    case "signing_key_added":
      writer.u8(KIND.signing_key_added);
      writer.varint(change.atMs);
      writer.text(change.key);
      return;
    case "incarnation_begun":
      writer.u8(KIND.incarnation_begun);
      writer.varint(change.atMs);
      writer.varint(change.number);
      writer.u32(change.mark);
      return;
    case "trimmed":
      writer.u8(KIND.trimmed);
      writer.varint(change.stream);
      writer.varint(change.atMs);
      writer.varint(change.to);
      return;
    case "retention_set":
      writer.u8(KIND.retention_set);
      writer.varint(change.stream);
      writer.varint(change.atMs);
      encodeRule(writer, change.rule);
      return;
    case "compaction_set":
      writer.u8(KIND.compaction_set);
      writer.varint(change.stream);
      writer.varint(change.atMs);
      encodeCompaction(writer, change.rule);
      return;
    default:
      writer.u8(textKindOf(change));
      writer.text(JSON.stringify(change));
  }
}

/** Returns the kind of a change that is plain JSON data. Each kind is listed, so that none is mixed up. */
function textKindOf(change: GroupChange | SubscriptionChange): number {
  switch (change.kind) {
    case "group_created":
    case "group_found":
    case "group_deleted":
    case "group_joined":
    case "group_claimed":
    case "group_committed":
    case "group_released":
    case "group_left":
    case "group_taken":
    case "group_settled":
    case "group_reset":
      return KIND.group;
    case "subscription_created":
    case "subscription_linked":
    case "subscription_unlinked":
    case "subscription_woken":
    case "subscription_claimed":
    case "subscription_delivered":
    case "subscription_delivery_failed":
    case "subscription_acked":
    case "subscription_released":
    case "subscription_deleted":
      return KIND.subscription;
    default:
      return change satisfies never;
  }
}

/** Writes everything but the data itself, and returns the checksum of that. The caller must write the data next. */
export function encodeDataRecord(
  writer: ByteWriter,
  record: StreamAppended | Moved,
  start: Offset,
): number {
  writer.u8(KIND[record.kind]);
  const lengthAt = writer.length;
  writer.zeros(2);
  const metaAt = writer.length;
  writer.varint(record.stream);
  if (record.kind === "moved") {
    writer.u8(0);
    writer.varint(start);
    writer.varint(record.atMs);
  } else {
    const { producer, streamSeq, key } = record;
    writer.u8(
      (record.closes ? FLAG_CLOSES : 0) |
        (streamSeq === undefined ? 0 : FLAG_STREAM_SEQ) |
        (key === undefined ? 0 : FLAG_KEY) |
        (producer === undefined ? 0 : producerFlags(producer)),
    );
    writer.varint(start);
    writer.varint(record.atMs);
    if (producer !== undefined) encodeProducerMark(writer, producer);
    if (streamSeq !== undefined) writer.text(streamSeq);
    if (key !== undefined) encodeStoredKey(writer, key);
  }
  writer.patchU16(lengthAt, writer.length - metaAt);
  writer.varint(record.data.length);
  const crc = crc32(record.data);
  writer.u32(crc);
  return crc;
}

function producerFlags({ session, resets }: ProducerMark): number {
  return (
    FLAG_PRODUCER | (session === undefined ? 0 : FLAG_SESSION) | (resets === 0 ? 0 : FLAG_RESETS)
  );
}

function encodeProducerMark(writer: ByteWriter, mark: ProducerMark): void {
  writer.text(mark.id);
  writer.varint(mark.epoch);
  writer.varint(mark.sequence);
  writer.u32(mark.digest >>> 0);
  if (mark.session !== undefined) writer.text(mark.session);
  if (mark.resets !== 0) writer.varint(mark.resets);
}

function decodeProducerMark(reader: ByteReader, flags: number): ProducerMark {
  const id = reader.text() as ProducerId;
  const epoch = reader.varint() as Epoch;
  const sequence = reader.varint() as Sequence;
  const digest = reader.u32() | 0;
  const session = (flags & FLAG_SESSION) === 0 ? undefined : (reader.text() as SessionNonce);
  const resets = (flags & FLAG_RESETS) === 0 ? 0 : reader.varint();
  return { id, epoch, sequence, session, resets, digest };
}

export type DecodedRecord =
  | { readonly kind: "change"; readonly change: Exclude<Change, StreamAppended> }
  | { readonly kind: "appended"; readonly change: StreamAppended; readonly start: Offset }
  | Moved;

/** Reads the record at the reader's position. Its data is a checked view into the reader's bytes. */
export function decodeRecord(reader: ByteReader): DecodedRecord {
  const kind = reader.u8();
  switch (kind) {
    case KIND.appended:
    case KIND.moved:
      return decodeDataRecord(reader, kind === KIND.moved);
    case KIND.created:
    case KIND.created_with_keys:
      return { kind: "change", change: decodeCreated(reader, kind === KIND.created_with_keys) };
    case KIND.deleted:
      return { kind: "change", change: { kind: "deleted", ...decodeStreamTime(reader) } };
    case KIND.removed:
      return { kind: "change", change: { kind: "removed", ...decodeStreamTime(reader) } };
    case KIND.touched:
      return { kind: "change", change: { kind: "touched", ...decodeStreamTime(reader) } };
    case KIND.producer_reset:
      return { kind: "change", change: decodeReset(reader) };
    case KIND.keys_evicted: {
      const place = decodeStreamTime(reader);
      const change = { kind: "keys_evicted", ...place, evictTo: reader.varint() } as const;
      return { kind: "change", change };
    }
    case KIND.trimmed: {
      const place = decodeStreamTime(reader);
      const change = { kind: "trimmed", ...place, to: reader.varint() as Offset } as const;
      return { kind: "change", change };
    }
    case KIND.retention_set: {
      const place = decodeStreamTime(reader);
      return {
        kind: "change",
        change: { kind: "retention_set", ...place, rule: decodeRule(reader) },
      };
    }
    case KIND.compaction_set: {
      const place = decodeStreamTime(reader);
      const rule = decodeCompaction(reader);
      return { kind: "change", change: { kind: "compaction_set", ...place, rule } };
    }
    case KIND.signing_key_added: {
      const atMs = reader.varint() as TimeMs;
      return { kind: "change", change: { kind: "signing_key_added", atMs, key: reader.text() } };
    }
    case KIND.incarnation_begun: {
      const atMs = reader.varint() as TimeMs;
      const [number, mark] = [reader.varint(), reader.u32()];
      return { kind: "change", change: { kind: "incarnation_begun", atMs, number, mark } };
    }
    case KIND.subscription:
    case KIND.group:
      // encodeChange wrote this text, and the frame's checksum covers it.
      return {
        kind: "change",
        change: JSON.parse(reader.text()) as SubscriptionChange | GroupChange,
      };
    default:
      throw damaged(`a record has the unknown kind ${kind}`);
  }
}

function decodeDataRecord(reader: ByteReader, isMoved: boolean): DecodedRecord {
  const metaEnd = reader.u16() + reader.position;
  const stream = reader.varint() as StreamId;
  const flags = reader.u8();
  requireFlags(flags, isMoved);
  const start = reader.varint() as Offset;
  const atMs = reader.varint() as TimeMs;
  const producer = (flags & FLAG_PRODUCER) === 0 ? undefined : decodeProducerMark(reader, flags);
  const streamSeq = (flags & FLAG_STREAM_SEQ) === 0 ? undefined : reader.text();
  const key = (flags & FLAG_KEY) === 0 ? undefined : decodeStoredKey(reader);
  if (reader.position !== metaEnd) throw damaged("the meta part of a record has another length");
  const data = decodeData(reader);
  if (isMoved) return { kind: "moved", atMs, stream, start, data };
  const closes = (flags & FLAG_CLOSES) !== 0;
  return {
    kind: "appended",
    start,
    change: { kind: "appended", atMs, stream, data, closes, producer, streamSeq, key },
  };
}

function requireFlags(flags: number, isMoved: boolean): void {
  if ((flags & ~(isMoved ? 0 : FLAGS_KNOWN)) !== 0) {
    throw damaged(`a record has the unknown flags ${flags}`);
  }
  if ((flags & FLAGS_OF_PRODUCER) !== 0 && (flags & FLAG_PRODUCER) === 0) {
    throw damaged("a record has a session or a reset without a producer");
  }
}

function decodeData(reader: ByteReader): Buffer {
  const length = reader.varint();
  const crc = reader.u32();
  const data = reader.raw(length);
  if (crc32(data) !== crc) throw damaged("the data of a record does not match its checksum");
  return data;
}

/** What a data record begins with. */
interface DataHead {
  readonly stream: StreamId;
  readonly start: Offset;
  readonly atMs: TimeMs;
}

/** `DATA_HEAD_BYTES` are enough for the head of a data record. */
export const DATA_HEAD_BYTES = 32;

/** Reads only what a read needs: the head, and the checked data. */
export function decodeDataOnly(reader: ByteReader): DataHead & { readonly data: Buffer } {
  const { metaEnd, ...head } = decodeDataHead(reader);
  reader.position = metaEnd;
  return { ...head, data: decodeData(reader) };
}

/** Reads the head. The data begins somewhere behind `metaEnd`. */
export function decodeDataHead(reader: ByteReader): DataHead & { readonly metaEnd: number } {
  const kind = reader.u8();
  if (kind !== KIND.appended && kind !== KIND.moved) throw damaged("it is not a data record");
  const metaEnd = reader.u16() + reader.position;
  const stream = reader.varint() as StreamId;
  reader.u8();
  const start = reader.varint() as Offset;
  return { stream, start, atMs: reader.varint() as TimeMs, metaEnd };
}

function decodeStreamTime(reader: ByteReader): {
  readonly stream: StreamId;
  readonly atMs: TimeMs;
} {
  const stream = reader.varint() as StreamId;
  return { stream, atMs: reader.varint() as TimeMs };
}

function encodeCreated(writer: ByteWriter, change: StreamCreated): void {
  writer.u8(change.keys === undefined ? KIND.created : KIND.created_with_keys);
  writer.varint(change.stream);
  writer.varint(change.run);
  writer.varint(change.atMs);
  writer.text(change.name);
  writer.text(change.contentType);
  encodeExpiry(writer, change.expiry);
  encodeFork(writer, change.fork);
  if (change.keys !== undefined) encodeKeyPolicy(writer, change.keys);
}

function decodeReset(reader: ByteReader): ProducerReset {
  const { stream, atMs } = decodeStreamTime(reader);
  const producer = reader.text() as ProducerId;
  return { kind: "producer_reset", atMs, stream, producer, resets: reader.varint() };
}

function decodeCreated(reader: ByteReader, hasKeys: boolean): StreamCreated {
  const stream = reader.varint() as StreamId;
  const run = reader.varint() as RunId;
  const atMs = reader.varint() as TimeMs;
  const name = reader.text() as StreamName;
  const contentType = share(reader.text());
  const expiry = decodeExpiry(reader);
  const fork = decodeFork(reader);
  const keys = hasKeys ? decodeKeyPolicy(reader) : undefined;
  return { kind: "created", atMs, stream, run, name, contentType, expiry, fork, keys };
}

const NEVER: ExpiryRule = { kind: "never" };

export function encodeExpiry(writer: ByteWriter, expiry: ExpiryRule): void {
  if (expiry.kind === "never") {
    writer.u8(0);
  } else if (expiry.kind === "ttl") {
    writer.u8(1);
    writer.varint(expiry.seconds);
  } else {
    // Times before 1970 are allowed; they have passed long ago.
    writer.u8(expiry.timeMs < 0 ? 3 : 2);
    writer.varint(Math.abs(expiry.timeMs));
  }
}

export function decodeExpiry(reader: ByteReader): ExpiryRule {
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
