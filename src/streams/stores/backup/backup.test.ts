// Backups of a store that goes on meanwhile, kills and power cuts at every call, and damage. GUARANTEES.md, G142 and G143.
import { expect, test } from "vitest";
import {
  backUp,
  contentOf,
  contentOfDisk,
  restoreTo,
  sourceOf,
} from "../../../../test/kits/backup-kit.ts";
import { createSimulatedDisk, type SimulatedDisk } from "../../../../test/kits/simulated-disk.ts";
import {
  appended,
  created,
  ended,
  forked,
  pattern,
  write,
} from "../../../testing/store-case-kit.ts";
import { formatIncarnation } from "../../../base/incarnation.ts";
import { createSeededRandom } from "../../../testing/seeded-random.ts";
import type { Disk } from "../file/disk.ts";
import { type FileStore, openOnDisk } from "../file/file-store.ts";
import { listBackups, keepNewest } from "./folder.ts";
import { makeBackup } from "./making.ts";
import { tarReader } from "./readers.ts";
import { beginNext, checkBackup, restoreBackup } from "./restoring.ts";
import { TarTarget } from "./tar-target.ts";

const IS_LONG = process.env["HAPAX_LONG"] !== undefined;
const SEGMENT_BYTES = 16_384;
const LONG = { timeout: IS_LONG ? 900_000 : 60_000 };
const quiet = (): Promise<void> => Promise.resolve();

const openStore = (disk: Disk): Promise<FileStore> =>
  openOnDisk(disk, { segmentBytes: SEGMENT_BYTES, random: createSeededRandom(5) }, quiet);

let count = 0;

/** Appends a kilobyte to each of two streams. */
async function grow(store: FileStore, times = 1): Promise<void> {
  for (let at = 0; at < times; at += 1) {
    count += 1;
    await write(store, appended(1, pattern(1000, count)), appended(2, pattern(900, count + 500)));
  }
}

async function begun(seed = 1, times = 12): Promise<{ store: FileStore; disk: SimulatedDisk }> {
  const disk = createSimulatedDisk(seed);
  const store = await openStore(disk);
  await write(store, created(1), created(2), created(3));
  await write(store, appended(3, "forked"), forked(4, 3, 3));
  await grow(store, times);
  return { store, disk };
}

const bytesOf = async (disk: Disk, name: string): Promise<Buffer> => {
  const file = await disk.open(name, "read");
  try {
    return Buffer.from(await file.read(0, await file.size()));
  } finally {
    await file.close();
  }
};

test("G142 a backup is the store at its instant, also if much is written, freed and compacted meanwhile", async () => {
  const { store } = await begun();
  await store.maintain();
  const folder = createSimulatedDisk(2);
  for (let round = 0; round < 3; round += 1) {
    await grow(store, 6);
    let before = "";
    let turns = 0;
    const { document } = await backUp(store, folder, async () => {
      // Nothing was written since the instant.
      if (turns === 0) before = await contentOf(store);
      turns += 1;
      await grow(store);
      const [old, next] = [4 + 2 * round, 6 + 2 * round];
      if (turns === 2) await write(store, ended("removed", old, 9), created(next));
      if (turns === 3) await write(store, appended(next, pattern(3000, round)));
      await store.maintain();
    });
    expect(turns).toBeGreaterThan(3);
    const restored = createSimulatedDisk(30 + round);
    const report = await restoreTo(restored, folder);
    expect(report).toMatchObject({ lsn: document.lsn, incarnation: expect.stringMatching(/^2-/) });
    expect(await contentOfDisk(restored)).toBe(before);
  }
  await store.close();
});

test("G142 everything acknowledged before the instant is in it, and nothing of later", async () => {
  const { store } = await begun();
  const wanted = await contentOf(store);
  const folder = createSimulatedDisk(3);
  await backUp(store, folder, () => grow(store));
  const restored = createSimulatedDisk(4);
  await restoreTo(restored, folder);
  expect(await contentOfDisk(restored)).toBe(wanted);
  await store.close();
});

test("G142 what a backup holds is neither retired nor removed, and comes back when it ends", async () => {
  const { store, disk } = await begun(5, 60);
  await store.maintain();
  const source = await sourceOf(store);
  const held = source.plan.segments.map(
    ({ number }) => `journal-${String(number).padStart(12, "0")}.seg`,
  );
  await write(store, ended("removed", 1, 9), ended("removed", 2, 9), created(7));
  for (let turn = 0; turn < 4; turn += 1) {
    await write(store, appended(7, pattern(500, turn)));
    await store.maintain();
  }
  expect(await disk.list()).toEqual(expect.arrayContaining(held));
  for (const snapshot of source.plan.snapshots) {
    expect((await source.readSnapshot(snapshot, 0)).length).toBeGreaterThan(0);
  }
  const before = store.stats().segments;
  source.release();
  for (let turn = 0; turn < 3; turn += 1) {
    await write(store, appended(7, pattern(500, turn)));
    await store.maintain();
  }
  expect(store.stats().segments).toBeLessThan(before);
  const names = await disk.list();
  expect(names.filter((name) => name.endsWith(".snap"))).toHaveLength(2);
  await store.close();
});

