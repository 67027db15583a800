/** Reads a snapshot. snapshot.ts writes it, and says when it counts. */

import type { Restoration } from "../../core/restore.ts";
import { isSystemStream } from "../../core/stream.ts";
import { OFFSET_ZERO, type Offset, type StreamId } from "../../core/types.ts";
import { isHapaxError } from "../../../base/errors.ts";
import { ByteReader, damage, damaged } from "./bytes.ts";
import type { Disk } from "./disk.ts";
import type { ExtentIndex } from "./extents.ts";
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

/** Reads a snapshot into an empty world and index. Throws `data_damaged` unless it is whole. */
export async function readSnapshot(
  disk: Disk,
  name: string,
  restoration: Restoration,
  index: ExtentIndex,
): Promise<SnapshotHead> {
  const file = await disk.open(name, "read");
  const loader = new SnapshotLoader(name, restoration, index);
  let position = 0;
  try {
    const fileBytes = await file.size();
    let length = WINDOW_BYTES;
    while (position < fileBytes) {
      const start = position;
      const window = await file.read(start, length);
      for (let block = openBlock(window, 0); block !== undefined;) {
        loader.take(block.payload);
        position = start + block.next;
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
    return loader.finish();
  } catch (error) {
    if (!isHapaxError(error, "data_damaged")) throw error;
    throw damage(name, position, error.message, error);
  } finally {
    await file.close();
  }
}

class SnapshotLoader {
  readonly #name: string;
  readonly #restoration: Restoration;
  readonly #index: ExtentIndex;
  #head: SnapshotHead | undefined;
  #end: SnapshotEnd | undefined;
  #streams = 0;
  readonly #groups = new GroupCollector();
  /** Streams that the server trims. */
  readonly #trimmed = new Set<StreamId>();

  constructor(name: string, restoration: Restoration, index: ExtentIndex) {
    this.#name = name;
    this.#restoration = restoration;
    this.#index = index;
  }

  take(payload: Buffer): void {
    const reader = new ByteReader(payload);
    const kind = reader.u8();
    if ((this.#head === undefined) !== (kind === BLOCK.head)) throw damaged("it has no head");
    if (this.#end !== undefined) throw damaged("it goes on after its end");
    if (kind === BLOCK.head) this.#head = decodeHead(reader, this.#name);
    else if (kind === BLOCK.streams) this.#takeStreams(reader);
    else if (kind === BLOCK.producers) this.#takeProducers(reader, reader.varint() as StreamId);
    else if (kind === BLOCK.extents) this.#takeExtents(reader, reader.varint() as StreamId);
    else if (kind === BLOCK.keys) this.#takeKeys(reader, reader.varint() as StreamId);
    else if (kind === BLOCK.cursors) this.#groups.takeCursors(reader);
    else if (kind === BLOCK.end) this.#takeEnd(reader);
    else throw damaged(`a block has the unknown kind ${kind}`);
    if (reader.left > 0) throw damaged("a block has bytes left over");
  }

  finish(): SnapshotHead {
    if (this.#head === undefined || this.#end === undefined) throw damaged("it has no end");
    if (this.#end.streams !== this.#streams) throw damaged("it has another number of streams");
    this.#restoration.begin(this.#head.ordinal);
    this.#restoration.parts(this.#end);
    this.#restoration.finishImages();
    return this.#head;
  }

  #takeEnd(reader: ByteReader): void {
    this.#end = decodeEnd(reader, this.#groups);
  }

  #takeStreams(reader: ByteReader): void {
    this.#restoration.imagesAt(reader.varint());
    const count = reader.u32();
    for (let taken = 0; taken < count; taken += 1) {
      const { image, hasKeys } = decodeStream(reader);
      this.#restoration.stream(image);
      if (isSystemStream(image.name)) this.#trimmed.add(image.id);
      this.#index.create(image.id, image.fork?.at ?? OFFSET_ZERO);
      this.#takeExtents(reader, image.id);
      this.#takeProducers(reader, image.id);
      if (hasKeys) this.#takeKeys(reader, image.id);
    }
    this.#streams += count;
  }

  #takeExtents(reader: ByteReader, stream: StreamId): void {
    const end = reader.varint() as Offset;
    const count = reader.varint();
    let extent = count > 0 ? decodeExtent(reader) : undefined;
    const start = extent?.start ?? end;
    if (this.#trimmed.has(stream) && this.#index.streams.get(stream)?.end !== start) {
      // The data in between was trimmed meanwhile, and so was everything before it.
      this.#index.remove(stream);
      this.#index.create(stream, start);
    }
    for (let taken = 1; extent !== undefined; taken += 1) {
      const next = taken < count ? decodeExtent(reader) : undefined;
      this.#index.add(stream, extent, next?.start ?? end);
      extent = next;
    }
  }

  #takeProducers(reader: ByteReader, stream: StreamId): void {
    const count = reader.u32();
    for (let taken = 0; taken < count; taken += 1) {
      const [id, state] = decodeProducer(reader);
      this.#restoration.producer(stream, id, state);
    }
  }

  #takeKeys(reader: ByteReader, stream: StreamId): void {
    const { first, from, entries } = decodeKeys(reader);
    this.#restoration.keys(stream, first, from, entries);
  }
}
