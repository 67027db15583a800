import fc from "fast-check";
import { expect, test } from "vitest";
import type { Change } from "../../core/change.ts";
import type { KeyPolicy } from "../../core/keys.ts";
import { KeyWindow } from "../../../base/key-window.ts";
import { ENDS_KEPT, type MutableProducer, recentAt } from "../../core/producer.ts";
import { Restoration } from "../../core/restore.ts";
import type {
  Epoch,
  Offset,
  ProducerId,
  Sequence,
  SessionNonce,
  StreamId,
  TimeMs,
} from "../../core/types.ts";
import { applyChange, createWorld, type World } from "../../core/world.ts";
import { createSeededRandom, type SeededRandom } from "../../../testing/seeded-random.ts";
import { createSimulatedDisk, type SimulatedDisk } from "../../../../test/kits/simulated-disk.ts";
import {
  appended,
  created,
  describeWorld,
  ended,
  evicted,
  keyed,
  marked,
  reset,
  write,
} from "../../../testing/store-case-kit.ts";
import { turn } from "../../../../test/kits/watch.ts";
import { type FileStore, openOnDisk } from "./file-store.ts";
import { ByteReader, ByteWriter } from "../journal/bytes.ts";
import { ExtentIndex } from "../journal/extents.ts";
import { decodeKeys, encodeKeys } from "../journal/key-format.ts";
import { decodeProducer, encodeProducer } from "../journal/producer-format.ts";
import { scanSnapshot } from "../journal/snapshot-scan.ts";
import { parseSnapshotName, putSnapshotFile, snapshotName } from "./snapshot-file.ts";
import { writeSnapshot } from "../journal/snapshot.ts";
import { readSnapshot } from "../journal/snapshot-reading.ts";

const SETTINGS = { segmentBytes: 1 << 20 };

function openOn(disk: SimulatedDisk): Promise<FileStore> {
  return openOnDisk(disk, SETTINGS, async () => {});
}

/** Writes streams with more producers and extents than are written with their stream. */
async function fill(store: FileStore): Promise<void> {
  await write(store, ...Array.from({ length: 300 }, (_, at) => created(at + 1)));
  for (let step = 0; step < 90; step += 1) {
    const producer = marked(`producer ${step}`, 0, 0);
    await write(store, appended(1, `one ${step}`, { producer }), appended(2, `two ${step}`));
  }
}

const POLICY: KeyPolicy = {
  windowSeconds: 60,
  countMax: 5000,
  overflow: "reject",
  isFromContent: true,
};

function keyedAppend(id: number, ordinal: number, evictTo = 0): Change {
  const atMs = (10 + ordinal) as TimeMs;
  return appended(id, `keyed ${ordinal}`, { atMs, key: keyed(`key ${ordinal}`, ordinal, evictTo) });
}

/**
 * Streams 301 to 306: keys that are written with the stream, in blocks of their own, or evicted; sessions and resets.
 */
async function fillIdentities(store: FileStore): Promise<void> {
  const keys = { policy: POLICY, window: undefined };
  await write(store, ...[301, 302, 303, 304].map((id) => created(id, { keys })));
  await write(store, created(305), created(306));
  for (const [id, count] of [
    [301, 20],
    [302, 5000],
    [303, 40],
    [305, 7],
  ] as const) {
    const ordinals = Array.from({ length: count }, (_, ordinal) => ordinal);
    await write(store, ...ordinals.map((ordinal) => keyedAppend(id, ordinal)));
  }
  await write(store, evicted(302, 700), evicted(303, 40), evicted(305, 2));
  for (let step = 0; step < 100; step += 1) {
    const session = marked("in sessions", Math.floor(step / 5), step % 5, {
      session: `nonce ${Math.floor(step / 5)}`,
    });
    await write(store, appended(306, "s", { producer: session }));
    await write(store, appended(306, "e", { producer: marked("in one epoch", 3, step) }));
    const many = marked(`many ${step}`, 0, 0, { session: `nonce of ${step}` });
    await write(store, appended(305, "m", { producer: many }));
  }
  await write(
    store,
    reset(305, "many 3", 1),
    reset(305, "many 4", 1),
    reset(306, "in sessions", 1),
  );
  const again = marked("many 4", 0, 0, { resets: 1 });
  await write(store, appended(305, "again", { producer: again }));
}