test("G142 on a full disk room for writes comes first: the backup is over, and says so", async () => {
  const { store, disk } = await begun(6, 30);
  const source = await sourceOf(store);
  const [first] = source.plan.segments;
  if (first === undefined) throw new Error("there is a segment");
  expect((await source.readSegment(first, 4096)).length).toBeGreaterThan(0);
  disk.setCapacity(0);
  const growing = grow(store, 40).catch(() => undefined);
  while (!store.stats().isFull) await new Promise((resolve) => setImmediate(resolve));
  await expect(source.readSegment(first, 4096)).rejects.toMatchObject({ code: "backup_over" });
  await expect(store.backup?.()).rejects.toMatchObject({ code: "backup_over" });
  await store.close().catch(() => undefined);
  await growing;
});

test("G142 the next backup fetches what is new, and older ones stay", async () => {
  const { store } = await begun(7, 40);
  await store.maintain();
  const folder = createSimulatedDisk(8);
  const first = await backUp(store, folder);
  const old = await contentOf(store);
  await grow(store, 2);
  const next = await backUp(store, folder);
  const segments = next.reads.filter((read) => read.startsWith("segment"));
  expect(first.reads.length).toBeGreaterThan(15);
  // The end of the segment that is written.
  expect(segments.length).toBeLessThanOrEqual(3);
  const again = await backUp(store, folder);
  expect(again.reads.filter((read) => read.startsWith("segment"))).toEqual([]);
  const kept = await listBackups(folder, () => undefined);
  expect(kept.map(({ document }) => document.lsn)).toEqual([next.document.lsn, first.document.lsn]);
  const restored = createSimulatedDisk(9);
  await restoreTo(restored, folder, kept[1]?.name);
  expect(await contentOfDisk(restored)).toBe(old);
  expect(await keepNewest(folder, 1)).toEqual([kept[1]?.name]);
  const last = createSimulatedDisk(10);
  await restoreTo(last, folder);
  expect(await contentOfDisk(last)).toBe(await contentOf(store));
  await store.close();
});

test("G142 the newest backup is the newest, also if the clock was ahead during an earlier one", async () => {
  const { store, disk } = await begun(31, 4);
  const folder = createSimulatedDisk(32);
  const aheadMs = Date.UTC(2090, 0);
  const rightMs = Date.UTC(2026, 0);
  const ahead = await backUp(store, folder, undefined, aheadMs);
  await grow(store);
  const right = await backUp(store, folder, undefined, rightMs);
  const order = async () =>
    (await listBackups(folder, () => undefined)).map(({ document }) => document.lsn);
  expect(await order()).toEqual([right.document.lsn, ahead.document.lsn]);
  // After a restore it goes on with the directory. What was made last is never removed.
  await store.close();
  await beginNext(disk);
  const restored = await openStore(disk);
  const next = await backUp(restored, folder, undefined, rightMs + 1000);
  const wanted = await contentOf(restored);
  await restored.close();
  const removed = await keepNewest(folder, 1, next.document);
  expect(removed).toHaveLength(2);
  expect(await order()).toEqual([next.document.lsn]);
  const last = createSimulatedDisk(33);
  await restoreTo(last, folder);
  expect(await contentOfDisk(last)).toBe(wanted);
});

test("G142 a server that went back without a restore is not mixed with the backups of before", async () => {
  const { store, disk } = await begun(11, 2);
  const image = new Map<string, Buffer>();
  for (const name of await disk.list()) image.set(name, await bytesOf(disk, name));
  await grow(store);
  const folder = createSimulatedDisk(12);
  await backUp(store, folder);
  await store.close();
  const old = createSimulatedDisk(13);
  for (const [name, bytes] of image) {
    const file = await old.open(name, "create");
    await file.write([bytes], 0);
    await file.close();
  }
  // Frames of the same sizes at the same places: as many as the backup has, and one more.
  const rolledBack = await openStore(old);
  for (const _ of [1, 2]) {
    count += 100;
    await grow(rolledBack);
    await expect(backUp(rolledBack, folder)).rejects.toMatchObject({
      code: "directory_unusable",
      message: expect.stringContaining("--in-place"),
    });
  }
  await rolledBack.close();
});

