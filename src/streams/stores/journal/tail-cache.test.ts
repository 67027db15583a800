import fc from "fast-check";
import { assert, expect, test } from "vitest";
import type { Offset, StreamId } from "../../core/types.ts";
import { TailCache } from "./tail-cache.ts";

test("what is read from the cache is the stream's own data up to its tail, without holes", () => {
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

test("a page at the tail is empty, and a page ends at its limit", () => {
  const cache = new TailCache(10_000);
  const stream = 1 as StreamId;
  cache.add(stream, 5 as Offset, new TextEncoder().encode("abc"));
  cache.add(stream, 8 as Offset, new TextEncoder().encode("defg"));
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

/** Returns what entries cost: the first of a stream, and each further one. */
function costOf(bytes: number): { readonly first: number; readonly next: number } {
  const cache = new TailCache(Infinity);
  cache.add(1 as StreamId, 0 as Offset, new Uint8Array(bytes));
  const first = cache.bytes;
  cache.add(1 as StreamId, bytes as Offset, new Uint8Array(bytes));
  return { first, next: cache.bytes - first };
}

test("the oldest data goes first, whichever stream it belongs to", () => {
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

test("a removed stream gives its room back and takes none from the others later", () => {
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

test("a queue of many thousand entries is shortened and still in order", () => {
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

test("small entries of large frames keep no more memory than the cache may have", () => {
  const frameBytes = 1 << 20;
  const bytesMax = 8 * frameBytes;
  const cache = new TailCache(bytesMax);
  const live = 1 as StreamId;
  for (let frame = 0; frame < 100; frame += 1) {
    const memory = new Uint8Array(frameBytes);
    const large = (1000 + frame) as StreamId;
    const borrowed = undefined;
    const length = frameBytes - 520;
    const data = [
      { stream: large, start: 0 as Offset, length, at: 520, borrowed },
      { stream: live, start: (520 * frame) as Offset, length: 520, at: 0, borrowed },
    ];
    cache.addFrame({ written: memory, data });
    cache.remove(large);
    expect(cache.bytes).toBeLessThanOrEqual(bytesMax);
  }
  const tail = (520 * 100) as Offset;
  const held = new Set<ArrayBufferLike>();
  for (let from = 0; from < tail; from += 520) {
    const page = cache.read(live, from as Offset, tail, 1);
    for (const { buffer } of page?.appends ?? []) held.add(buffer);
  }
  const heldBytes = [...held].reduce((sum, memory) => sum + memory.byteLength, 0);
  expect(heldBytes).toBeGreaterThan(0);
  expect(heldBytes).toBeLessThanOrEqual(bytesMax);
});

test("appends that share a frame each come back as they are", () => {
  const cache = new TailCache(1 << 20);
  const memory = new Uint8Array(1010).map((_, at) => at % 251);
  const written = memory.subarray(10);
  const data = [0, 300, 600].map((at, index) => {
    const start = (index * 290) as Offset;
    return { stream: 1 as StreamId, start, length: 290, at, borrowed: undefined };
  });
  cache.addFrame({ written, data });
  const page = cache.read(1 as StreamId, 0 as Offset, 870 as Offset, Infinity);
  const expected = data.map(({ at }) => Buffer.from(written.subarray(at, at + 290)));
  expect(page?.appends).toEqual(expected);
});

test("a frame of which little is data is copied, not kept", () => {
  const cache = new TailCache(1 << 20);
  const memory = new Uint8Array(900_000);
  const start = 0 as Offset;
  const data = [{ stream: 1 as StreamId, start, length: 100, at: 0, borrowed: undefined }];
  cache.addFrame({ written: memory, data });
  expect(cache.bytes).toBeLessThan(20_000);
  const page = cache.read(1 as StreamId, 0 as Offset, 100 as Offset, 1000);
  expect(page?.appends[0]?.buffer.byteLength).toBeLessThan(20_000);
});

test("copies share memory with each other, and with nothing else of the process", () => {
  const cache = new TailCache(1 << 20);
  const stream = 1 as StreamId;
  const others: Buffer[] = [];
  for (let at = 0; at < 100; at += 1) {
    others.push(Buffer.from("another part of the process takes small buffers, too".repeat(20)));
    const borrowed = Uint8Array.of(at);
    const data = [{ stream, start: at as Offset, length: 1, at: 0, borrowed }];
    cache.addFrame({ written: new Uint8Array(0), data });
    borrowed[0] = 255;
  }
  const page = cache.read(stream, 0 as Offset, 100 as Offset, Infinity);
  expect(page?.appends.map(([byte]) => byte)).toEqual(Array.from({ length: 100 }, (_, at) => at));
  const held = new Set(page?.appends.map(({ buffer }) => buffer));
  expect(held.size).toBe(1);
  expect(others.filter(({ buffer }) => held.has(buffer))).toEqual([]);
  expect(cache.bytes).toBeLessThan(30_000);
});

test("streams that are written and removed leave nothing behind, also behind one that stays", () => {
  const cache = new TailCache(1024 * 1024);
  cache.add(1 as StreamId, 0 as Offset, Buffer.from("stays"));
  const before = cache.bytes;
  let placesMost = 0;
  for (let id = 2; id < 30_000; id += 1) {
    cache.add(id as StreamId, 0 as Offset, Buffer.alloc(10));
    cache.remove(id as StreamId);
    placesMost = Math.max(placesMost, cache.places);
  }
  expect(placesMost).toBeLessThan(10_000);
  expect(cache.bytes).toBeLessThanOrEqual(before + 16_384);
  const page = cache.read(1 as StreamId, 0 as Offset, 5 as Offset, 100);
  expect(page?.appends.map(String)).toEqual([String(Buffer.from("stays"))]);
});

test("the newest append is always there, in every order in which streams come, go and are dropped", () => {
  const step = fc.record({ stream: fc.nat(5), isRemoved: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { minLength: 9000, maxLength: 12_000 }), (steps) => {
      const cache = new TailCache(50_000);
      const tails = new Map<number, number>();
      let lives = 0;
      const ids = new Map<number, number>();
      for (const { stream, isRemoved } of steps) {
        const id = ids.get(stream);
        if (isRemoved && id !== undefined) {
          cache.remove(id as StreamId);
          ids.delete(stream);
          assert(cache.read(id as StreamId, 0 as Offset, 1 as Offset, 100) === undefined);
          continue;
        }
        const life = id ?? (lives += 1);
        ids.set(stream, life);
        const tail = tails.get(life) ?? 0;
        cache.add(life as StreamId, tail as Offset, Buffer.alloc(8, life));
        tails.set(life, tail + 8);
        const last = cache.read(life as StreamId, tail as Offset, (tail + 8) as Offset, 100);
        assert.deepEqual(last?.appends[0], Buffer.alloc(8, life));
        assert(cache.bytes <= 50_000);
      }
    }),
    { numRuns: 3 },
  );
});
