// Directories of every released format must open, and their bytes are what the documents say. The offsets here are written by hand from docs/formats/journal.md and snapshot.md, not taken from the code.
import {
  cpSync,
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
import { createHash } from "node:crypto";
import { afterAll, describe, expect, test } from "vitest";
import { openFileStore } from "../src/streams/stores/file.ts";
import { FORMAT_VERSION } from "../src/streams/stores/journal/format.ts";
import { inspectDisk } from "../src/streams/stores/file/inspection.ts";
import { openNodeDisk } from "../src/streams/stores/file/node-disk.ts";
import { planRepair } from "../src/streams/stores/file/repair.ts";
import { type StoreProblem, verifyDisk } from "../src/streams/stores/file/verification.ts";
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

/** What is asked for with HAPAX_MAKE_GOLDEN. */
async function makeGolden(version: string): Promise<void> {
  const whole = join(golden, version, "whole");
  const torn = join(golden, version, "torn");
  rmSync(join(golden, version), { recursive: true, force: true });
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
  readonly crc: number;
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
      crc: bytes.readUInt32LE(at + 4),
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
if (MAKE === `v${FORMAT_VERSION}`) await makeGolden(MAKE);

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

  test.each(["whole", "torn"] as const)("verification finds %s sound", async (which) => {
    const problems: StoreProblem[] = [];
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

describe.each(versions)("the bytes of %s are what docs/formats says", (version) => {
  const number = Number(version.slice(1));
  const directory = join(golden, version, "whole");
  const segments = segmentsOf(directory).map((name) => readFileSync(join(directory, name)));
  const frames = segments.flatMap((bytes) => framesOf(bytes));
  const store = readFileSync(join(directory, "STORE"));

  test("ID2 STORE has two equal copies, and knows the last segment and the last frame", () => {
    expect(store.length).toBe(8192);
    expect(store.toString("latin1", 0, 8)).toBe("HAPAXSTO");
    expect(store.readUInt32LE(8)).toBe(number);
    expect(store.readUInt32LE(12)).toBe(crc32(store.subarray(16, 80), number));
    expect(Number(store.readBigUInt64LE(32))).toBe(1); // opened once
    expect(Number(store.readBigUInt64LE(48))).toBe(6);
    expect(Number(store.readBigUInt64LE(56))).toBe(frames.at(-1)?.lsn);
    const last = segments.at(-1);
    const at = framesOf(last ?? Buffer.alloc(0)).at(-1)?.at ?? 0;
    expect(store.readUInt32LE(64)).toBe(last?.readUInt32LE(at + 4));
    expect(store.readUInt32LE(68)).toBe(1); // closed in order
    expect(store.subarray(72, 4096).every((byte) => byte === 0)).toBe(true);
    expect(store.subarray(4096, 8192)).toEqual(store.subarray(0, 4096));
  });

  test("a segment begins with two equal copies of its header", () => {
    for (const [at, bytes] of segments.entries()) {
      expect(bytes.length).toBe(SEGMENT_BYTES);
      expect(bytes.toString("latin1", 0, 8)).toBe("HAPAXJNL");
      expect(bytes.readUInt32LE(8)).toBe(number);
      expect(bytes.readUInt32LE(12)).toBe(crc32(bytes.subarray(16, 96), number));
      expect(`journal-${String(bytes.readBigUInt64LE(16)).padStart(12, "0")}.seg`).toBe(
        segmentsOf(directory)[at],
      );
      expect(Number(bytes.readBigUInt64LE(24))).toBe(framesOf(bytes)[0]?.lsn);
      expect(Number(bytes.readBigUInt64LE(36))).toBeGreaterThanOrEqual(START_MS);
      expect(Number(bytes.readBigUInt64LE(44))).toBe(SEGMENT_BYTES);
      // The CRC of the frame before the first one; of the oldest segment it is not there any more.
      const before = segments[at - 1];
      const last = before === undefined ? undefined : framesOf(before).at(-1);
      if (last !== undefined)
        expect(bytes.readUInt32LE(52)).toBe(before?.readUInt32LE(last.at + 4));
      expect(bytes.subarray(56, 72)).toEqual(store.subarray(16, 32));
      expect(bytes.subarray(72, 2048).every((byte) => byte === 0)).toBe(true);
      expect(bytes.subarray(2048, 2144)).toEqual(bytes.subarray(0, 96));
      expect(bytes.subarray(2144, 4096).every((byte) => byte === 0)).toBe(true);
    }
  });

  test("frames follow each other by LSN and ordinal, and zeros follow the last", () => {
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
    expect(kinds).toEqual(new Set([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]));
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
    // MurmurHash3 of the data with the seed 0x9747b28c, by another implementation.
    expect(bytes.readUInt32LE(22)).toBe(0xbe99d91d);
    expect(bytes.toString("latin1", 26, 31)).toBe("\u00040003");
    expect(metaEnd).toBe(31);
    expect(bytes[31]).toBe(7);
    expect(bytes.readUInt32LE(32)).toBe(crc32('{"a":3}'));
    expect(bytes.toString("latin1", 36, 43)).toBe('{"a":3}');
    expect(bytes[43]).toBe(2); // the next record
  });

  test("a snapshot is blocks with length and checksum, from a head to an end", () => {
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
      // The cursors of groups are in a block of their own.
      expect(kinds).toEqual([1, 2, 7, 5]);
      expect(bytes.toString("latin1", 9, 18)).toBe("\u0008HAPAXIMG");
      expect(bytes[18]).toBe(number); // format version
      expect(bytes.subarray(19, 35)).toEqual(store.subarray(16, 32));
      expect(name).toBe(`snapshot-${String(bytes[35]).padStart(16, "0")}.snap`);
      const frame = frames.find(({ lsn }) => lsn === bytes[35]);
      expect(bytes.readUInt32LE(36)).toBe(frame?.crc);
    }
  });
});

test("a directory of another format is refused by server and tools, and stays as it is", async () => {
  const newer = (bytes: Buffer): void => {
    for (const at of [0, 2048]) {
      bytes.writeUInt32LE(2, at + 8);
      bytes.writeUInt32LE(crc32(bytes.subarray(at + 16, at + 96), 2), at + 12);
    }
  };
  const directory = copyOf("v1", "whole");
  for (const name of segmentsOf(directory)) {
    const bytes = readFileSync(join(directory, name));
    newer(bytes);
    writeFileSync(join(directory, name), bytes);
  }
  await expectRefusal(directory, "its format is 2, this version of Hapax knows format 1");
});

test("so is one with a snapshot of another format", async () => {
  const directory = copyOf("v1", "whole");
  const names = readdirSync(directory).filter((name) => name.endsWith(".snap"));
  const path = join(directory, names.toSorted().at(-1) ?? "");
  const bytes = readFileSync(path);
  const payload = bytes.subarray(8, 8 + bytes.readUInt32LE(0));
  payload[10] = 2;
  bytes.writeUInt32LE(crc32(payload), 4);
  writeFileSync(path, bytes);
  await expectRefusal(directory, "its format is 2, this version");
});

async function expectRefusal(directory: string, message: string): Promise<void> {
  const contents = (): unknown =>
    readdirSync(directory).map((name) => [name, readFileSync(join(directory, name))]);
  const before = contents();
  const refusal = { code: "format_unknown", message: expect.stringContaining(message) as unknown };
  await expect(openFileStore(directory)).rejects.toMatchObject(refusal);
  const disk = openNodeDisk(directory, true);
  const nothing = async (): Promise<void> => undefined;
  const verifying = verifyDisk(disk, { onProblem: nothing, onProgress: nothing });
  await expect(verifying).rejects.toMatchObject(refusal);
  await expect(inspectDisk(disk, nothing)).rejects.toMatchObject(refusal);
  await expect(planRepair(disk, undefined, nothing)).rejects.toMatchObject(refusal);
  expect(contents()).toEqual(before);
}

describe("the bytes of keys, sessions and resets are what docs/formats says", () => {
  const directory = join(golden, "v1", "whole");
  const payloads = segmentsOf(directory)
    .flatMap((name) => framesOf(readFileSync(join(directory, name))))
    .map(({ payload }) => payload);
  const isOf = (kind: number) => (payload: Buffer) => payload[0] === kind;
  const find = (test: (payload: Buffer) => boolean): Buffer =>
    payloads.find(test) ?? Buffer.alloc(0);
  /** A time has six bytes of seven bits. */
  const timeAt = (bytes: Buffer, at: number): number =>
    bytes.subarray(at, at + 6).reduceRight((sum, byte) => sum * 128 + (byte & 127), 0) - START_MS;

  test("an appended record has session and resets behind the sequence", () => {
    const bytes = find((payload) => payload.includes("nonce-e"));
    expect([bytes[0], bytes[3], bytes[4]]).toEqual([2, 12, 2 | 8 | 16]);
    const start = 5 + bytes.subarray(5).findIndex((byte) => byte < 128) + 1;
    expect(timeAt(bytes, start)).toBe(134);
    const rest = bytes.subarray(start + 6, 3 + bytes.readUInt16LE(1));
    expect(rest.toString("latin1", 0, 7)).toBe("\u0006till-4");
    expect([rest[7], rest[8]]).toEqual([1, 0]); // epoch, sequence
    expect(rest.readUInt32LE(9)).toBe(0x09347505); // of "late"
    expect(rest.toString("latin1", 13, 21)).toBe("\u0007nonce-e");
    expect([...rest.subarray(21)]).toEqual([1]); // resets
    const without = find((payload) => payload.includes("nonce-c") && payload.includes("c1"));
    expect(without[4]).toBe(2 | 8);
  });

  test("an appended record has mark, ordinal and what stays of the keys at the end of its meta part", () => {
    const bytes = find((payload) => payload.includes("late\n"));
    expect([bytes[0], bytes[3], bytes[4]]).toEqual([2, 10, 32]);
    const meta = bytes.subarray(3, 3 + bytes.readUInt16LE(1));
    const digest = createHash("sha256").update("late").digest();
    expect(meta.subarray(-26, -2)).toEqual(digest.subarray(0, 24));
    expect([...meta.subarray(-2)]).toEqual([45, 45 - 21]);
    const all = find((payload) => payload.includes("once"));
    expect(all[4]).toBe(1 | 4 | 32); // closes, Stream-Seq and key
  });

  test("created with keys, producer reset and keys evicted have their fields where they belong", () => {
    const created = find(isOf(9));
    expect(created[1]).toBe(13);
    // The run, 2^51 and 13, has 8 bytes with 7 bits each.
    expect([...created.subarray(2, 10)]).toEqual([128 | 13, 128, 128, 128, 128, 128, 128, 4]);
    expect(timeAt(created, 10)).toBe(129);
    expect(created.toString("latin1", 16, 34)).toBe("\u0011/v1/stream/strict");
    expect(created.toString("latin1", 34, 45)).toBe("\u000atext/plain");
    // Expiry, fork; the flags: seconds and reject; 86,400 = 5 * 2^14 + 35 * 2^7.
    expect([...created.subarray(45)]).toEqual([0, 0, 1 | 8, 128, 128 | 35, 5]);
    const resets = payloads.filter(isOf(10)).at(-1) ?? Buffer.alloc(0);
    expect(resets[1]).toBe(12);
    expect(timeAt(resets, 2)).toBe(133);
    expect(resets.toString("latin1", 8)).toBe("\u0006till-4\u0001");
    const evicted = find(isOf(11));
    expect(evicted[1]).toBe(10);
    expect(timeAt(evicted, 2)).toBe(131);
    expect([...evicted.subarray(8)]).toEqual([20]);
  });

  test("a snapshot has policies, keys and producers as they are specified", () => {
    const name = readdirSync(directory)
      .filter((entry) => entry.endsWith(".snap"))
      .toSorted()
      .at(-1);
    const bytes = readFileSync(join(directory, name ?? ""));
    const blocks: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += 8 + bytes.readUInt32LE(at)) {
      blocks.push(bytes.subarray(at + 8, at + 8 + bytes.readUInt32LE(at)));
    }
    const [, streams = Buffer.alloc(0)] = blocks;
    // Stream 10: the first is 5, from there on, 40 of them.
    const digest = createHash("sha256").update("payment 5").digest();
    const keys = streams.subarray(streams.indexOf(digest.subarray(0, 24)) - 5);
    expect([...keys.subarray(2, 5)]).toEqual([5, 0, 40]);
    expect(keys[29]).toBe(6 * 10); // the end of "payment 5\n"
    expect(timeAt(keys, 30)).toBe(45);
    const second = createHash("sha256").update("payment 6").digest();
    expect(keys.subarray(36, 60)).toEqual(second.subarray(0, 24));
    expect([keys[60], keys[61]]).toEqual([10, 1]); // ten bytes and a millisecond later
    // Stream 11 has a policy (16: from content), no extents beyond its first, no producers, and two keys inline.
    const contents = streams.indexOf("/v1/stream/contents");
    const run = [128 | 11, 128, 128, 128, 128, 128, 128, 4];
    expect([...streams.subarray(contents - 10, contents - 1)]).toEqual([11, ...run]);
    expect(streams.includes(createHash("sha256").update("equal").digest().subarray(0, 24))).toBe(
      true,
    );
    const producer = (id: string, length: number): readonly number[] => {
      const at = streams.indexOf(id) + id.length;
      return [...streams.subarray(at, at + length)];
    };
    // Session and replaced ones, epoch 2, sequence 0, "nonce-c", two others, the end of "a0a1b0c0".
    const session = [...Buffer.from("\u0007nonce-c\u0002\u0007nonce-a\u0007nonce-b", "latin1")];
    expect(producer("till-3", 33)).toEqual([1 | 2, 2, 0, ...session, 8, 0x5e, 0xe5, 0xa9, 0x13]);
    // Nothing is accepted since the reset.
    expect(producer("till-6", 3)).toEqual([4 | 8, 0, 1]);
    // 32 ends: that of "39;" behind the six above, then back by 3 for two digits and by 2 for one.
    const ends = producer("till-4", 3 + 1 + 31);
    expect(ends.slice(0, 4)).toEqual([0, 0, 39, 12 + 10 * 2 + 30 * 3]);
    expect(ends.slice(4)).toEqual([...Array.from({ length: 30 }, () => 3), 2]);
    // And a digest for each, of "39;" first.
    const digests = producer("till-4", 35 + 4 * 32).slice(35);
    expect(digests.slice(0, 8)).toEqual([0xc7, 0xbb, 0x17, 0xd6, 0xcc, 0xcd, 0x27, 0x74]);
  });
});

describe("the bytes of groups and trims are what docs/formats says", () => {
  const directory = join(golden, "v1", "whole");
  const payloads = segmentsOf(directory)
    .flatMap((name) => framesOf(readFileSync(join(directory, name))))
    .map(({ payload }) => payload);
  /** A text behind its length, which is one or two bytes of seven bits. */
  const textAt = (bytes: Buffer, at: number): readonly [text: string, end: number] => {
    const low = bytes[at] ?? 0;
    const isLong = low > 127;
    const length = isLong ? (low & 127) + 128 * (bytes[at + 1] ?? 0) : low;
    const from = at + (isLong ? 2 : 1);
    return [bytes.toString("utf8", from, from + length), from + length];
  };

  test("a change of a group is JSON behind its kind, and a trim has stream, time and offset", () => {
    const committed = payloads.findLast((payload) => payload[0] === 12) ?? Buffer.alloc(0);
    const [text, end] = textAt(committed, 1);
    expect(end).toBe(committed.length);
    expect(JSON.parse(text)).toEqual({
      kind: "group_committed",
      atMs: START_MS + 136,
      group: "shippers",
      member: "pod-a#1",
      expiresAtMs: START_MS + 30_096,
      offsets: [["/v1/stream/log", 21]],
      finished: ["/v1/stream/log"],
    });
    const trim = payloads.findLast((payload) => payload[0] === 13) ?? Buffer.alloc(0);
    expect(trim[1]).toBe(14);
    const time = trim.subarray(2, 8).reduceRight((sum, byte) => sum * 128 + (byte & 127), 0);
    expect(time).toBe(START_MS + 138);
    expect([...trim.subarray(8)]).toEqual([58]);
  });

  test("a snapshot has the cursors in blocks of their own, and the groups at its end", () => {
    const name = readdirSync(directory).find((entry) => entry.endsWith(".snap"));
    const bytes = readFileSync(join(directory, name ?? ""));
    const blocks: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += 8 + bytes.readUInt32LE(at)) {
      blocks.push(bytes.subarray(at + 8, at + 8 + bytes.readUInt32LE(at)));
    }
    const [cursors = Buffer.alloc(0), end = Buffer.alloc(0)] = blocks.slice(-2);
    expect([cursors[0], cursors.readUInt32LE(1)]).toEqual([7, 1]);
    const [group, textFrom] = textAt(cursors, 5);
    const [list, cursorsEnd] = textAt(cursors, textFrom);
    expect([group, cursorsEnd]).toEqual(["shippers", cursors.length]);
    const holder = "pod-a#1";
    expect(JSON.parse(list)).toEqual([
      { stream: "/v1/stream/log", offset: 11, token: 3, holder, isFinished: false },
      { stream: "/v1/stream/orders", offset: 14, token: 4, holder, isFinished: false },
      { stream: "/v1/stream/tills", offset: 0, token: 6, isFinished: false },
    ]);
    const at = end.lastIndexOf('{"nextToken"') - 2;
    const [text, endOfText] = textAt(end, at);
    expect([end[at - 1], endOfText]).toEqual([3, end.length]); // three cursors in all
    const id = "pod-a#1";
    const expiresAtMs = START_MS + 30_096;
    expect(JSON.parse(text)).toMatchObject({
      nextToken: 7,
      groups: [
        { id: "shippers", members: [{ id, ordinal: 1, expiresAtMs, isActive: true, max: 10 }] },
      ],
    });
    expect(Object.keys((JSON.parse(text) as { groups: object[] }).groups[0] ?? {})).toEqual([
      "id",
      "settings",
      "createdAtMs",
      "members",
    ]);
  });
});
