// Which store a directory is, how its files belong together, and where its journal ends: STORE, the chain from segment
// to segment, and what happens when an operator copies, removes or mixes files.
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import {
  filesOf,
  fillDirectory,
  freshDirectory,
  SEGMENT_BYTES,
  segmentFile,
  tailsOf,
  verify,
} from "../../../../test/kits/directory-kit.ts";
import { createSimulatedDisk } from "../../../../test/kits/simulated-disk.ts";
import { appended, created, pattern, write } from "../../../testing/store-case-kit.ts";
import { createVirtualClock } from "../../../testing/virtual-clock.ts";
import { openFileStore } from "../file.ts";
import { openOnDisk } from "./file-store.ts";
import { openNodeDisk } from "./node-disk.ts";
import { planRepair } from "./repair.ts";
import { carryOut } from "./repair-work.ts";
import { STORE_NAME } from "./store-file.ts";

const folders: string[] = [];

afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

async function filled(frames: number, maintainAt: readonly number[] = []): Promise<string> {
  const directory = freshDirectory();
  folders.push(directory);
  await fillDirectory(directory, frames, maintainAt);
  return directory;
}

const lastSegment = (directory: string): string =>
  [...filesOf(directory).keys()]
    .filter((name) => name.startsWith("journal-"))
    .sort()
    .at(-1) ?? "";

const open = (directory: string) => openFileStore(directory, { segmentBytes: SEGMENT_BYTES });

/** Checks that server and `verify` agree: the directory is refused, and nothing is changed. */
async function expectRefused(directory: string, message: RegExp, kind: string): Promise<void> {
  const before = filesOf(directory);
  await expect(open(directory)).rejects.toMatchObject({ code: "data_damaged" });
  await expect(open(directory)).rejects.toThrow(message);
  const { found } = await verify(openNodeDisk(directory, true));
  expect(found).toContainEqual(expect.objectContaining({ kind, stopsServer: true }));
  expect(filesOf(directory)).toEqual(before);
}

async function repair(directory: string, cutAtLsn?: number) {
  const disk = openNodeDisk(directory, true);
  const plan = await planRepair(disk, cutAtLsn, async () => undefined);
  const cut = cutAtLsn === undefined ? [] : (plan.cut?.actions ?? []);
  await carryOut(directory, [...plan.actions, ...cut], new Date().toISOString(), {});
  return plan;
}

test("ID2 a last segment that is gone is missed, after a clean stop and after a kill", async () => {
  const closed = await filled(30);
  rmSync(join(closed, lastSegment(closed)));
  await expectRefused(closed, /the end of the journal is missing/, "missing_end");
  const killed = freshDirectory();
  folders.push(killed);
  const running = await open(killed);
  await write(running, created(1));
  for (let count = 0; count < 30; count += 1) {
    await write(running, appended(1, pattern(1000, count)));
  }
  const copy = freshDirectory();
  folders.push(copy);
  for (const [name, bytes] of filesOf(killed)) writeFileSync(join(copy, name), bytes);
  await running.close();
  rmSync(join(copy, "LOCK"));
  rmSync(join(copy, lastSegment(copy)));
  await expectRefused(copy, /the end of the journal is missing/, "missing_end");
});

test("ID2 so is a last segment that was cut short, or whose last frames are zeros", async () => {
  const short = await filled(30);
  truncateSync(join(short, lastSegment(short)), 9000);
  await expectRefused(short, /has 9000 of 16384 bytes/, "shortened");
  const zeros = await filled(30);
  const path = join(zeros, lastSegment(zeros));
  const bytes = readFileSync(path);
  bytes.fill(0, 9000);
  writeFileSync(path, bytes);
  await expectRefused(zeros, /the end of the journal is missing: LSN \d+ to 32/, "missing_end");
  // Also if only STORE is left.
  const bare = await filled(3);
  for (const name of filesOf(bare).keys()) if (name !== STORE_NAME) rmSync(join(bare, name));
  await expectRefused(bare, /the end of the journal is missing/, "missing_end");
});

test("ID2 a file that lost only zeros is filled up again, and a lost end is given up only by name", async () => {
  const zeros = await filled(30);
  const tails = await tailsOf(zeros);
  const path = join(zeros, lastSegment(zeros));
  truncateSync(path, 16_000);
  const plan = await repair(zeros);
  expect(plan.actions).toEqual([{ kind: "lengthen", file: lastSegment(zeros), bytes: 16_384 }]);
  expect(plan.startsAfter).toBe(true);
  expect(await tailsOf(zeros)).toEqual(tails);
  const lost = await filled(30);
  rmSync(join(lost, lastSegment(lost)));
  const choice = await repair(lost);
  expect(choice.startsAfter).toBe(false);
  await expect(open(lost)).rejects.toThrow("the end of the journal is missing");
  await repair(lost, choice.cut?.lsn);
  expect((await verify(openNodeDisk(lost, true))).found).toEqual([]);
  expect((await tailsOf(lost))[0]).toBeLessThan(15_000);
});

