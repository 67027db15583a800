import { cpSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import {
  filesOf,
  fillDirectory,
  flip,
  freshDirectory,
  SEGMENT_BYTES,
  segmentFile,
  tailsOf,
  verify,
} from "../../../../test/kits/directory-kit.ts";
import { ended, write } from "../../../testing/store-case-kit.ts";
import { openFileStore } from "../file.ts";
import { openNodeDisk } from "./node-disk.ts";
import { planRepair, type RepairAction } from "./repair.ts";
import { carryOut } from "./repair-work.ts";

const folders: string[] = [];
let times = 0;

afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

async function filled(frames: number, maintainAt: readonly number[] = []): Promise<string> {
  const directory = freshDirectory();
  folders.push(directory);
  await fillDirectory(directory, frames, maintainAt);
  return directory;
}

const diskAt = (directory: string) => openNodeDisk(directory, true);
const plan = (directory: string, cutAtLsn?: number) =>
  planRepair(diskAt(directory), cutAtLsn, async () => undefined);

function carry(directory: string, actions: readonly RepairAction[]): Promise<string> {
  times += 1;
  const time = new Date(Date.UTC(2026, 0, 1, 0, 0, times)).toISOString();
  return carryOut(directory, actions, time, { actions });
}

const snapshotsOf = (directory: string): readonly string[] =>
  [...filesOf(directory).keys()].filter((name) => /^snapshot-\d+\.snap$/.test(name)).toSorted();

/** Every original byte is still there, in its place or in quarantine. */
function expectKept(before: ReadonlyMap<string, Buffer>, directory: string): void {
  const after = filesOf(directory);
  for (const [name, bytes] of before) {
    const copies = [...after].filter(([path]) => path === name || path.endsWith(`/${name}`));
    const isKept = copies.some(([, copy]) => copy.equals(bytes));
    const header = [...after].find(([path]) => path.endsWith(`/${name}.header`))?.[1];
    const isHeaderKept = header?.equals(bytes.subarray(0, 4096)) === true;
    expect(isKept || isHeaderKept, name).toBe(true);
  }
}

test("a plan changes nothing, and what is sound needs no repair", async () => {
  const directory = await filled(30, [10, 20]);
  const before = filesOf(directory);
  const { actions, startsAfter, cut, verification } = await plan(directory);
  expect({ actions, startsAfter, cut }).toEqual({ actions: [], startsAfter: true, cut: undefined });
  expect(verification.problems).toBe(0);
  flip(directory, segmentFile(2), 6000);
  const damaged = filesOf(directory);
  await plan(directory);
  expect(filesOf(directory)).toEqual(damaged);
  expect([...damaged.keys()]).toEqual([...before.keys()]);
});

test("a damaged snapshot is set aside, the older one is used, and nothing is lost", async () => {
  const directory = await filled(30, [10, 20]);
  const tails = await tailsOf(directory);
  const newest = snapshotsOf(directory).at(-1) ?? "";
  flip(directory, newest, 100);
  const before = filesOf(directory);
  const { actions, startsAfter, cut } = await plan(directory);
  expect(actions).toEqual([
    { kind: "set_aside", file: newest, why: "a block has another checksum" },
  ]);
  expect({ startsAfter, cut }).toEqual({ startsAfter: true, cut: undefined });
  await carry(directory, actions);
  expectKept(before, directory);
  expect((await verify(diskAt(directory))).found).toEqual([]);
  expect(await tailsOf(directory)).toEqual(tails);
});

test("a damaged snapshot does not count as one of the two that are kept", async () => {
  const directory = await filled(30, [10, 20]);
  flip(directory, snapshotsOf(directory).at(-1) ?? "", 100);
  const store = await openFileStore(directory, { segmentBytes: SEGMENT_BYTES });
  const tails = [...store.world.byId.values()].map(({ tail }) => tail);
  await write(store, ended("touched", 1));
  await store.maintain();
  await store.close();
  flip(directory, snapshotsOf(directory).at(-1) ?? "", 100);
  expect(await tailsOf(directory)).toEqual(tails);
});

test.each([
  [10, "a copy of the header is written again from the other"],
  [2060, "the second copy of the header is written again from the first"],
])("byte %i: %s", async (position) => {
  const directory = await filled(30);
  const whole = filesOf(directory);
  flip(directory, segmentFile(1), position);
  const before = filesOf(directory);
  const { actions } = await plan(directory);
  expect(actions.map(({ kind }) => kind)).toEqual(["restore_header"]);
  await carry(directory, actions);
  expectKept(before, directory);
  expect(filesOf(directory).get(segmentFile(1))).toEqual(whole.get(segmentFile(1)));
  expect((await verify(diskAt(directory))).found).toEqual([]);
});

describe("what is lost is listed, and lost only on demand", () => {
  test("damage in the middle: the cut names its LSNs, its streams and their records", async () => {
    const directory = await filled(30);
    flip(directory, segmentFile(2), 6000);
    const { actions, startsAfter, cut, verification } = await plan(directory);
    expect({ actions, startsAfter }).toEqual({ actions: [], startsAfter: false });
    const { lsn } = (await verify(diskAt(directory))).found[0] ?? {};
    // 1 creation, 30 appends, 1 orderly end; the damaged frame is not among the readable ones.
    expect(cut).toMatchObject({ lsn, lastLsn: 32, framesReadable: 32 - (lsn ?? 0) });
    expect(verification.nextLsn).toBe(33);
    const records = cut?.losses.reduce((sum, loss) => sum + loss.records, 0);
    expect(records).toBe(31 - (lsn ?? 0));
    expect(cut?.losses.map(({ path }) => path).toSorted()).toEqual(["/case/1", "/case/2"]);
  });

  test("after the cut everything before it is there, and every original is in quarantine", async () => {
    const directory = await filled(30, [5]);
    flip(directory, segmentFile(2), 6000);
    const before = filesOf(directory);
    const { cut } = await plan(directory);
    await carry(directory, cut?.actions ?? []);
    expectKept(before, directory);
    const after = await verify(diskAt(directory));
    expect(after.found).toEqual([]);
    expect(after.nextLsn).toBe(cut?.lsn);
    const kept = (await tailsOf(directory)).reduce((sum, tail) => sum + tail, 0);
    const lost = cut?.losses.reduce((sum, loss) => sum + loss.bytes, 0) ?? 0;
    // The damaged frame held one append of 1,000 bytes.
    expect(kept + lost + 1000).toBe(30_000);
  });

  test("a cut behind the damage, or outside the journal, is refused", async () => {
    const directory = await filled(30);
    flip(directory, segmentFile(2), 6000);
    const { cut } = await plan(directory, 25);
    expect(cut?.obstacle).toMatch(/^LSN \d+ is damaged: a cut must be there or before$/);
    expect(cut?.actions).toEqual([]);
    const sound = await filled(5);
    expect((await plan(sound, 99)).cut?.obstacle).toBe("there is no LSN 99 in the journal");
  });

  test("snapshots that know what is cut away are set aside with it", async () => {
    const directory = await filled(30, [5, 25]);
    const before = filesOf(directory);
    const [older = "", newer = ""] = snapshotsOf(directory);
    const { cut } = await plan(directory, 15);
    const aside = cut?.actions.flatMap((action) =>
      action.kind === "set_aside" ? [action.file] : [],
    );
    expect(aside).toContain(newer);
    expect(aside).not.toContain(older);
    await carry(directory, cut?.actions ?? []);
    expectKept(before, directory);
    expect((await verify(diskAt(directory))).found).toEqual([]);
    const kept = (await tailsOf(directory)).reduce((sum, tail) => sum + tail, 0);
    // Frame 1 created the streams; 2 to 14 are appends.
    expect(kept).toBe(13_000);
  });

  test("a segment that is missing from the replay is a cut before it; put back, it is none", async () => {
    const directory = await filled(40);
    const other = freshDirectory();
    folders.push(other);
    const elsewhere = join(other, "kept");
    renameSync(join(directory, segmentFile(2)), elsewhere);
    const { cut, actions } = await plan(directory);
    expect(actions).toEqual([]);
    expect(cut?.obstacle).toBeUndefined();
    expect(cut?.actions.map(({ kind }) => kind)).toEqual([
      "set_aside",
      "set_aside",
      "cut",
      "write_store",
    ]);
    renameSync(elsewhere, join(directory, segmentFile(2)));
    expect(await plan(directory)).toMatchObject({ startsAfter: true, cut: undefined });
  });

  test("data that is lost in an old segment is named; the server starts, and no cut is offered", async () => {
    const directory = await filled(40, [35, 38]);
    flip(directory, segmentFile(1), 6000);
    const { actions, startsAfter, cut, lostData } = await plan(directory);
    expect({ actions, startsAfter, cut }).toEqual({
      actions: [],
      startsAfter: true,
      cut: undefined,
    });
    expect(lostData.map(({ what }) => what)).toEqual([
      expect.stringMatching(/^stream \/case\/\d, offsets \d+ to \d+: /),
    ]);
  });
});

test("a repair that was interrupted after any step can be made again", async () => {
  const damaged = await filled(40, [5]);
  flip(damaged, segmentFile(2), 6000);
  const { cut } = await plan(damaged);
  const steps = cut?.actions ?? [];
  expect(steps.length).toBeGreaterThan(2);
  for (let done = 0; done < steps.length; done += 1) {
    const directory = freshDirectory();
    folders.push(directory);
    cpSync(damaged, directory, { recursive: true });
    const before = filesOf(directory);
    await carry(directory, steps.slice(0, done));
    const again = await plan(directory, cut?.lsn);
    expect(again.cut?.obstacle).toBeUndefined();
    await carry(directory, again.cut?.actions ?? []);
    expectKept(before, directory);
    const after = await verify(diskAt(directory));
    expect(after.found).toEqual([]);
    expect(after.nextLsn).toBe(cut?.lsn);
  }
});
