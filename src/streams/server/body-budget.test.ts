import { describe, expect, test } from "vitest";
import type { HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { BodyBudget, type BodyShare } from "./body-budget.ts";

const MIB = 1024 * 1024;

/** Makes a budget whose clock the test moves, and bodies that remember how they were cut. */
function openStage(rateMin?: number) {
  let nowMs = 0;
  const clock = { nowMs: () => nowMs, steadyMs: () => nowMs, after: () => () => undefined };
  const budget = new BodyBudget(rateMin, clock);
  const begin = (peer: string, bytes = 0): BodyShare & { readonly cuts: readonly string[] } => {
    const cuts: string[] = [];
    const cut = (error: HapaxError): void => void cuts.push(error.code);
    const share = Object.assign(budget.begin({ peer, cut }), { cuts });
    if (bytes > 0) share.take(bytes);
    return share;
  };
  /** Lets seconds pass. In each, every given body gets this many bytes. */
  const pass = (seconds: number, bodies: readonly BodyShare[] = [], bytes = 0): void => {
    for (let second = 0; second < seconds; second += 1) {
      nowMs += 1000;
      for (const body of bodies) body.take(bytes);
      budget.check();
    }
  };
  return { budget, begin, pass };
}

describe("a full budget", () => {
  test("refuses a body when all others come fast, and from the same peer", () => {
    const { budget, begin, pass } = openStage();
    const bodies = Array.from({ length: 16 }, () => begin("a", 15 * MIB));
    pass(2, bodies, MIB / 2);
    const late = begin("a");
    expect(() => {
      late.take(1);
    }).toThrow(expect.objectContaining({ code: "too_many" }));
    expect(bodies.flatMap(({ cuts }) => cuts)).toEqual([]);
    bodies[0]?.end();
    late.take(16 * MIB);
    expect(budget.bytes).toBe(LIMITS.bodiesBytesMax);
  });

  test("G34 makes room by cutting bodies that stopped, one for each that needs it", () => {
    const { budget, begin, pass } = openStage();
    const stopped = Array.from({ length: 16 }, () => begin("a", 16 * MIB));
    pass(2);
    begin("a").take(16 * MIB);
    expect(stopped.flatMap(({ cuts }) => cuts)).toEqual(["too_many"]);
    begin("a").take(1);
    expect(stopped.flatMap(({ cuts }) => cuts)).toEqual(["too_many", "too_many"]);
    expect(budget.bytes).toBe(15 * 16 * MIB + 1);
  });

  test("cuts the slowest first, and none that arrives in time", () => {
    const { begin, pass } = openStage();
    const fast = Array.from({ length: 14 }, () => begin("a", 15 * MIB));
    const [slow, slower] = [begin("a", 15 * MIB), begin("a", 14 * MIB)];
    for (let second = 0; second < 3; second += 1) {
      slow.take(200 * 1024);
      slower.take(100 * 1024);
      pass(1, fast, 300 * 1024);
    }
    const late = begin("a");
    late.take(16 * MIB);
    expect([slow.cuts, slower.cuts]).toEqual([[], ["too_many"]]);
    late.take(8 * MIB);
    expect([slow.cuts, slower.cuts]).toEqual([["too_many"], ["too_many"]]);
    expect(fast.flatMap(({ cuts }) => cuts)).toEqual([]);
  });

  test("takes from the peer that holds most, until both hold the same", () => {
    const { begin, pass } = openStage();
    const flood = Array.from({ length: 16 }, () => begin("a", 15 * MIB));
    pass(2, flood, MIB / 2);
    const others = Array.from({ length: 8 }, () => begin("b"));
    for (const body of others) body.take(16 * MIB);
    expect(flood.filter(({ cuts }) => cuts.length > 0).length).toBe(8);
    const late = begin("b");
    expect(() => {
      late.take(1);
    }).toThrow(expect.objectContaining({ code: "too_many" }));
    expect(others.flatMap(({ cuts }) => cuts)).toEqual([]);
  });
});

describe("a slow body", () => {
  test("G34 a slow body of a peer that holds little makes no room for one that holds most", () => {
    const { begin, pass } = openStage();
    const phone = begin("phone", 2000);
    const flood = Array.from({ length: 16 }, () => begin("a", 15 * MIB));
    pass(1, flood, 300 * 1024);
    phone.take(2000);
    pass(1, flood, 300 * 1024);
    const more = (): void => {
      for (let round = 0; round < 20; round += 1) {
        for (const body of flood) body.take(64 * 1024);
      }
    };
    expect(more).toThrow(expect.objectContaining({ code: "too_many" }));
    expect(phone.cuts).toEqual([]);
  });

  test("makes room as a large one, rather than thousands of small ones that are slower", () => {
    const { begin, pass } = openStage();
    const small = Array.from({ length: 10_000 }, () => begin("a", 1));
    const large = Array.from({ length: 16 }, () => begin("a", 15 * MIB));
    pass(1, large, MIB - 1000);
    begin("b").take(64 * 1024);
    expect(small.flatMap(({ cuts }) => cuts)).toEqual([]);
    expect(large.flatMap(({ cuts }) => cuts)).toEqual(["too_many"]);
  });
});

describe("the lowest rate", () => {
  test("a body that brings less over a window is cut with 408, and gives its bytes back", () => {
    const { budget, begin, pass } = openStage();
    const [slow, good] = [begin("a", 100), begin("a", 100)];
    for (let second = 0; second < 25; second += 1) {
      if (slow.cuts.length === 0) slow.take(100);
      pass(1, [good], 2000);
    }
    expect([slow.cuts, good.cuts]).toEqual([["request_timeout"], []]);
    expect(budget.bytes).toBe(good.bytes);
  });

  test("can be switched off", () => {
    const { begin, pass } = openStage(0);
    const slow = begin("a", 1);
    pass(60);
    expect(slow.cuts).toEqual([]);
  });
});
