import { existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { crc32 } from "node:zlib";
import { afterAll, describe, expect, test } from "vitest";
import {
  changed,
  diskOf,
  type Files,
  filesOf,
  fillDirectory,
  freshDirectory,
  segmentFile,
  verify,
} from "../../../../test/kits/directory-kit.ts";
import { openFileStore } from "../file.ts";
import { ByteWriter } from "../journal/bytes.ts";
import { alignFrame, FRAME_HEADER_BYTES } from "../journal/format.ts";
import { recover } from "./recovery.ts";
import { encodeExtent } from "../journal/snapshot-format.ts";
import { scanWholeSegment, surveyDirectory } from "./survey.ts";

const golden = filesOf(fileURLToPath(new URL("../../../../test/golden/v1/whole", import.meta.url)));
const folders: string[] = [];
/** At every byte in the long run. Another bit each time: seven and eight have no common factor. */
const STEP_BYTES = process.env["HAPAX_LONG"] === undefined ? 7 : 1;

afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

async function filled(frames: number, maintainAt: readonly number[] = []): Promise<Files> {
  const directory = freshDirectory();
  folders.push(directory);
  await fillDirectory(directory, frames, maintainAt);
  return filesOf(directory);
}

interface CoveredBytes {
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

/** Returns the bytes that a checksum covers: header copies, frames without their padding, whole snapshots. */
async function coveredPlaces(files: Files): Promise<readonly CoveredBytes[]> {
  const disk = diskOf(files);
  const { segments } = await surveyDirectory(disk);
  const frames: CoveredBytes[] = [];
  const others: CoveredBytes[] = [];
  for (const segment of segments) {
    const { name, header } = segment;
    if (header === undefined) continue;
    others.push({ name, from: 0, to: 96 }, { name, from: 2048, to: 2144 });
    await scanWholeSegment(disk, { ...segment, header }, undefined, ({ position, bytes }) => {
      frames.push({ name, from: position, to: position + bytes.length });
    });
  }
  for (const [name, { length }] of files) {
    if (name.endsWith(".snap")) others.push({ name, from: 0, to: length });
  }
  // The last frame too: STORE names it.
  return [...frames, ...others];
}

describe("what is sound has no problem", () => {
  test("a directory with snapshots, compaction and several segments is sound", async () => {
    const result = await verify(diskOf(await filled(40, [15, 30])));
    expect(result.found).toEqual([]);
    expect(result).toMatchObject({ segments: 4, snapshots: 2, streams: 2, problems: 0 });
    expect(result.records).toBe(42);
    expect(result.isIndexChecked).toBe(true);
    expect(result.nextLsn).toBe(result.frames + 1);
  });

  test("a directory whose process was killed is sound, with or without a torn end", async () => {
    const directory = freshDirectory();
    folders.push(directory);
    await fillDirectory(directory, 5);
    const files = filesOf(directory);
    const name = segmentFile(1);
    const { frames } = await verify(diskOf(files));
    for (const length of [1, 8, 39, 40, 300]) {
      const torn = changed(files, name, (bytes) => {
        const end = endOfFrames(bytes, frames);
        bytes.fill(0x48, end, end + length);
      });
      const result = await verify(diskOf(torn));
      expect(result.found).toEqual([]);
      expect(result.torn).toMatchObject({ file: name });
    }
  });
});

/** Finds the end of the frames by their lengths. */
function endOfFrames(bytes: Buffer, frames: number): number {
  let at = 4096;
  for (let count = 0; count < frames; count += 1) {
    at += alignFrame(FRAME_HEADER_BYTES + bytes.readUInt32LE(at + 8));
  }
  return at;
}

describe("damage is found, with file and offset", () => {
  test("no flipped bit under a checksum goes unnoticed", async () => {
    const missed: string[] = [];
    let tried = 0;
    for (const { name, from, to } of await coveredPlaces(golden)) {
      for (let position = from; position < to; position += STEP_BYTES) {
        tried += 1;
        const files = changed(golden, name, (bytes) => {
          bytes[position] = (bytes[position] ?? 0) ^ (1 << (position % 8));
        });
        const { found } = await verify(diskOf(files));
        const isFound = found.some(({ file, offset }) => file === name && offset <= position);
        if (!isFound) missed.push(`${name} ${position}`);
      }
    }
    expect(missed).toEqual([]);
    expect(tried).toBeGreaterThan(500);
  }, 300_000);

  test("a damaged frame is named with its LSN, and the frames behind it are still read", async () => {
    const files = await filled(30);
    const whole = await verify(diskOf(files));
    const damaged = changed(files, segmentFile(2), (bytes) => {
      bytes[5000] = (bytes[5000] ?? 0) ^ 1;
    });
    const result = await verify(diskOf(damaged));
    expect(result.found).toHaveLength(1);
    expect(result.found[0]).toMatchObject({
      kind: "frames",
      file: segmentFile(2),
      offset: 4096,
      stopsServer: true,
    });
    expect(result.frames).toBe(whole.frames - 1);
    expect(result.isIndexChecked).toBe(false);
    expect(result.refusal).toContain(segmentFile(2));
  });

  test("damage in a segment before the snapshot names the stream and the offsets that are lost", async () => {
    const files = await filled(40, [35, 38]);
    const damaged = changed(files, segmentFile(1), (bytes) => {
      bytes[5000] = (bytes[5000] ?? 0) ^ 1;
    });
    const { found, refusal } = await verify(diskOf(damaged));
    expect(refusal).toBeUndefined();
    expect(found.map(({ kind, stopsServer }) => ({ kind, stopsServer }))).toEqual([
      { kind: "frames", stopsServer: false },
      { kind: "data", stopsServer: false },
    ]);
    expect(found[1]?.what).toMatch(/^stream \/case\/\d, offsets 0 to 1000: .*checksum/);
  });

  test("a segment that is missing is named, with what it held", async () => {
    const files = new Map(await filled(40, [35, 38]));
    files.delete(segmentFile(2));
    const { found, refusal } = await verify(diskOf(files));
    expect(refusal).toContain("segment 2");
    const lost = found.filter(({ kind }) => kind === "data");
    expect(lost.map(({ what }) => what)).toEqual([
      expect.stringMatching(/^stream \/case\/1, offsets .*: the segment is missing$/),
      expect.stringMatching(/^stream \/case\/2, offsets .*: the segment is missing$/),
    ]);
  });

  test("a gap in the frames that replay needs is named by its LSNs", async () => {
    const files = new Map(await filled(40));
    files.delete(segmentFile(2));
    const { found } = await verify(diskOf(files));
    expect(found[0]).toMatchObject({
      kind: "missing_segment",
      file: segmentFile(2),
      stopsServer: true,
    });
  });
});

test("an index entry that points to another place is found, although all checksums are right", async () => {
  const directory = freshDirectory();
  folders.push(directory);
  await fillDirectory(directory, 9, [9]);
  const files = filesOf(directory);
  const [name = ""] = [...files.keys()].filter((file) => file.endsWith(".snap"));
  const { index } = await recover(diskOf(files), () => undefined);
  const extent = [...index.streams.values()][1]?.at(2);
  if (extent === undefined) throw new Error("the stream has too few extents");
  for (const wrong of [
    { ...extent, position: extent.position + 8 },
    { ...extent, bytes: extent.bytes - 1 },
    // The whole stream is found, but a reader would fail on the bytes that follow.
    { ...extent, bytes: extent.bytes + 8 },
  ]) {
    const bad = changed(files, name, (bytes) => {
      replaceInBlocks(bytes, encoded(extent), encoded(wrong));
    });
    const { found } = await verify(diskOf(bad));
    expect(found.length).toBeGreaterThan(0);
    expect(found.filter(({ kind }) => kind !== "index" && kind !== "data")).toEqual([]);
  }
  // The same snapshot unchanged is sound.
  expect((await verify(diskOf(files))).found).toEqual([]);
});

function encoded(extent: Parameters<typeof encodeExtent>[1]): Buffer {
  const writer = new ByteWriter(32);
  encodeExtent(writer, extent);
  return writer.bytes();
}

function replaceInBlocks(bytes: Buffer, from: Buffer, to: Buffer): void {
  for (let at = 0; at < bytes.length;) {
    const length = bytes.readUInt32LE(at);
    const payload = bytes.subarray(at + 8, at + 8 + length);
    const found = payload.indexOf(from);
    if (found !== -1) {
      to.copy(payload, found);
      bytes.writeUInt32LE(crc32(payload), at + 4);
      return;
    }
    at += 8 + length;
  }
  throw new Error("the extent is in no block");
}

test("verifying and recovering change nothing, and leave unfinished files where they are", async () => {
  const directory = freshDirectory();
  folders.push(directory);
  await fillDirectory(directory, 20, [10]);
  const files = filesOf(directory);
  // This disk throws at any call that writes.
  const withLeftovers = new Map([
    ...files,
    ["snapshot-0000000000000099.tmp", Buffer.from("half")],
    ["spare-000000000099.tmp", Buffer.from("half")],
  ]);
  expect((await verify(diskOf(withLeftovers))).found).toEqual([]);
  await recover(diskOf(withLeftovers), () => undefined);
});

test("what is left over is removed by a store that opens the directory", async () => {
  const directory = freshDirectory();
  folders.push(directory);
  await fillDirectory(directory, 3);
  const leftover = join(directory, "snapshot-0000000000000099.tmp");
  writeFileSync(leftover, "half");
  await (await openFileStore(directory, { segmentBytes: 16_384 })).close();
  expect(existsSync(leftover)).toBe(false);
});
