/** Reads a snapshot into a world. snapshot.ts writes it, and says when it counts. */

import type { Restoration, StreamImage } from "../../core/restore.ts";
import type { MutableProducer } from "../../core/producer.ts";
import { OFFSET_ZERO, type Offset, type ProducerId, type StreamId } from "../../core/types.ts";
import { isHapaxError } from "../../../base/errors.ts";
import { damage } from "./bytes.ts";
import type { Extent } from "./extents.ts";
import type { decodeKeys } from "./key-format.ts";
import type { ByteSource } from "./segment-log.ts";
import { eachBlock, SnapshotBlocks, type SnapshotTarget } from "./snapshot-blocks.ts";
import type { SnapshotExtents } from "./snapshot-extents.ts";
import type { SnapshotHead } from "./snapshot-format.ts";

/** Reads a snapshot into an empty world and index, and closes it. Throws `data_damaged` unless it is whole. */
export async function readSnapshot(
  file: ByteSource,
  name: string,
  restoration: Restoration,
  index: SnapshotExtents,
): Promise<SnapshotHead> {
  const blocks = new SnapshotBlocks(name, new SnapshotLoader(restoration, index));
  let position = 0;
  try {
    await eachBlock(file, await file.size(), (payload, end) => {
      blocks.take(payload);
      position = end;
    });
    const { head, end } = blocks.finish();
    restoration.begin(head.ordinal);
    restoration.parts(end);
    restoration.finishImages();
    return head;
  } catch (error) {
    if (!isHapaxError(error, "data_damaged")) throw error;
    throw damage(name, position, error.message, error);
  } finally {
    await file.close();
  }
}

class SnapshotLoader implements SnapshotTarget {
  readonly #restoration: Restoration;
  readonly #index: SnapshotExtents;

  constructor(restoration: Restoration, index: SnapshotExtents) {
    this.#restoration = restoration;
    this.#index = index;
  }

  imagesAt(version: number): void {
    this.#restoration.imagesAt(version);
  }

  stream(image: StreamImage): void {
    this.#restoration.stream(image);
    this.#index.create(image.id, image.fork?.at ?? OFFSET_ZERO);
  }

  extents(stream: StreamId, end: Offset, count: number, next: () => Extent): void {
    let extent = count > 0 ? next() : undefined;
    const start = extent?.start ?? end;
    if (start > (this.#index.streams.get(stream)?.end ?? start)) {
      // The data in between was trimmed meanwhile, and so was everything before it. The end of the replay checks that.
      this.#index.remove(stream);
      this.#index.create(stream, start);
      this.#index.trimmed.add(stream);
    }
    for (let taken = 1; extent !== undefined; taken += 1) {
      const following = taken < count ? next() : undefined;
      this.#index.add(stream, extent, following?.start ?? end);
      extent = following;
    }
  }

  producer(stream: StreamId, id: ProducerId, state: MutableProducer): void {
    this.#restoration.producer(stream, id, state);
  }

  keys(stream: StreamId, { first, from, entries }: ReturnType<typeof decodeKeys>): void {
    this.#restoration.keys(stream, first, from, entries);
  }
}
