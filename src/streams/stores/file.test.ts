// The file store keeps the contract of every store: on the real disk, and on one that loses power.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import type { Store } from "../store.ts";
import { createSimulatedDisk, type SimulatedDisk } from "../../../test/kits/simulated-disk.ts";
import { appended, created, ended, pattern, readAll, write } from "../../testing/store-case-kit.ts";
import { type OpenStore, storeConformance } from "../../testing/store-conformance.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import { openFileStore } from "./file.ts";
import { openOnDisk } from "./file/file-store.ts";
import type { Disk, DiskFile } from "./file/disk.ts";
import { openNodeDisk } from "./file/node-disk.ts";

const root = mkdtempSync(join(tmpdir(), "hapax-file-store-"));
const SMALL = { segmentBytes: 16_384, snapshotBytes: 1 << 30 };

afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});

/** A process that can be killed. After the kill none of its calls begins, and its running calls have ended. */
function killable(disk: Disk): { readonly disk: Disk; readonly kill: () => Promise<void> } {
  const underWay = new Set<Promise<void>>();
  let isKilled = false;
  const pass = <T>(run: () => Promise<T>): Promise<T> => {
    if (isKilled) return new Promise(() => undefined);
    const call = run();
    const settled: Promise<void> = call.then(
      () => void underWay.delete(settled),
      () => void underWay.delete(settled),
    );
    underWay.add(settled);
    return call.then((value) => (isKilled ? new Promise<T>(() => undefined) : value));
  };
  const passFile = (file: DiskFile): DiskFile => ({
    size: () => pass(() => file.size()),
    read: (position, length) => pass(() => file.read(position, length)),
    write: (buffers, position) => pass(() => file.write(buffers, position)),
    sync: () => pass(() => file.sync()),
    close: () => pass(() => file.close()),
  });
  return {
    disk: {
      list: () => pass(() => disk.list()),
      open: async (name, mode) => passFile(await pass(() => disk.open(name, mode))),
      rename: (from, to) => pass(() => disk.rename(from, to)),
      remove: (name) => pass(() => disk.remove(name)),
      syncDirectory: () => pass(() => disk.syncDirectory()),
    },
    kill: async () => {
      isKilled = true;
      while (underWay.size > 0) await Promise.all(underWay);
    },
  };
}

function onDirectory(): OpenStore {
  const directory = mkdtempSync(join(root, "case-"));
  const processes = new Map<Store, () => Promise<void>>();
  return {
    isDurable: true,
    async open() {
      const { disk, kill } = killable(openNodeDisk(directory, true));
      const store = await openOnDisk(disk, { segmentBytes: 1 << 20 }, async () => {});
      processes.set(store, kill);
      return store;
    },
    abandon: async (store) => processes.get(store)?.(),
    failNextCommit: undefined,
  };
}

function onSimulatedDisk(): OpenStore {
  let disk = createSimulatedDisk(11);
  let mustFail = false;
  const failing = (inner: SimulatedDisk): Disk => ({
    list: () => inner.list(),
    async open(name, mode) {
      const file = await inner.open(name, mode);
      if (mode !== "durable") return file;
      return {
        ...file,
        write(buffers, position) {
          if (mustFail) inner.failAt(inner.log.length + 1, "EIO");
          mustFail = false;
          return file.write(buffers, position);
        },
      };
    },
    rename: (from, to) => inner.rename(from, to),
    remove: (name) => inner.remove(name),
    syncDirectory: () => inner.syncDirectory(),
  });
  return {
    isDurable: true,
    open: () => openOnDisk(failing(disk), { segmentBytes: 32_768, cacheBytes: 0 }, async () => {}),
    abandon: async () => {
      disk = disk.crash();
    },
    failNextCommit() {
      mustFail = true;
    },
  };
}

for (const { name, run } of storeConformance(onDirectory())) {
  test(`file: ${name}`, () => run(onDirectory()));
}

for (const { name, run } of storeConformance(onSimulatedDisk())) {
  test(`file on a disk that loses power: ${name}`, () => run(onSimulatedDisk()));
}

