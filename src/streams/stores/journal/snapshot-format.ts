/**
 * A snapshot's bytes: blocks, each with its length and checksum. The last block says that it is the last.
 *
 *   block: payload length u32, CRC-32 of the payload u32, payload
 *   payload: kind u8, then
 *     1 head        "HAPAXIMG", format version, store id (16 bytes), LSN (frames after it are replayed), CRC of the
 *                   frame with that LSN (u32), changes up to it, time of writing
 *     2 streams     world version, count (u32), streams: id, run, name, content type, expiry, fork, created, tail,
 *                   flags u8 (1 closed, 2 deleted, 4 Stream-Seq, 8 key policy, 16 keys, 32 retained, 64 compaction), [Stream-Seq],
 *                   [key policy], accessed, [retained], [compaction], extents, producers, [keys]
 *     3 producers   stream, producers
 *     4 extents     stream, extents
 *     6 keys        stream, keys
 *     7 cursors     of groups, as in group-format.ts
 *     5 end         count of streams, world version, next stream id, time, signing keys, subscriptions (JSON), groups,
 *                   [incarnation: number, mark (u32)], not of the first
 *   extents: end, count, then start, segment, position, bytes of each
 *   producers: count (u32), then each as in producer-format.ts
 *   keys: as in key-format.ts
 *   groups: as in group-format.ts
 *   retained: as in retention-format.ts
 *   compaction: as in compaction-format.ts
 *
 * Numbers without a type are varints. A stream with many extents or producers has the first of them with it and
 * the others in blocks 3 and 4 that follow; one with many keys has them all in blocks 6.
 *
 *   - an incomplete or changed snapshot is never used.
 */

import { crc32 } from "node:zlib";
import { FIRST_INCARNATION } from "../../../base/incarnation.ts";
import type { StreamImage, WorldParts } from "../../core/restore.ts";
import type { StreamState } from "../../core/stream.ts";
import type { BookImage } from "../../core/subscription-image.ts";
import type { Offset, RunId, StreamId, StreamName, TimeMs } from "../../core/types.ts";
import { ByteReader, ByteWriter, damaged, share } from "./bytes.ts";
import type { Extent } from "./extents.ts";
import { FORMAT_VERSION, unknownFormat } from "./format.ts";
import { decodeCompaction, encodeCompaction } from "./compaction-format.ts";
import { encodeGroups, type GroupCollector } from "./group-format.ts";
import { decodeKeyPolicy, encodeKeyPolicy } from "./key-format.ts";
import { decodeRetained, encodeRetained } from "./retention-format.ts";
import { decodeExpiry, decodeFork, encodeExpiry, encodeFork } from "./records.ts";

export const BLOCK_HEADER_BYTES = 8;
const MAGIC = "HAPAXIMG";
export const BLOCK = {
  head: 1,
  streams: 2,
  producers: 3,
  extents: 4,
  end: 5,
  keys: 6,
  cursors: 7,
} as const;
const FLAG_CLOSED = 1;
const FLAG_DELETED = 2;
const FLAG_STREAM_SEQ = 4;
const FLAG_KEY_POLICY = 8;
const FLAG_KEYS = 16;
const FLAG_RETAINED = 32;
const FLAG_COMPACTION = 64;
const FLAGS_KNOWN =
  FLAG_CLOSED |
  FLAG_DELETED |
  FLAG_STREAM_SEQ |
  FLAG_KEY_POLICY |
  FLAG_KEYS |
  FLAG_RETAINED |
  FLAG_COMPACTION;

export interface SnapshotHead {
  /** 32 hexadecimal digits. */
  readonly storeId: string;
  readonly lsn: number;
  /** CRC of the frame with that LSN; 0 for LSN 0. */
  readonly crc: number;
  /** Changes of the world up to that frame, and with it. */
  readonly ordinal: number;
  readonly writtenAtMs: number;
}

export function encodeHead(writer: ByteWriter, head: SnapshotHead): void {
  writer.u8(BLOCK.head);
  writer.text(MAGIC);
  writer.varint(FORMAT_VERSION);
  writer.raw(Buffer.from(head.storeId, "hex"));
  writer.varint(head.lsn);
  writer.u32(head.crc);
  writer.varint(head.ordinal);
  writer.varint(head.writtenAtMs);
}

/** Throws `format_unknown` if other software has written the snapshot. */
export function decodeHead(reader: ByteReader, name: string): SnapshotHead {
  const magic = reader.text();
  if (magic !== MAGIC) throw damaged("it is not a snapshot");
  const version = reader.varint();
  if (version !== FORMAT_VERSION) throw unknownFormat(name, version);
  const storeId = reader.raw(16).toString("hex");
  const lsn = reader.varint();
  const crc = reader.u32();
  const ordinal = reader.varint();
  return { storeId, lsn, crc, ordinal, writtenAtMs: reader.varint() };
}

export interface SnapshotEnd extends WorldParts {
  readonly streams: number;
}

/** Encodes the end. The cursors of the groups must be written before. */
export function encodeEnd(writer: ByteWriter, end: SnapshotEnd): void {
  writer.u8(BLOCK.end);
  writer.varint(end.streams);
  writer.varint(end.version);
  writer.varint(end.nextId);
  writer.varint(end.timeMs);
  writer.varint(end.signingKeys.length);
  for (const key of end.signingKeys) writer.text(key);
  writer.text(JSON.stringify(end.subscriptions));
  encodeGroups(writer, end.groups);
  const { number, mark } = end.incarnation;
  if (number === 1) return;
  writer.varint(number);
  writer.u32(mark);
}

