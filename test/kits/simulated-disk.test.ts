// The simulated disk loses what a disk may lose, and nothing else.
import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { Disk, DiskFile } from "../../src/streams/stores/file/disk.ts";
import { createSimulatedDisk, type SimulatedDisk } from "./simulated-disk.ts";
import { turn, watch } from "./watch.ts";

const SEEDS = Array.from({ length: 200 }, (_, seed) => seed);

async function contentOf(disk: Disk, name: string): Promise<Buffer> {
  const file = await disk.open(name, "read");
  return file.read(0, await file.size());
}

async function writeSynced(disk: Disk, name: string, bytes: Uint8Array): Promise<DiskFile> {
  const file = await disk.open(name, "create");
  await file.write([bytes], 0);
  await file.sync();
  await disk.syncDirectory();
  return file;
}

/** Both endings: data that survives a power cut survives a kill. */
const endings: readonly ((disk: SimulatedDisk) => SimulatedDisk)[] = [
  (disk) => disk.crash(),
  (disk) => disk.kill(),
];

test("what was synced, or written durably, survives every later crash", async () => {
  for (const seed of SEEDS) {
    for (const end of endings) {
      const disk = createSimulatedDisk(seed);
      await writeSynced(disk, "one", Buffer.alloc(2000, 1));
      const durable = await disk.open("one", "durable");
      await durable.write([Buffer.alloc(10, 2), Buffer.alloc(600, 3)], 100);
      const unsynced = await disk.open("one", "write");
      await unsynced.write([Buffer.alloc(5, 9)], 1900);
      const found = await contentOf(end(disk), "one");
      const expected = Buffer.alloc(2000, 1).fill(2, 100, 110).fill(3, 110, 710);
      expect(found.subarray(0, 1900).equals(expected.subarray(0, 1900))).toBe(true);
      expect(found.subarray(1905).equals(expected.subarray(1905))).toBe(true);
    }
  }
});

test("an unsynced sector is kept, lost or garbled by a power cut, each for itself", async () => {
  const fates = new Set<string>();
  for (const seed of SEEDS) {
    const disk = createSimulatedDisk(seed);
    const file = await writeSynced(disk, "one", Buffer.alloc(2048, 1));
    await file.write([Buffer.alloc(2048, 2)], 0);
    const found = await contentOf(disk.crash(), "one");
    const fate = [0, 512, 1024, 1536].map((at) => {
      const sector = found.subarray(at, at + 512);
      if (sector.equals(Buffer.alloc(512, 1))) return "lost";
      return sector.equals(Buffer.alloc(512, 2)) ? "kept" : "garbled";
    });
    fates.add(fate.join());
  }
  expect(fates.size).toBeGreaterThan(60);
});

test("a durable write that has not ended when the power goes is torn", async () => {
  const found = new Set<string>();
  for (const seed of SEEDS) {
    const disk = createSimulatedDisk(seed);
    await writeSynced(disk, "one", Buffer.alloc(1024, 1));
    const file = await disk.open("one", "durable");
    disk.stopAt(disk.log.length + 1);
    const writing = watch(file.write([Buffer.alloc(1024, 2)], 0));
    await disk.stopped;
    const content = await contentOf(disk.crash(), "one");
    found.add(createHash("sha256").update(content).digest("hex"));
    expect(writing.isWaiting).toBe(true);
  }
  expect(found.size).toBeGreaterThan(9);
});

test("a file that was created, renamed or removed may be found as before without syncDirectory", async () => {
  const listings = {
    synced: new Set<string>(),
    unsynced: new Set<string>(),
    killed: new Set<string>(),
  };
  for (const seed of SEEDS) {
    for (const kind of ["synced", "unsynced", "killed"] as const) {
      const disk = createSimulatedDisk(seed);
      await writeSynced(disk, "old", Buffer.alloc(1));
      await writeSynced(disk, "gone", Buffer.alloc(1));
      await disk.open("new", "create");
      await disk.rename("old", "renamed");
      await disk.remove("gone");
      if (kind === "synced") await disk.syncDirectory();
      const next = kind === "killed" ? disk.kill() : disk.crash();
      listings[kind].add((await next.list()).toSorted().join());
    }
  }
  expect([...listings.synced]).toEqual(["new,renamed"]);
  expect([...listings.killed]).toEqual(["new,renamed"]);
  expect(listings.unsynced.size).toBe(8);
});

test("after a kill the names are there, and a power cut may still take them", async () => {
  const found = new Set<string>();
  for (const seed of SEEDS) {
    const disk = createSimulatedDisk(seed);
    await disk.open("new", "create");
    found.add((await disk.kill().crash().list()).join());
  }
  expect(found).toEqual(new Set(["", "new"]));
});

