import { expect, test } from "vitest";
import { acceptsGzip } from "./accept-encoding.ts";

test.each([
  ["gzip", true],
  ["GZip", true],
  ["deflate, gzip;q=1.0, *;q=0.5", true],
  ["br , gzip ; q=0.001", true],
  ["gzip;q=0", false],
  ["gzip; q=0.000, br", false],
  ["gzip;q=2", false],
  ["gzip;q=x", false],
  ["gzip;level=9;q=1", false],
  ["x-gzip", false],
  ["gzipped", false],
  ["", false],
])("Accept-Encoding: %s", (header, expected) => {
  expect(acceptsGzip(header)).toBe(expected);
});
