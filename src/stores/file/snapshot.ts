/**
 * Writing and reading snapshots: the whole state at about one moment, so that recovery need not start at the
 * journal's first frame.
 *
 *   SN2  a snapshot is written piece by piece, each in well under 20 ms, while commits go on;
 *   SN3  it counts only once it is complete, durable and renamed, and what it contains is durable in the journal;
 *   SN4  the two newest are kept: if one is damaged the other is used, with a longer replay.
 */

import type { KeyWindowView } from "../../core/key-window.ts";
import type { ProducerState } from "../../core/producer.ts";
import type { Restoration } from "../../core/restore.ts";
import type { StreamState } from "../../core/stream.ts";
import { imageOfBook } from "../../core/subscription-image.ts";
import type { Offset, ProducerId, StreamId } from "../../core/types.ts";
import type { World } from "../../core/world.ts";
import { isHapaxError } from "../../errors.ts";
import { ByteReader, ByteWriter, damage, damaged } from "./bytes.ts";
import type { Disk, DiskFile } from "./disk.ts";
import { ExtentIndex, type StreamExtents } from "./extents.ts";
import { decodeKeys, encodeKeys } from "./key-format.ts";
import { decodeProducer, encodeProducer } from "./producer-format.ts";
import {
  BLOCK,
  BLOCK_HEADER_BYTES,
  decodeEnd,
  decodeExtent,
  decodeHead,
  type DecodedHead,
  decodeStream,
  encodeEnd,
  encodeExtent,
  encodeHead,
  encodeStream,
  openBlock,
  sealBlock,
  type SnapshotEnd,
  type SnapshotHead,
} from "./snapshot-format.ts";

/** What one synchronous piece of work makes: about a millisecond. */
const BLOCK_BYTES = 64 * 1024;
/** Extents, producers and keys that are kept with their stream; more follow in blocks of their own. */
const INLINE_MAX = 32;
/** Keys are small: a block of its own for every hundred of them would cost more than they do. */
const KEYS_INLINE_MAX = 256;
const PART_MAX = 4000;
const KEYS_PART_MAX = 2000;
const WINDOW_BYTES = 4 * 1024 * 1024;

export function snapshotName(lsn: number): string {
  return `snapshot-${String(lsn).padStart(16, "0")}.snap`;
}

export function parseSnapshotName(name: string): number | undefined {
  const match = /^snapshot-([0-9]{16})\.snap$/.exec(name);
  return match === null ? undefined : Number(match[1]);
}

export const UNFINISHED_SNAPSHOT = /^snapshot-[0-9]{16}\.tmp$/;

/** Writes a snapshot that replay goes on from after its LSN. `settle` makes durable what it contains. */
export async function writeSnapshot(
  disk: Disk,
  world: World,
  index: ExtentIndex,
  head: SnapshotHead,
  settle: () => Promise<void>,
): Promise<void> {
  const { lsn } = head;
  const unfinished = snapshotName(lsn).replace(/snap$/, "tmp");
  const file = await disk.open(unfinished, "create");
  try {
    const writer = new SnapshotWriter(file);
    await writer.block((block) => {
      encodeHead(block, head);
    });
    await writer.streams(world, index);
    await writer.block((block) => {
      encodeEnd(block, {
        streams: writer.count,
        version: world.version,
        nextId: world.nextId,
        timeMs: world.timeMs,
        signingKeys: world.signingKeys,
        subscriptions: imageOfBook(world.subscriptions),
      });
    });
    await settle();
    await file.sync();
  } catch (error) {
    await file.close();
    await disk.remove(unfinished);
    throw error;
  }
  await file.close();
  await disk.rename(unfinished, snapshotName(lsn));
  await disk.syncDirectory();
}

/** A stream with more than goes beside it. */
interface LargeStream {
  readonly state: StreamState;
  /** Its keys were not written with it. */
  readonly keys: KeyWindowView | undefined;
}

