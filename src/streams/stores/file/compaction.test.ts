import { expect, test } from "vitest";
import type { Offset, ProducerId, StreamId, TimeMs } from "../../core/types.ts";
import { createSimulatedDisk } from "../../../../test/kits/simulated-disk.ts";
import {
  appended,
  created,
  describeWorld,
  ended,
  keyed,
  marked,
  pattern,
  seek,
  write,
} from "../../../testing/store-case-kit.ts";
import { type FileStore, openOnDisk } from "./file-store.ts";

const SETTINGS = { segmentBytes: 16_384, snapshotBytes: 1 << 30, cacheBytes: 0 };

/** Writes two streams in turns, so that half of every segment dies with one of them. The other one has identities. */
async function writeStore(store: FileStore): Promise<void> {
  await write(store, created(1), created(2));
  for (let step = 0; step < 60; step += 1) {
    const number = Math.floor(step / 2);
    const producer = marked("writer", number, 0, { session: `nonce ${number}` });
    const key = keyed(`key ${number}`, number);
    const own = appended(1, pattern(10 + step * 8, step), step % 2 === 0 ? { producer } : { key });
    await write(store, own, appended(2, pattern(900, step)));
  }
}

async function appendsOf(
  store: FileStore,
  id: number,
  bytesMax = 3000,
): Promise<readonly string[]> {
  const stream = id as StreamId;
  const end = store.world.byId.get(stream)?.tail ?? (0 as Offset);
  const found: string[] = [];
  for (let from = 0; from < end;) {
    const page = await store.read(stream, from as Offset, end, bytesMax);
    expect(page.start).toBe(from);
    expect(page.appends.length).toBeGreaterThan(0);
    for (const append of page.appends) {
      found.push(Buffer.from(append).toString("hex"));
      from += append.length;
    }
  }
  return found;
}

test("a stream has the same bytes and the same cuts after it was moved, now and after a restart", async () => {
  const disk = createSimulatedDisk(1);
  const store = await openOnDisk(disk, SETTINGS, async () => {});
  await writeStore(store);
  const before = await appendsOf(store, 1);
  const { fileBytes } = store.stats();
  await write(store, ended("removed", 2));
  for (let round = 0; round < 4; round += 1) {
    await write(store, ended("touched", 1, 10 + round));
    await store.maintain();
    expect(await appendsOf(store, 1)).toEqual(before);
  }
  expect(store.stats().fileBytes).toBeLessThan(fileBytes * 0.6);
  const world = describeWorld(store.world);
  const after = await openOnDisk(disk.crash(), SETTINGS, async () => {});
  expect(describeWorld(after.world)).toBe(world);
  const { keys, producers } = after.world.byId.get(1 as StreamId) ?? {};
  expect(keys?.window?.next).toBe(30);
  expect(producers?.get("writer" as ProducerId)?.replaced?.length).toBe(16);
  expect(await appendsOf(after, 1)).toEqual(before);
  await after.close();
});

test("S13 a seek finds each time after the data was moved, now and after a restart", async () => {
  const disk = createSimulatedDisk(3);
  const store = await openOnDisk(disk, SETTINGS, async () => {});
  await write(store, created(1), created(2));
  const COUNT = 80;
  for (let step = 0; step < COUNT; step += 1) {
    const at = { atMs: (1000 + 10 * step) as TimeMs };
    await write(store, appended(1, pattern(500, step), at), appended(2, pattern(900, step), at));
  }
  const check = async (one: FileStore): Promise<void> => {
    for (let step = 0; step < COUNT; step += 1) {
      expect(await seek(one, 1, 0, COUNT * 500, 1000 + 10 * step)).toBe(step * 500);
      expect(await seek(one, 1, 0, COUNT * 500, 1001 + 10 * step)).toBe((step + 1) * 500);
    }
  };
  await check(store);
  await write(store, ended("removed", 2, 2000));
  let isMoved = false;
  const maintained = (async () => {
    for (let round = 0; round < 4; round += 1) {
      await write(store, ended("touched", 1, 2000 + round));
      await store.maintain();
    }
    isMoved = true;
  })();
  while (!isMoved) await check(store);
  await maintained;
  await check(store);
  const after = await openOnDisk(disk.crash(), SETTINGS, async () => {});
  await check(after);
  await after.close();
});

test("a reader sees every append once while its stream is moved", async () => {
  for (let seed = 0; seed < 40; seed += 1) {
    const store = await openOnDisk(createSimulatedDisk(seed), SETTINGS, async () => {});
    await writeStore(store);
    const before = await appendsOf(store, 1);
    await write(store, ended("removed", 2));
    let isMoved = false;
    const maintained = store.maintain().then(() => (isMoved = true));
    const readers = [1, 2000, 1 << 20].map(async (bytesMax) => {
      while (!isMoved) expect(await appendsOf(store, 1, bytesMax)).toEqual(before);
    });
    await Promise.all([maintained, ...readers]);
    await store.close();
  }
});

test("a stream that is removed or written while it is moved is what it would be without", async () => {
  for (let seed = 0; seed < 30; seed += 1) {
    const disk = createSimulatedDisk(seed);
    const store = await openOnDisk(disk, SETTINGS, async () => {});
    await writeStore(store);
    await write(store, created(3), appended(3, "own"), ended("removed", 2));
    const maintained = store.maintain();
    for (let step = 0; step < 5; step += 1) await write(store, appended(1, `late ${step}`));
    await write(store, ended("removed", 3));
    await maintained;
    const before = await appendsOf(store, 1);
    expect(before.length).toBe(65);
    const after = await openOnDisk(disk.crash(), SETTINGS, async () => {});
    expect(await appendsOf(after, 1)).toEqual(before);
    expect([...after.world.byId.keys()]).toEqual([1]);
    await after.close();
  }
});

test("a segment is given up only when neither of the two snapshots needs it", async () => {
  const disk = createSimulatedDisk(2);
  const store = await openOnDisk(disk, SETTINGS, async () => {});
  await writeStore(store);
  await write(store, ended("removed", 2));
  for (let round = 0; round < 4; round += 1) {
    // More than a segment that no reader will ever need, but that leads from one snapshot to the next.
    const id = 10 + round;
    await write(store, created(id));
    for (let part = 0; part < 30; part += 1) await write(store, appended(id, pattern(900, part)));
    await write(store, ended("removed", id), appended(1, pattern(100, round)));
    await store.maintain();
  }
  const before = await appendsOf(store, 1);
  const world = describeWorld(store.world);
  await store.close();
  const names = (await disk.list()).filter((name) => name.endsWith(".snap")).toSorted();
  expect(names.length).toBe(2);
  // The newer snapshot is lost. The older one and the journal since must still have everything.
  await disk.remove(names[1] ?? "");
  await disk.syncDirectory();
  const after = await openOnDisk(disk.crash(), SETTINGS, async () => {});
  expect(describeWorld(after.world)).toBe(world);
  expect(await appendsOf(after, 1)).toEqual(before);
  await after.close();
});
