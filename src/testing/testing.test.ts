// Checks the helpers that other tests use.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Offset, StreamId } from "../streams/core/types.ts";
import { openMemoryStore } from "../streams/stores/memory.ts";
import { openFaultyStore } from "../../test/kits/faulty-store.ts";
import { openGatedStore } from "../../test/kits/gated-store.ts";
import { createSeededRandom } from "./seeded-random.ts";
import { appended, created } from "./store-case-kit.ts";
import { createVirtualClock } from "./virtual-clock.ts";
import { turn, watch } from "../../test/kits/watch.ts";

const read = (store: ReturnType<typeof openMemoryStore>) =>
  store.read(1 as StreamId, 0 as Offset, 100 as Offset, 100);

describe("the virtual clock", () => {
  test("fires timers at their times, in order, and those of one time as they were set", () => {
    const clock = createVirtualClock(100);
    const fired: string[] = [];
    clock.after(20, () => fired.push(`late ${clock.nowMs()}`));
    clock.after(10, () => fired.push(`first ${clock.nowMs()}`));
    clock.after(10, () => fired.push(`second ${clock.nowMs()}`));
    clock.after(31, () => fired.push("never"));
    clock.advance(30);
    expect(fired).toEqual(["first 110", "second 110", "late 120"]);
    expect([clock.nowMs(), clock.pending]).toEqual([130, 1]);
  });

  test("fires a timer that another one sets, if it falls due in the same time", () => {
    const clock = createVirtualClock();
    const fired: number[] = [];
    const again = (): void => {
      fired.push(clock.nowMs());
      clock.after(10, again);
    };
    clock.after(10, again);
    clock.advance(35);
    expect(fired).toEqual([10, 20, 30]);
  });

  test("does not fire what was cancelled, and a jump moves the wall clock alone", () => {
    const clock = createVirtualClock();
    const fired: number[] = [];
    const cancel = clock.after(5, () => fired.push(0));
    clock.after(10, () => fired.push(clock.nowMs()));
    cancel();
    clock.jump(-1000);
    expect(clock.nowMs()).toBe(-1000);
    clock.advance(10);
    expect(fired).toEqual([-990]);
  });
});

test("seeded random repeats for a seed, differs between seeds, and stays in its range", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: 2 ** 32 - 1 }),
      fc.integer({ min: 1, max: 1000 }),
      (seed, limit) => {
        const [one, other, next] = [seed, seed, seed + 1].map((each) => createSeededRandom(each));
        const numbers = Array.from({ length: 20 }, () => one?.unit() ?? -1);
        expect(numbers).toEqual(numbers.map(() => other?.unit()));
        expect(numbers).not.toEqual(numbers.map(() => next?.unit()));
        for (const number of numbers) expect(number >= 0 && number < 1).toBe(true);
        const below = one?.below(limit) ?? -1;
        expect(Number.isInteger(below) && below >= 0 && below < limit).toBe(true);
        expect(one?.id()).toMatch(/^[0-9a-f]{32}$/);
      },
    ),
  );
  const random = createSeededRandom(1);
  const counts = [0, 0, 0, 0];
  for (let index = 0; index < 4000; index += 1) {
    const place = random.below(4);
    counts[place] = (counts[place] ?? 0) + 1;
  }
  for (const count of counts) expect(count).toBeGreaterThan(800);
});

describe("the gated store", () => {
  test("holds each commit until it is released, in order, and lists what waits", async () => {
    const store = openGatedStore(openMemoryStore());
    const arrival = watch(store.arrival());
    await turn();
    expect(arrival.isWaiting).toBe(true);
    const first = watch(store.commit([created(1)]));
    const second = watch(store.commit([appended(1, "x")]));
    await turn();
    expect([arrival.isWaiting, first.isWaiting, second.isWaiting]).toEqual([false, true, true]);
    expect(store.waiting.map((changes) => changes[0]?.kind)).toEqual(["created", "appended"]);
    await store.release();
    await turn();
    expect([first.isWaiting, second.isWaiting]).toEqual([false, true]);
    expect((await read(store)).appends).toEqual([]);
    store.open();
    await turn();
    expect(second.isWaiting).toBe(false);
    expect((await read(store)).appends).toHaveLength(1);
    await store.close();
  });

  test("refuses the oldest commit, which then never reaches the inner store", async () => {
    const store = openGatedStore(openMemoryStore());
    const commit = watch(store.commit([created(1), appended(1, "x")]));
    const reason = new Error("no");
    store.refuse(reason);
    await turn();
    expect(commit.error).toBe(reason);
    expect((await read(store)).appends).toEqual([]);
    await expect(store.release()).rejects.toThrow("no commit waits");
  });
});

describe("the faulty store", () => {
  test.each([false, true])(
    "S3 fails its k-th commit and all later ones (written: %s)",
    async (isWritten) => {
      const store = openFaultyStore(openMemoryStore(), { failCommit: 2, isWritten });
      await store.commit([created(1)]);
      await expect(store.commit([appended(1, "x")])).rejects.toThrow("commit 2 fails on purpose");
      await expect(store.commit([])).rejects.toMatchObject({ code: "writes_stopped" });
      expect((await read(store)).appends).toHaveLength(isWritten ? 1 : 0);
      expect([store.commits, store.reads]).toEqual([3, 1]);
    },
  );

  test("fails one read, and the next one works", async () => {
    const store = openFaultyStore(openMemoryStore(), { failRead: 2 });
    await read(store);
    await expect(read(store)).rejects.toThrow("read 2 fails on purpose");
    await read(store);
    store.failNextRead();
    await expect(read(store)).rejects.toThrow("read 4 fails on purpose");
    await read(store);
  });
});
