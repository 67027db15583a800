import fc from "fast-check";
import { expect, test } from "vitest";
import type { Change } from "../../core/change.ts";
import type { Offset, StreamId, StreamName, TimeMs } from "../../core/types.ts";
import { producerClaim } from "../../testing/commands.ts";
import { ByteReader, ByteWriter } from "./bytes.ts";
import { decodeDataOnly, decodeRecord, encodeChange, encodeDataRecord } from "./records.ts";

const number = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
const text = fc.string();
const stream = number as fc.Arbitrary<StreamId>;
const atMs = number as fc.Arbitrary<TimeMs>;

const expiry = fc.oneof(
  fc.constant({ kind: "never" as const }),
  fc.record({ kind: fc.constant("ttl" as const), seconds: number }),
  fc.record({ kind: fc.constant("at" as const), timeMs: fc.maxSafeInteger().map((ms) => ms || 1) }),
);
const fork = fc.option(
  fc.record({
    source: stream,
    sourceName: text as fc.Arbitrary<StreamName>,
    anchor: number as fc.Arbitrary<Offset>,
    subOffset: number,
    at: number as fc.Arbitrary<Offset>,
    inheritsExpiry: fc.boolean(),
  }),
  { nil: undefined },
);
const ended = fc.constantFrom("deleted" as const, "removed" as const, "touched" as const);
const plainChange: fc.Arbitrary<Exclude<Change, { kind: "appended" }>> = fc.oneof(
  fc.record({
    kind: fc.constant("created" as const),
    atMs,
    stream,
    name: text as fc.Arbitrary<StreamName>,
    contentType: text,
    expiry,
    fork,
  }),
  fc.record({ kind: ended, atMs, stream }),
  fc.record({ kind: fc.constant("signing_key_added" as const), atMs, key: text }),
  fc.record({ kind: fc.constant("subscription_deleted" as const), atMs, subscription: text }),
);
const append = fc.record({
  kind: fc.constant("appended" as const),
  atMs,
  stream,
  data: fc.uint8Array({ maxLength: 300 }),
  closes: fc.boolean(),
  producer: fc.option(
    fc
      .tuple(text, number, number)
      .map(([id, epoch, sequence]) => producerClaim(id, epoch, sequence)),
    { nil: undefined },
  ),
  streamSeq: fc.option(text, { nil: undefined }),
});

test("every change comes back as it was written", () => {
  fc.assert(
    fc.property(plainChange, (change) => {
      const writer = new ByteWriter(8);
      encodeChange(writer, change);
      const reader = new ByteReader(writer.bytes());
      expect(decodeRecord(reader)).toEqual({ kind: "change", change });
      expect(reader.left).toBe(0);
    }),
  );
});

test("an append comes back with its producer, its close and its place, in one record", () => {
  fc.assert(
    fc.property(append, number, (change, at) => {
      const start = at as Offset;
      const writer = new ByteWriter(8);
      encodeDataRecord(writer, change, start);
      writer.raw(change.data);
      const decoded = decodeRecord(new ByteReader(writer.bytes()));
      const data = Buffer.from(change.data);
      expect(decoded).toEqual({ kind: "appended", start, change: { ...change, data } });
      expect(decodeDataOnly(new ByteReader(writer.bytes()))).toEqual({
        stream: change.stream,
        start,
        data,
      });
    }),
  );
});

test("data that was moved comes back with its stream and place, and changes no state", () => {
  const moved = {
    kind: "moved",
    stream: 3 as StreamId,
    start: 9 as Offset,
    data: Buffer.from("moved"),
  };
  const writer = new ByteWriter(8);
  encodeDataRecord(writer, { ...moved, kind: "moved" }, moved.start);
  writer.raw(moved.data);
  expect(decodeRecord(new ByteReader(writer.bytes()))).toEqual(moved);
  expect(decodeDataOnly(new ByteReader(writer.bytes()))).toEqual({
    stream: 3,
    start: 9,
    data: moved.data,
  });
});

test("RD1 data that does not match its own checksum is damage for whoever reads it", () => {
  const moved = { kind: "moved", stream: 3, start: 0, data: Buffer.from("moved") } as const;
  const writer = new ByteWriter(8);
  encodeDataRecord(writer, { ...moved, stream: 3 as StreamId, start: 0 as Offset }, 0 as Offset);
  writer.raw(moved.data);
  const bytes = Buffer.from(writer.bytes());
  bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
  expect(() => decodeRecord(new ByteReader(bytes))).toThrow("does not match its checksum");
  expect(() => decodeDataOnly(new ByteReader(bytes))).toThrow("does not match its checksum");
});

test("RC4 what is not known is damage: kinds of records, expiries and forks", () => {
  expect(() => decodeRecord(new ByteReader(Uint8Array.of(99)))).toThrow("unknown kind 99");
  expect(() => decodeDataOnly(new ByteReader(Uint8Array.of(1)))).toThrow("not a data record");
  const created = [1, 1, 1, 1, 97, 1, 97];
  const withExpiry = Uint8Array.of(...created, 9, 1, 0);
  expect(() => decodeRecord(new ByteReader(withExpiry))).toThrow("unknown kind 9");
  const withFork = Uint8Array.of(...created, 0, 3);
  expect(() => decodeRecord(new ByteReader(withFork))).toThrow("unknown kind 3");
});
