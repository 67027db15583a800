/**
 * The grammar of a snapshot, for everything that reads one: the start of a server, and the tools that look at a
 * directory. docs/formats/snapshot.md
 *
 *   - every block has its checksum, and every field is read with nothing left over;
 *   - the head is first, the end is last, and the numbers of streams and cursors are right.
 */

import type { StreamImage } from "../../core/restore.ts";
import type { MutableProducer } from "../../core/producer.ts";
import type { Offset, ProducerId, StreamId } from "../../core/types.ts";
import { ByteReader, damaged } from "./bytes.ts";
import type { ByteSource } from "./segment-log.ts";
import type { Extent } from "./extents.ts";
import { GroupCollector } from "./group-format.ts";
import { decodeKeys } from "./key-format.ts";
import { decodeProducer } from "./producer-format.ts";
import {
  BLOCK,
  BLOCK_HEADER_BYTES,
  decodeEnd,
  decodeExtent,
  decodeHead,
  decodeStream,
  openBlock,
  type SnapshotEnd,
  type SnapshotHead,
} from "./snapshot-format.ts";

const WINDOW_BYTES = 4 * 1024 * 1024;

/** Calls `take` with each block and the place where it ends. Throws `data_damaged` at the first that is not whole. */
export async function eachBlock(
  file: ByteSource,
  fileBytes: number,
  take: (payload: Buffer, end: number) => void,
): Promise<void> {
  let position = 0;
  let length = WINDOW_BYTES;
  while (position < fileBytes) {
    const start = position;
    const window = await file.read(start, length);
    for (let block = openBlock(window, 0); block !== undefined;) {
      position = start + block.next;
      take(block.payload, position);
      block = openBlock(window, block.next);
    }
    if (position > start) {
      length = WINDOW_BYTES;
      continue;
    }
    // The block is larger than the window, or it is incomplete.
    if (start + window.length >= fileBytes) throw damaged("it ends within a block");
    length = window.readUInt32LE(0) + BLOCK_HEADER_BYTES;
    if (start + length > fileBytes) throw damaged("it ends within a block");
  }
}

/** Takes what the blocks have, in their order. */
export interface SnapshotTarget {
  imagesAt(version: number): void;
  stream(image: StreamImage): void;
  /** `extents` gives the next one, `count` times; the last one ends at `end`. All must be taken. */
  extents(stream: StreamId, end: Offset, count: number, next: () => Extent): void;
  producer(stream: StreamId, id: ProducerId, state: MutableProducer): void;
  keys(stream: StreamId, keys: ReturnType<typeof decodeKeys>): void;
}

/** For those who only want to know whether the snapshot is whole. */
const NOWHERE: SnapshotTarget = {
  imagesAt: () => undefined,
  stream: () => undefined,
  extents: (_stream, _end, count, next) => {
    for (let taken = 0; taken < count; taken += 1) next();
  },
  producer: () => undefined,
  keys: () => undefined,
};

export class SnapshotBlocks {
  blocks = 0;
  streams = 0;
  head: SnapshotHead | undefined;
  end: SnapshotEnd | undefined;
  readonly #name: string;
  readonly #target: SnapshotTarget;
  readonly #groups = new GroupCollector();

  constructor(name: string, target: SnapshotTarget = NOWHERE) {
    this.#name = name;
    this.#target = target;
  }

  take(payload: Buffer): void {
    const reader = new ByteReader(payload);
    const kind = reader.u8();
    if ((this.head === undefined) !== (kind === BLOCK.head)) throw damaged("it has no head");
    if (this.end !== undefined) throw damaged("it goes on after its end");
    if (kind === BLOCK.head) this.head = decodeHead(reader, this.#name);
    else if (kind === BLOCK.streams) this.#takeStreams(reader);
    else if (kind === BLOCK.producers) this.#takeProducers(reader, reader.varint() as StreamId);
    else if (kind === BLOCK.extents) this.#takeExtents(reader, reader.varint() as StreamId);
    else if (kind === BLOCK.keys) this.#takeKeys(reader, reader.varint() as StreamId);
    else if (kind === BLOCK.cursors) this.#groups.takeCursors(reader);
    else if (kind === BLOCK.end) this.end = decodeEnd(reader, this.#groups);
    else throw damaged(`a block has the unknown kind ${kind}`);
    if (reader.left > 0) throw damaged("a block has bytes left over");
    this.blocks += 1;
  }

  /** Throws `data_damaged` unless all blocks were there. */
  finish(): { readonly head: SnapshotHead; readonly end: SnapshotEnd } {
    const { head, end } = this;
    if (head === undefined || end === undefined) throw damaged("it has no end");
    if (end.streams !== this.streams) throw damaged("it has another number of streams");
    return { head, end };
  }

  #takeStreams(reader: ByteReader): void {
    this.#target.imagesAt(reader.varint());
    const count = reader.u32();
    for (let taken = 0; taken < count; taken += 1) {
      const { image, hasKeys } = decodeStream(reader);
      this.#target.stream(image);
      this.#takeExtents(reader, image.id);
      this.#takeProducers(reader, image.id);
      if (hasKeys) this.#takeKeys(reader, image.id);
    }
    this.streams += count;
  }

  #takeExtents(reader: ByteReader, stream: StreamId): void {
    const end = reader.varint() as Offset;
    this.#target.extents(stream, end, reader.varint(), () => decodeExtent(reader));
  }

  #takeProducers(reader: ByteReader, stream: StreamId): void {
    const count = reader.u32();
    for (let taken = 0; taken < count; taken += 1) {
      const [id, state] = decodeProducer(reader);
      this.#target.producer(stream, id, state);
    }
  }

  #takeKeys(reader: ByteReader, stream: StreamId): void {
    this.#target.keys(stream, decodeKeys(reader));
  }
}
