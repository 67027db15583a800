import { expect, test } from "vitest";
import { createSeededRandom } from "../../../testing/seeded-random.ts";
import { createSimulatedDisk, type SimulatedDisk } from "../../../../test/kits/simulated-disk.ts";
import { createVirtualClock } from "../../../testing/virtual-clock.ts";
import { turn } from "../../../../test/kits/watch.ts";
import { decodeSegmentHeader, SEGMENT_HEADER_BYTES } from "../journal/format.ts";
import { parseSegmentName, segmentName, Segments } from "./segments.ts";

const SEGMENT_BYTES = 16_384;
const clock = createVirtualClock();
const ORIGIN = { storeId: "00112233445566778899aabbccddeeff", lastCrc: 0 };

function segmentsOn(disk: SimulatedDisk, ownClock = clock): Segments {
  const options = { segmentBytes: SEGMENT_BYTES, readFilesMax: 2, onFull: () => undefined };
  return new Segments(disk, ownClock, createSeededRandom(1), options);
}

/** Fills segments with frames of this size. */
async function fill(segments: Segments, count: number, bytes = 4000): Promise<void> {
  for (let lsn = 1; lsn <= count; lsn += 1) {
    await segments.ensureRoom(bytes, lsn, 0);
    await segments.write({ buffers: [Buffer.alloc(bytes, lsn)], bytes, crc: lsn });
  }
}

test("a segment gets its name after its header is durable, and its first frame after its name is", async () => {
  const disk = createSimulatedDisk(1);
  const segments = segmentsOn(disk);
  await segments.adopt([], [], ORIGIN);
  await fill(segments, 20);
  await segments.close();
  const { log } = disk;
  const renames = log.flatMap(({ kind, what }, at) => {
    return kind === "rename" && what.includes("journal-") ? [{ what, at }] : [];
  });
  expect(renames.length).toBeGreaterThan(4);
  for (const { what, at } of renames) {
    const [spare] = what.split(" ");
    const isHeader = (call: { kind: string; what: string }): boolean =>
      call.kind === "write" && call.what === `${spare} 0+${SEGMENT_HEADER_BYTES}`;
    expect(log.slice(0, at).some(isHeader)).toBe(true);
    expect(log.slice(0, at).some((call) => call.what === `${spare} durable`)).toBe(true);
    const later = log.slice(at);
    const synced = later.findIndex(({ kind }) => kind === "syncDirectory");
    const frame = later.findIndex(
      (call) => call.kind === "write" && call.what.startsWith(`${spare} `),
    );
    expect(synced).toBeGreaterThan(0);
    expect(frame === -1 || frame > synced).toBe(true);
  }
});

test("a segment that is used again is never found under its old name, wherever the power goes", async () => {
  for (let seed = 0; seed < 60; seed += 1) {
    for (let call = 1; call <= 5; call += 1) {
      const disk = createSimulatedDisk(seed);
      const ownClock = createVirtualClock();
      const segments = segmentsOn(disk, ownClock);
      await segments.adopt([], [], ORIGIN);
      await segments.ensureRoom(0, 1, 0);
      await turn();
      // There is no room for another file: the next segment can only use the dead one.
      disk.setCapacity(2 * SEGMENT_BYTES + 10);
      await fill(segments, 4);
      await turn();
      void segments.retire(1);
      while (disk.log.at(-1)?.kind !== "syncDirectory") await Promise.resolve();
      disk.stopAt(disk.log.length + call);
      void segments.ensureRoom(SEGMENT_BYTES - SEGMENT_HEADER_BYTES, 5, 0);
      for (let turns = 0; turns < 3; turns += 1) {
        await turn();
        ownClock.advance(1000);
      }
      const after = disk.crash();
      for (const name of await after.list()) {
        const number = parseSegmentName(name);
        if (number === undefined) continue;
        const file = await after.open(name, "read");
        const header = decodeSegmentHeader(await file.read(0, SEGMENT_HEADER_BYTES));
        expect(header?.number, `seed ${seed} call ${call}: ${name}`).toBe(number);
      }
    }
  }
});

