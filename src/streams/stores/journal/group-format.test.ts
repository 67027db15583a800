// Groups in a snapshot are of one moment, although they are written in many blocks.
import { expect, test } from "vitest";
import { pausing } from "../../../../test/kits/pausing-disk.ts";
import type { GroupBookImage } from "../../core/group-image.ts";
import type { GroupChange } from "../../core/group-state.ts";
import type { Offset, StreamName, TimeMs } from "../../core/types.ts";
import { createSimulatedDisk } from "../../../../test/kits/simulated-disk.ts";
import { created, describeWorld, ended, write } from "../../../testing/store-case-kit.ts";
import { GROUPS } from "../../../testing/store-trim-cases.ts";
import { type FileStore, openOnDisk } from "../file/file-store.ts";
import { ByteReader, ByteWriter } from "./bytes.ts";
import { encodeCursors, encodeGroups, GroupCollector, slicesOf } from "./group-format.ts";
import { scanSnapshot } from "./snapshot-scan.ts";

const SETTINGS = { segmentBytes: 1 << 20 };
const STREAMS = 3000;
const base = { atMs: 5 as TimeMs, group: "many" } as const;
const name = (id: number): StreamName => `/case/${id}` as StreamName;
const names = Array.from({ length: STREAMS }, (_, at) => name(at + 1));
const committed = (offset: number, streams: readonly StreamName[]): GroupChange => ({
  ...base,
  kind: "group_committed",
  member: "m#1",
  expiresAtMs: 9 as TimeMs,
  offsets: streams.map((stream) => [stream, offset as Offset] as const),
  finished: streams.slice(0, 1),
});

/** One member holds all streams. */
async function fill(store: FileStore): Promise<void> {
  await write(store, ...names.map((_, at) => created(at + 1)));
  const start = { kind: "beginning" } as const;
  const settings = { pattern: "/case/*", streams: [], start, leaseMs: 1 };
  const cursors = names.map((stream) => [stream, 0 as Offset] as const);
  const member = "m#1";
  const expiresAtMs = 7 as TimeMs;
  await write(
    store,
    { ...base, kind: "group_created", settings, cursors },
    { ...base, kind: "group_created", group: "empty", settings, cursors: [] },
    { ...base, kind: "group_joined", member, ordinal: 1, expiresAtMs },
  );
  const granted = names.map((stream, at) => [stream, at + 2] as const);
  const claim = { max: 9999, expiresAtMs, dropped: [], granted, asked: [], kept: [] };
  await write(store, { ...base, ...claim, kind: "group_claimed", member });
}

test("groups in a snapshot are of one moment, also when they change while their blocks are written", async () => {
  const disk = createSimulatedDisk(1);
  let blocks = 0;
  const beforeBlock = async (block: number): Promise<void> => {
    blocks = block;
    // After every block, commits change all of the cursors, and streams are created and removed.
    await write(store, committed(block, names.slice(block)), ended("removed", block));
    await write(store, created(STREAMS + block), created(9000 + block, { name: name(block) }));
  };
  const store = await openOnDisk(pausing(disk, { beforeBlock }), SETTINGS, async () => {});
  await fill(store);
  await store.maintain();
  const world = describeWorld(store.world);
  expect(blocks).toBeGreaterThan(6);
  const [snapshot = ""] = (await disk.list()).filter((entry) => entry.startsWith("snapshot-"));
  const { fault, end } = await scanSnapshot(await disk.open(snapshot, "read"), snapshot);
  expect(fault).toBeUndefined();
  expect(end?.groups?.groups.map(({ id }) => id)).toEqual(["many", "empty"]);
  const sizes = disk.log
    .filter(({ kind, what }) => kind === "write" && what.startsWith("snapshot-"))
    .map(({ what }) => Number(what.split("+")[1]));
  expect(Math.max(...sizes)).toBeLessThan(100 * 1024);
  const after = await openOnDisk(disk.crash(), SETTINGS, async () => {});
  expect(after.recovery.snapshotLsn).toBeDefined();
  expect(describeWorld(after.world)).toBe(world);
  await after.close();
});

test("groups come back from a snapshot alone, at every moment of their life", async () => {
  const disk = createSimulatedDisk(2);
  const open = (): Promise<FileStore> => openOnDisk(disk, SETTINGS, async () => {});
  let store = await open();
  for (const changes of GROUPS) {
    await write(store, ...changes);
    await store.maintain();
    const world = describeWorld(store.world);
    await store.close();
    store = await open();
    expect(store.recovery.changes).toBe(0);
    expect(describeWorld(store.world)).toBe(world);
  }
  await store.close();
});

test("cursors come back in their groups, and when some are missing that is damage", () => {
  const cursor = (stream: StreamName) => ({
    stream,
    offset: 3 as Offset,
    token: 4,
    holder: undefined,
    askedUntilMs: undefined,
    isFinished: false,
  });
  const start = { kind: "beginning" } as const;
  const settings = { pattern: undefined, streams: [], start, leaseMs: 1 };
  const group = { settings, createdAtMs: 1 as TimeMs, members: [] };
  const image: GroupBookImage = {
    nextToken: 5,
    groups: [
      { ...group, id: "one", cursors: names.slice(0, 450).map(cursor) },
      { ...group, id: "none", cursors: [] },
      { ...group, id: "other", cursors: names.slice(400, 601).map(cursor) },
    ],
  };
  const blocks: Buffer[] = [];
  const slices = slicesOf(image);
  for (let isDone = false; !isDone;) {
    const block = new ByteWriter(8);
    isDone = encodeCursors(block, slices, 10_000);
    blocks.push(Buffer.from(block.bytes()));
  }
  expect(blocks.length).toBeGreaterThan(2);
  const end = new ByteWriter(8);
  encodeGroups(end, image);
  const collect = (parts: readonly Buffer[]): GroupBookImage => {
    const collector = new GroupCollector();
    for (const part of parts) {
      const reader = new ByteReader(part);
      collector.takeCursors(reader);
      expect(reader.left).toBe(0);
    }
    return collector.takeGroups(new ByteReader(end.bytes()));
  };
  expect(collect(blocks)).toEqual(image);
  for (const at of [0, 1]) {
    expect(() => collect(blocks.toSpliced(at, 1))).toThrow("another number of cursors");
  }
});
