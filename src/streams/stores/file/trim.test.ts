// The server trims streams that it keeps for itself: S9 over compaction, snapshots and power cuts.
import { expect, test } from "vitest";
import { diskOf, filesOf, freshDirectory, verify } from "../../../../test/kits/directory-kit.ts";
import { pausing } from "../../../../test/kits/pausing-disk.ts";
import type { Change } from "../../core/change.ts";
import type { Offset, StreamId, TimeMs } from "../../core/types.ts";
import { applyChange, createWorld } from "../../core/world.ts";
import { ExtentIndex } from "../journal/extents.ts";
import { IndexCheck } from "../journal/index-check.ts";
import { LastFile } from "./last-file.ts";
import { createSeededRandom } from "../../../testing/seeded-random.ts";
import { createSimulatedDisk, type SimulatedDisk } from "../../../../test/kits/simulated-disk.ts";
import {
  appended,
  created,
  describeWorld,
  ended,
  marked,
  pattern,
  read,
  readAll,
  SYSTEM_STREAM,
  trimmed,
  write,
} from "../../../testing/store-case-kit.ts";
import { type FileStore, openFileStore } from "../file.ts";
import { openOnDisk } from "./file-store.ts";
import { inspectDisk } from "./inspection.ts";

const SETTINGS = { segmentBytes: 16_384, cacheBytes: 0 };
const PART = 500;

const openOn = (disk: SimulatedDisk): Promise<FileStore> =>
  openOnDisk(disk, SETTINGS, async () => {});
const part = (at: number): Change => appended(1, pattern(PART, at));

async function openLog(disk: SimulatedDisk, parts: number): Promise<FileStore> {
  const store = await openOn(disk);
  await write(store, created(1, { name: SYSTEM_STREAM }), created(2));
  for (let at = 0; at < parts; at += 1) await write(store, part(at));
  return store;
}

/** Checks every append from the one that holds `from` on. */
async function expectLog(store: FileStore, from: number, parts: number): Promise<void> {
  expect(store.world.byId.get(1 as StreamId)?.tail).toBe(parts * PART);
  const first = Math.floor(from / PART);
  const appends = await readAll(store, 1, first * PART, parts * PART);
  expect(appends.length).toBe(parts - first);
  for (const [at, append] of appends.entries()) {
    expect(Buffer.compare(append, pattern(PART, first + at))).toBe(0);
  }
}

test("S9 the room of what was trimmed is given back, and what is left is moved out of the way", async () => {
  const disk = createSimulatedDisk(1);
  const store = await openLog(disk, 200);
  const full = store.stats();
  expect(full.segments).toBeGreaterThan(6);
  await write(store, trimmed(1, 190 * PART));
  expect(store.stats().liveBytes).toBeLessThan(11 * (PART + 40));
  for (let round = 0; round < 4; round += 1) {
    await write(store, ended("touched", 2));
    await store.maintain();
  }
  expect(store.stats().segments).toBeLessThan(4);
  await expectLog(store, 190 * PART, 200);
  expect(await read(store, 1, 0, 200 * PART)).toMatchObject({ start: 0, appends: [] });
  expect(await read(store, 1, 189 * PART, 200 * PART)).toMatchObject({ appends: [] });
  await store.close();
  const after = await openOn(disk.crash());
  expect(after.stats().liveBytes).toBe(store.stats().liveBytes);
  await expectLog(after, 190 * PART, 200);
  await after.close();
});

