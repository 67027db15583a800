// Directories that earlier versions wrote must open for ever, and their bytes are what the documents say. The
// offsets here are written by hand from docs/formats/journal.md and snapshot.md, not taken from the code.
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { crc32 } from "node:zlib";
import { afterAll, describe, expect, test } from "vitest";
import { openFileStore } from "../src/stores/file.ts";
import { FORMAT_VERSION } from "../src/stores/file/format.ts";
import { openNodeDisk } from "../src/stores/file/node-disk.ts";
import { type Problem, verifyDisk } from "../src/stores/file/verification.ts";
import { describeStore, SEGMENT_BYTES, START_MS, tellStory } from "./golden/story.ts";

const golden = fileURLToPath(new URL("golden", import.meta.url));
const root = mkdtempSync(join(tmpdir(), "hapax-golden-"));
let copies = 0;

afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});

function copyOf(version: string, which: "whole" | "torn"): string {
  copies += 1;
  const directory = join(root, `copy-${copies}`);
  cpSync(join(golden, version, which), directory, { recursive: true });
  return directory;
}

async function describeDirectory(directory: string) {
  const store = await openFileStore(directory, { segmentBytes: SEGMENT_BYTES });
  try {
    return { world: await describeStore(store), recovery: store.recovery };
  } finally {
    await store.close();
  }
}

const segmentsOf = (directory: string): readonly string[] =>
  readdirSync(directory)
    .filter((name) => name.endsWith(".seg") && name.startsWith("journal-"))
    .toSorted();

const worldOf = (version: string): unknown =>
  JSON.parse(readFileSync(join(golden, version, "world.json"), "utf8"));

/** What is asked for with HAPAX_MAKE_GOLDEN; a released version is never made again. */
async function makeGolden(version: string): Promise<void> {
  const whole = join(golden, version, "whole");
  const torn = join(golden, version, "torn");
  mkdirSync(join(golden, version));
  await tellStory(whole);
  for (const name of readdirSync(whole)) if (name.startsWith("spare-")) rmSync(join(whole, name));
  cpSync(whole, torn, { recursive: true });
  const last = join(torn, segmentsOf(torn).at(-1) ?? "");
  const bytes = readFileSync(last);
  const end = framesOf(bytes).at(-1)?.end ?? 0;
  // A frame of 200 bytes whose last 150 never reached the disk.
  bytes.write("HPXF", end, "latin1");
  bytes.writeUInt32LE(0x12345678, end + 4);
  bytes.writeUInt32LE(160, end + 8);
  bytes.writeUInt32LE(1, end + 12);
  bytes.writeBigUInt64LE(BigInt((framesOf(bytes).at(-1)?.lsn ?? 0) + 1), end + 16);
  bytes.fill(0x2a, end + 40, end + 50);
  writeFileSync(last, bytes);
  const { world } = await describeDirectory(cpCopy(whole));
  writeFileSync(join(golden, version, "world.json"), `${JSON.stringify(world, undefined, 2)}\n`);
}

function cpCopy(from: string): string {
  copies += 1;
  const directory = join(root, `copy-${copies}`);
  cpSync(from, directory, { recursive: true });
  return directory;
}

interface ReadFrame {
  readonly at: number;
  readonly end: number;
  readonly lsn: number;
  readonly ordinal: number;
  readonly timeMs: number;
  readonly payload: Buffer;
  readonly records: number;
}

/** The frames of a segment by the document alone. */
function framesOf(bytes: Buffer): readonly ReadFrame[] {
  const salt = bytes.readUInt32LE(32);
  const frames: ReadFrame[] = [];
  let at = 4096;
  while (at + 40 <= bytes.length && bytes.toString("latin1", at, at + 4) === "HPXF") {
    const length = bytes.readUInt32LE(at + 8);
    const end = at + 40 + length;
    if (
      end > bytes.length ||
      crc32(bytes.subarray(at + 8, end), salt) !== bytes.readUInt32LE(at + 4)
    ) {
      break;
    }
    const next = Math.ceil(end / 8) * 8;
    frames.push({
      at,
      end: next,
      records: bytes.readUInt32LE(at + 12),
      lsn: Number(bytes.readBigUInt64LE(at + 16)),
      ordinal: Number(bytes.readBigUInt64LE(at + 24)),
      timeMs: Number(bytes.readBigUInt64LE(at + 32)),
      payload: bytes.subarray(at + 40, end),
    });
    at = next;
  }
  return frames;
}

const MAKE = process.env["HAPAX_MAKE_GOLDEN"] ?? "";
if (/^v\d+$/.test(MAKE) && !existsSync(join(golden, MAKE))) await makeGolden(MAKE);

const versions = readdirSync(golden).filter((entry) => /^v\d+$/.test(entry));

test("there are golden files of every format version up to this one", () => {
  expect(versions.toSorted()).toEqual(
    Array.from({ length: FORMAT_VERSION }, (_, at) => `v${at + 1}`).toSorted(),
  );
});

test("what is written today tells the same story as the newest golden files", async () => {
  const directory = join(root, "today");
  await tellStory(directory);
  const { world } = await describeDirectory(directory);
  expect(world).toEqual(worldOf(versions.toSorted().at(-1) ?? ""));
});

