import { expect, test } from "vitest";
import type { Offset, StreamId, TimeMs } from "../../core/types.ts";
import { pattern } from "../../../testing/store-case-kit.ts";
import type { DiskFile } from "../file/disk.ts";
import { FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES } from "./format.ts";
import { FrameBuilder } from "./frame.ts";
import { findFrameBehind, scanSegment, type ScanEnd } from "./scan.ts";

const SALT = 0x1234;

function frame(lsn: number, bytes: number, salt = SALT): Buffer {
  const builder = new FrameBuilder(64);
  const start = 0 as Offset;
  const moved = { kind: "moved", atMs: 0 as TimeMs, stream: 1 as StreamId, start } as const;
  builder.data({ ...moved, data: pattern(bytes, lsn) }, start);
  return Buffer.concat(builder.finish({ lsn, ordinal: 0, timeMs: 0, salt }).buffers);
}

function segment(frames: readonly Buffer[], spaceBytes: number): Buffer {
  return Buffer.concat([Buffer.alloc(SEGMENT_HEADER_BYTES), ...frames, Buffer.alloc(spaceBytes)]);
}

function fileOf(bytes: Buffer): DiskFile {
  const refuse = (): Promise<never> => Promise.reject(new Error("it is only read"));
  return {
    size: () => Promise.resolve(bytes.length),
    read: (position, length) => Promise.resolve(bytes.subarray(position, position + length)),
    write: refuse,
    sync: refuse,
    close: () => Promise.resolve(),
  };
}

async function scan(
  bytes: Buffer,
): Promise<{ readonly lsns: readonly number[]; readonly end: ScanEnd }> {
  const lsns: number[] = [];
  const end = await scanSegment(fileOf(bytes), SALT, 1, ({ header }) => lsns.push(header.lsn));
  return { lsns, end };
}

test("every frame is found, also those that are larger than what is read at once", async () => {
  const sizes = [10, 5_000_000, 3, 4_190_000, 20_000, 9_000_000, 1];
  const frames = sizes.map((bytes, at) => frame(at + 1, bytes));
  for (const space of [0, 8, 48, 5_000_000]) {
    const { lsns, end } = await scan(segment(frames, space));
    expect(lsns).toEqual([1, 2, 3, 4, 5, 6, 7]);
    expect(end).toMatchObject({ nextLsn: 8, isTorn: false });
    expect(end.end).toBe(SEGMENT_HEADER_BYTES + Buffer.concat(frames).length);
  }
});

test("RC1 frames end at the first one that is cut short, and what is left of it is seen", async () => {
  const whole = [frame(1, 100), frame(2, 300)];
  const torn = frame(3, 500);
  for (let cut = 1; cut < FRAME_HEADER_BYTES + 500; cut += 1) {
    const left = Buffer.alloc(torn.length);
    torn.copy(left, 0, 0, cut);
    const bytes = segment([...whole, left], 2000);
    const { lsns, end } = await scan(bytes);
    expect(lsns).toEqual([1, 2]);
    expect(end.isTorn).toBe(true);
    expect(await findFrameBehind(fileOf(bytes), SALT, end.end, end.nextLsn)).toBeUndefined();
  }
});

test("RC2 a frame that is not valid with a valid one behind it is seen as damage, however far behind", async () => {
  for (const gap of [0, 8, 4_194_304 - 48, 4_194_304 - 40, 4_194_304, 9_000_000]) {
    const broken = frame(2, 300);
    broken[100] = (broken[100] ?? 0) ^ 1;
    const bytes = segment([frame(1, 100), broken, Buffer.alloc(gap), frame(3, 50)], 1000);
    const { lsns, end } = await scan(bytes);
    expect(lsns).toEqual([1]);
    const behind = await findFrameBehind(fileOf(bytes), SALT, end.end, end.nextLsn);
    expect(behind?.lsn).toBe(3);
  }
});

test("a frame of an earlier use is neither a frame nor a proof of damage", async () => {
  const old = [frame(2, 300, 77), frame(3, 300, 77), frame(1, 50)];
  const bytes = segment([frame(1, 100), ...old], 1000);
  const { lsns, end } = await scan(bytes);
  expect(lsns).toEqual([1]);
  expect(await findFrameBehind(fileOf(bytes), SALT, end.end, end.nextLsn)).toBeUndefined();
});

test("RC2 a frame whose number is not the next one is not passed over", async () => {
  const bytes = segment([frame(1, 100), frame(3, 100)], 1000);
  const { lsns, end } = await scan(bytes);
  expect(lsns).toEqual([1]);
  expect((await findFrameBehind(fileOf(bytes), SALT, end.end, end.nextLsn))?.lsn).toBe(3);
});