test("S9 a trim while what it forgets is moved leaves the rest, also after a loss of power", async () => {
  // Large enough for several runs in a frame, and for several frames.
  const [bytes, parts, options] = [20_000, 40, { ...SETTINGS, segmentBytes: 131_072 }];
  const large = Array.from({ length: parts + 1 }, (_, at) => pattern(bytes, at));
  for (const pauseAt of [1, 5, 13, 14, 20, 30]) {
    const disk = createSimulatedDisk(pauseAt);
    let reads = 0;
    const afterRead = async (): Promise<void> => {
      reads += 1;
      if (reads !== pauseAt) return;
      await write(store, trimmed(1, 17 * bytes + 1));
      await write(store, appended(1, large[parts] ?? ""), trimmed(1, 23 * bytes));
    };
    const store = await openOnDisk(pausing(disk, { afterRead }), options, async () => {});
    await write(store, created(1, { name: SYSTEM_STREAM }), created(2));
    // Two streams take turns, so that most of each segment dies with the other one.
    for (const data of large.slice(0, parts)) await write(store, appended(1, data), filler);
    await write(store, ended("removed", 2));
    reads = 0;
    await store.maintain();
    expect(reads).toBeGreaterThan(pauseAt);
    const live = store.stats().liveBytes;
    const after = await openOnDisk(disk.crash(), options, async () => {});
    const kept = Buffer.concat(await readAll(after, 1, 23 * bytes, (parts + 1) * bytes));
    expect(Buffer.compare(kept, Buffer.concat(large.slice(23)))).toBe(0);
    expect(after.stats().liveBytes).toBe(live);
    await after.close();
  }
}, 20_000);

const filler = appended(2, pattern(30_000, 0));
const many = Array.from({ length: 40 }, (_, at) => marked(`producer ${at}`, 0, 0));

test("S9 a trim while a snapshot is written: replay makes the same index, with the trim in any of its blocks", async () => {
  // More extents than go into two blocks beside the first: 4,000 go into one.
  const parts = 4100;
  for (const [pauseAt, ...trims] of [
    [2, 10, 20],
    [2, 33],
    [2, 40, 41],
    [2, 4050],
    [2, 4100],
    [3, 4033, 4040],
    [3, 4099],
    [3, 4100],
    [4, 4100],
  ]) {
    const disk = createSimulatedDisk(1);
    const beforeBlock = async (block: number): Promise<void> => {
      if (block !== pauseAt) return;
      for (const to of trims) await write(store, trimmed(1, to), appended(1, "."));
    };
    const options = { ...SETTINGS, segmentBytes: 1 << 20 };
    const store = await openOnDisk(pausing(disk, { beforeBlock }), options, async () => {});
    await write(store, created(1, { name: SYSTEM_STREAM }), created(2));
    // Two streams take turns, so that every append is an extent.
    const turns = Array.from({ length: parts }, () => [appended(1, "."), appended(2, "x")]);
    await write(store, ...turns.flat());
    await store.maintain();
    const live = store.stats().liveBytes;
    const after = await openOnDisk(disk.crash(), options, async () => {});
    expect(after.recovery).toMatchObject({ snapshotLsn: 2, changes: 2 * trims.length });
    const [to, end] = [trims.at(-1) ?? 0, parts + trims.length];
    expect((await readAll(after, 1, to, end)).length).toBe(end - to);
    expect((await read(after, 1, to - 1, end)).appends).toEqual([]);
    expect(after.stats().liveBytes).toBe(live);
    await after.close();
  }
}, 20_000);

test("a stream that gets extents while a block of the snapshot is written comes back", async () => {
  for (const extents of [1, 24, 25, 26, 27, 28, 29, 30]) {
    const disk = createSimulatedDisk(1);
    let end = 0;
    const add = async (): Promise<void> => {
      await write(store, appended(1, "z"));
      end += 1;
    };
    const beforeBlock = async (): Promise<void> => {
      for (let at = 0; at < 4; at += 1) await add();
    };
    const store = await openOnDisk(pausing(disk, { beforeBlock }), SETTINGS, async () => {});
    await write(store, created(1), ...many.map((producer) => appended(1, "x", { producer })));
    end = many.length;
    for (let at = 1; at < extents; at += 1) await add();
    await store.maintain();
    const after = await openOn(disk.crash());
    expect(after.recovery.snapshotLsn).toBeDefined();
    expect((await readAll(after, 1, 0, end)).length).toBe(end);
    await after.close();
  }
});

