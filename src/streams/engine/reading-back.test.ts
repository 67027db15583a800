// PROTOCOL.md §7.10: the last records are those of the stream, and the work for them is bounded.
import { describe, expect, test } from "vitest";
import { utf8Of } from "../../base/bytes.ts";
import { jsonRecordEndFrom } from "../../protocol/json.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { appended, created, forked, write } from "../../testing/store-case-kit.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import type { Offset, StreamId } from "../core/types.ts";
import { openMemoryStore } from "../stores/memory.ts";
import type { Store } from "../store.ts";
import { readLast } from "./reading-back.ts";
import { Slices } from "./turn-budget.ts";

/** Counts the bytes that are read. */
function counting(store: Store): { readonly store: Store; readonly bytes: () => number } {
  let bytes = 0;
  const read: Store["read"] = async (...range) => {
    const page = await store.read(...range);
    for (const append of page.appends) bytes += append.length;
    return page;
  };
  return { store: { ...store, read }, bytes: () => bytes };
}

interface Wanted {
  readonly id?: number;
  readonly count: number;
  readonly before?: number;
  readonly bytesMax?: number;
  readonly earliest?: number;
}

async function last(store: Store, wanted: Wanted): Promise<{ start: number; text: string }> {
  const state = store.world.byId.get((wanted.id ?? 1) as StreamId);
  if (state === undefined) throw new Error("no stream");
  const { tail } = state;
  const slices = new Slices({
    ...createVirtualClock(),
    after: (_ms, run) => (run(), () => undefined),
  });
  const { start, appends } = await readLast(
    { store, jsonRecordEnd: jsonRecordEndFrom, slices },
    state,
    {
      earliest: (wanted.earliest ?? 0) as Offset,
      before: (wanted.before ?? tail) as Offset,
      tail,
      count: wanted.count,
      bytesMax: wanted.bytesMax ?? 1024 * 1024,
    },
  );
  return { start, text: Buffer.concat(appends).toString() };
}

const JSON_STREAM = { contentType: "application/json" };

describe("the last records", () => {
  test("are the same as those that a reader of everything would keep, for all counts, ends and page sizes", async () => {
    const store = openMemoryStore();
    await write(store, created(1, JSON_STREAM));
    let records: string[] = [];
    for (let step = 0; step < 24; step += 1) {
      const own = Array.from({ length: 1 + (step % 4) }, (_, part) =>
        JSON.stringify({ step, part, text: `,"[${"x".repeat((step * 7) % 40)}` }),
      );
      records = [...records, ...own];
      await write(store, appended(1, own.map((one) => `${one},`).join("")));
    }
    const places: { readonly start: number; readonly end: number }[] = [];
    let at = 0;
    for (const record of records) {
      places.push({ start: at, end: at + record.length + 1 });
      at += record.length + 1;
    }
    for (const before of [at, at - 1, ...places.slice(0, 12).map(({ end }) => end - 3), 0]) {
      const whole = places.filter(({ end }) => end <= before);
      for (const count of [1, 2, 3, 7, 59, 60, 61]) {
        for (const bytesMax of [1, 50, 200, 100_000]) {
          let first = whole.length;
          for (let taken = 0; first > 0 && taken < count; taken += 1) {
            const bytes = (whole.at(-1)?.end ?? 0) - (whole[first - 1]?.start ?? 0);
            if (taken > 0 && bytes > bytesMax) break;
            first -= 1;
          }
          const expected = records
            .slice(first, whole.length)
            .map((one) => `${one},`)
            .join("");
          const found = await last(store, { count, before, bytesMax });
          expect([before, count, bytesMax, found.text]).toEqual([
            before,
            count,
            bytesMax,
            expected,
          ]);
          const start = whole.length === first ? before : (whole[first]?.start ?? 0);
          expect(found.start).toBe(start);
        }
      }
    }
  });

  test("of a fork come from its source too, and none from behind the fork point", async () => {
    const store = openMemoryStore();
    await write(store, created(1, JSON_STREAM), appended(1, "1,2,3,"), appended(1, "4,5,"));
    await write(store, forked(3, 1, 8), appended(3, "6,"));
    const state = store.world.byId.get(3 as StreamId);
    Object.assign(state ?? {}, JSON_STREAM);
    expect(await last(store, { id: 3, count: 3 })).toEqual({ start: 4, text: "3,4,6," });
  });

  test("begin at the earliest offset at most", async () => {
    const store = openMemoryStore();
    await write(store, created(1, JSON_STREAM), appended(1, "1,2,"), appended(1, "3,4,"));
    expect(await last(store, { count: 9, earliest: 4 })).toEqual({ start: 4, text: "3,4," });
    expect(await last(store, { count: 9, earliest: 4, before: 2 })).toEqual({ start: 2, text: "" });
  });

  test("G150 cost what a page costs, however long the stream is", async () => {
    const { store, bytes } = counting(openMemoryStore());
    await write(store, created(1, JSON_STREAM));
    const record = `${JSON.stringify("x".repeat(1000))},`;
    for (let step = 0; step < 20; step += 1) {
      await write(store, ...Array.from({ length: 1000 }, () => appended(1, record)));
    }
    expect((await last(store, { count: 1 })).text).toBe(record);
    expect(bytes()).toBeLessThan(64 * 1024);
    const page = await last(store, { count: 10_000 });
    expect(page.text.length).toBeGreaterThan(1024 * 1024 - 2 * record.length);
    expect(page.text.length).toBeLessThanOrEqual(1024 * 1024);
    expect(bytes()).toBeLessThan(4 * 1024 * 1024);
  });

  test("G150 of an append with millions of records hold no other work up, and take no room for each", async () => {
    const store = openMemoryStore();
    await write(store, created(1, JSON_STREAM), appended(1, "1,".repeat(5_000_000)));
    const state = store.world.byId.get(1 as StreamId);
    if (state === undefined) throw new Error("no stream");
    // Each look at the clock finds it a millisecond later.
    let nowMs = 0;
    let turns = 0;
    const after = (_ms: number, run: () => void): (() => void) => {
      turns += 1;
      run();
      return () => undefined;
    };
    const slices = new Slices({ ...createVirtualClock(), steadyMs: () => (nowMs += 1), after });
    const parts = { store, jsonRecordEnd: jsonRecordEndFrom, slices };
    const wanted = { earliest: 0, before: state.tail, tail: state.tail, count: 3, bytesMax: 1024 };
    const { appends } = await readLast(parts, state, { ...wanted, earliest: 0 as Offset });
    expect(Buffer.concat(appends)).toEqual(Buffer.from(utf8Of("1,1,1,")));
    const looks = 10_000_000 / (16 * 1024);
    expect(turns).toBeGreaterThan(looks / LIMITS.turnMs / 4);
  });
});