test("a commit is one write of one frame, and one that says it is durable", async () => {
  const disk = createSimulatedDisk(1);
  const store = await openOnDisk(disk, SMALL, async () => {});
  await turn();
  const before = disk.log.length;
  const changes = [created(1), appended(1, "a"), created(2), appended(2, "b"), ended("deleted", 2)];
  await write(store, ...changes);
  expect(disk.log.slice(before).map(({ kind }) => kind)).toEqual(["write"]);
  const { log } = disk;
  expect(log.find(({ what }) => what.endsWith(" durable"))).toBeDefined();
  const after = await openOnDisk(disk.crash(), SMALL, async () => {});
  expect(after.world.version).toBe(changes.length);
  await after.close();
});

test("a commit that was torn is there with nothing of it", async () => {
  const versions = new Set<number>();
  for (let seed = 0; seed < 60; seed += 1) {
    const disk = createSimulatedDisk(seed);
    const store = await openOnDisk(disk, SMALL, async () => {});
    await write(store, created(1));
    disk.stopAt(disk.log.length + 1);
    void write(store, appended(1, pattern(3000, 1)), created(2), appended(2, pattern(900, 2)));
    await disk.stopped;
    const after = await openOnDisk(disk.crash(), SMALL, async () => {});
    versions.add(after.world.version);
    await after.close();
  }
  expect([...versions].every((version) => version === 1 || version === 4)).toBe(true);
  expect(versions.has(1)).toBe(true);
});

test("after a failed write no other is tried, and what was durable can be read", async () => {
  const disk = createSimulatedDisk(1);
  const store = await openOnDisk(disk, { ...SMALL, cacheBytes: 0 }, async () => {});
  await write(store, created(1), appended(1, "kept"));
  await turn();
  disk.failAt(disk.log.length + 1, "EIO");
  await expect(write(store, appended(1, "lost"))).rejects.toMatchObject({ code: "EIO" });
  const calls = disk.log.length;
  for (let attempt = 0; attempt < 3; attempt += 1) {
    await expect(store.commit([])).rejects.toMatchObject({ code: "writes_stopped" });
  }
  await expect(store.maintain()).rejects.toMatchObject({ code: "writes_stopped" });
  expect(disk.log.slice(calls).filter(({ kind }) => kind === "write")).toEqual([]);
  expect(Buffer.concat(await readAll(store, 1, 0, 4)).toString()).toBe("kept");
  await store.close();
});

test("a commit that fails while a snapshot is written leaves no caller waiting", async () => {
  let refused = 0;
  for (let call = 1; call <= 14; call += 1) {
    const disk = createSimulatedDisk(call);
    let isReleased = false;
    const store = await openOnDisk(disk, SMALL, async () => void (isReleased = true));
    await write(store, created(1), appended(1, "kept"));
    await turn();
    disk.failAt(disk.log.length + call, "EIO");
    const work = [store.maintain(), write(store, appended(1, "x")), store.maintain()];
    const results = await Promise.allSettled(work);
    if (results.some(({ status }) => status === "rejected")) refused += 1;
    await store.close().catch(() => undefined);
    expect(isReleased).toBe(true);
  }
  expect(refused).toBeGreaterThan(0);
});

test("S7 closing ends a commit that waits for room: it is refused, and nothing of it is kept", async () => {
  const disk = createSimulatedDisk(4);
  const clock = createVirtualClock();
  let isReleased = false;
  const store = await openOnDisk(disk, { ...SMALL, clock }, async () => void (isReleased = true));
  await write(store, created(1), appended(1, "kept"));
  await turn();
  disk.setCapacity(0);
  await write(store, appended(1, pattern(10_000, 1)));
  const first = watch(write(store, appended(1, pattern(6000, 2)))); // Takes the spare segment.
  await turn();
  const waiting = watch(write(store, appended(1, pattern(12_000, 3))));
  await turn();
  expect(first).toMatchObject({ isWaiting: false, error: undefined });
  expect(waiting.isWaiting).toBe(true);
  const closing = watch(store.close());
  for (let count = 0; count < 20; count += 1) await turn();
  expect(waiting.error).toMatchObject({ code: "store_full" });
  expect(closing).toMatchObject({ isWaiting: false, error: undefined });
  expect(isReleased).toBe(true);
  await expect(store.commit([])).rejects.toMatchObject({ code: "store_closed" });
  const after = disk.kill();
  after.setCapacity(Infinity);
  const again = await openOnDisk(after, { ...SMALL, clock }, async () => {});
  expect(again.world.byId.get(1 as never)?.tail).toBe(4 + 10_000 + 6000);
  await again.close();
});