test("a sync that failed has lost the data, and the next one says that all is well", async () => {
  for (const seed of SEEDS) {
    const disk = createSimulatedDisk(seed);
    const file = await writeSynced(disk, "one", Buffer.alloc(10, 1));
    await file.write([Buffer.alloc(10, 2)], 0);
    disk.failAt(disk.log.length + 1, "EIO");
    await expect(file.sync()).rejects.toMatchObject({ code: "EIO" });
    await file.sync();
    expect(await contentOf(disk, "one")).toEqual(Buffer.alloc(10, 2));
    expect(await contentOf(disk.crash(), "one")).toEqual(Buffer.alloc(10, 1));
  }
});

describe("calls that fail", () => {
  test("a full disk takes a part of a write and says so", async () => {
    const disk = createSimulatedDisk(1);
    disk.setCapacity(100);
    const file = await disk.open("one", "create");
    await file.write([Buffer.alloc(60, 1)], 0);
    await expect(file.write([Buffer.alloc(60, 1)], 60)).rejects.toMatchObject({ code: "ENOSPC" });
    expect(await file.size()).toBeLessThanOrEqual(100);
    disk.setCapacity(1000);
    await file.write([Buffer.alloc(60, 1)], 60);
    expect(await file.size()).toBe(120);
  });

  test("each fault hits the call it was planned for, and only calls that can have it", async () => {
    for (const fault of ["EIO", "ENOSPC", "short"] as const) {
      const disk = createSimulatedDisk(1);
      const file = await writeSynced(disk, "one", Buffer.alloc(10));
      const calls: readonly (() => Promise<unknown>)[] = [
        () => disk.list(),
        () => file.size(),
        () => file.read(0, 1),
        () => file.write([Buffer.alloc(9)], 0),
        () => file.sync(),
        () => disk.syncDirectory(),
        () => disk.open("new", "create"),
        () => disk.rename("one", "two"),
        () => disk.remove("one"),
        () => file.close(),
      ];
      const failed: string[] = [];
      for (const call of calls) {
        disk.failAt(disk.log.length + 1, fault);
        await call().catch(() => failed.push(disk.log.at(-1)?.kind ?? ""));
      }
      expect(failed).toEqual(
        fault === "EIO" ? disk.log.slice(4).map(({ kind }) => kind) : ["write", "open", "rename"],
      );
    }
  });

  test("names that are not there, or there already, and files that are closed are refused", async () => {
    const disk = createSimulatedDisk(1);
    const file = await writeSynced(disk, "one", Buffer.alloc(1));
    for (const mode of ["read", "write", "durable"] as const) {
      await expect(disk.open("none", mode)).rejects.toMatchObject({ code: "ENOENT" });
    }
    await expect(disk.open("one", "create")).rejects.toMatchObject({ code: "EEXIST" });
    await expect(disk.rename("none", "two")).rejects.toMatchObject({ code: "ENOENT" });
    await expect(disk.remove("none")).rejects.toMatchObject({ code: "ENOENT" });
    const reader = await disk.open("one", "read");
    await expect(reader.write([Buffer.alloc(1)], 0)).rejects.toMatchObject({ code: "EBADF" });
    await file.close();
    await expect(file.read(0, 1)).rejects.toMatchObject({ code: "EBADF" });
  });
});

test("after a crash or a kill nothing on the old disk ever ends, and there is no second one", async () => {
  for (const end of endings) {
    const disk = createSimulatedDisk(1);
    const file = await writeSynced(disk, "one", Buffer.alloc(1));
    end(disk);
    const late = watch(file.read(0, 1));
    await turn();
    expect(late.isWaiting).toBe(true);
    expect(() => end(disk)).toThrow("before");
  }
});

test("concurrent calls end in an order that the seed chooses, the same each time", async () => {
  const orderOf = async (seed: number): Promise<string> => {
    const disk = createSimulatedDisk(seed);
    const file = await writeSynced(disk, "one", Buffer.alloc(100));
    const order: number[] = [];
    const reads = Array.from({ length: 6 }, (_, index) =>
      file.read(index, 1).then(() => order.push(index)),
    );
    await Promise.all(reads);
    return order.join();
  };
  const orders = new Set<string>();
  for (const seed of SEEDS) {
    const order = await orderOf(seed);
    expect(await orderOf(seed)).toBe(order);
    orders.add(order);
  }
  expect(orders.size).toBeGreaterThan(50);
});
