import fc from "fast-check";
import { expect, test } from "vitest";
import { digestContent } from "../../core/content-digest.ts";
import type { Change } from "../../core/change.ts";
import type { KeyPolicy, StoredKey } from "../../core/keys.ts";
import type { Offset, ProducerId, RunId, StreamId, StreamName, TimeMs } from "../../core/types.ts";
import { appended, keyed, marked } from "../../../testing/store-case-kit.ts";
import { GROUPS } from "../../../testing/store-trim-cases.ts";
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
const keyPolicy: fc.Arbitrary<KeyPolicy> = fc.record({
  windowSeconds: fc.option(number, { nil: undefined }),
  countMax: fc.option(number, { nil: undefined }),
  overflow: fc.constantFrom(undefined, "evict", "reject"),
  isFromContent: fc.boolean(),
});
const word = fc.integer({ min: 0, max: 0xffff_ffff });
const key: fc.Arbitrary<StoredKey> = fc
  .tuple(fc.array(word, { minLength: 6, maxLength: 6 }), number, number)
  .map(([words, one, other]) => ({
    mark: Uint32Array.from(words),
    ordinal: Math.max(one, other),
    evictTo: Math.min(one, other),
  }));
const producer = fc
  .tuple(
    text,
    number,
    number,
    fc.option(text, { nil: undefined }),
    fc.oneof(fc.constant(0), number),
  )
  .map(([id, epoch, sequence, session, resets]) =>
    marked(id, epoch, sequence, session === undefined ? { resets } : { session, resets }),
  );
const streamName = text as fc.Arbitrary<StreamName>;
const ended = fc.constantFrom("deleted" as const, "removed" as const, "touched" as const);
const plainChange: fc.Arbitrary<Exclude<Change, { kind: "appended" }>> = fc.oneof(
  fc.record({
    kind: fc.constant("created" as const),
    atMs,
    stream,
    run: number as fc.Arbitrary<RunId>,
    name: text as fc.Arbitrary<StreamName>,
    contentType: text,
    expiry,
    fork,
    keys: fc.option(keyPolicy, { nil: undefined }),
  }),
  fc.record({
    kind: fc.constant("producer_reset" as const),
    atMs,
    stream,
    producer: text as fc.Arbitrary<ProducerId>,
    resets: number,
  }),
  fc.record({ kind: fc.constant("keys_evicted" as const), atMs, stream, evictTo: number }),
  fc.record({ kind: ended, atMs, stream }),
  fc.record({ kind: fc.constant("signing_key_added" as const), atMs, key: text }),
  fc.record({ kind: fc.constant("subscription_deleted" as const), atMs, subscription: text }),
  fc.record({
    kind: fc.constant("trimmed" as const),
    atMs,
    stream,
    to: number as fc.Arbitrary<Offset>,
  }),
  fc.record({
    kind: fc.constant("retention_set" as const),
    atMs,
    stream,
    rule: fc.option(
      fc.record({
        seconds: fc.option(number, { nil: undefined }),
        bytes: fc.option(number, { nil: undefined }),
        dropsNeeded: fc.boolean(),
      }),
      { nil: undefined },
    ),
  }),
  fc.record({
    kind: fc.constant("compaction_set" as const),
    atMs,
    stream,
    rule: fc.option(
      fc.record({
        key: text,
        tombstone: fc.option(text, { nil: undefined }),
        lagSeconds: number,
      }),
      { nil: undefined },
    ),
  }),
  fc.record({
    kind: fc.constant("group_joined" as const),
    atMs,
    group: text,
    member: text,
    ordinal: number,
    expiresAtMs: atMs,
  }),
  fc.record({
    kind: fc.constant("group_committed" as const),
    atMs,
    group: text,
    member: text,
    expiresAtMs: atMs,
    offsets: fc.array(fc.tuple(streamName, number as fc.Arbitrary<Offset>)),
    finished: fc.array(streamName),
  }),
);
const append = fc.record({
  kind: fc.constant("appended" as const),
  atMs,
  stream,
  data: fc.uint8Array({ maxLength: 300 }),
  closes: fc.boolean(),
  producer: fc.option(producer, { nil: undefined }),
  streamSeq: fc.option(text, { nil: undefined }),
  key: fc.option(key, { nil: undefined }),
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

test("an append comes back with its producer, its key, its close and its place, in one record", () => {
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
        atMs: change.atMs,
        data,
      });
    }),
  );
});