async function load(disk: SimulatedDisk, name: string): Promise<World> {
  const world = createWorld();
  await readSnapshot(
    await disk.open(name, "read"),
    name,
    new Restoration(world),
    new ExtentIndex(),
  );
  return world;
}

async function snapshotsOf(disk: SimulatedDisk): Promise<readonly string[]> {
  return (await disk.list()).filter((name) => name.startsWith("snapshot-")).toSorted();
}

test("a snapshot comes back whole: streams, extents, producers and the rest", async () => {
  const disk = createSimulatedDisk(1);
  const store = await openOn(disk);
  await fill(store);
  await store.maintain();
  const [name = ""] = await snapshotsOf(disk);
  expect(describeWorld(await load(disk, name))).toBe(describeWorld(store.world));
  await store.close();
});

test("a snapshot has every session, every reset, every end and every key", async () => {
  const disk = createSimulatedDisk(1);
  const store = await openOn(disk);
  await fillIdentities(store);
  await store.maintain();
  const [name = ""] = await snapshotsOf(disk);
  const loaded = await load(disk, name);
  expect(describeWorld(loaded)).toBe(describeWorld(store.world));
  const windows = [301, 302, 303, 304, 305].map((id) => loaded.byId.get(id as StreamId)?.keys);
  expect(windows.map((keys) => [keys?.policy, keys?.window?.first, keys?.window?.next])).toEqual([
    [POLICY, 0, 20],
    [POLICY, 700, 5000],
    [POLICY, 40, 40],
    [POLICY, undefined, undefined],
    [undefined, 2, 7],
  ]);
  const producers = loaded.byId.get(306 as StreamId)?.producers;
  expect(producers?.get("in sessions" as ProducerId)).toMatchObject({
    epoch: 0,
    lastSequence: -1,
    session: undefined,
    replaced: Array.from({ length: 16 }, (_, at) => `nonce ${at + 4}`),
    recent: [],
    resets: 1,
  });
  expect(producers?.get("in one epoch" as ProducerId)?.recent.length).toBe(2 * ENDS_KEPT);
  expect(await scanSnapshot(await disk.open(name, "read"), name)).toMatchObject({
    streams: 6,
    fault: undefined,
  });
  await store.close();
});

test("keys, sessions and resets that go on while a snapshot is written come back once", async () => {
  const disk = createSimulatedDisk(1);
  const store = await openOn(disk);
  await fillIdentities(store);
  const before = disk.log.length;
  let isDone = false;
  const maintained = store.maintain().then(() => (isDone = true));
  let commits = 0;
  for (; !isDone; commits += 1) {
    const ordinal = 5000 + commits;
    const session = marked("many 9", 1 + commits, 0, { session: `while ${commits}` });
    await write(store, keyedAppend(302, ordinal, 1000 + commits * 40));
    await write(store, appended(305, "m", { producer: session }), keyedAppend(301, 20 + commits));
    await write(store, reset(305, "many 5", 1 + commits));
  }
  await maintained;
  expect(commits).toBeGreaterThan(2);
  const sizes = disk.log.slice(before).filter(({ kind, what }) => {
    return kind === "write" && what.startsWith("snapshot-");
  });
  expect(Math.max(...sizes.map(({ what }) => Number(what.split("+")[1])))).toBeLessThan(80 * 1024);
  const world = describeWorld(store.world);
  const after = await openOn(disk.crash());
  expect(after.recovery.snapshotLsn).toBeDefined();
  expect(describeWorld(after.world)).toBe(world);
  await after.close();
});

