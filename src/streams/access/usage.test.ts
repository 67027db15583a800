// PROTOCOL.md §21.9
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Quotas } from "./identity.ts";
import { QuotaRefusal } from "./quota-refusal.ts";
import { Usage, UsageBook, usageLimits } from "./usage.ts";

const usageWith = (quotas: Quotas): Usage => new Usage(undefined, "ann", usageLimits(quotas, {}));

/** Seconds to wait; 0 if it was taken. */
function take(usage: Usage, nowMs: number, appends = 1, bytes = 0): number {
  try {
    usage.takeRates(appends, bytes, nowMs);
    return 0;
  } catch (error) {
    if (error instanceof QuotaRefusal) return error.retryAfterSeconds;
    throw error;
  }
}

describe("a rate", () => {
  test("allows one second's worth at once, and then as much as time has passed", () => {
    const usage = usageWith({ appendsPerSecond: 10 });
    for (let sent = 0; sent < 10; sent += 1) expect(take(usage, 5000)).toBe(0);
    expect(take(usage, 5000)).toBe(1);
    expect(take(usage, 5099)).toBe(1);
    expect(take(usage, 5100)).toBe(0);
    expect(take(usage, 5100)).toBe(1);
  });

  test("G50 Retry-After is the number of seconds after which the same call is taken, rounded up", () => {
    const usage = usageWith({ bytesPerSecond: 100 });
    expect(take(usage, 0, 0, 350)).toBe(0); // More than a second's worth, into an empty bucket.
    expect(take(usage, 0, 0, 100)).toBe(4); // 350 have to run out.
    expect(take(usage, 3400, 0, 100)).toBe(1);
    expect(take(usage, 3500, 0, 100)).toBe(0);
  });

  test("a quota of 0 takes nothing, and what has no bytes is not a matter of bytes", () => {
    const usage = usageWith({ appendsPerSecond: 0, bytesPerSecond: 5 });
    expect(take(usage, 0)).toBe(3600);
    expect(take(usage, 1e9)).toBe(3600);
    expect(take(usage, 0, 0, 5)).toBe(0);
    expect(take(usage, 0, 0, 0)).toBe(0);
  });

  test("what is refused takes nothing of either rate", () => {
    const usage = usageWith({ appendsPerSecond: 1, bytesPerSecond: 100 });
    expect(take(usage, 0, 1, 100)).toBe(0);
    expect(take(usage, 0, 0, 1)).toBe(1);
    for (let sent = 0; sent < 50; sent += 1) expect(take(usage, 500, 1, 10)).toBe(1);
    expect(usage.at(500)).toMatchObject({ appends_per_second: 0.5, bytes_per_second: 50 });
    expect(take(usage, 1000, 1, 100)).toBe(0);
  });

  test("the refusal names the quota that takes longest, and nothing else", () => {
    const usage = usageWith({ appendsPerSecond: 1, bytesPerSecond: 1 });
    usage.takeRates(1, 10, 0);
    expect(() => {
      usage.checkRates(1, 1, 0);
    }).toThrow("quota=bytes_per_second limit=1");
  });

  test("what is left of a rate is what is taken at once, and its reset the time until all of it is", () => {
    const usage = usageWith({ appendsPerSecond: 5, bytesPerSecond: 1000 });
    const left = (nowMs: number): readonly (readonly number[])[] =>
      usage.ratesLeft(nowMs).map((rate) => [rate.perSecond, rate.left, rate.resetSeconds]);
    expect(left(0)).toEqual([
      [5, 5, 0],
      [1000, 1000, 0],
    ]);
    usage.takeRates(2, 9000, 0);
    expect(left(0)).toEqual([
      [5, 3, 1],
      [1000, 0, 9],
    ]);
    expect(left(8500)).toEqual([
      [5, 5, 0],
      [1000, 500, 1],
    ]);
    expect(usageWith({ appendsPerSecond: 0 }).ratesLeft(0)).toEqual([
      { name: "appends", perSecond: 0, left: 0, resetSeconds: 3600 },
    ]);
    expect(usageWith({ streamsMax: 3 }).ratesLeft(0)).toEqual([]);
  });

  test("as many appends as are left are taken, and one more is not, at any time", () => {
    const waits = fc.array(fc.nat({ max: 700 }), { minLength: 1, maxLength: 20 });
    fc.assert(
      fc.property(waits, fc.integer({ min: 1, max: 9 }), (pauses, appendsPerSecond) => {
        const usage = usageWith({ appendsPerSecond });
        let nowMs = 0;
        for (const pauseMs of pauses) {
          nowMs += pauseMs;
          const [rate] = usage.ratesLeft(nowMs);
          for (let sent = 0; sent < (rate?.left ?? -1); sent += 1) {
            expect(take(usage, nowMs)).toBe(0);
          }
          expect(take(usage, nowMs)).toBeGreaterThan(0);
        }
      }),
    );
  });

  test("an append that is given back can be sent again", () => {
    const usage = usageWith({ appendsPerSecond: 1 });
    usage.takeRates(1, 0, 0);
    usage.giveAppend();
    expect(take(usage, 0)).toBe(0);
  });

  test("G50 in no span of time more is taken than its seconds and one more are worth", () => {
    const step = fc.record({ waitMs: fc.nat(700), amount: fc.integer({ min: 1, max: 7 }) });
    fc.assert(
      fc.property(
        fc.integer({ min: 7, max: 50 }),
        fc.array(step, { maxLength: 100, size: "max" }),
        (rate, steps) => {
          const usage = usageWith({ appendsPerSecond: rate });
          const taken: { readonly atMs: number; readonly amount: number }[] = [];
          let atMs = 0;
          for (const { waitMs, amount } of steps) {
            atMs += waitMs;
            const wait = take(usage, atMs, amount);
            if (wait === 0) taken.push({ atMs, amount });
            // What it says is true: then, and if nothing else came, it is possible.
            else usage.checkRates(amount, 0, atMs + wait * 1000);
          }
          let most = 0;
          for (const [first, { atMs: fromMs }] of taken.entries()) {
            let sum = 0;
            for (const { atMs: toMs, amount } of taken.slice(first)) {
              sum += amount;
              most = Math.max(most, sum - rate * (1 + (toMs - fromMs) / 1000));
            }
          }
          expect(most).toBeLessThan(0.001);
        },
      ),
    );
  });
});