describe.each(versions)("%s", (version) => {
  test("RC3 the golden directory opens with every stream, producer, key and subscription", async () => {
    const { world, recovery } = await describeDirectory(copyOf(version, "whole"));
    expect(world).toEqual(worldOf(version));
    expect(recovery.snapshotLsn).toBeDefined();
    expect(recovery.changes).toBeGreaterThan(5);
    expect(recovery.torn).toBeUndefined();
    expect(recovery.warnings).toEqual([]);
  });

  test("RC1 with a torn end it opens as the same world", async () => {
    const { world, recovery } = await describeDirectory(copyOf(version, "torn"));
    expect(world).toEqual(worldOf(version));
    expect(recovery.torn).toBeDefined();
  });

  test.each(["whole", "torn"] as const)("VF1 verification finds %s sound", async (which) => {
    const problems: Problem[] = [];
    const result = await verifyDisk(openNodeDisk(join(golden, version, which), true), {
      onProblem: async (problem) => void problems.push(problem),
      onProgress: async () => undefined,
    });
    expect(problems).toEqual([]);
    expect(result.refusal).toBeUndefined();
    expect(result.torn !== undefined).toBe(which === "torn");
    expect(result.isIndexChecked).toBe(true);
  });
});

describe("the bytes of v1 are what docs/formats says", () => {
  const directory = join(golden, "v1", "whole");
  const segments = segmentsOf(directory).map((name) => readFileSync(join(directory, name)));
  const frames = segments.flatMap((bytes) => framesOf(bytes));

  test("JF1 a segment begins with two equal copies of its header", () => {
    for (const [at, bytes] of segments.entries()) {
      expect(bytes.length).toBe(SEGMENT_BYTES);
      expect(bytes.toString("latin1", 0, 8)).toBe("HAPAXSEG");
      expect(bytes.readUInt32LE(8)).toBe(1);
      expect(bytes.readUInt32LE(12)).toBe(crc32(bytes.subarray(16, 64), 1));
      expect(`journal-${String(bytes.readBigUInt64LE(16)).padStart(12, "0")}.seg`).toBe(
        segmentsOf(directory)[at],
      );
      expect(Number(bytes.readBigUInt64LE(24))).toBe(framesOf(bytes)[0]?.lsn);
      expect(Number(bytes.readBigUInt64LE(36))).toBeGreaterThanOrEqual(START_MS);
      expect(bytes.subarray(44, 2048).every((byte) => byte === 0)).toBe(true);
      expect(bytes.subarray(2048, 2112)).toEqual(bytes.subarray(0, 64));
      expect(bytes.subarray(2112, 4096).every((byte) => byte === 0)).toBe(true);
    }
  });

  test("JF2 frames follow each other by LSN and ordinal, and zeros follow the last", () => {
    for (const [at, frame] of frames.entries()) {
      expect(frame.lsn).toBe((frames[0]?.lsn ?? 0) + at);
      expect(frame.ordinal).toBeGreaterThanOrEqual(frames[at - 1]?.ordinal ?? 0);
      expect(frame.timeMs).toBeGreaterThanOrEqual(START_MS);
    }
    const last = segments.at(-1) ?? Buffer.alloc(0);
    const end = framesOf(last).at(-1)?.end ?? 0;
    expect(last.subarray(end).every((byte) => byte === 0)).toBe(true);
    // The orderly end: a frame without records.
    expect(frames.at(-1)).toMatchObject({ records: 0, payload: Buffer.alloc(0) });
  });

  test("all kinds of records are in it", () => {
    // The first record of a frame begins with its kind; the story gives each kind one to begin.
    const kinds = new Set(
      frames.filter(({ records }) => records > 0).map(({ payload }) => payload[0]),
    );
    expect(kinds).toEqual(new Set([1, 2, 3, 4, 5, 6, 7, 8]));
  });

  test("an appended record with producer and Stream-Seq has its fields where they belong", () => {
    const frame = frames.find(({ payload }) => payload.includes('{"a":3}'));
    const bytes = frame?.payload ?? Buffer.alloc(0);
    expect(frame?.records).toBe(2);
    expect(bytes[0]).toBe(2);
    const metaEnd = 3 + bytes.readUInt16LE(1);
    expect(bytes[3]).toBe(1); // stream 1
    expect(bytes[4]).toBe(2 | 4); // producer and Stream-Seq, no close
    // Start 914 = 7 * 128 + 18.
    expect([bytes[5], bytes[6]]).toEqual([128 | 18, 7]);
    // The time has six bytes of seven bits.
    const time = bytes.subarray(7, 13).reduceRight((sum, byte) => sum * 128 + (byte & 127), 0);
    expect(time).toBe(START_MS + 111);
    expect(bytes.toString("latin1", 13, 20)).toBe("\u0006till-1");
    expect([bytes[20], bytes[21]]).toEqual([1, 0]); // epoch, sequence
    expect(bytes.toString("latin1", 22, 27)).toBe("\u00040003");
    expect(metaEnd).toBe(27);
    expect(bytes[27]).toBe(7);
    expect(bytes.readUInt32LE(28)).toBe(crc32('{"a":3}'));
    expect(bytes.toString("latin1", 32, 39)).toBe('{"a":3}');
    expect(bytes[39]).toBe(2); // the next record
  });

  test("SN1 a snapshot is blocks with length and checksum, from a head to an end", () => {
    const names = readdirSync(directory).filter((name) => name.endsWith(".snap"));
    expect(names.length).toBe(2);
    for (const name of names) {
      const bytes = readFileSync(join(directory, name));
      const kinds: number[] = [];
      for (let at = 0; at < bytes.length;) {
        const length = bytes.readUInt32LE(at);
        const payload = bytes.subarray(at + 8, at + 8 + length);
        expect(bytes.readUInt32LE(at + 4)).toBe(crc32(payload));
        kinds.push(payload[0] ?? 0);
        at += 8 + length;
      }
      expect(kinds).toEqual([1, 2, 5]);
      expect(bytes.toString("latin1", 9, 18)).toBe("\u0008HAPAXSNP");
      expect(bytes[18]).toBe(1); // format version
      expect(name).toBe(`snapshot-${String(bytes[19]).padStart(16, "0")}.snap`);
    }
  });
});
