// PROTOCOL.md §5
import fc from "fast-check";
import { expect, test } from "vitest";
import { digestContent, murmur } from "./content-digest.ts";

const utf8 = new TextEncoder();

// The numbers are those of the published implementation. Disks hold such digests, so they must not change.
test.each([
  ["", 0, 0],
  ["", 1, 0x514e28b7],
  ["", 0xffffffff, 0x81f16f39],
  ["a", 0x9747b28c, 0x7fa09ea6],
  ["aa", 0x9747b28c, 0x5d211726],
  ["aaa", 0x9747b28c, 0x283e0130],
  ["aaaa", 0x9747b28c, 0x5a97808a],
  ["abcd", 0x9747b28c, 0xf0478627],
  ["Hello, world!", 0x9747b28c, 0x24884cba],
  ["The quick brown fox jumps over the lazy dog", 0x9747b28c, 0x2fa826cd],
  ["a".repeat(256), 0x9747b28c, 0x37405bdc],
])("%s with the seed %i has the digest of the published hash", (text, seed, digest) => {
  expect(murmur(utf8.encode(text), seed) >>> 0).toBe(digest);
});

test("a digest depends on every byte, on the length and on the close, and on nothing else", () => {
  const content = fc.uint8Array({ minLength: 1, maxLength: 600 });
  fc.assert(
    fc.property(content, fc.nat(), fc.integer({ min: 1, max: 255 }), (data, place, change) => {
      const before = digestContent(data, false);
      const moved = new Uint8Array(data.length + 3);
      moved.set(data, 3);
      expect(digestContent(moved.subarray(3), false)).toBe(before);
      const other = Uint8Array.from(data);
      const at = place % data.length;
      other[at] = (other[at] ?? 0) ^ change;
      expect(digestContent(other, false)).not.toBe(before);
      expect(digestContent(data.subarray(1), false)).not.toBe(before);
      expect(digestContent(data, true)).not.toBe(before);
      expect(before).toBe(before | 0);
    }),
    { numRuns: 300 },
  );
});