test("ID1 a segment of another store is refused, with every number and LSN", async () => {
  const [own, other] = [await filled(30), await filled(30)];
  copyFileSync(join(other, segmentFile(2)), join(own, segmentFile(2)));
  await expectRefused(own, /it belongs to the store [0-9a-f]{32}, STORE says/, "header");
});

test("ID1 so is a snapshot of another store", async () => {
  const [own, other] = [await filled(30, [20]), await filled(30, [20])];
  const snapshot = [...filesOf(own).keys()].find((name) => name.endsWith(".snap")) ?? "";
  copyFileSync(join(other, snapshot), join(own, snapshot));
  await expect(open(own)).rejects.toThrow(/it belongs to the store/);
  const { found } = await verify(openNodeDisk(own, true));
  expect(found.map(({ kind }) => kind)).toContain("snapshot");
});

test("ID1 two copies of one store that went different ways do not fit together", async () => {
  const own = await filled(8);
  const copy = freshDirectory();
  folders.push(copy);
  cpSync(own, copy, { recursive: true });
  for (const [directory, seed] of [
    [own, 1],
    [copy, 2],
  ] as const) {
    const store = await open(directory);
    for (let count = 0; count < 20; count += 1) {
      await write(store, appended(1, pattern(1000, seed * 100 + count)));
    }
    await store.close();
  }
  // The first segment has the same number, LSNs and salt; only the content differs.
  copyFileSync(join(copy, segmentFile(1)), join(own, segmentFile(1)));
  await expectRefused(own, /does not follow journal-000000000001\.seg/, "chain");
  const third = freshDirectory();
  folders.push(third);
  cpSync(copy, third, { recursive: true });
  copyFileSync(join(own, STORE_NAME), join(third, STORE_NAME));
  await expectRefused(third, /is not the frame that STORE knows/, "chain");
});

test("ID1 a directory without STORE is refused, and repair makes it anew from the segments", async () => {
  const directory = await filled(30);
  const tails = await tailsOf(directory);
  rmSync(join(directory, STORE_NAME));
  await expectRefused(directory, /it is missing; hapax repair makes it anew/, "store");
  const plan = await repair(directory);
  expect(plan.actions.map(({ kind }) => kind)).toEqual(["write_store"]);
  expect(await tailsOf(directory)).toEqual(tails);
  writeFileSync(join(directory, STORE_NAME), Buffer.alloc(8192));
  await expectRefused(directory, /neither copy matches its checksum/, "store");
});

test("ID2 one damaged copy of STORE is enough, whichever it is", async () => {
  for (const at of [20, 4096 + 60]) {
    const directory = await filled(5);
    const path = join(directory, STORE_NAME);
    const bytes = readFileSync(path);
    bytes[at] = (bytes[at] ?? 0) ^ 1;
    writeFileSync(path, bytes);
    expect((await verify(openNodeDisk(directory, true))).found).toEqual([]);
    expect(await tailsOf(directory)).toEqual([2000, 3000]);
    const after = readFileSync(path);
    expect(after.subarray(4096)).toEqual(after.subarray(0, 4096));
  }
});

test("ID3 a process whose directory another has opened writes no more, and says so", async () => {
  const disk = createSimulatedDisk(1);
  const clock = createVirtualClock();
  const options = { segmentBytes: SEGMENT_BYTES, clock };
  const first = await openOnDisk(disk, options, async () => {});
  await write(first, created(1), appended(1, "kept"));
  const second = await openOnDisk(disk, options, async () => {});
  clock.advance(1000);
  const refused = { code: "writes_stopped" };
  const before = disk.log.length;
  await expect(write(first, appended(1, "late"))).rejects.toThrow("another process has opened");
  await expect(write(first, appended(1, "later"))).rejects.toMatchObject(refused);
  await write(second, appended(1, "of the new owner"));
  await first.close();
  const writes = disk.log.slice(before).filter(({ kind }) => kind === "write");
  expect(writes).toHaveLength(1);
  await second.close();
  const after = await openOnDisk(disk, options, async () => {});
  expect(after.world.byId.get(1 as never)?.tail).toBe(20);
  await after.close();
});

test("files of the store are for their owner alone", async () => {
  const directory = join(freshDirectory(), "new");
  folders.push(directory);
  mkdirSync(directory, { mode: 0o777 });
  const umask = process.umask(0);
  try {
    await fillDirectory(directory, 3, [2]);
  } finally {
    process.umask(umask);
  }
  for (const name of filesOf(directory).keys()) {
    expect(statSync(join(directory, name)).mode & 0o077, name).toBe(0);
  }
});