describe("requests and live readers", () => {
  test("have as many places as the quota says, and each place is free again when it is given back", () => {
    const usage = usageWith({ requestsMax: 2, liveReadersMax: 1 });
    usage.beginRequest();
    usage.beginRequest();
    expect(() => {
      usage.beginRequest();
    }).toThrow("quota=requests limit=2");
    usage.endRequest();
    usage.beginRequest();
    const leave = usage.beginReader();
    expect(() => usage.beginReader()).toThrow("quota=live_readers limit=1");
    leave();
    leave(); // The connection ends in two ways at once.
    const again = usage.beginReader();
    expect(usage.liveReaders).toBe(1);
    again();
  });

  test("without a quota there is no limit, and they are counted all the same", () => {
    const usage = usageWith({});
    for (let count = 0; count < 1000; count += 1) usage.beginRequest();
    expect(usage.at(0).requests).toBe(1000);
  });
});

describe("the book", () => {
  const limits = usageLimits({ appendsPerSecond: 10 }, {});
  const of = (book: UsageBook, name: string, nowMs: number): Usage =>
    book.of(name, undefined, name, limits, { steadyMs: () => nowMs });

  test("forgets identities that use nothing, and none that uses something", () => {
    const book = new UsageBook();
    const [asking, reading, spent] = ["asking", "reading", "spent"].map((name) =>
      of(book, name, 0),
    );
    asking?.beginRequest();
    reading?.beginReader();
    spent?.takeRates(10, 0, 99_500);
    for (let count = 0; count < 100_000; count += 1) of(book, `passing-${count}`, count);
    expect(book.size).toBeLessThanOrEqual(2000);
    expect(of(book, "asking", 100_000)).toBe(asking);
    expect(of(book, "reading", 100_000)).toBe(reading);
    expect(of(book, "spent", 99_999).at(99_999).appends_per_second).toBeCloseTo(5.01);
  });

  test("a quota of the identity comes before the server's, one by one", () => {
    const own = { appendsPerSecond: 5, requestsMax: 0 };
    expect(usageLimits(own, { appendsPerSecond: 1, requestsMax: 7, streamsMax: 3 })).toEqual({
      appendsPerSecond: 5,
      requestsMax: 0,
      streamsMax: 3,
      storedBytesMax: Infinity,
      bytesPerSecond: Infinity,
      liveReadersMax: Infinity,
    });
  });
});
