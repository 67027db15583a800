import { expect, test } from "vitest";
import type { Offset, StreamId, TimeMs } from "../../core/types.ts";
import { pattern } from "../../../testing/store-case-kit.ts";
import { EXTENT_BYTES_MAX } from "./extents.ts";
import { decodeFrameHeader, isFrameValid } from "./format.ts";
import { type Frame, FrameBuilder, Runs } from "./frame.ts";
import { placedRecordsOf } from "./scan.ts";

function build(parts: readonly (readonly [stream: number, data: Uint8Array])[]): Frame {
  const builder = new FrameBuilder(64);
  const ends = new Map<number, number>();
  for (const [stream, data] of parts) {
    const start = (ends.get(stream) ?? 0) as Offset;
    const moved = { kind: "moved", atMs: 0 as TimeMs, stream: stream as StreamId, start } as const;
    builder.data({ ...moved, data }, start);
    ends.set(stream, start + data.length);
  }
  return builder.finish({ lsn: 1, ordinal: 0, timeMs: 0, salt: 77 });
}

test("small and large data share one frame with one checksum over all buffers", () => {
  const parts = [3, 20_000, 5, 16_384, 70_000, 1].map(
    (size, seed) => [1, pattern(size, seed)] as const,
  );
  const frame = build(parts);
  expect(frame.buffers.length).toBeGreaterThan(1);
  const bytes = Buffer.concat(frame.buffers);
  const header = decodeFrameHeader(bytes, 0, bytes.length);
  if (header === undefined) throw new Error("there is no frame");
  expect(bytes.length % 8).toBe(0);
  expect(isFrameValid(bytes, 0, header, 77)).toBe(true);
  const records = [
    ...placedRecordsOf({ header, position: 0, bytes: bytes.subarray(0, frame.bytes) }),
  ];
  expect(records.map(({ record }) => record)).toMatchObject(
    parts.map(([, data]) => ({ kind: "moved", data: Buffer.from(data) })),
  );
  for (const [index, { at, length, borrowed }] of frame.data.entries()) {
    const data = borrowed ?? frame.written.subarray(at, at + length);
    expect(Buffer.from(data).equals(parts[index]?.[1] ?? Buffer.alloc(0))).toBe(true);
    expect(borrowed !== undefined).toBe(length >= 16_384);
  }
});

test("records of one stream that follow each other are one run, up to what a read takes at once", () => {
  const small = pattern(100, 1);
  const { runs } = build([
    [1, small],
    [1, small],
    [2, small],
    [1, small],
  ]);
  expect(runs.map(({ stream, start, end }) => [stream, start, end])).toEqual([
    [1, 0, 200],
    [2, 0, 100],
    [1, 200, 300],
  ]);
  const large = pattern(EXTENT_BYTES_MAX / 2, 1);
  expect(
    build([
      [1, large],
      [1, large],
    ]).runs.length,
  ).toBe(2);
});

test("runs with a hole between them, on disk or in the stream, are not joined", () => {
  const runs = new Runs();
  const stream = 1 as StreamId;
  runs.add(stream, 0 as Offset, 5 as Offset, 40, 10);
  runs.add(stream, 5 as Offset, 9 as Offset, 51, 10);
  runs.add(stream, 10 as Offset, 12 as Offset, 61, 10);
  expect(runs.list.length).toBe(3);
});

test("a close without data is a record without a place in the index", () => {
  const builder = new FrameBuilder(64);
  builder.data(
    {
      kind: "appended",
      atMs: 1 as never,
      stream: 1 as StreamId,
      data: new Uint8Array(0),
      closes: true,
      producer: undefined,
      streamSeq: undefined,
      key: undefined,
    },
    0 as Offset,
  );
  const frame = builder.finish({ lsn: 1, ordinal: 0, timeMs: 0, salt: 0 });
  expect(frame.runs).toEqual([]);
  expect(frame.data).toEqual([]);
});
