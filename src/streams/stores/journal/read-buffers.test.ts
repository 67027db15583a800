import { expect, test } from "vitest";
import { ReadBuffers } from "./read-buffers.ts";

const PAGE = 1024 * 1024;

function taken(buffers: ReadBuffers): Buffer {
  const buffer = buffers.take(PAGE);
  if (buffer === undefined) throw new Error("there is no buffer for a page");
  return buffer;
}

test("a buffer is used again once it was given back, and by one user at a time", () => {
  const buffers = new ReadBuffers();
  const first = taken(buffers);
  expect(taken(buffers) === first).toBe(false);
  buffers.give(first);
  buffers.give(first);
  expect(taken(buffers) === first).toBe(true);
  expect(taken(buffers) === first).toBe(false);
});

test("memory that came from elsewhere is never handed out", () => {
  const buffers = new ReadBuffers();
  const foreign = Buffer.alloc(2 * PAGE);
  buffers.give(foreign);
  expect(taken(buffers) === foreign).toBe(false);
});

test("little and very much have no buffer, and only a few are kept", () => {
  const buffers = new ReadBuffers();
  expect(buffers.take(1000)).toBeUndefined();
  expect(buffers.take(64 * PAGE)).toBeUndefined();
  const all = Array.from({ length: 20 }, () => taken(buffers));
  for (const buffer of all) buffers.give(buffer);
  const again = Array.from({ length: 20 }, () => taken(buffers));
  expect(again.filter((buffer) => all.includes(buffer)).length).toBe(8);
});
