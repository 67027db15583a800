import fc from "fast-check";
import { expect, test } from "vitest";
import { ByteReader, ByteWriter, damage } from "./bytes.ts";

const whole = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER });

test("numbers, texts and bytes are read as they were written, after any other values", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(whole, fc.string({ unit: "grapheme" }), fc.uint8Array())),
      (items) => {
        const writer = new ByteWriter(1);
        for (const [number, text, bytes] of items) {
          writer.varint(number);
          writer.u64(number);
          writer.u32(number % 4_294_967_296);
          writer.u8(number % 256);
          writer.text(text);
          writer.varint(bytes.length);
          writer.raw(bytes);
          writer.zeros(3);
        }
        const reader = new ByteReader(writer.bytes());
        for (const [number, text, bytes] of items) {
          expect(reader.varint()).toBe(number);
          expect(reader.u64()).toBe(number);
          expect(reader.u32()).toBe(number % 4_294_967_296);
          expect(reader.u8()).toBe(number % 256);
          expect(reader.text()).toBe(text);
          expect(new Uint8Array(reader.raw(reader.varint()))).toEqual(bytes);
          expect([...reader.raw(3)]).toEqual([0, 0, 0]);
        }
        expect(reader.left).toBe(0);
      },
    ),
  );
});

test("a length that is patched later leaves the rest alone", () => {
  const writer = new ByteWriter(2);
  writer.zeros(6);
  writer.u8(7);
  writer.patchU16(0, 0x0201);
  writer.patchU32(2, 0x06050403);
  expect([...writer.bytes()]).toEqual([1, 2, 3, 4, 5, 6, 7]);
  expect(new ByteReader(writer.bytes()).u16()).toBe(0x0201);
});

test("bytes that were handed out stay as they are when the writer grows", () => {
  const writer = new ByteWriter(4);
  writer.u32(1);
  const early = writer.bytes();
  for (let count = 0; count < 100; count += 1) writer.u32(2);
  expect(early.readUInt32LE(0)).toBe(1);
});

test("reading past the end is damage, never a number", () => {
  const reads: ((reader: ByteReader) => unknown)[] = [
    (reader) => reader.u8(),
    (reader) => reader.u16(),
    (reader) => reader.u32(),
    (reader) => reader.u64(),
    (reader) => reader.varint(),
    (reader) => reader.text(),
    (reader) => reader.raw(1),
  ];
  for (const read of reads) {
    expect(() => read(new ByteReader(new Uint8Array(0)))).toThrow("it ends too early");
  }
  expect(() => new ByteReader(new Uint8Array(9).fill(255)).varint()).toThrow("too many bytes");
  expect(() => new ByteReader(new Uint8Array(8).fill(255)).u64()).toThrow("larger than 2^53-1");
  expect(() => new ByteReader(Uint8Array.of(5, 1)).text()).toThrow("it ends too early");
});

test("damage names the file and the place, and keeps its cause", () => {
  const cause = new Error("why");
  const error = damage("journal.seg", 4096, "a frame is not valid", cause);
  expect(error).toMatchObject({
    code: "data_damaged",
    message: "a frame is not valid file=journal.seg offset=4096",
    cause,
  });
});