test("numbers only grow, also when the file of a dead segment is used again", async () => {
  const disk = createSimulatedDisk(3);
  const segments = segmentsOn(disk);
  await segments.adopt([], [], ORIGIN);
  const numbers: number[] = [];
  for (let round = 0; round < 6; round += 1) {
    await fill(segments, 4);
    const active = segments.active?.number ?? 0;
    numbers.push(active);
    await segments.retire(active - 1);
  }
  expect(numbers).toEqual(numbers.toSorted((one, other) => one - other));
  expect(new Set(numbers).size).toBe(numbers.length);
  const reused = disk.log.filter(
    ({ kind, what }) => kind === "rename" && /journal-\S+ spare-/.test(what),
  );
  expect(reused.length).toBeGreaterThan(2);
});

test("frames are written into room that the file already has", async () => {
  const disk = createSimulatedDisk(4);
  const segments = segmentsOn(disk);
  await segments.adopt([], [], ORIGIN);
  await fill(segments, 12);
  // A frame that is larger than a segment gets one of its own size.
  await segments.ensureRoom(50_000, 13, 0);
  await segments.write({ buffers: [Buffer.alloc(50_000)], bytes: 50_000, crc: 13 });
  const listed = segments.list();
  await segments.close();
  for (const { name, bytes } of listed) {
    const file = await disk.open(name, "read");
    expect(await file.size()).toBe(bytes);
  }
  const spare = disk.log.filter(({ kind, what }) => kind === "sync" && what.startsWith("spare-"));
  expect(spare.length).toBeGreaterThanOrEqual(listed.length);
});

test("a full disk says how many bytes are left, and the store looks again by itself", async () => {
  const disk = createSimulatedDisk(5);
  const ownClock = createVirtualClock();
  const segments = segmentsOn(disk, ownClock);
  await segments.adopt([], [], ORIGIN);
  await segments.ensureRoom(0, 1, 0);
  expect(segments.room.bytes).toBe(Number.MAX_SAFE_INTEGER);
  await turn();
  disk.setCapacity(2 * SEGMENT_BYTES + 10);
  await fill(segments, 3);
  await segments.ensureRoom(4000, 4, 0);
  await turn();
  expect(segments.isFull).toBe(true);
  expect(segments.room.bytes).toBeLessThan(SEGMENT_BYTES);
  disk.setCapacity(Infinity);
  ownClock.advance(1000);
  await turn();
  expect(segments.isFull).toBe(false);
  expect(segments.room.bytes).toBe(Number.MAX_SAFE_INTEGER);
  await segments.close();
});

test("the file of a dead segment is room, also on a full disk", async () => {
  const disk = createSimulatedDisk(6);
  const segments = segmentsOn(disk);
  await segments.adopt([], [], ORIGIN);
  await segments.ensureRoom(0, 1, 0);
  await turn();
  disk.setCapacity(2 * SEGMENT_BYTES + 10);
  await fill(segments, 4);
  await turn();
  expect(segments.isFull).toBe(true);
  await segments.retire(1);
  expect(segments.isFull).toBe(false);
  await segments.close();
});

test("S4 a running read is not cut off when its segment is full or given up", async () => {
  for (let seed = 0; seed < 30; seed += 1) {
    const disk = createSimulatedDisk(seed);
    const segments = segmentsOn(disk);
    await segments.adopt([], [], ORIGIN);
    await fill(segments, 3);
    const number = segments.active?.number ?? 0;
    const read = segments.read(number, SEGMENT_HEADER_BYTES, 4000);
    await fill(segments, 4);
    await segments.retire(number);
    expect((await read).equals(Buffer.alloc(4000, 1))).toBe(true);
    await segments.close();
  }
});

test("only a few files are open for reading, and one that is missing is named", async () => {
  const disk = createSimulatedDisk(7);
  const segments = segmentsOn(disk);
  await segments.adopt([], [], ORIGIN);
  await fill(segments, 15);
  const numbers = segments.list().map(({ number }) => number);
  for (const number of [...numbers, ...numbers]) await segments.read(number, 4096, 8);
  const count = (kind: string, what: RegExp): number =>
    disk.log.filter((call) => call.kind === kind && what.test(call.what)).length;
  const opened = count("open", /^journal-\S+ read$/);
  expect(opened - count("close", /^journal-/)).toBeLessThanOrEqual(2);
  await expect(segments.read(999, 0, 1)).rejects.toThrow(segmentName(999));
  await segments.close();
});
