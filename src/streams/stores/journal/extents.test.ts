import fc from "fast-check";
import { expect, test } from "vitest";
import type { Offset, StreamId } from "../../core/types.ts";
import { type Extent, EXTENT_BYTES_MAX, ExtentIndex, StreamExtents } from "./extents.ts";

function extent(start: number, segment: number, position: number, bytes: number): Extent {
  return { start: start as Offset, segment, position, bytes };
}

test("IX1 an offset is found in the extent that holds it, however many there are", () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1, maxLength: 40 }),
      (sizes) => {
        const extents = new StreamExtents(7 as Offset);
        const starts: number[] = [];
        let end = 7;
        for (const [at, size] of sizes.entries()) {
          starts.push(end);
          extents.add(extent(end, at, at * 1000, size + 20), (end + size) as Offset);
          end += size;
        }
        expect(extents.count).toBe(sizes.length);
        for (let offset = 7; offset < end; offset += 1) {
          expect(extents.find(offset as Offset)).toBe(
            starts.findLastIndex((start) => start <= offset),
          );
        }
        expect(extents.find(end as Offset)).toBe(sizes.length);
      },
    ),
  );
});

test("IX1 an extent that does not follow the one before it is refused", () => {
  const extents = new StreamExtents(0 as Offset);
  extents.add(extent(0, 1, 0, 10), 5 as Offset);
  for (const start of [4, 6]) {
    expect(() => {
      extents.add(extent(start, 1, 10, 10), 9 as Offset);
    }).toThrow("IX1");
  }
  expect(() => new StreamExtents(0 as Offset).at(0)).toThrow("IX1");
});

test("IX1 a run that goes on on disk joins the last one, unless it gets too long to read", () => {
  const extents = new StreamExtents(0 as Offset);
  extents.add(extent(0, 1, 0, 100), 5 as Offset);
  extents.add(extent(5, 1, 100, 100), 9 as Offset);
  expect([extents.count, extents.at(0).bytes]).toEqual([1, 200]);
  extents.add(extent(9, 2, 200, 100), 12 as Offset);
  extents.add(extent(12, 2, 300, EXTENT_BYTES_MAX), 20 as Offset);
  expect(extents.count).toBe(3);
});

test("IX1 a part that was moved is replaced, and the rest stays, for all counts", () => {
  const shape = fc.record({
    count: fc.integer({ min: 1, max: 12 }),
    from: fc.nat(11),
    length: fc.integer({ min: 1, max: 12 }),
    pieces: fc.integer({ min: 1, max: 4 }),
  });
  fc.assert(
    fc.property(shape, ({ count, from, length, pieces }) => {
      fc.pre(from < count);
      const to = Math.min(count, from + length);
      const extents = new StreamExtents(0 as Offset);
      for (let at = 0; at < count; at += 1) {
        extents.add(extent(at * 10, 1, at * 1000, 30), (at * 10 + 10) as Offset);
      }
      const before = Array.from({ length: count }, (_, at) => extents.at(at));
      const moved = Array.from({ length: pieces }, (_, at) =>
        extent(from * 10 + at, 2, at * 50, 9),
      );
      extents.replace(from, to, moved);
      const after = Array.from({ length: extents.count }, (_, at) => extents.at(at));
      expect(after).toEqual([...before.slice(0, from), ...moved, ...before.slice(to)]);
      expect(extents.end).toBe(count * 10);
    }),
  );
});

test("IX2 the live bytes of a segment are those of the extents that point into it", () => {
  const index = new ExtentIndex();
  const [one, other] = [1 as StreamId, 2 as StreamId];
  index.create(one, 0 as Offset);
  index.create(other, 0 as Offset);
  index.add(one, extent(0, 1, 0, 100), 10 as Offset);
  index.add(one, extent(10, 1, 500, 50), 20 as Offset);
  index.add(other, extent(0, 1, 200, 30), 5 as Offset);
  index.add(99 as StreamId, extent(0, 1, 0, 1000), 5 as Offset);
  expect(index.liveBytes(1)).toBe(180);
  index.move(one, 0, 2, [extent(0, 2, 0, 140)]);
  expect([index.liveBytes(1), index.liveBytes(2)]).toEqual([30, 140]);
  index.remove(other);
  index.remove(other);
  expect([...index.segments()]).toEqual([2]);
  index.remove(one);
  expect([...index.segments()]).toEqual([]);
});

test("IX3 IX2 a trim forgets the extents before it whole, as often as it comes, and the rest goes on", () => {
  const shape = fc.record({
    sizes: fc.array(fc.integer({ min: 1, max: 9 }), { maxLength: 40 }),
    trims: fc.array(fc.nat(300), { maxLength: 8 }),
    more: fc.array(fc.integer({ min: 1, max: 9 }), { maxLength: 5 }),
  });
  fc.assert(
    fc.property(shape, ({ sizes, trims, more }) => {
      const index = new ExtentIndex();
      const stream = 1 as StreamId;
      const extents = index.create(stream, 3 as Offset);
      let kept: { readonly extent: Extent; readonly end: number }[] = [];
      let end = 3;
      const add = (size: number): void => {
        const added = extent(end, end % 3, end * 1000, size + 20);
        end += size;
        index.add(stream, added, end as Offset);
        kept.push({ extent: added, end });
      };
      const check = (): void => {
        const found = Array.from({ length: extents.count }, (_, at) => extents.at(at));
        expect(found).toEqual(kept.map((one) => one.extent));
        expect([extents.first, extents.end]).toEqual([kept[0]?.extent.start ?? end, end]);
        for (const segment of [0, 1, 2]) {
          const live = kept.filter((one) => one.extent.segment === segment);
          expect(index.liveBytes(segment)).toBe(
            live.reduce((sum, one) => sum + one.extent.bytes, 0),
          );
        }
      };
      for (const size of sizes) add(size);
      for (const to of trims) {
        index.trim(stream, to as Offset);
        kept = kept.filter((one) => one.end > to);
        check();
        for (const size of more) add(size);
        check();
      }
      for (const size of more) add(size);
      check();
      index.remove(stream);
      expect([...index.segments()]).toEqual([]);
    }),
  );
});