/** Returns a possible change of one of the streams 1 to 4, or undefined. */
function anyChange(world: World, random: SeededRandom): Change | undefined {
  const id = 1 + random.below(4);
  const state = world.byId.get(id as StreamId);
  if (state === undefined) return undefined;
  const atMs = (world.timeMs + 1) as TimeMs;
  const window = state.keys?.window;
  const [first, next] = [window?.first ?? 0, window?.next ?? 0];
  const kind = random.below(20);
  if (kind === 0) return evicted(id, first + random.below(1 + next - first), atMs);
  const name = `producer ${random.below(60)}`;
  const known = state.producers?.get(name as ProducerId);
  if (kind === 1) return known && reset(id, name, known.resets + 1, atMs);
  if (kind < 9) {
    const evictTo = random.below(3) === 0 ? Math.min(next, first + random.below(9)) : first;
    // A key comes again long after it was evicted.
    const key = keyed(`key ${next % 8000}`, next, Math.max(evictTo, next - 7000));
    return appended(id, "k", { key, atMs });
  }
  const { epoch = 0, lastSequence = -1, resets = 0 } = known ?? {};
  const parts = known?.session === undefined ? { resets } : { resets, session: known.session };
  const same = marked(name, epoch, lastSequence + 1, parts);
  const other = marked(name, known === undefined ? 0 : epoch + 1, 0, {
    resets,
    session: `nonce ${atMs}`,
  });
  return appended(id, "p", { producer: kind < 16 ? same : other, atMs });
}

test("every change of keys and producers while a snapshot is written is there after recovery", async () => {
  let blocks = 0;
  for (let seed = 0; seed < 12; seed += 1) {
    const random = createSeededRandom(seed);
    const disk = createSimulatedDisk(seed);
    const store = await openOn(disk);
    await write(store, created(1), created(2), created(3), created(4));
    const happen = async (count: number): Promise<void> => {
      const changes: Change[] = [];
      for (let step = 0; step < count; step += 1) {
        const change = anyChange(store.world, random);
        if (change === undefined) continue;
        applyChange(store.world, change);
        changes.push(change);
      }
      await store.commit(changes);
    };
    const keysBefore = Array.from({ length: 2000 + random.below(3000) }, (_, at) =>
      keyedAppend(1, at),
    );
    await write(store, ...keysBefore);
    await happen(random.below(2000));
    let isDone = false;
    const maintained = store.maintain().then(() => (isDone = true));
    while (!isDone) await happen(1 + random.below(200));
    await maintained;
    const [name = ""] = await snapshotsOf(disk);
    const scan = await scanSnapshot(await disk.open(name, "read"), name);
    expect(scan.fault).toBeUndefined();
    blocks += scan.blocks;
    await happen(50);
    const after = await openOn(disk.crash());
    expect(after.recovery.snapshotLsn).toBeDefined();
    expect(describeWorld(after.world), `seed ${seed}`).toBe(describeWorld(store.world));
    await after.close();
  }
  // Head, streams and end, and the parts that follow their stream.
  expect(blocks).toBeGreaterThan(12 * 5);
}, 20_000);

const number = fc.maxSafeInteger().map((value) => Math.abs(value));
const nonce = fc.string() as fc.Arbitrary<SessionNonce>;
const producerState: fc.Arbitrary<MutableProducer> = fc
  .record({
    epoch: number as fc.Arbitrary<Epoch>,
    lastSequence: fc.oneof(fc.integer({ min: -1, max: 80 }), number) as fc.Arbitrary<Sequence>,
    session: fc.option(nonce, { nil: undefined }),
    replaced: fc.option(fc.array(nonce, { maxLength: 16 }), { nil: undefined }),
    resets: fc.oneof(fc.constant(0), number),
    known: fc.oneof(fc.constant(ENDS_KEPT), fc.nat(ENDS_KEPT)),
    steps: fc.array(fc.nat(1_000_000_000_000), { minLength: ENDS_KEPT, maxLength: ENDS_KEPT }),
    digests: fc.array(fc.integer(), { minLength: ENDS_KEPT, maxLength: ENDS_KEPT }),
  })
  .map(({ known, steps, digests, ...state }) => {
    const recent: number[] = [];
    let end = 0;
    for (let back = Math.min(known, state.lastSequence + 1) - 1; back >= 0; back -= 1) {
      end += steps[back] ?? 0;
      const at = recentAt((state.lastSequence - back) as Sequence);
      recent[at] = end;
      recent[at + 1] = digests[back] ?? 0;
    }
    return { ...state, recent };
  });

test("any producer comes back: session, replaced sessions, resets, and the ends that are known", () => {
  fc.assert(
    fc.property(fc.string() as fc.Arbitrary<ProducerId>, producerState, (id, state) => {
      const writer = new ByteWriter(8);
      encodeProducer(writer, id, state);
      const reader = new ByteReader(writer.bytes());
      expect(decodeProducer(reader)).toEqual([id, state]);
      expect(reader.left).toBe(0);
    }),
  );
});