/** Decodes the end. The collector has the cursors of the snapshot's blocks. */
export function decodeEnd(reader: ByteReader, collector: GroupCollector): SnapshotEnd {
  const streams = reader.varint();
  const version = reader.varint();
  const nextId = reader.varint() as StreamId;
  const timeMs = reader.varint() as TimeMs;
  const signingKeys = Array.from({ length: reader.varint() }, () => reader.text());
  // encodeEnd wrote this text, and the block's checksum covers it.
  const subscriptions = JSON.parse(reader.text()) as BookImage;
  const groups = collector.takeGroups(reader);
  const incarnation =
    reader.left === 0 ? FIRST_INCARNATION : { number: reader.varint(), mark: reader.u32() };
  return { streams, version, nextId, timeMs, signingKeys, subscriptions, groups, incarnation };
}

/** Encodes a stream. `hasKeys`: its keys follow its producers. */
export function encodeStream(writer: ByteWriter, state: StreamState, hasKeys: boolean): void {
  const policy = state.keys?.policy;
  writer.varint(state.id);
  writer.varint(state.run);
  writer.text(state.name);
  writer.text(state.contentType);
  encodeExpiry(writer, state.expiry);
  encodeFork(writer, state.fork);
  writer.varint(state.createdAtMs);
  writer.varint(state.tail);
  writer.u8(
    (state.isClosed ? FLAG_CLOSED : 0) |
      (state.isDeleted ? FLAG_DELETED : 0) |
      (state.lastStreamSeq === undefined ? 0 : FLAG_STREAM_SEQ) |
      (policy === undefined ? 0 : FLAG_KEY_POLICY) |
      (hasKeys ? FLAG_KEYS : 0) |
      (state.retained === undefined ? 0 : FLAG_RETAINED) |
      (state.compaction === undefined ? 0 : FLAG_COMPACTION),
  );
  if (state.lastStreamSeq !== undefined) writer.text(state.lastStreamSeq);
  if (policy !== undefined) encodeKeyPolicy(writer, policy);
  writer.varint(state.accessedAtMs);
  if (state.retained !== undefined) encodeRetained(writer, state.retained);
  if (state.compaction !== undefined) encodeCompaction(writer, state.compaction);
}

export interface DecodedStream {
  readonly image: StreamImage;
  /** Its keys follow its producers. */
  readonly hasKeys: boolean;
}

export function decodeStream(reader: ByteReader): DecodedStream {
  const id = reader.varint() as StreamId;
  const run = reader.varint() as RunId;
  const name = reader.text() as StreamName;
  const contentType = share(reader.text());
  const expiry = decodeExpiry(reader);
  const fork = decodeFork(reader);
  const createdAtMs = reader.varint() as TimeMs;
  const tail = reader.varint() as Offset;
  const flags = reader.u8();
  if ((flags & ~FLAGS_KNOWN) !== 0) throw damaged(`a stream has the unknown flags ${flags}`);
  const lastStreamSeq = (flags & FLAG_STREAM_SEQ) === 0 ? undefined : reader.text();
  const keyPolicy = (flags & FLAG_KEY_POLICY) === 0 ? undefined : decodeKeyPolicy(reader);
  const accessedAtMs = reader.varint() as TimeMs;
  const retained = (flags & FLAG_RETAINED) === 0 ? undefined : decodeRetained(reader);
  const compaction = (flags & FLAG_COMPACTION) === 0 ? undefined : decodeCompaction(reader);
  const isClosed = (flags & FLAG_CLOSED) !== 0;
  const isDeleted = (flags & FLAG_DELETED) !== 0;
  const image: StreamImage = {
    id,
    run,
    name,
    contentType,
    expiry,
    fork,
    createdAtMs,
    tail,
    isClosed,
    isDeleted,
    lastStreamSeq,
    keyPolicy,
    accessedAtMs,
    retained,
    compaction,
  };
  return { image, hasKeys: (flags & FLAG_KEYS) !== 0 };
}

export function encodeExtent(writer: ByteWriter, extent: Extent): void {
  writer.varint(extent.start);
  writer.varint(extent.segment);
  writer.varint(extent.position);
  writer.varint(extent.bytes);
}

export function decodeExtent(reader: ByteReader): Extent {
  const start = reader.varint() as Offset;
  const segment = reader.varint();
  const position = reader.varint();
  return { start, segment, position, bytes: reader.varint() };
}

export function sealBlock(payload: Buffer): Buffer {
  const header = new ByteWriter(BLOCK_HEADER_BYTES);
  header.u32(payload.length);
  header.u32(crc32(payload));
  return Buffer.concat([header.bytes(), payload]);
}

/** Returns the checked payload of the block at the position, and where the next block starts. */
export function openBlock(
  bytes: Buffer,
  at: number,
): { readonly payload: Buffer; readonly next: number } | undefined {
  if (at + BLOCK_HEADER_BYTES > bytes.length) return undefined;
  const length = bytes.readUInt32LE(at);
  const end = at + BLOCK_HEADER_BYTES + length;
  if (end > bytes.length) return undefined;
  const payload = bytes.subarray(at + BLOCK_HEADER_BYTES, end);
  if (crc32(payload) !== bytes.readUInt32LE(at + 4)) throw damaged("a block has another checksum");
  return { payload, next: end };
}
