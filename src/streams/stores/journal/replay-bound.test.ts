// A snapshot may take any time: what a restart replays is bounded all the same.
import { expect, test } from "vitest";
import { createSimulatedDisk, type SimulatedDisk } from "../../../../test/kits/simulated-disk.ts";
import { appended, created, readAll, write } from "../../../testing/store-case-kit.ts";
import { createVirtualClock } from "../../../testing/virtual-clock.ts";
import { turn, watch } from "../../../../test/kits/watch.ts";
import { type FileStore, type FileStoreOptions, openOnDisk } from "../file/file-store.ts";
import type { Disk, DiskFile } from "../file/disk.ts";
import { ReplayBound } from "./replay-bound.ts";
import { UNFINISHED_SNAPSHOT } from "../file/snapshot-file.ts";

const SPAN = 20;
/** From here on commits wait. */
const FULL = 1.75 * SPAN;
const BY_CHANGES = { segmentBytes: 65_536, snapshotChanges: SPAN };

/** A disk that writes snapshots only after the test lets it, or makes them fail. */
interface SlowDisk {
  readonly disk: Disk;
  hold(): void;
  letGo(error?: Error): void;
}

function slowDisk(inner: SimulatedDisk): SlowDisk {
  let held: Promise<void> = Promise.resolve();
  let settle: (error?: Error) => void = () => undefined;
  const slow = (file: DiskFile): DiskFile => ({
    size: () => file.size(),
    read: (position, length) => file.read(position, length),
    write: async (buffers, position) => {
      await held;
      await file.write(buffers, position);
    },
    sync: () => file.sync(),
    close: () => file.close(),
  });
  return {
    disk: {
      list: () => inner.list(),
      open: async (name, mode) => {
        const file = await inner.open(name, mode);
        return UNFINISHED_SNAPSHOT.test(name) ? slow(file) : file;
      },
      rename: (from, to) => inner.rename(from, to),
      remove: (name) => inner.remove(name),
      syncDirectory: () => inner.syncDirectory(),
    },
    hold() {
      held = new Promise((resolve, reject) => {
        settle = (error) => {
          if (error === undefined) resolve();
          else reject(error);
        };
      });
      held.catch(() => undefined);
    },
    letGo(error) {
      settle(error);
      held = Promise.resolve();
    },
  };
}

interface Stage {
  readonly inner: SimulatedDisk;
  readonly slow: SlowDisk;
  readonly store: FileStore;
  readonly warnings: string[];
}

async function openStage(options: FileStoreOptions = BY_CHANGES): Promise<Stage> {
  const inner = createSimulatedDisk(3);
  const slow = slowDisk(inner);
  const warnings: string[] = [];
  const onWarning = (warning: string): void => void warnings.push(warning);
  const clock = createVirtualClock();
  const store = await openOnDisk(slow.disk, { clock, onWarning, ...options }, async () => {});
  await write(store, created(1));
  return { inner, slow, store, warnings };
}

/** Commits one after the other, one change each. */
async function flood(store: FileStore, commits: number, text: string): Promise<void> {
  for (let count = 0; count < commits; count += 1) await write(store, appended(1, text));
}

/** Lets everything happen that can, until no more commits are durable. */
async function untilStill(store: FileStore): Promise<void> {
  for (let before = -1; before !== store.stats().commits;) {
    before = store.stats().commits;
    for (let count = 0; count < 20; count += 1) await turn();
  }
}

test("while a snapshot is written, commits wait before two spans would be replayed", async () => {
  const { inner, slow, store } = await openStage();
  slow.hold();
  const flooding = watch(flood(store, 10 * SPAN, "x"));
  await untilStill(store);
  expect(flooding.isWaiting).toBe(true);
  expect(store.stats()).toMatchObject({ commits: FULL, snapshots: 0 });
  slow.letGo();
  await untilStill(store);
  expect(flooding).toMatchObject({ isWaiting: false, error: undefined });
  expect(store.stats().snapshots).toBe(2);
  slow.hold();
  void flood(store, 10 * SPAN, "x");
  await untilStill(store);
  const after = await openOnDisk(inner.kill(), BY_CHANGES, async () => {});
  expect(after.recovery.changes).toBeGreaterThan(SPAN);
  expect(after.recovery.changes).toBeLessThanOrEqual(2 * SPAN);
  await after.close();
});

test("the same holds for bytes", async () => {
  const { slow, store } = await openStage({ segmentBytes: 65_536, snapshotBytes: 10_000 });
  slow.hold();
  const flooding = watch(flood(store, 100, "x".repeat(1000)));
  await untilStill(store);
  expect(flooding.isWaiting).toBe(true);
  expect(store.stats().commits).toBeGreaterThan(12);
  expect(store.stats().commits).toBeLessThan(20);
  slow.letGo();
  await untilStill(store);
  expect(flooding).toMatchObject({ isWaiting: false, error: undefined });
  await store.close();
});