test("RC3 S9 around a trim the power may go at any call: nothing behind the last trim is lost", async () => {
  for (let seed = 0; seed < 60; seed += 1) {
    const random = createSeededRandom(seed);
    let disk = createSimulatedDisk(seed);
    let store = await openLog(disk, 20);
    let [parts, trimmedTo] = [20, 0];
    for (let life = 0; life < 3; life += 1) {
      const running = disk;
      running.stopAt(1 + random.below(60));
      const work = async (): Promise<void> => {
        for (let step = 0; step < 12; step += 1) {
          await write(store, part(parts));
          parts += 1;
          const to = random.below(parts * PART);
          if (to > trimmedTo) {
            await write(store, trimmed(1, to));
            trimmedTo = to;
          }
          if (random.below(3) === 0) await store.maintain();
        }
      };
      await Promise.race([work(), running.stopped]);
      disk = random.below(2) === 0 ? running.crash() : running.kill();
      const { found } = await verify(await copyOf(disk));
      expect(found).toEqual([]);
      store = await openOn(disk);
      const { tail = 0, retained } = store.world.byId.get(1 as StreamId) ?? {};
      // Nothing that was trimmed comes back: the running trim may be there or not.
      const earliest = retained?.earliest ?? 0;
      expect(earliest).toBeGreaterThanOrEqual(trimmedTo);
      // The running commit may be there or not.
      expect([parts, parts + 1]).toContain(tail / PART);
      parts = tail / PART;
      const first = Math.max(trimmedTo, await firstKept(store, parts));
      await expectLog(store, first, parts);
      expect(first).toBeLessThanOrEqual(Math.max(earliest, 0));
      trimmedTo = earliest;
    }
    await store.close();
  }
}, 20_000);

test("RC3 G110 a power cut or a kill at any call of the disk around trims leaves each trim whole or not there", async () => {
  const cuts = [2500, 2501, 6000];
  for (let call = 1, isOver = false; !isOver; call += 1) {
    for (const end of ["crash", "kill"] as const) {
      const disk = createSimulatedDisk(call);
      const store = await openLog(disk, 15);
      disk.stopAt(call);
      let [told, asked] = [0, 0];
      const work = async (): Promise<true> => {
        for (const to of cuts) {
          asked = to;
          await write(store, trimmed(1, to), ended("touched", 2));
          told = to;
          await store.maintain();
        }
        return true;
      };
      isOver = (await Promise.race([work(), disk.stopped])) === true;
      const next = await openOn(disk[end]());
      const earliest = next.world.byId.get(1 as StreamId)?.retained?.earliest ?? 0;
      expect([told, asked]).toContain(earliest);
      await expectLog(next, earliest, 15);
      // A frame is whole or not there: what came with the trim did, too.
      expect(next.world.byId.get(2 as StreamId)?.accessedAtMs === 3).toBe(earliest > 0);
      await next.close();
    }
  }
}, 60_000);

/** Returns the offset of the first append that can be read. */
async function firstKept(store: FileStore, parts: number): Promise<number> {
  for (let at = 0; at < parts; at += 1) {
    const { appends } = await read(store, 1, at * PART, parts * PART, 1);
    if (appends.length > 0) return at * PART;
  }
  return parts * PART;
}

async function copyOf(disk: SimulatedDisk): Promise<ReturnType<typeof diskOf>> {
  const files = new Map<string, Buffer>();
  for (const name of await disk.list()) {
    const file = await disk.open(name, "read");
    files.set(name, Buffer.from(await file.read(0, await file.size())));
    await file.close();
  }
  return diskOf(files);
}

test("S9 who reads while a stream is trimmed and its room used again gets whole appends or nothing", async () => {
  const disk = createSimulatedDisk(3);
  const store = await openLog(disk, 60);
  let isDone = false;
  const reader = (async (): Promise<number> => {
    let pages = 0;
    for (; !isDone; pages += 1) {
      const { start, appends } = await read(store, 1, (pages % 60) * PART, 60 * PART, 5 * PART);
      for (const [at, append] of appends.entries()) {
        expect(Buffer.compare(append, pattern(PART, start / PART + at))).toBe(0);
      }
    }
    return pages;
  })();
  for (let to = 5; to <= 50; to += 5) {
    await write(store, trimmed(1, to * PART), ended("touched", 2));
    await store.maintain();
  }
  isDone = true;
  expect(await reader).toBeGreaterThan(10);
  await expectLog(store, 50 * PART, 60);
  await store.close();
});

