/**
 * Writes snapshots: the whole state at about one moment, so that recovery need not start at the journal's first
 * frame.
 *
 *   - a snapshot is written piece by piece, each in well under 20 ms, while commits continue;
 *   - it counts only when it is complete, durable and renamed, and its content is durable in the journal;
 *   - the two newest are kept: if one is damaged, recovery uses the other, with a longer replay.
 */

import type { GroupBookImage } from "../../core/group-image.ts";
import type { KeyWindowView } from "../../../base/key-window.ts";
import type { ProducerState } from "../../core/producer.ts";
import type { StreamState } from "../../core/stream.ts";
import { OFFSET_ZERO, type Offset, type ProducerId } from "../../core/types.ts";
import type { World } from "../../core/world.ts";
import { ByteWriter } from "./bytes.ts";
import type { StreamExtents } from "./extents.ts";
import { encodeCursors, slicesOf } from "./group-format.ts";
import { encodeKeys } from "./key-format.ts";
import { encodeProducer } from "./producer-format.ts";
import type { ImageSink } from "./segment-log.ts";
import type { SnapshotExtents } from "./snapshot-extents.ts";
import {
  BLOCK,
  encodeEnd,
  encodeExtent,
  encodeHead,
  encodeStream,
  sealBlock,
  type SnapshotHead,
} from "./snapshot-format.ts";

/** Size of one synchronous piece of work: about a millisecond. */
const BLOCK_BYTES = 64 * 1024;
/** Most extents, producers or keys that are written with their stream. More follow in blocks of their own. */
const INLINE_MAX = 32;
/** Keys are small: a block for every hundred of them would cost more than they do. */
const KEYS_INLINE_MAX = 256;
const PART_MAX = 4000;
const KEYS_PART_MAX = 2000;

/** Writes a snapshot. Replay continues after its LSN. `settle` makes its content durable in the journal. */
export async function writeSnapshot(
  sink: ImageSink,
  world: World,
  index: Pick<SnapshotExtents, "streams">,
  head: SnapshotHead,
  settle: () => Promise<void>,
): Promise<void> {
  const writer = new SnapshotWriter(sink);
  await writer.block((block) => {
    encodeHead(block, head);
  });
  await writer.streams(world, index);
  // Everything that is not a stream is of one moment. Only encoding and writing the cursors takes several turns.
  const groups = world.rules.groups.image(world.groups);
  const end = new ByteWriter(BLOCK_BYTES);
  encodeEnd(end, {
    streams: writer.count,
    version: world.version,
    nextId: world.nextId,
    timeMs: world.timeMs,
    signingKeys: world.signingKeys,
    incarnation: world.incarnation,
    subscriptions: world.rules.subscriptions.image(world.subscriptions),
    groups,
  });
  await writer.cursors(groups);
  await writer.write(end);
  await settle();
}

/** A stream with more parts than are written with it. */
interface LargeStream {
  readonly state: StreamState;
  /** Its keys were not written with it. */
  readonly keys: KeyWindowView | undefined;
  readonly extents: StreamExtents | undefined;
  /** Extents up to here were written with the stream. It had extents up to `extentsEnd`. */
  readonly writtenTo: Offset;
  readonly extentsEnd: Offset;
}

class SnapshotWriter {
  readonly #sink: ImageSink;
  count = 0;

  constructor(sink: ImageSink) {
    this.#sink = sink;
  }

  /** Fills the block at once. Only the write is asynchronous. */
  async block(fill: (block: ByteWriter) => void): Promise<void> {
    const block = new ByteWriter(BLOCK_BYTES + 4096);
    fill(block);
    await this.write(block);
  }

  async write(block: ByteWriter): Promise<void> {
    await this.#sink.write(sealBlock(block.bytes()));
  }

