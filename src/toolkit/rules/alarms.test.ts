import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  alarmAt,
  alarmEvery,
  applyFailedRun,
  applyRun,
  decideArming,
  missedOf,
  type NamedAlarm,
} from "./alarms.ts";

const BOUNDS = { pauseMs: 100, pauseMsMax: 10_000 };

describe("a named alarm", () => {
  test("G67 that runs once is gone after its run, and keeps its time over failures", () => {
    const alarm = alarmAt("a", 1000);
    expect(applyRun(alarm, 5000)).toBeUndefined();
    const failed = applyFailedRun(applyFailedRun(alarm, 2000, BOUNDS, 0), 3000, BOUNDS, 0);
    expect(failed).toEqual({ ...alarm, failures: 2, runAtMs: 3100 });
  });

  test("G67 that repeats is not moved by being said again, and is by another interval", () => {
    const alarm = alarmEvery(undefined, "a", 500, 1000);
    expect(alarm).toEqual({ name: "a", dueMs: 1500, runAtMs: 1500, everyMs: 500, failures: 0 });
    expect(alarmEvery(alarm, "a", 500, 1400)).toBe(alarm);
    expect(alarmEvery(alarm, "a", 600, 1400).dueMs).toBe(2000);
  });

  test("G67 that repeats begins anew if it was set while the clock was ahead", () => {
    const ahead = alarmEvery(undefined, "a", 500, 1_000_000);
    expect(alarmEvery(ahead, "a", 500, 1000).dueMs).toBe(1500);
    expect(alarmEvery(ahead, "a", 500, 1_000_000)).toBe(ahead);
  });

  test("G67 that was missed many times runs once, and then in its old rhythm", () => {
    const alarm = { ...alarmAt("a", 1000), everyMs: 100 };
    expect(missedOf(alarm, 1000)).toBe(0);
    expect(missedOf(alarm, 1099)).toBe(0);
    expect(missedOf(alarm, 4_650)).toBe(36);
    expect(applyRun(alarm, 4_650)?.dueMs).toBe(4_700);
    expect(applyRun(alarm, 900)?.dueMs).toBe(1_100);
  });
});

describe("the object's alarm", () => {
  test("G67 is set if there is none, or if it is later than the first of the table", () => {
    expect(decideArming(undefined, undefined, 50)).toBeUndefined();
    expect(decideArming(70, undefined, 50)).toBeUndefined();
    expect(decideArming(undefined, 80, 50)).toBe(80);
    expect(decideArming(undefined, 20, 50)).toBe(50);
    expect(decideArming(90, 80, 50)).toBe(80);
    expect(decideArming(80, 80, 50)).toBeUndefined();
    expect(decideArming(60, 80, 50)).toBeUndefined();
  });

  test("G67 is never moved later, unless it was lost", () => {
    const times = fc.integer({ min: 0, max: 1_000_000 });
    fc.assert(
      fc.property(fc.option(times, { nil: undefined }), times, times, (armed, first, now) => {
        const set = decideArming(armed, first, now);
        const isLost = armed !== undefined && armed + 60_000 <= now;
        // It fires for the first of the table.
        expect(Math.min(armed ?? Infinity, set ?? Infinity)).toBeLessThanOrEqual(
          Math.max(first, now),
        );
        if (set !== undefined && armed !== undefined && !isLost) expect(set).toBeLessThan(armed);
      }),
    );
    expect(decideArming(0, 10, 70_000)).toBe(70_000);
    expect(decideArming(0, 80_000, 70_000)).toBeUndefined();
  });

  test("G67 fired late, early, twice or never, and set again at wakes: every (name, due) ends once", () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant("wait" as const), ms: fc.integer({ min: 1, max: 100_000 }) }),
      fc.record({ kind: fc.constant("set" as const), name: fc.constantFrom("a", "b") }),
      fc.record({ kind: fc.constant("fire" as const), fails: fc.boolean() }),
      fc.record({ kind: fc.constantFrom("lose" as const, "wake" as const) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const world = new World();
        for (const one of steps) {
          if (one.kind === "wait") world.now += one.ms;
          else if (one.kind === "set") world.set(one.name);
          else if (one.kind === "fire") world.fire(one.fails);
          else if (one.kind === "lose") world.armed = undefined;
          else world.arm();
        }
        // The platform fires in the end what is set; a lost alarm comes back with the next wake.
        for (let round = 0; round < 20 && world.rows.size > 0; round += 1) {
          world.arm();
          expect(world.armed).toBeDefined();
          world.now = Math.max(world.now, world.armed ?? 0);
          world.fire(false);
        }
        expect(world.rows.size).toBe(0);
        expect(new Set(world.ended).size).toBe(world.ended.length);
        expect(world.ended.length).toBe(world.asked.size);
      }),
    );
  });
});

class World {
  now = 0;
  armed: number | undefined;
  readonly rows = new Map<string, NamedAlarm>();
  readonly asked = new Set<string>();
  readonly ended: string[] = [];

  set(name: string): void {
    const known = this.rows.get(name);
    if (known !== undefined) this.asked.delete(idOf(known));
    const alarm = alarmAt(name, this.now + 10);
    if (this.ended.includes(idOf(alarm))) return;
    this.rows.set(name, alarm);
    this.asked.add(idOf(alarm));
    this.arm();
  }

  arm(): void {
    const first = Math.min(...[...this.rows.values()].map(({ runAtMs }) => runAtMs));
    this.armed =
      decideArming(this.armed, Number.isFinite(first) ? first : undefined, this.now) ?? this.armed;
  }

  fire(fails: boolean): void {
    this.armed = undefined;
    for (const alarm of this.rows.values()) {
      if (alarm.runAtMs > this.now) continue;
      if (fails) {
        this.rows.set(alarm.name, applyFailedRun(alarm, this.now, BOUNDS, 0.5));
        continue;
      }
      this.ended.push(idOf(alarm));
      this.rows.delete(alarm.name);
    }
    this.arm();
  }
}

function idOf({ name, dueMs }: NamedAlarm): string {
  return `${name}@${dueMs}`;
}
