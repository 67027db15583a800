/**
 * Reads a snapshot block by block, without making a world of it, for the tools that look at a directory. It checks
 * every checksum and reads every field. It holds only one block and the groups in memory.
 */

import { isHapaxError } from "../../../base/errors.ts";
import { ByteReader, damaged } from "./bytes.ts";
import type { Disk } from "./disk.ts";
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

export interface SnapshotScan {
  readonly name: string;
  readonly bytes: number;
  readonly blocks: number;
  readonly streams: number;
  readonly head: SnapshotHead | undefined;
  readonly end: SnapshotEnd | undefined;
  /** Why it cannot be used, and where. */
  readonly fault: { readonly offset: number; readonly what: string } | undefined;
}

export async function scanSnapshot(
  disk: Disk,
  name: string,
  onBytes: (bytes: number) => void = () => undefined,
): Promise<SnapshotScan> {
  const file = await disk.open(name, "read");
  try {
    const bytes = await file.size();
    const reader = new BlockReader(name);
    let position = 0;
    let fault: SnapshotScan["fault"];
    try {
      while (position < bytes) {
        const start = await file.read(position, BLOCK_HEADER_BYTES);
        if (start.length < BLOCK_HEADER_BYTES) throw damaged("it ends within a block");
        const length = BLOCK_HEADER_BYTES + start.readUInt32LE(0);
        if (position + length > bytes) throw damaged("it ends within a block");
        const block = openBlock(await file.read(position, length), 0);
        if (block === undefined) throw damaged("it ends within a block");
        reader.take(block.payload);
        position += length;
        onBytes(length);
      }
      reader.finish();
    } catch (error) {
      if (!isHapaxError(error, "data_damaged") && !(error instanceof SyntaxError)) throw error;
      fault = { offset: position, what: error.message };
    }
    const { blocks, streams, head, end } = reader;
    return { name, bytes, blocks, streams, head, end, fault };
  } finally {
    await file.close();
  }
}

class BlockReader {
  blocks = 0;
  streams = 0;
  head: SnapshotHead | undefined;
  end: SnapshotEnd | undefined;
  readonly #name: string;
  readonly #groups = new GroupCollector();

  constructor(name: string) {
    this.#name = name;
  }

  take(payload: Buffer): void {
    const reader = new ByteReader(payload);
    const kind = reader.u8();
    if ((this.head === undefined) !== (kind === BLOCK.head)) throw damaged("it has no head");
    if (this.end !== undefined) throw damaged("it goes on after its end");
    if (kind === BLOCK.head) this.head = decodeHead(reader, this.#name);
    else if (kind === BLOCK.end) this.#takeEnd(reader);
    else if (kind === BLOCK.streams) this.#takeStreams(reader);
    else if (kind === BLOCK.extents) readPart(reader, readExtents);
    else if (kind === BLOCK.producers) readPart(reader, this.#readProducers);
    else if (kind === BLOCK.keys) readPart(reader, decodeKeys);
    else if (kind === BLOCK.cursors) this.#groups.takeCursors(reader);
    else throw damaged(`a block has the unknown kind ${kind}`);
    if (reader.left > 0) throw damaged("a block has bytes left over");
    this.blocks += 1;
  }

  finish(): void {
    if (this.head === undefined || this.end === undefined) throw damaged("it has no end");
    if (this.end.streams !== this.streams) throw damaged("it has another number of streams");
  }

  #takeEnd(reader: ByteReader): void {
    this.end = decodeEnd(reader, this.#groups);
  }

  #takeStreams(reader: ByteReader): void {
    reader.varint();
    const count = reader.u32();
    for (let taken = 0; taken < count; taken += 1) {
      const { hasKeys } = decodeStream(reader);
      readExtents(reader);
      this.#readProducers(reader);
      if (hasKeys) decodeKeys(reader);
    }
    this.streams += count;
  }

  readonly #readProducers = (reader: ByteReader): void => {
    const count = reader.u32();
    for (let taken = 0; taken < count; taken += 1) decodeProducer(reader);
  };
}

function readPart(reader: ByteReader, read: (reader: ByteReader) => unknown): void {
  reader.varint();
  read(reader);
}

function readExtents(reader: ByteReader): void {
  reader.varint();
  const count = reader.varint();
  for (let taken = 0; taken < count; taken += 1) decodeExtent(reader);
}
