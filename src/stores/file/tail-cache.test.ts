import fc from "fast-check";
import { expect, test } from "vitest";
import type { Offset, StreamId } from "../../core/types.ts";
import { TailCache } from "./tail-cache.ts";

test("TC1 what is read from the cache is the stream's own data up to its tail, without holes", () => {
  const add = fc.record({ stream: fc.nat(2), size: fc.integer({ min: 1, max: 200 }) });
  fc.assert(
    fc.property(fc.array(add, { maxLength: 300 }), fc.nat(4000), (adds, bytesMax) => {
      const cache = new TailCache(bytesMax);
      const whole = new Map<number, number[]>();
      for (const { stream, size } of adds) {
        const data = whole.get(stream) ?? [];
        const bytes = Array.from({ length: size }, (_, at) => (data.length + at + stream) % 251);
        cache.add(stream as StreamId, data.length as Offset, Uint8Array.from(bytes));
        whole.set(stream, [...data, ...bytes]);
        expect(cache.bytes).toBeLessThanOrEqual(bytesMax);
      }
      for (const [stream, data] of whole) {
        const tail = data.length as Offset;
        for (let from = 0; from <= tail; from += 7) {
          const page = cache.read(stream as StreamId, from as Offset, tail, Infinity);
          if (page === undefined) continue;
          expect(page.start).toBeLessThanOrEqual(from);
          const found = page.appends.flatMap((append) => [...append]);
          expect(found).toEqual(data.slice(page.start));
          if (from < tail)
            expect(page.start + (page.appends[0]?.length ?? 0)).toBeGreaterThan(from);
        }
      }
    }),
    { numRuns: 60 },
  );
});

test("TC1 an offset at the tail has nothing, and a page ends where it is told to", () => {
  const cache = new TailCache(10_000);
  const stream = 1 as StreamId;
  cache.add(stream, 5 as Offset, Buffer.from("abc"));
  cache.add(stream, 8 as Offset, Buffer.from("defg"));
  const read = (from: number, to: number, bytesMax: number): string[] | undefined =>
    cache
      .read(stream, from as Offset, to as Offset, bytesMax)
      ?.appends.map((append) => Buffer.from(append).toString());
  expect(read(12, 12, 100)).toEqual([]);
  expect(read(4, 12, 100)).toBeUndefined();
  expect(read(5, 12, 100)).toEqual(["abc", "defg"]);
  expect(read(6, 10, 100)).toEqual(["abc", "de"]);
  expect(read(5, 12, 1)).toEqual(["abc"]);
});

/** What entries cost: the first of a stream, and each further one. */
function costOf(bytes: number): { readonly first: number; readonly next: number } {
  const cache = new TailCache(Infinity);
  cache.add(1 as StreamId, 0 as Offset, new Uint8Array(bytes));
  const first = cache.bytes;
  cache.add(1 as StreamId, bytes as Offset, new Uint8Array(bytes));
  return { first, next: cache.bytes - first };
}

test("TC2 the oldest data goes first, whichever stream it belongs to", () => {
  const { first, next } = costOf(100);
  const cache = new TailCache(2 * first + next);
  const [one, other] = [1 as StreamId, 2 as StreamId];
  cache.add(one, 0 as Offset, new Uint8Array(100));
  cache.add(other, 0 as Offset, new Uint8Array(100));
  cache.add(one, 100 as Offset, new Uint8Array(100));
  cache.add(other, 100 as Offset, new Uint8Array(100));
  expect(cache.read(one, 0 as Offset, 200 as Offset, 1)).toBeUndefined();
  expect(cache.read(other, 0 as Offset, 200 as Offset, 1)?.appends.length).toBe(1);
  cache.add(one, 200 as Offset, new Uint8Array(100));
  expect(cache.read(other, 0 as Offset, 200 as Offset, 1)).toBeUndefined();
  expect(cache.read(one, 100 as Offset, 300 as Offset, 1)?.appends.length).toBe(1);
});

test("TC2 a removed stream gives its room back and takes none from the others later", () => {
  const { first, next } = costOf(100);
  const cache = new TailCache(5 * first + 9 * next);
  for (let id = 1; id <= 5; id += 1) cache.add(id as StreamId, 0 as Offset, new Uint8Array(100));
  for (let id = 1; id <= 4; id += 1) cache.remove(id as StreamId);
  cache.remove(99 as StreamId);
  expect(cache.bytes).toBe(first);
  for (let at = 0; at < 9; at += 1) {
    cache.add(6 as StreamId, (at * 100) as Offset, new Uint8Array(100));
  }
  expect(cache.read(5 as StreamId, 0 as Offset, 100 as Offset, 1)?.appends.length).toBe(1);
  expect(cache.read(1 as StreamId, 0 as Offset, 100 as Offset, 1)).toBeUndefined();
});

test("TC2 a queue of many thousand entries is shortened and still in order", () => {
  const { first, next } = costOf(10);
  const bytesMax = first + 199 * next;
  const cache = new TailCache(bytesMax);
  const stream = 1 as StreamId;
  for (let at = 0; at < 20_000; at += 1) cache.add(stream, (at * 10) as Offset, new Uint8Array(10));
  expect(cache.bytes).toBe(bytesMax);
  const page = cache.read(stream, 199_000 as Offset, 200_000 as Offset, Infinity);
  expect(page).toMatchObject({ start: 199_000 });
  expect(page?.appends.length).toBe(100);
});