class SnapshotWriter {
  readonly #file: DiskFile;
  #position = 0;
  count = 0;

  constructor(file: DiskFile) {
    this.#file = file;
  }

  /** The block is made at once; only writing it waits. */
  async block(fill: (block: ByteWriter) => void): Promise<void> {
    const block = new ByteWriter(BLOCK_BYTES + 4096);
    fill(block);
    const sealed = sealBlock(block.bytes());
    await this.#file.write([sealed], this.#position);
    this.#position += sealed.length;
  }

  async streams(world: World, index: ExtentIndex): Promise<void> {
    // A live iterator: it goes on over what is created and removed meanwhile.
    const states = world.byId.values();
    for (let isDone = false; !isDone;) {
      const large: LargeStream[] = [];
      await this.block((block) => {
        isDone = this.#fillStreams(block, states, world.version, index, large);
      });
      for (const { state, keys } of large) {
        await this.#restOfExtents(state, index.streams.get(state.id));
        await this.#restOfProducers(state);
        if (keys !== undefined) await this.#allKeys(state, keys);
      }
    }
  }

  #fillStreams(
    block: ByteWriter,
    states: Iterator<StreamState>,
    version: number,
    index: ExtentIndex,
    large: LargeStream[],
  ): boolean {
    block.u8(BLOCK.streams);
    block.varint(version);
    const countAt = block.length;
    block.u32(0);
    let count = 0;
    let isDone = false;
    // A stream with many parts ends its block, so that they follow at once.
    while (block.length < BLOCK_BYTES && large.length === 0) {
      const next = states.next();
      if (next.done === true) {
        isDone = true;
        break;
      }
      const state = next.value;
      const extents = index.streams.get(state.id);
      const window = state.keys?.window;
      const hasManyKeys = window !== undefined && window.next - window.first > KEYS_INLINE_MAX;
      const inline = hasManyKeys ? undefined : window;
      encodeStream(block, state, inline !== undefined);
      encodeExtents(block, extents, 0, INLINE_MAX);
      encodeProducers(block, state.producers?.entries(), INLINE_MAX, Infinity);
      if (inline !== undefined) encodeKeys(block, inline, inline.first, KEYS_INLINE_MAX);
      count += 1;
      const hasMany =
        (extents?.count ?? 0) > INLINE_MAX || (state.producers?.size ?? 0) > INLINE_MAX;
      if (hasMany || hasManyKeys) large.push({ state, keys: hasManyKeys ? window : undefined });
    }
    block.patchU32(countAt, count);
    this.count += count;
    return isDone;
  }

  async #restOfExtents(state: StreamState, extents: StreamExtents | undefined): Promise<void> {
    for (let from = INLINE_MAX; extents !== undefined && from < extents.count; from += PART_MAX) {
      await this.block((block) => {
        block.u8(BLOCK.extents);
        block.varint(state.id);
        encodeExtents(block, extents, from, PART_MAX);
      });
    }
  }

  async #restOfProducers(state: StreamState): Promise<void> {
    if ((state.producers?.size ?? 0) <= INLINE_MAX) return;
    // Some are written twice, with the same or a later state: the later one counts.
    const producers = state.producers?.entries();
    for (let isDone = false; !isDone;) {
      await this.block((block) => {
        block.u8(BLOCK.producers);
        block.varint(state.id);
        isDone = encodeProducers(block, producers, PART_MAX, BLOCK_BYTES);
      });
    }
  }

  /** Up to what there is now: later keys are in the journal. What is evicted meanwhile is left out. */
  async #allKeys(state: StreamState, window: KeyWindowView): Promise<void> {
    const goal = window.next;
    for (let from = window.first, isDone = false; !isDone;) {
      await this.block((block) => {
        block.u8(BLOCK.keys);
        block.varint(state.id);
        from = encodeKeys(block, window, Math.max(from, window.first), KEYS_PART_MAX);
        isDone = from >= goal;
      });
    }
  }
}