test("data that was moved comes back with its stream, place and time, and changes no state", () => {
  const moved = {
    kind: "moved",
    atMs: 1_700_000_000_000 as TimeMs,
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
    atMs: 1_700_000_000_000,
    data: moved.data,
  });
});

test("data that does not match its own checksum is damage for every reader", () => {
  const place = { atMs: 0 as TimeMs, stream: 3 as StreamId, start: 0 as Offset };
  const moved = { kind: "moved", ...place, data: Buffer.from("moved") } as const;
  const writer = new ByteWriter(8);
  encodeDataRecord(writer, moved, moved.start);
  writer.raw(moved.data);
  const bytes = Buffer.from(writer.bytes());
  bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
  expect(() => decodeRecord(new ByteReader(bytes))).toThrow("does not match its checksum");
  expect(() => decodeDataOnly(new ByteReader(bytes))).toThrow("does not match its checksum");
});

test("RC4 what is not known is damage: kinds of records, expiries and forks", () => {
  expect(() => decodeRecord(new ByteReader(Uint8Array.of(99)))).toThrow("unknown kind 99");
  expect(() => decodeDataOnly(new ByteReader(Uint8Array.of(1)))).toThrow("not a data record");
  const created = [1, 1, 1, 1, 1, 97, 1, 97];
  const withExpiry = Uint8Array.of(...created, 9, 1, 0);
  expect(() => decodeRecord(new ByteReader(withExpiry))).toThrow("unknown kind 9");
  const withFork = Uint8Array.of(...created, 0, 3);
  expect(() => decodeRecord(new ByteReader(withFork))).toThrow("unknown kind 3");
  const withKeys = [9, ...created.slice(1), 0, 0];
  expect(() => decodeRecord(new ByteReader(Uint8Array.of(...withKeys, 32)))).toThrow("flags 32");
  const both = Uint8Array.of(...withKeys, 4 | 8);
  expect(() => decodeRecord(new ByteReader(both))).toThrow("both evicts and rejects");
});

/** An append to stream 1 without data, with these bytes for flags and for what comes after the time. */
function flagged(flags: number, ...rest: readonly number[]): ByteReader {
  return new ByteReader(
    Uint8Array.of(2, 4 + rest.length, 0, 1, flags, 0, 0, ...rest, 0, 0, 0, 0, 0),
  );
}

test("RC4 what is not known is damage: flags of an append, and flags that do not go together", () => {
  expect(decodeRecord(flagged(1))).toMatchObject({ kind: "appended", change: { closes: true } });
  for (const flags of [64, 128, 255]) {
    expect(() => decodeRecord(flagged(flags))).toThrow(`unknown flags ${flags}`);
  }
  for (const flags of [8, 16, 24]) {
    expect(() => decodeRecord(flagged(flags, 0, 0))).toThrow("without a producer");
  }
  const moved = Uint8Array.of(8, 4, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0);
  expect(() => decodeRecord(new ByteReader(moved))).toThrow("unknown flags 1");
  // A key with ordinal 0 that keeps one entry before it.
  const evicting = [...Buffer.alloc(24), 0, 1];
  expect(() => decodeRecord(flagged(32, ...evicting))).toThrow("before the first one");
});

/** The bytes of an append between its time and its data. */
function metaOf(change: Change): readonly number[] {
  if (change.kind !== "appended") throw new Error("not an append");
  const writer = new ByteWriter(8);
  encodeDataRecord(writer, change, 0 as Offset);
  const bytes = writer.bytes();
  return [...bytes.subarray(4, 3 + bytes.readUInt16LE(1))];
}

