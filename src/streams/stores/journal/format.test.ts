import { expect, test } from "vitest";
import { appended, created } from "../../../testing/store-case-kit.ts";
import type { Offset } from "../../core/types.ts";
import {
  alignFrame,
  decodeFrameHeader,
  decodeSegmentHeader,
  encodeSegmentHeader,
  FORMAT_VERSION,
  FRAME_HEADER_BYTES,
  isFrameValid,
  requireKnownFormat,
  SEGMENT_HEADER_BYTES,
} from "./format.ts";
import { FrameBuilder } from "./frame.ts";

const HEADER = {
  version: FORMAT_VERSION,
  number: 7,
  firstLsn: 99,
  salt: 0xdeadbeef,
  timeMs: 12,
  bytes: 65_536,
  crcBefore: 0xcafe,
  storeId: "00112233445566778899aabbccddeeff",
};

function frameOf(salt: number): Buffer {
  const builder = new FrameBuilder(100);
  const change = created(1);
  const append = appended(1, "some data");
  if (change.kind !== "created" || append.kind !== "appended") throw new Error("not these");
  builder.change(change);
  builder.data(append, 0 as Offset);
  const { buffers } = builder.finish({ lsn: 5, ordinal: 3, timeMs: 9, salt });
  return Buffer.concat(buffers);
}

test("a segment's header comes back from either of its copies", () => {
  const block = encodeSegmentHeader(HEADER);
  expect(block.length).toBe(SEGMENT_HEADER_BYTES);
  expect(decodeSegmentHeader(block)).toEqual(HEADER);
  for (const at of [0, 12, 20, 60]) {
    const damagedFirst = Buffer.from(block);
    damagedFirst[at] = (damagedFirst[at] ?? 0) ^ 1;
    expect(decodeSegmentHeader(damagedFirst)).toEqual(HEADER);
    const damagedBoth = Buffer.from(damagedFirst);
    damagedBoth[2048 + at] = (damagedBoth[2048 + at] ?? 0) ^ 1;
    expect(decodeSegmentHeader(damagedBoth)).toBeUndefined();
  }
  expect(decodeSegmentHeader(block.subarray(0, 100))).toBeUndefined();
});

test("a version that is not known is refused by its number, and damage is not taken for one", () => {
  const check = (block: Buffer) => () => {
    requireKnownFormat("a file", block);
  };
  expect(check(encodeSegmentHeader(HEADER))).not.toThrow();
  expect(check(encodeSegmentHeader({ ...HEADER, version: 4 }))).toThrow("its format is 4");
  expect(check(Buffer.alloc(SEGMENT_HEADER_BYTES))).not.toThrow();
  expect(check(Buffer.alloc(0))).not.toThrow();
  const damaged = encodeSegmentHeader(HEADER);
  damaged.writeUInt32LE(4, 8);
  damaged.writeUInt32LE(4, 2048 + 8);
  expect(check(damaged)).not.toThrow();
});

test("a frame is valid with the salt of its segment and with no other", () => {
  const frame = frameOf(1);
  const header = decodeFrameHeader(frame, 0, frame.length);
  if (header === undefined) throw new Error("there is no frame");
  expect(header).toMatchObject({ lsn: 5, ordinal: 3, timeMs: 9, records: 2 });
  expect(isFrameValid(frame, 0, header, 1)).toBe(true);
  for (const salt of [0, 2, 0xffffffff]) expect(isFrameValid(frame, 0, header, salt)).toBe(false);
});

test("a frame with any bit wrong, or any byte missing, is not valid", () => {
  const frame = frameOf(1);
  const bytes = FRAME_HEADER_BYTES + frame.readUInt32LE(8);
  expect(frame.length).toBe(alignFrame(bytes));
  const isValid = (found: Buffer): boolean => {
    const header = decodeFrameHeader(found, 0, found.length);
    return header !== undefined && isFrameValid(found, 0, header, 1);
  };
  expect(isValid(frame)).toBe(true);
  for (let bit = 0; bit < bytes * 8; bit += 1) {
    const wrong = Buffer.from(frame);
    wrong[bit >> 3] = (wrong[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    expect(isValid(wrong), `bit ${bit}`).toBe(false);
  }
  for (let length = 0; length < bytes; length += 1) {
    expect(isValid(frame.subarray(0, length)), `length ${length}`).toBe(false);
  }
});
