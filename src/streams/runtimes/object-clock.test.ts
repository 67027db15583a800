import { expect, test } from "vitest";
import { createVirtualClock, type VirtualClock } from "../../testing/virtual-clock.ts";
import { ObjectClock } from "./object-clock.ts";

/** The alarm of an object: one, and the platform may lose it or be late. */
class Alarm {
  atMs: number | null = null;
  sets = 0;

  getAlarm(): Promise<number | null> {
    return Promise.resolve(this.atMs);
  }

  setAlarm(atMs: number): Promise<void> {
    this.atMs = atMs;
    this.sets += 1;
    return Promise.resolve();
  }
}

function clockOn(alarm: Alarm, clock = createVirtualClock(1e12)): [ObjectClock, VirtualClock] {
  const fail = (error: unknown): never => {
    throw error;
  };
  return [new ObjectClock(alarm, fail, clock), clock];
}

test("a long wait is left to the alarm, a short one is a timer", async () => {
  const alarm = new Alarm();
  const [clock, time] = clockOn(alarm);
  await clock.begin();
  const ran: string[] = [];
  clock.after(4_999, () => ran.push("short"));
  expect(alarm.atMs).toBe(null);
  clock.after(60_000, () => ran.push("late"));
  clock.after(5_000, () => ran.push("early"));
  expect(alarm.atMs).toBe(time.nowMs() + 5_000);
  time.advance(5_000);
  clock.alarm();
  expect(ran).toEqual(["short", "early"]);
  expect(alarm.atMs).toBe(time.nowMs() + 55_000);
});

test("after a wake the alarm is never later than what waits, and an earlier one stays", async () => {
  const alarm = new Alarm();
  const [before, time] = clockOn(alarm);
  await before.begin();
  before.after(10_000, () => undefined);
  const atMs = alarm.atMs;
  const [after] = clockOn(alarm, time);
  after.after(20_000, () => undefined);
  expect(alarm.sets).toBe(1); // Nothing is set before the old one is known.
  await after.begin();
  expect([alarm.atMs, alarm.sets]).toEqual([atMs, 1]);
  after.after(6_000, () => undefined);
  expect(alarm.atMs).toBe(time.nowMs() + 6_000);
});

test("an alarm that was lost is set again at the next wake", async () => {
  const alarm = new Alarm();
  const [, time] = clockOn(alarm);
  for (const lost of [null, time.nowMs() - 86_400_000]) {
    alarm.atMs = lost;
    const [clock] = clockOn(alarm, time);
    clock.after(30_000, () => undefined);
    await clock.begin();
    expect(alarm.atMs).toBe(time.nowMs() + 30_000);
  }
});

test("an alarm that comes early, or twice, does nothing twice; what was cancelled does not run", async () => {
  const alarm = new Alarm();
  const [clock, time] = clockOn(alarm);
  await clock.begin();
  let runs = 0;
  clock.after(8_000, () => (runs += 1));
  clock.after(9_000, () => (runs += 10))();
  clock.alarm();
  expect([runs, alarm.atMs]).toEqual([0, time.nowMs() + 8_000]);
  time.advance(3_600_000);
  clock.alarm();
  clock.alarm();
  expect(runs).toBe(1);
});

test("one fault does not keep others from their time", async () => {
  const alarm = new Alarm();
  const faults: unknown[] = [];
  const time = createVirtualClock(1e12);
  const clock = new ObjectClock(alarm, (error) => faults.push(error), time);
  await clock.begin();
  let runs = 0;
  clock.after(5_000, () => {
    throw new Error("broken");
  });
  clock.after(5_000, () => (runs += 1));
  time.advance(5_000);
  clock.alarm();
  expect([runs, faults]).toMatchObject([1, [{ message: "broken" }]]);
});