async function untilStopped(disk: SimulatedDisk, run: () => Promise<unknown>): Promise<void> {
  await Promise.race([run(), disk.stopped]);
}

/** Every call, or in the short form an even choice of them. */
const step = (calls: number): number => (IS_LONG ? 1 : Math.max(1, Math.floor(calls / 40)));

test(
  "G142 a kill and a power cut at any call of a backup leave every earlier one, and the next one goes on",
  LONG,
  async () => {
    const { store } = await begun(14, 14);
    const old = await contentOf(store);
    const base = async (seed: number): Promise<SimulatedDisk> => {
      const folder = createSimulatedDisk(seed);
      await backUp(first, folder);
      return folder;
    };
    // The same instant again and again: a second store on a copy of the disk.
    const { store: first } = await begunAgain();
    const late = await begunAgain();
    await grow(late.store, 6);
    await late.store.maintain();
    const whole = await base(15);
    const from = whole.log.length;
    await backUp(late.store, whole);
    const calls = whole.log.length - from;
    expect(calls).toBeGreaterThan(20);
    const wanted = await contentOf(late.store);
    let cuts = 0;
    for (let at = 1; at <= calls; at += step(calls)) {
      for (const ending of ["kill", "crash"] as const) {
        const folder = await base(16 + at);
        folder.stopAt(folder.log.length + at);
        await untilStopped(folder, () => backUp(late.store, folder));
        const left = folder[ending]();
        const kept = await listBackups(left, (error) => {
          throw error;
        });
        const oldest = kept.at(-1);
        const restored = createSimulatedDisk(1000 + at);
        await restoreTo(restored, left, oldest?.name);
        expect(await contentOfDisk(restored), `${ending} at ${at}`).toBe(old);
        await backUp(late.store, left);
        const last = createSimulatedDisk(2000 + at);
        await restoreTo(last, left);
        expect(await contentOfDisk(last), `after ${ending} at ${at}`).toBe(wanted);
        cuts += 1;
      }
    }
    console.log(`${cuts} backups ended at one of ${calls} calls`);
    await Promise.all([store.close(), first.close(), late.store.close()]);

    async function begunAgain() {
      const disk = createSimulatedDisk(17);
      await store.commit([]);
      for (const one of await copyNow()) {
        const file = await disk.open(one[0], "create");
        await file.write([one[1]], 0);
        await file.close();
      }
      return { store: await openStore(disk) };
    }

    async function copyNow(): Promise<readonly (readonly [string, Buffer])[]> {
      const folder = createSimulatedDisk(18);
      await backUp(store, folder);
      const restored = createSimulatedDisk(19);
      await restoreTo(restored, folder);
      const files: [string, Buffer][] = [];
      for (const name of await restored.list()) files.push([name, await bytesOf(restored, name)]);
      return files;
    }
  },
);

test(
  "G143 a kill and a power cut at any call of a restore leave nothing that a server opens, or all of it",
  LONG,
  async () => {
    const { store } = await begun(20, 14);
    await store.maintain();
    const wanted = await contentOf(store);
    const folder = createSimulatedDisk(21);
    await backUp(store, folder);
    const whole = createSimulatedDisk(22);
    await restoreTo(whole, folder);
    const calls = whole.log.length;
    expect(calls).toBeGreaterThan(60);
    let refused = 0;
    for (let at = 1; at <= calls; at += step(calls)) {
      for (const ending of ["kill", "crash"] as const) {
        const disk = createSimulatedDisk(3000 + at);
        disk.stopAt(at);
        await untilStopped(disk, () => restoreTo(disk, folder));
        const left = disk[ending]();
        // Before the mark has its name the directory is as good as empty.
        const names = (await left.list()).filter((name) => name !== "COPY.tmp");
        const found = names.length === 0 ? "nothing" : await contentOfDisk(left).catch(codeOf);
        expect(["nothing", "directory_unusable", wanted], `${ending} at ${at}`).toContain(found);
        if (found === wanted) continue;
        refused += 1;
        const rest = names.length === 0 ? left : left.kill();
        await restoreTo(rest, folder);
        expect(await contentOfDisk(rest), `again after ${ending} at ${at}`).toBe(wanted);
      }
    }
    expect(refused).toBeGreaterThan(20);
    await store.close();
  },
);

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : String(error);
}

