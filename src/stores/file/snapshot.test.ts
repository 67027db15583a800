import { expect, test } from "vitest";
import { Restoration } from "../../core/restore.ts";
import type { StreamId } from "../../core/types.ts";
import { createWorld, type World } from "../../core/world.ts";
import { producerClaim } from "../../testing/commands.ts";
import { createSimulatedDisk, type SimulatedDisk } from "../../testing/simulated-disk.ts";
import { appended, created, describeWorld, ended, write } from "../../testing/store-case-kit.ts";
import { turn } from "../../testing/watch.ts";
import { type FileStore, openOnDisk } from "../file.ts";
import { ExtentIndex } from "./extents.ts";
import { parseSnapshotName, readSnapshot, snapshotName, writeSnapshot } from "./snapshot.ts";

const SETTINGS = { segmentBytes: 1 << 20 };

function openOn(disk: SimulatedDisk): Promise<FileStore> {
  return openOnDisk(disk, SETTINGS, async () => {});
}

/** Streams with more producers and extents than fit beside them. */
async function fill(store: FileStore): Promise<void> {
  await write(store, ...Array.from({ length: 300 }, (_, at) => created(at + 1)));
  for (let step = 0; step < 90; step += 1) {
    const producer = producerClaim(`producer ${step}`, 0, 0);
    await write(store, appended(1, `one ${step}`, { producer }), appended(2, `two ${step}`));
  }
}

async function load(disk: SimulatedDisk, name: string): Promise<World> {
  const world = createWorld();
  await readSnapshot(disk, name, new Restoration(world), new ExtentIndex());
  return world;
}

async function snapshotsOf(disk: SimulatedDisk): Promise<readonly string[]> {
  return (await disk.list()).filter((name) => name.startsWith("snapshot-")).toSorted();
}

test("SN1 a snapshot comes back whole: streams, extents, producers and the rest", async () => {
  const disk = createSimulatedDisk(1);
  const store = await openOn(disk);
  await fill(store);
  await store.maintain();
  const [name = ""] = await snapshotsOf(disk);
  expect(describeWorld(await load(disk, name))).toBe(describeWorld(store.world));
  await store.close();
});

test("SN1 a snapshot that is cut anywhere, or goes on after its end, is never used", async () => {
  const disk = createSimulatedDisk(1);
  const store = await openOn(disk);
  await fill(store);
  await store.maintain();
  const [name = ""] = await snapshotsOf(disk);
  const whole = await disk.open(name, "read");
  const bytes = await whole.read(0, await whole.size());
  const cuts = [1, 7, 8, 9, 100, bytes.length >> 1, bytes.length - 9, bytes.length - 1];
  const wrong = cuts.map((cut) => bytes.subarray(0, cut));
  wrong.push(
    Buffer.concat([bytes, Buffer.alloc(8)]),
    Buffer.concat([bytes, bytes]),
    Buffer.alloc(0),
  );
  for (const [at, content] of wrong.entries()) {
    const file = await disk.open(`wrong-${at}`, "create");
    await file.write([content], 0);
    await expect(load(disk, `wrong-${at}`)).rejects.toMatchObject({ code: "data_damaged" });
  }
  await store.close();
});

test("SN2 a snapshot is made in small pieces, and commits go on between them", async () => {
  const disk = createSimulatedDisk(1);
  const store = await openOn(disk);
  const ids = Array.from({ length: 6000 }, (_, at) => at + 1);
  await write(store, ...ids.map((id) => created(id)));
  const before = disk.log.length;
  let isDone = false;
  const maintained = store.maintain().then(() => (isDone = true));
  let commits = 0;
  while (!isDone) {
    await write(store, appended(1 + (commits % 6000), "while it is written"));
    commits += 1;
  }
  await maintained;
  const pieces = disk.log.slice(before).filter(({ kind, what }) => {
    return kind === "write" && what.startsWith("snapshot-");
  });
  const sizes = pieces.map(({ what }) => Number(what.split("+")[1]));
  expect(sizes.length).toBeGreaterThan(4);
  expect(Math.max(...sizes)).toBeLessThan(80 * 1024);
  expect(commits).toBeGreaterThan(4);
  const world = describeWorld(store.world);
  const after = await openOn(disk.crash());
  expect(after.recovery.snapshotLsn).toBeDefined();
  expect(describeWorld(after.world)).toBe(world);
  await after.close();
});

test("SN3 a snapshot gets its name only when it is synced and what it contains is durable", async () => {
  const disk = createSimulatedDisk(1);
  const world = createWorld();
  const head = { lsn: 7, ordinal: 0, writtenAtMs: 0 };
  let settle: () => void = () => undefined;
  const settled = new Promise<void>((resolve) => {
    settle = resolve;
  });
  const writing = writeSnapshot(disk, world, new ExtentIndex(), head, () => settled);
  await turn();
  expect(disk.log.some(({ kind }) => kind === "sync" || kind === "rename")).toBe(false);
  settle();
  await writing;
  const kinds = disk.log.map(({ kind }) => kind).filter((kind) => kind !== "write");
  expect(kinds).toEqual(["open", "sync", "close", "rename", "syncDirectory"]);
  expect(await snapshotsOf(disk)).toEqual([snapshotName(7)]);
});

test("SN3 a snapshot that cannot be finished is taken away, and nothing stops", async () => {
  for (let call = 1; call <= 8; call += 1) {
    const disk = createSimulatedDisk(1);
    const warnings: string[] = [];
    const onWarning = (warning: string): void => void warnings.push(warning);
    const store = await openOnDisk(disk, { ...SETTINGS, onWarning }, async () => {});
    await write(store, created(1), appended(1, "kept"));
    await turn();
    disk.failAt(disk.log.length + call, "EIO");
    await store.maintain();
    await write(store, appended(1, "more"));
    expect(warnings.length, `call ${call}`).toBeLessThanOrEqual(1);
    await store.maintain();
    expect(
      (await snapshotsOf(disk)).filter((name) => parseSnapshotName(name) !== undefined),
    ).not.toEqual([]);
    await store.close();
    const after = await openOn(disk.crash());
    expect(after.world.byId.get(1 as StreamId)?.tail).toBe(8);
    await after.close();
  }
});

test("SN4 the two newest are kept, and the older one serves when the newer is damaged", async () => {
  const disk = createSimulatedDisk(1);
  const store = await openOn(disk);
  await fill(store);
  for (let round = 0; round < 4; round += 1) {
    await write(store, appended(3, `round ${round}`), ended("touched", 4, 100 + round));
    await store.maintain();
  }
  const names = await snapshotsOf(disk);
  expect(names.length).toBe(2);
  const newest = await disk.open(names[1] ?? "", "durable");
  await newest.write([Buffer.from("damage")], 200);
  const world = describeWorld(store.world);
  await store.close();
  const after = await openOn(disk.crash());
  expect(after.recovery.snapshotLsn).toBe(parseSnapshotName(names[0] ?? ""));
  expect(after.recovery.warnings).toEqual([expect.stringContaining(`file=${names[1]} offset=`)]);
  expect(describeWorld(after.world)).toBe(world);
  await after.close();
});