test("processes that never live to see a snapshot complete do not add up", async () => {
  let inner = (await openStage()).inner.kill();
  for (let life = 0; life < 5; life += 1) {
    const slow = slowDisk(inner);
    slow.hold();
    const clock = createVirtualClock();
    const store = await openOnDisk(slow.disk, { ...BY_CHANGES, clock }, async () => {});
    void flood(store, 10 * SPAN, "x");
    await untilStill(store);
    inner = inner.kill();
  }
  const after = await openOnDisk(inner, BY_CHANGES, async () => {});
  expect(after.recovery).toMatchObject({ snapshotLsn: undefined });
  expect(after.recovery.changes).toBeLessThanOrEqual(2 * SPAN);
  await after.close();
});

test("commits wait for compaction too when so much would be replayed, until it makes way", async () => {
  const bound = new ReplayBound({ changes: SPAN, bytes: 1 << 30 }, 0, { changes: 0, bytes: 0 });
  bound.workBegins();
  bound.snapshotBegins();
  bound.snapshotCompleted();
  expect(bound.isFull).toBe(false);
  bound.written(FULL, 1);
  expect(bound).toMatchObject({ isDue: true, isFull: true });
  const commit = watch(bound.admit(() => Promise.resolve("committed")));
  await turn();
  expect(commit.isWaiting).toBe(true);
  // Compaction has ended. The next snapshot begins at once, and only its end lets the commit continue.
  bound.snapshotBegins();
  await turn();
  expect(commit.isWaiting).toBe(true);
  bound.snapshotCompleted();
  await turn();
  expect(commit.value).toBe("committed");
});

test("what the snapshot waits for is let through, in the order of the calls", async () => {
  const { slow, store } = await openStage();
  slow.hold();
  void flood(store, FULL - 1, "x");
  await untilStill(store);
  const letters = "abcdefghijklmnopqrstuvwxyz".split("");
  // The world has them at once, so the snapshot will contain the waiting commits.
  const waiting = letters.map((letter) => {
    const written = write(store, appended(1, letter));
    // A commit that is called while others wait does not overtake them.
    return watch(letter === "a" ? written.then(() => write(store, appended(1, "!"))) : written);
  });
  await untilStill(store);
  expect(waiting.every(({ isWaiting }) => isWaiting)).toBe(true);
  slow.letGo();
  await untilStill(store);
  expect(waiting.filter(({ isWaiting, error }) => isWaiting || error !== undefined)).toEqual([]);
  expect(store.stats().snapshots).toBeGreaterThan(0);
  const end = FULL + letters.length;
  const data = Buffer.concat(await readAll(store, 1, 0, end)).toString();
  expect(data).toBe(`${"x".repeat(FULL - 1)}${letters.join("")}!`);
  await store.close();
});

test("a snapshot that fails lets the commits go on, and a later one succeeds", async () => {
  for (const code of ["ENOSPC", "EIO"]) {
    const { slow, store, warnings } = await openStage();
    slow.hold();
    const flooding = watch(flood(store, 3 * SPAN, "x"));
    await untilStill(store);
    expect(flooding.isWaiting).toBe(true);
    slow.letGo(Object.assign(new Error(`${code}: simulated`), { code }));
    await untilStill(store);
    expect(flooding).toMatchObject({ isWaiting: false, error: undefined });
    // Without room it is tried once more, with the room of a spare.
    expect(warnings).toEqual(code === "EIO" ? ["EIO: simulated"] : []);
    await flood(store, 2 * SPAN, "y");
    await untilStill(store);
    expect(store.stats().snapshots).toBeGreaterThan(0);
    await store.close();
  }
});

test("a store that stops while commits wait tells every one of them", async () => {
  const { inner, slow, store } = await openStage();
  slow.hold();
  void flood(store, FULL - 1, "x");
  await untilStill(store);
  const waiting = watch(write(store, appended(1, "lost")));
  await untilStill(store);
  expect(waiting.isWaiting).toBe(true);
  // The next call fails: the snapshot, or the commit that it lets through.
  for (let call = 1; call <= 6; call += 1) inner.failAt(inner.log.length + call, "EIO");
  slow.letGo();
  await untilStill(store);
  expect(waiting.isWaiting).toBe(false);
  await store.close().catch(() => undefined);
});

test("a span of nothing means a snapshot after every commit, and no more than that", async () => {
  const { store } = await openStage({ segmentBytes: 65_536, snapshotChanges: 0, snapshotBytes: 0 });
  await flood(store, 5, "x");
  await untilStill(store);
  expect(store.stats()).toMatchObject({ commits: 6, snapshots: 2 });
  await store.close();
});
