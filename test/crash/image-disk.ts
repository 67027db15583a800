/** A disk that shows given bytes and takes nothing: what a recovery looks at, a hundred thousand times. */

import { readExtents } from "../../src/streams/stores/journal/reading.ts";
import { recover, type Recovered } from "../../src/streams/stores/file/recovery.ts";
import { Segments } from "../../src/streams/stores/file/segments.ts";
import type { Disk, DiskFile } from "../../src/streams/stores/file/disk.ts";
import type { Offset, StreamId } from "../../src/streams/core/types.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import type { SimulatedDisk } from "../kits/simulated-disk.ts";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";

export type Images = Map<string, Buffer>;

export function createImageDisk(images: ReadonlyMap<string, Buffer>): Disk {
  const refuse = (): Promise<never> => Promise.reject(new Error("this disk is only looked at"));
  return {
    list: () => Promise.resolve([...images.keys()]),
    open(name) {
      const bytes = images.get(name);
      if (bytes === undefined) return Promise.reject(new Error(`there is no ${name}`));
      const file: DiskFile = {
        size: () => Promise.resolve(bytes.length),
        read: (position, length) => Promise.resolve(bytes.subarray(position, position + length)),
        write: refuse,
        sync: () => Promise.resolve(),
        close: () => Promise.resolve(),
      };
      return Promise.resolve(file);
    },
    rename: refuse,
    remove: refuse,
    syncDirectory: () => Promise.resolve(),
  };
}

/** All bytes of a disk. */
export async function imagesOf(disk: SimulatedDisk): Promise<Images> {
  const images: Images = new Map();
  for (const name of await disk.list()) {
    const file = await disk.open(name, "read");
    images.set(name, await file.read(0, await file.size()));
    await file.close();
  }
  return images;
}

export function recoverImages(images: ReadonlyMap<string, Buffer>): Promise<Recovered> {
  return recover(createImageDisk(images), () => undefined);
}

/** The data of every stream, as the store would hand it out. */
export async function dataOf(
  images: ReadonlyMap<string, Buffer>,
  recovered: Recovered,
): Promise<Map<StreamId, Buffer>> {
  const limits = { segmentBytes: 0, readFilesMax: 4, onFull: () => undefined };
  const random = createSeededRandom(0);
  const segments = new Segments(createImageDisk(images), createVirtualClock(), random, limits);
  await segments.adopt(recovered.segments, [], { storeId: "", lastCrc: recovered.lastCrc });
  const data = new Map<StreamId, Buffer>();
  for (const [stream, extents] of recovered.index.streams) {
    const parts: Uint8Array[] = [];
    const start = recovered.world.byId.get(stream)?.fork?.at ?? (0 as Offset);
    for (let from = start; from < extents.end;) {
      const page = await readExtents(segments, stream, extents, from, extents.end, 1 << 20);
      if (page.start !== from || page.appends.length === 0) throw new Error("a page has a hole");
      parts.push(...page.appends);
      for (const append of page.appends) from = (from + append.length) as Offset;
    }
    data.set(stream, Buffer.concat(parts));
  }
  return data;
}
