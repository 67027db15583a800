import fc from "fast-check";
import { expect, test } from "vitest";
import { BodyPieces } from "./body-pieces.ts";

test("G34 a body in pieces of any sizes is whole, and takes memory by its bytes and not by its pieces", () => {
  const sizes = fc.array(fc.constantFrom(0, 1, 7, 1023, 1024, 5000), { maxLength: 200 });
  fc.assert(
    fc.property(sizes, (lengths) => {
      const pieces = new BodyPieces();
      const sent = lengths.map((length, at) => new Uint8Array(length).fill(at));
      for (const piece of sent) pieces.add(piece);
      const bytes = sent.reduce((sum, { length }) => sum + length, 0);
      expect(pieces.bytes).toBe(bytes);
      const large = lengths.filter((length) => length >= 1024).length;
      // A large piece ends a block, so that at most one small one is between two of them.
      expect(pieces.count).toBeLessThanOrEqual(2 * large + bytes / 8192 + 3);
      expect(pieces.heldBytes).toBeLessThanOrEqual(2 * bytes + 16 * 1024);
      expect(Buffer.from(pieces.whole()).equals(Buffer.concat(sent))).toBe(true);
    }),
  );
});

test("G34 a million pieces of a byte are a few blocks", () => {
  const pieces = new BodyPieces();
  const byte = Buffer.from("a");
  for (let count = 0; count < 1_000_000; count += 1) pieces.add(byte);
  expect(pieces.count).toBeLessThan(100);
  expect(pieces.whole()).toHaveLength(1_000_000);
});

test("G34 pieces of a byte between larger ones take no block each", () => {
  const pieces = new BodyPieces();
  for (let count = 0; count < 1000; count += 1) {
    pieces.add(new Uint8Array(1024));
    pieces.add(new Uint8Array(1));
  }
  expect(pieces.heldBytes).toBeLessThan(1.1 * pieces.bytes);
});

test("a body in one piece is not copied", () => {
  const pieces = new BodyPieces();
  const only = Buffer.from("abc");
  pieces.add(only);
  expect(pieces.whole()).toBe(only);
});