  async streams(world: World, index: Pick<SnapshotExtents, "streams">): Promise<void> {
    // A live iterator: it includes streams that are created meanwhile, and skips removed ones.
    const states = world.byId.values();
    for (let isDone = false; !isDone;) {
      const large: LargeStream[] = [];
      await this.block((block) => {
        isDone = this.#fillStreams(block, states, world.version, index, large);
      });
      for (const stream of large) {
        const { state, keys } = stream;
        await this.#restOfExtents(stream);
        await this.#restOfProducers(state);
        if (keys !== undefined) await this.#allKeys(state, keys);
      }
    }
  }

  async cursors(groups: GroupBookImage): Promise<void> {
    if (groups.groups.every(({ cursors }) => cursors.length === 0)) return;
    const slices = slicesOf(groups);
    for (let isDone = false; !isDone;) {
      await this.block((block) => {
        block.u8(BLOCK.cursors);
        isDone = encodeCursors(block, slices, BLOCK_BYTES);
      });
    }
  }

  #fillStreams(
    block: ByteWriter,
    states: Iterator<StreamState>,
    version: number,
    index: Pick<SnapshotExtents, "streams">,
    large: LargeStream[],
  ): boolean {
    block.u8(BLOCK.streams);
    block.varint(version);
    const countAt = block.length;
    block.u32(0);
    let count = 0;
    let isDone = false;
    // A stream with many parts ends its block, so that its parts follow at once.
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
      const writtenTo = encodeExtents(block, extents, 0, INLINE_MAX);
      const extentsEnd = extents?.end ?? writtenTo;
      encodeProducers(block, state.producers?.entries(), INLINE_MAX, Infinity);
      if (inline !== undefined) encodeKeys(block, inline, inline.first, KEYS_INLINE_MAX);
      count += 1;
      const hasMany =
        (extents?.count ?? 0) > INLINE_MAX || (state.producers?.size ?? 0) > INLINE_MAX;
      if (!hasMany && !hasManyKeys) continue;
      const keys = hasManyKeys ? window : undefined;
      large.push({ state, keys, extents, writtenTo, extentsEnd });
    }
    block.patchU32(countAt, count);
    this.count += count;
    return isDone;
  }

  /**
   * Continues by offset, because a trim may have replaced the first extent meanwhile. Later extents are in the
   * journal.
   */
  async #restOfExtents({ state, extents, writtenTo, extentsEnd }: LargeStream): Promise<void> {
    for (let from = writtenTo; extents !== undefined && from < extentsEnd;) {
      await this.block((block) => {
        block.u8(BLOCK.extents);
        block.varint(state.id);
        from = encodeExtents(block, extents, extents.find(from), PART_MAX);
      });
    }
  }

  async #restOfProducers(state: StreamState): Promise<void> {
    if ((state.producers?.size ?? 0) <= INLINE_MAX) return;
    // Some are written twice, with the same or a later state. The later one counts.
    const producers = state.producers?.entries();
    for (let isDone = false; !isDone;) {
      await this.block((block) => {
        block.u8(BLOCK.producers);
        block.varint(state.id);
        isDone = encodeProducers(block, producers, PART_MAX, BLOCK_BYTES);
      });
    }
  }

  /** Writes the keys that exist now: later keys are in the journal. Skips keys that are evicted meanwhile. */
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

/** Encodes extents. Returns where they end. */
function encodeExtents(
  block: ByteWriter,
  extents: StreamExtents | undefined,
  from: number,
  countMax: number,
): Offset {
  const to = Math.min(extents?.count ?? 0, from + countMax);
  const isAll = extents === undefined || to === extents.count;
  const end = isAll ? (extents?.end ?? OFFSET_ZERO) : extents.at(to).start;
  block.varint(end);
  block.varint(Math.max(0, to - from));
  for (let at = from; extents !== undefined && at < to; at += 1)
    encodeExtent(block, extents.at(at));
  return end;
}

/** Encodes producers. Returns whether these were the last. */
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
  // A producer may have a single end, or 32 ends and 17 sessions, so a count alone does not keep a block small.
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
