import { expect, test } from "vitest";
import { createSeededRandom } from "../../../testing/seeded-random.ts";
import { createSimulatedDisk, type SimulatedDisk } from "../../../../test/kits/simulated-disk.ts";
import {
  appended,
  created,
  describeWorld,
  ended,
  readAll,
  write,
} from "../../../testing/store-case-kit.ts";
import { turn } from "../../../../test/kits/watch.ts";
import { type FileStore, openOnDisk } from "./file-store.ts";
import { SEGMENT_HEADER_BYTES } from "../journal/format.ts";
import { segmentName } from "./segments.ts";

const SETTINGS = { segmentBytes: 16_384, snapshotBytes: 1 << 30 };

function openOn(disk: SimulatedDisk): Promise<FileStore> {
  return openOnDisk(disk, { ...SETTINGS, random: createSeededRandom(1) }, async () => {});
}

/** A journal of several segments. */
async function writeStore(disk: SimulatedDisk): Promise<FileStore> {
  const store = await openOn(disk);
  await write(store, created(1), created(2));
  for (let step = 0; step < 30; step += 1) {
    await write(store, appended(1, `${step};`.padEnd(1500, ".")), appended(2, "x"));
  }
  return store;
}

async function overwrite(
  disk: SimulatedDisk,
  name: string,
  at: number,
  text: string,
): Promise<void> {
  const file = await disk.open(name, "durable");
  await file.write([Buffer.from(text, "latin1")], at);
  await file.close();
}

test("RC3 what was acknowledged is there again, and reading it gives the same bytes", async () => {
  const disk = createSimulatedDisk(1);
  const store = await writeStore(disk);
  const world = describeWorld(store.world);
  const data = Buffer.concat(await readAll(store, 1, 0, 45_000));
  const progress: number[] = [];
  const onProgress = (bytes: number, total: number): void => void progress.push(bytes / total);
  const after = await openOnDisk(disk.crash(), { ...SETTINGS, onProgress }, async () => {});
  expect(describeWorld(after.world)).toBe(world);
  expect(Buffer.concat(await readAll(after, 1, 0, 45_000)).equals(data)).toBe(true);
  expect(after.recovery).toMatchObject({ snapshotLsn: undefined, frames: 31, changes: 62 });
  expect(progress).toEqual(progress.toSorted((one, other) => one - other));
  await after.close();
});

test("RC3 a recovery that is itself cut off, again and again, loses nothing", async () => {
  let disk = createSimulatedDisk(2);
  const store = await writeStore(disk);
  const world = describeWorld(store.world);
  for (let call = 1; call < 60; call += 1) {
    disk = call % 2 === 0 ? disk.crash() : disk.kill();
    disk.stopAt(call);
    await Promise.race([openOn(disk), disk.stopped]);
  }
  const after = await openOn(disk.crash());
  expect(describeWorld(after.world)).toBe(world);
  await after.close();
});

test("RC3 names that a killed process left are made durable before anything is built on them", async () => {
  for (let seed = 0; seed < 160; seed += 1) {
    const first = createSimulatedDisk(seed);
    first.stopAt(1 + (seed % 40));
    await Promise.race([openOn(first), first.stopped]);
    const second = first.kill();
    const store = await openOn(second);
    await write(store, created(1), appended(1, "acknowledged"));
    const after = await openOn(second.crash());
    expect(after.world.byId.size, `seed ${seed}`).toBe(1);
    await after.close();
  }
});

test("RC3 what a killed process left in the page cache is made durable before it is shown", async () => {
  let shown = 0;
  for (let seed = 0; seed < 200; seed += 1) {
    const first = createSimulatedDisk(seed);
    const store = await openOn(first);
    await write(store, created(1));
    await turn();
    first.stopAt(first.log.length + 1);
    void write(store, appended(1, "x"));
    await first.stopped;
    const second = first.kill();
    const { version } = (await openOn(second)).world;
    if (version === 2) shown += 1;
    const after = await openOn(second.crash());
    expect(after.world.version, `seed ${seed}`).toBe(version);
    await after.close();
  }
  expect(shown).toBeGreaterThan(0);
});

test("RC2 RC4 damage in the middle is refused with file, offset and LSN, and nothing is touched", async () => {
  for (const number of [1, 2, 5]) {
    const disk = createSimulatedDisk(3);
    const store = await writeStore(disk);
    await store.close();
    const isLast = !(await disk.list()).includes(segmentName(number + 1));
    expect(isLast).toBe(number === 5);
    await overwrite(disk, segmentName(number), isLast ? 4200 : 6000, "damage");
    const next = disk.crash();
    const names = (await next.list()).toSorted();
    const opening = openOn(next);
    await expect(opening).rejects.toMatchObject({ code: "data_damaged" });
    await expect(opening).rejects.toThrow(
      new RegExp(`LSN \\d+ is not valid, LSN \\d+ is file=${segmentName(number)} offset=\\d+`),
    );
    expect((await next.list()).toSorted()).toEqual(names);
  }
});

test("RC4 files that are not understood are left alone", async () => {
  const disk = createSimulatedDisk(4);
  const store = await writeStore(disk);
  const strange = ["notes.txt", "journal-1.seg", "snapshot-x.snap", "journal-000000000001.seg.bak"];
  for (const name of strange) await (await disk.open(name, "create")).sync();
  await disk.syncDirectory();
  await store.close();
  const next = disk.crash();
  const after = await openOn(next);
  await write(after, ended("removed", 1));
  for (let round = 0; round < 3; round += 1) {
    await write(after, appended(2, "y"));
    await after.maintain();
  }
  expect(await next.list()).toEqual(expect.arrayContaining(strange));
  await after.close();
});

test("RC4 a segment that is missing, empty or misnamed is refused by name", async () => {
  const cases: readonly (readonly [string, (disk: SimulatedDisk) => Promise<void>])[] = [
    ["is not valid", (disk) => disk.remove(segmentName(2))],
    ["does not go back far enough", (disk) => disk.remove(segmentName(1))],
    ["it is segment 3", (disk) => disk.rename(segmentName(3), segmentName(9))],
    [
      "the header is not whole",
      async (disk) => {
        await overwrite(disk, segmentName(2), 0, "\0".repeat(SEGMENT_HEADER_BYTES));
      },
    ],
  ];
  for (const [message, harm] of cases) {
    const disk = createSimulatedDisk(5);
    const store = await writeStore(disk);
    await store.close();
    await harm(disk);
    await disk.syncDirectory();
    const opening = openOn(disk.crash());
    await expect(opening, message).rejects.toMatchObject({ code: "data_damaged" });
    await expect(opening).rejects.toThrow(message);
    await expect(opening).rejects.toThrow(/file=\S+ offset=\d+$/);
  }
});

test("RC4 a segment that only the snapshot's index needs is missed before anything is read", async () => {
  const disk = createSimulatedDisk(6);
  const store = await writeStore(disk);
  await store.maintain();
  await store.close();
  await disk.remove(segmentName(2));
  await disk.syncDirectory();
  await expect(openOn(disk.crash())).rejects.toThrow("it holds data but is missing");
});