test("S8 large data is the store's own too once the commit has resolved", async () => {
  const disk = createSimulatedDisk(1);
  const store = await openOnDisk(disk, { segmentBytes: 1 << 20 }, async () => {});
  const data = pattern(100_000, 1);
  await write(store, created(1), appended(1, data));
  const expected = Buffer.from(data);
  data.fill(0);
  expect(Buffer.concat(await readAll(store, 1, 0, 100_000)).equals(expected)).toBe(true);
  await store.close();
});

test("S4 a read from the tail has nothing, from the cache and from the disk", async () => {
  for (const cacheBytes of [0, 1 << 20]) {
    const store = await openOnDisk(
      createSimulatedDisk(1),
      { ...SMALL, cacheBytes },
      async () => {},
    );
    await write(store, created(1), appended(1, "abc"));
    expect(await store.read(1 as never, 3 as never, 9 as never, 100)).toMatchObject({
      start: 3,
      appends: [],
    });
    await store.close();
  }
});

test("S2 compaction gets its turn while commits follow each other without a pause", async () => {
  const clock = createVirtualClock();
  const store = await openOnDisk(createSimulatedDisk(2), { ...SMALL, clock }, async () => {});
  await write(store, created(1), created(2));
  for (let step = 0; step < 30; step += 1) {
    await write(store, appended(1, pattern(200, step)), appended(2, pattern(900, step)));
  }
  await write(store, ended("removed", 2));
  let isMaintained = false;
  const maintained = store.maintain().then(() => (isMaintained = true));
  let commits = 0;
  while (!isMaintained && commits < 2000) {
    await store.commit([]);
    commits += 1;
  }
  expect(isMaintained).toBe(true);
  await maintained;
  await store.close();
});

test("stats say what is stored, what it takes on the disk, and how long the start took", async () => {
  const disk = createSimulatedDisk(1);
  const clock = createVirtualClock();
  const options = { ...SMALL, clock };
  const store = await openOnDisk(disk, options, async () => {});
  await write(store, created(1), appended(1, pattern(500, 1)));
  await write(store, appended(1, pattern(700, 1)));
  const { liveBytes, fileBytes, recoveryMs } = store.stats();
  expect(liveBytes).toBeGreaterThanOrEqual(1200);
  expect(fileBytes).toBeGreaterThan(liveBytes);
  expect(recoveryMs).toBe(0);
  await store.close();
  let frames = 0;
  const onProgress = (): void => {
    frames += 1;
    clock.advance(40);
  };
  const again = await openOnDisk(disk.crash(), { ...options, onProgress }, async () => {});
  expect(frames).toBe(3);
  expect(again.stats()).toMatchObject({ liveBytes, recoveryMs: 120 });
  await again.close();
});

test("a commit resolves as durable as it says: `os` does not wait for the disk", async () => {
  const directory = mkdtempSync(join(root, "os-"));
  const store = await openFileStore(directory, { durability: "os", segmentBytes: 65_536 });
  expect(store.supports.durability).toBe("os");
  await write(store, created(1), appended(1, "abc"));
  await expect(openFileStore(directory)).rejects.toMatchObject({ code: "directory_locked" });
  await store.close();
  const again = await openFileStore(directory, { segmentBytes: 65_536 });
  expect(again.supports.durability).toBe("fsync");
  expect(Buffer.concat(await readAll(again, 1, 0, 3)).toString()).toBe("abc");
  await again.close();
});