test("the fields of sessions, resets and keys stand where docs/formats says, and cost nothing when they are not there", () => {
  const atMs = 1 as TimeMs;
  const append = (parts: Parameters<typeof appended>[2]) => appended(1, "x", { atMs, ...parts });
  expect(metaOf(append({}))).toEqual([0, 0, 1]);
  const plain = marked("p", 3, 4);
  const digest = Buffer.alloc(4);
  digest.writeInt32LE(digestContent(Buffer.from("x"), false));
  expect(metaOf(append({ producer: plain }))).toEqual([2, 0, 1, 1, 112, 3, 4, ...digest]);
  const session = marked("p", 3, 4, { session: "n" });
  const withSession = [2 | 8, 0, 1, 1, 112, 3, 4, ...digest, 1, 110];
  expect(metaOf(append({ producer: session }))).toEqual(withSession);
  const reset = marked("p", 3, 4, { session: "n", resets: 5 });
  const withReset = [2 | 8 | 16, 0, 1, 1, 112, 3, 4, ...digest, 1, 110, 5];
  expect(metaOf(append({ producer: reset }))).toEqual(withReset);
  const { mark } = keyed("key", 0);
  const words = Buffer.alloc(24);
  for (const [at, value] of mark.entries()) words.writeUInt32LE(value, 4 * at);
  const withKey = append({ streamSeq: "7", key: { mark, ordinal: 300, evictTo: 299 } });
  expect(metaOf(withKey)).toEqual([4 | 32, 0, 1, 1, 55, ...words, 172, 2, 1]);
});

test("S1 every change of groups has a record of its kind, and none of them is taken for a subscription's", () => {
  const seen = new Set<string>();
  for (const change of GROUPS.flat()) {
    if (!change.kind.startsWith("group_") || change.kind === "appended") continue;
    seen.add(change.kind);
    const writer = new ByteWriter(8);
    encodeChange(writer, change);
    expect(writer.bytes()[0]).toBe(12);
    expect(decodeRecord(new ByteReader(writer.bytes()))).toEqual({ kind: "change", change });
  }
  expect(seen.size).toBe(8);
});

test("the fields of a rule of compaction stand where docs/formats says", () => {
  const writer = new ByteWriter(8);
  const place = { kind: "compaction_set", atMs: 5 as TimeMs, stream: 7 as StreamId } as const;
  encodeChange(writer, { ...place, rule: { key: "id", tombstone: "v", lagSeconds: 300 } });
  encodeChange(writer, { ...place, rule: { key: "id", tombstone: undefined, lagSeconds: 0 } });
  encodeChange(writer, { ...place, rule: undefined });
  const id = [2, ...Buffer.from("id")];
  const rules = [16, 7, 5, 3, ...id, 1, 118, 172, 2, 16, 7, 5, 1, ...id, 0, 16, 7, 5, 0];
  expect([...writer.bytes()]).toEqual(rules);
  const reader = new ByteReader(Buffer.from([16, 7, 5, 4]));
  expect(() => decodeRecord(reader)).toThrow("unknown flags");
});

test("the fields of trims and groups stand where docs/formats says", () => {
  const writer = new ByteWriter(8);
  const [atMs, to] = [5 as TimeMs, 300 as Offset];
  encodeChange(writer, { kind: "trimmed", atMs, stream: 7 as StreamId, to });
  encodeChange(writer, { kind: "group_deleted", atMs, group: "g" });
  const rule = { seconds: 60, bytes: 300, dropsNeeded: true };
  encodeChange(writer, { kind: "retention_set", atMs, stream: 7 as StreamId, rule });
  encodeChange(writer, { kind: "retention_set", atMs, stream: 7 as StreamId, rule: undefined });
  const json = '{"kind":"group_deleted","atMs":5,"group":"g"}';
  const group = [12, json.length, ...Buffer.from(json)];
  const rules = [14, 7, 5, 15, 60, 172, 2, 14, 7, 5, 0];
  expect([...writer.bytes()]).toEqual([13, 7, 5, 172, 2, ...group, ...rules]);
});