function encodeExtents(
  block: ByteWriter,
  extents: StreamExtents | undefined,
  from: number,
  countMax: number,
): void {
  const to = Math.min(extents?.count ?? 0, from + countMax);
  const isAll = extents === undefined || to === extents.count;
  block.varint(isAll ? (extents?.end ?? 0) : extents.at(to).start);
  block.varint(Math.max(0, to - from));
  for (let at = from; extents !== undefined && at < to; at += 1)
    encodeExtent(block, extents.at(at));
}

/** Whether these were the last. */
function encodeProducers(
  block: ByteWriter,
  producers: Iterator<readonly [ProducerId, ProducerState]> | undefined,
  countMax: number,
  bytesMax: number,
): boolean {
  const countAt = block.length;
  block.u32(0);
  let count = 0;
  let isDone = producers === undefined;
  // One may have a single end or 32 of them and 17 sessions, so the count alone does not keep a block small.
  while (!isDone && count < countMax && block.length < bytesMax) {
    const next = producers?.next();
    if (next === undefined || next.done === true) {
      isDone = true;
      break;
    }
    encodeProducer(block, next.value[0], next.value[1]);
    count += 1;
  }
  block.patchU32(countAt, count);
  return isDone;
}

/** Reads a snapshot into an empty world and index. Throws `data_damaged` unless it is whole. */
export async function readSnapshot(
  disk: Disk,
  name: string,
  restoration: Restoration,
  index: ExtentIndex,
): Promise<SnapshotHead> {
  const file = await disk.open(name, "read");
  const loader = new SnapshotLoader(restoration, index);
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
      // The block is larger than the window, or it is cut off.
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
  readonly #restoration: Restoration;
  readonly #index: ExtentIndex;
  #head: DecodedHead | undefined;
  #end: SnapshotEnd | undefined;
  #streams = 0;

  constructor(restoration: Restoration, index: ExtentIndex) {
    this.#restoration = restoration;
    this.#index = index;
  }

  take(payload: Buffer): void {
    const reader = new ByteReader(payload);
    const kind = reader.u8();
    if ((this.#head === undefined) !== (kind === BLOCK.head)) throw damaged("it has no head");
    if (this.#end !== undefined) throw damaged("it goes on after its end");
    if (kind === BLOCK.head) this.#head = decodeHead(reader);
    else if (kind === BLOCK.streams) this.#takeStreams(reader);
    else if (kind === BLOCK.producers) this.#takeProducers(reader, reader.varint() as StreamId);
    else if (kind === BLOCK.extents) this.#takeExtents(reader, reader.varint() as StreamId);
    else if (kind === BLOCK.keys) this.#takeKeys(reader, reader.varint() as StreamId);
    else if (kind === BLOCK.end) this.#end = decodeEnd(reader);
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

  #takeStreams(reader: ByteReader): void {
    this.#restoration.imagesAt(reader.varint());
    const count = reader.u32();
    for (let taken = 0; taken < count; taken += 1) {
      const { image, hasKeys } = decodeStream(reader);
      this.#restoration.stream(image);
      this.#index.create(image.id, image.fork?.at ?? (0 as Offset));
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
    for (let taken = 1; extent !== undefined; taken += 1) {
      const next = taken < count ? decodeExtent(reader) : undefined;
      this.#index.add(stream, extent, next?.start ?? end);
      extent = next;
    }
  }

  #takeProducers(reader: ByteReader, stream: StreamId): void {
    const count = reader.u32();
    const version = this.#head?.version ?? 0;
    for (let taken = 0; taken < count; taken += 1) {
      const [id, state] = decodeProducer(reader, version);
      this.#restoration.producer(stream, id, state);
    }
  }

  #takeKeys(reader: ByteReader, stream: StreamId): void {
    const { first, from, entries } = decodeKeys(reader);
    this.#restoration.keys(stream, first, from, entries);
  }
}
