import { crc32 } from "node:zlib";
import fc from "fast-check";
import { expect, test } from "vitest";
import { pattern } from "../../../testing/store-case-kit.ts";
import { joinCrc } from "./crc.ts";

test("the checksum of bytes follows from those of their parts, for any start and any cut", () => {
  const bytes = fc.uint8Array({ maxLength: 3000 });
  fc.assert(
    fc.property(bytes, bytes, fc.nat(0xff_ff_ff_ff), (one, other, start) => {
      const joined = joinCrc(crc32(one, start), crc32(other), other.length);
      expect(joined).toBe(crc32(Buffer.concat([one, other]), start));
    }),
  );
});

test("also of many megabytes", () => {
  const [one, other] = [pattern(5, 1), pattern(17_000_003, 2)];
  const joined = joinCrc(crc32(one, 77), crc32(other), other.length);
  expect(joined).toBe(crc32(Buffer.concat([one, other]), 77));
});