test("G110 a directory is sound after trims, also of all data", async () => {
  const directory = freshDirectory();
  const store = await openFileStore(directory, SETTINGS);
  await write(store, created(1, { name: SYSTEM_STREAM }), created(2));
  for (let at = 0; at < 100; at += 1) await write(store, part(at), appended(2, "of a user"));
  await write(store, trimmed(1, 60 * PART));
  await store.maintain();
  await write(store, trimmed(1, 70 * PART), ended("touched", 2));
  await store.maintain();
  await store.close();
  const disk = diskOf(filesOf(directory));
  expect(await verify(disk)).toMatchObject({ found: [], refusal: undefined });
  const { state, streams } = await inspectDisk(disk, async () => undefined);
  expect(state?.dataBytes).toBe(30 * PART + 900);
  expect([...streams()]).toMatchObject([
    { path: SYSTEM_STREAM, tail: 100 * PART, dataBytes: 30 * PART },
    { path: "/case/2", dataBytes: 900 },
  ]);
  const again = await openFileStore(directory, SETTINGS);
  await write(again, trimmed(2, 900));
  await again.close();
  expect((await verify(diskOf(filesOf(directory)))).found).toEqual([]);
});

test("G110 an index that begins later than its stream is a problem", async () => {
  const [world, index] = [createWorld(), new ExtentIndex()];
  for (const change of [created(1), appended(1, pattern(PART, 0)), appended(1, pattern(PART, 1))]) {
    applyChange(world, change);
  }
  index.create(1 as StreamId, 0 as Offset);
  for (const start of [0, PART]) {
    const extent = { start: start as Offset, segment: 1, position: 4096 + 2 * start, bytes: PART };
    index.add(1 as StreamId, extent, (start + PART) as Offset);
  }
  index.trim(1 as StreamId, PART as Offset);
  const problems = async (): Promise<string[]> => {
    const found: string[] = [];
    for await (const { what } of new IndexCheck(
      world,
      index,
      new LastFile(diskOf(new Map())),
    ).finish()) {
      found.push(what);
    }
    return found.filter((what) => what.includes("it has offsets"));
  };
  expect(await problems()).toEqual([
    `stream /case/1: it has offsets ${PART} to ${2 * PART}, not 0 to ${2 * PART}`,
  ]);
  applyChange(world, trimmed(1, PART));
  expect(await problems()).toEqual([]);
});

test("G112 a snapshot has what each stream keeps, where it begins, and where it may be cut", async () => {
  const disk = createSimulatedDisk(1);
  let store = await openOn(disk);
  const rule = { seconds: 60, bytes: 50 * PART, dropsNeeded: false };
  const atMs = 3 as TimeMs;
  await write(store, created(1), created(2));
  await write(store, { kind: "retention_set", atMs, stream: 1 as StreamId, rule });
  for (let at = 0; at < 40; at += 1) {
    await write(store, appended(1, pattern(PART, at), { atMs: (at * 1000) as TimeMs }));
    await write(store, appended(2, pattern(PART, at)));
  }
  await write(store, trimmed(1, 10 * PART), trimmed(2, 40 * PART));
  expect(store.world.byId.get(1 as StreamId)?.retained?.marks.length).toBeGreaterThan(5);
  const world = describeWorld(store.world);
  await store.maintain();
  await store.close();
  store = await openOn(disk);
  expect(store.recovery.changes).toBe(0);
  expect(describeWorld(store.world)).toBe(world);
  await store.close();
});

test("G147 a snapshot has the rules of changelogs", async () => {
  const disk = createSimulatedDisk(1);
  let store = await openOn(disk);
  const atMs = 3 as TimeMs;
  const rules = [
    { key: "id", tombstone: undefined, lagSeconds: 0 },
    { key: "user.id", tombstone: "value", lagSeconds: 3600 },
    undefined,
  ];
  for (const [at, rule] of rules.entries()) {
    const stream = (at + 1) as StreamId;
    await write(store, created(at + 1), { kind: "compaction_set", atMs, stream, rule });
  }
  const world = describeWorld(store.world);
  expect(world).toContain("user.id");
  await store.maintain();
  await store.close();
  store = await openOn(disk);
  expect(store.recovery.changes).toBe(0);
  expect(describeWorld(store.world)).toBe(world);
  expect(rules.map((_, at) => store.world.byId.get((at + 1) as StreamId)?.compaction)).toEqual(
    rules,
  );
  await store.close();
});