test(
  "G143 a backup with any byte changed, cut or missing is refused, and no server opens the directory",
  LONG,
  async () => {
    const { store } = await begun(23, 6);
    await store.maintain();
    const folder = createSimulatedDisk(24);
    await backUp(store, folder);
    const files = new Map<string, Buffer>();
    for (const name of await folder.list()) files.set(name, await bytesOf(folder, name));
    files.delete("BACKUPS");
    let tried = 0;
    for (const [name, bytes] of files) {
      const places = IS_LONG ? bytes.length : 24;
      for (let place = 0; place < places; place += 1) {
        const at = Math.floor((place * bytes.length) / places);
        const broken = Buffer.from(bytes);
        broken[at] = (broken[at] ?? 0) ^ (1 << (place % 8));
        expect(await outcomeOf(new Map([...files, [name, broken]])), `${name} ${at}`).toBe(
          "refused",
        );
        tried += 1;
      }
      const cut = bytes.subarray(0, Math.floor(bytes.length / 2));
      expect(await outcomeOf(new Map([...files, [name, cut]])), `${name} cut`).toBe("refused");
      const rest = new Map(files);
      rest.delete(name);
      expect(await outcomeOf(rest), `${name} missing`).toBe("refused");
    }
    expect(await outcomeOf(files)).toBe("restored");
    expect(tried).toBeGreaterThan(70);
    await store.close();

    async function outcomeOf(all: ReadonlyMap<string, Buffer>): Promise<string> {
      const source = createSimulatedDisk(25);
      for (const [name, bytes] of all) {
        const file = await source.open(name, "create");
        await file.write([bytes], 0);
        await file.close();
      }
      const target = createSimulatedDisk(26);
      try {
        await restoreTo(target, source);
        return "restored";
      } catch (error) {
        if (!(error instanceof Error)) throw error;
        const isEmpty = (await target.list()).length === 0;
        const opened = isEmpty ? "nothing" : await contentOfDisk(target).catch(codeOf);
        return ["nothing", "directory_unusable"].includes(opened)
          ? "refused"
          : "open after a refusal";
      }
    }
  },
);

test(
  "G143 one stream has the same backup, and every cut and change of it is refused",
  LONG,
  async () => {
    const { store } = await begun(27, 6);
    await store.maintain();
    const wanted = await contentOf(store);
    const source = await sourceOf(store);
    const pieces: Uint8Array[] = [];
    const target = new TarTarget((bytes) => {
      pieces.push(Uint8Array.from(bytes));
      return Promise.resolve();
    });
    const document = await makeBackup(source, target, quiet);
    source.release();
    const tar = Buffer.concat(pieces);
    const disk = createSimulatedDisk(28);
    await restoreBackup(tarReader(inPieces(tar, 1000)), disk, "ab".repeat(32), {
      onProgress: quiet,
    });
    expect(await contentOfDisk(disk)).toBe(wanted);
    expect((await bytesOf(disk, "SECRET")).toString()).toBe(`${"ab".repeat(32)}\n`);
    expect(await checkBackup(tarReader(inPieces(tar, 77)), quiet)).toEqual(document);
    const end = tar.length - 1024;
    for (let length = 0; length < end; length += IS_LONG ? 64 : 1999) {
      const cut = checkBackup(tarReader(inPieces(tar.subarray(0, length), 4096)), quiet);
      await expect(cut, `cut at ${length}`).rejects.toMatchObject({ code: "data_damaged" });
    }
    const used = usedBytes(tar);
    for (let at = 0; at < used.length; at += IS_LONG ? 1 : 331) {
      const place = used[at] ?? 0;
      const broken = Buffer.from(tar);
      broken[place] = (broken[place] ?? 0) ^ 4;
      const check = checkBackup(tarReader(inPieces(broken, 4096)), quiet);
      await expect(check, `byte ${place}`).rejects.toThrow();
    }
    await store.close();
  },
);

test("G144 an incarnation outlives restarts, from the journal and from a snapshot", async () => {
  const { store, disk } = await begun(29, 3);
  await store.close();
  const incarnation = await beginNext(disk);
  expect(incarnation).toMatch(/^2-[\da-f]{8}$/);
  for (const hasSnapshot of [false, true]) {
    const again = await openStore(disk);
    expect(formatIncarnation(again.world.incarnation)).toBe(incarnation);
    await grow(again);
    if (!hasSnapshot) await again.maintain();
    await again.close();
  }
  expect(await beginNext(disk)).toMatch(/^3-/);
});

async function* inPieces(bytes: Buffer, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) {
    yield await Promise.resolve(bytes.subarray(at, at + size));
  }
}

/** Where a tar has the bytes of files: what stands around them, such as times, means nothing to a restore. */
function usedBytes(tar: Buffer): readonly number[] {
  const used: number[] = [];
  for (let at = 0; tar[at] !== 0;) {
    const size = Number.parseInt(tar.toString("latin1", at + 124, at + 135), 8);
    for (let place = at + 512; place < at + 512 + size; place += 1) used.push(place);
    at += 512 + Math.ceil(size / 512) * 512;
  }
  return used;
}