test("a producer of one epoch takes a byte beside its numbers, its ends and their digests", () => {
  const writer = new ByteWriter(8);
  const recent = [300, 1, 310, -1, 320, 0x01020304];
  const rest = { session: undefined, replaced: undefined, resets: 0, recent };
  encodeProducer(writer, "p" as ProducerId, {
    epoch: 3 as Epoch,
    lastSequence: 2 as Sequence,
    ...rest,
  });
  expect([...writer.bytes()]).toEqual([
    ...[1, 112, 0, 3, 2, 192, 2, 10, 10],
    ...[4, 3, 2, 1, 255, 255, 255, 255, 1, 0, 0, 0],
  ]);
});

test("what a producer cannot have is damage", () => {
  const decode = (...bytes: readonly number[]) =>
    decodeProducer(new ByteReader(Uint8Array.from(bytes)));
  expect(() => decode(1, 112, 32, 0, 0, 5)).toThrow("unknown flags 32");
  expect(() => decode(1, 112, 16, 0, 0, 2, 5, 1)).toThrow("more ends than are kept");
  expect(() => decode(1, 112, 0, 0, 1, 5, 6)).toThrow("before its stream begins");
});

const entry = fc.record({ end: fc.nat(1_000_000), time: fc.nat(1_000_000) });

test("any part of any window of keys comes back: marks, ends and times", () => {
  const first = fc.integer({ min: 0, max: 2 ** 40 });
  const entries = fc.array(entry, { maxLength: 50 });
  fc.assert(
    fc.property(
      first,
      entries,
      fc.nat(60),
      fc.nat(60),
      fc.nat(60),
      (start, steps, gone, skip, max) => {
        const window = new KeyWindow(start);
        let [end, time] = [0, 0];
        for (const [at, step] of steps.entries()) {
          end += step.end;
          time += step.time;
          window.add(keyed(`key ${at}`, 0).mark, end as Offset, time as TimeMs);
        }
        window.evictTo(Math.min(window.next, start + gone));
        const from = Math.min(window.next, window.first + skip);
        const writer = new ByteWriter(8);
        const to = encodeKeys(writer, window, from, max);
        const reader = new ByteReader(writer.bytes());
        const decoded = decodeKeys(reader);
        expect(reader.left).toBe(0);
        expect(decoded).toMatchObject({ first: window.first, from });
        expect(decoded.entries.length).toBe(Math.min(max, window.next - from));
        expect(to).toBe(from + decoded.entries.length);
        for (const [at, { mark, end: endFound, atMs }] of decoded.entries.entries()) {
          expect(mark).toEqual(window.markOf(from + at));
          expect([endFound, atMs]).toEqual([window.endOf(from + at), window.timeOf(from + at)]);
        }
      },
    ),
  );
});

test("a snapshot that is cut anywhere, or goes on after its end, is never used", async () => {
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

test("a snapshot is made in small pieces, and commits go on between them", async () => {
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

test("a snapshot gets its name only when it is synced and what it contains is durable", async () => {
  const disk = createSimulatedDisk(1);
  const world = createWorld();
  const head = { storeId: "ab".repeat(16), lsn: 7, crc: 1, ordinal: 0, writtenAtMs: 0 };
  let settle: () => void = () => undefined;
  const settled = new Promise<void>((resolve) => {
    settle = resolve;
  });
  const writing = putSnapshotFile(disk, head.lsn, (sink) =>
    writeSnapshot(sink, world, new ExtentIndex(), head, () => settled),
  );
  await turn();
  expect(disk.log.some(({ kind }) => kind === "sync" || kind === "rename")).toBe(false);
  settle();
  await writing;
  const kinds = disk.log.map(({ kind }) => kind).filter((kind) => kind !== "write");
  expect(kinds).toEqual(["open", "sync", "close", "rename", "syncDirectory"]);
  expect(await snapshotsOf(disk)).toEqual([snapshotName(7)]);
});

test("a snapshot that cannot be finished is taken away, and nothing stops", async () => {
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

test("the two newest are kept, and the older one serves when the newer is damaged", async () => {
  const disk = createSimulatedDisk(1);
  const store = await openOn(disk);
  await fill(store);
  await fillIdentities(store);
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
