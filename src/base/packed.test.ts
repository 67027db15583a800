import { crc32 } from "node:zlib";
import fc from "fast-check";
import { expect, test } from "vitest";
import { crc32Of } from "./crc32.ts";
import { PackedReader, PackedWriter, Unreadable } from "./packed.ts";

test("the checksum is that of zlib", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 100 }), (bytes) => {
      expect(crc32Of(bytes)).toBe(crc32(bytes));
    }),
  );
});

test("numbers and bytes are read as they were written, and nothing is left over", () => {
  const value = fc.oneof(
    fc.record({ kind: fc.constant("u8" as const), value: fc.integer({ min: 0, max: 255 }) }),
    fc.record({
      kind: fc.constant("u32" as const),
      value: fc.integer({ min: 0, max: 2 ** 32 - 1 }),
    }),
    fc.record({ kind: fc.constant("varint" as const), value: fc.maxSafeNat() }),
    fc.record({
      kind: fc.constant("signed" as const),
      value: fc.integer({ min: -(2 ** 51), max: 2 ** 51 }),
    }),
  );
  fc.assert(
    fc.property(fc.array(value), fc.uint8Array(), (values, bytes) => {
      const writer = new PackedWriter(1);
      for (const one of values) writer[one.kind](one.value);
      writer.sized(bytes);
      const reader = new PackedReader(writer.bytes());
      expect(values.map((one) => reader[one.kind]())).toEqual(values.map((one) => one.value));
      expect(reader.sized()).toEqual(bytes);
      expect(reader.left).toBe(0);
    }),
  );
});

test("bytes that end too early, and numbers that are too long, are refused", () => {
  expect(() => new PackedReader(new Uint8Array([5, 1])).sized()).toThrow(Unreadable);
  expect(() => new PackedReader(new Uint8Array([128])).varint()).toThrow(Unreadable);
  expect(() => new PackedReader(new Uint8Array(9).fill(255)).varint()).toThrow(Unreadable);
});
