// A steady clock made of one that jumps.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type PendingTimer, SteadyTime } from "./steady-time.ts";

const START_MS = 1_800_000_000_000;
const HOUR_MS = 3_600_000;

/** Real time, a wall clock over it that jumps, and timers that run by real time. */
function openWorld() {
  const time = new SteadyTime();
  const timers = new Map<PendingTimer, { readonly dueMs: number; readonly passedMs: number }>();
  let realMs = 0;
  let skewMs = START_MS;
  const read = (): number => time.read(realMs + skewMs);
  read();
  return {
    time,
    read,
    timers,
    realMs: () => realMs,
    jump: (ms: number) => {
      skewMs += ms;
    },
    begin: (delayMs: number): PendingTimer => {
      const timer = time.begin(delayMs, realMs + skewMs);
      timers.set(timer, { dueMs: realMs + delayMs, passedMs: read() + delayMs });
      return timer;
    },
    /** Lets real time pass. Due timers fire, earliest first; returns what each proves, and the time after it. */
    pass: (ms: number): (readonly [provenMs: number, readMs: number])[] => {
      const untilMs = realMs + ms;
      const fired: (readonly [number, number])[] = [];
      for (;;) {
        const due = [...timers].filter(([, { dueMs }]) => dueMs <= untilMs);
        const [first] = due.toSorted(([, one], [, other]) => one.dueMs - other.dueMs);
        if (first === undefined) break;
        const [timer, { dueMs, passedMs }] = first;
        realMs = Math.max(realMs, dueMs);
        timers.delete(timer);
        time.fire(timer, realMs + skewMs);
        fired.push([passedMs, read()]);
      }
      realMs = untilMs;
      return fired;
    },
  };
}

describe("steady time", () => {
  test("passes as real time does while the clock does not jump", () => {
    const { read, pass, begin } = openWorld();
    pass(10);
    expect(read()).toBe(10);
    begin(5_000);
    pass(20_000);
    expect(read()).toBe(20_010);
    pass(HOUR_MS); // Nothing ran: the program was idle.
    expect(read()).toBe(20_010 + HOUR_MS);
  });

  test("a clock that is set back by an hour takes nothing back, and the time after it counts", () => {
    const { read, pass, jump } = openWorld();
    pass(500);
    expect(read()).toBe(500);
    jump(-HOUR_MS);
    expect(read()).toBe(500);
    pass(250);
    expect(read()).toBe(750);
  });

  test("a timer that fires proves that its delay has passed, also if the clock was set back", () => {
    const { read, pass, jump, begin } = openWorld();
    begin(30_000);
    jump(-HOUR_MS);
    expect(pass(30_000)).toEqual([[30_000, 30_000]]);
    expect(read()).toBe(30_000);
  });

  test("a clock that is set an hour ahead counts no further than the first timer, or a second", () => {
    const { read, pass, jump, begin } = openWorld();
    begin(10_000);
    begin(20_000);
    jump(HOUR_MS);
    expect(read()).toBe(10_000);
    pass(10_000);
    const other = openWorld();
    other.begin(250);
    other.jump(HOUR_MS);
    expect(other.read()).toBe(1_000);
  });

  test("a jump that is seen first when the timer fires does not count beyond its end", () => {
    const { read, pass, jump, begin } = openWorld();
    begin(10_000);
    jump(HOUR_MS);
    pass(10_000);
    expect(read()).toBe(10_000);
  });

  test("a cancelled timer says nothing", () => {
    const { time, read, jump, begin, pass } = openWorld();
    time.cancel(begin(10));
    jump(HOUR_MS);
    expect(read()).toBe(HOUR_MS);
    pass(0);
  });

  test("timers that vanished with their object hold up one step, and then nothing", () => {
    const { read, pass, timers, begin } = openWorld();
    for (let index = 0; index < 1_000; index += 1) begin(10_000);
    timers.clear(); // The object is gone, and with it what would have called them.
    pass(60_000);
    expect(read()).toBe(10_000);
    pass(900);
    expect(read()).toBe(10_900); // Small steps are never held up.
    pass(60_000);
    expect(read()).toBe(11_900);
    pass(60_000);
    expect(read()).toBe(71_900);
  });

  const step = fc.oneof(
    fc.record({ kind: fc.constant("pass" as const), ms: fc.nat(20_000) }),
    fc.record({ kind: fc.constant("read" as const) }),
    fc.record({ kind: fc.constant("begin" as const), ms: fc.nat(40_000) }),
    fc.record({
      kind: fc.constant("jump" as const),
      ms: fc.integer({ min: -2 * HOUR_MS, max: 2 * HOUR_MS }),
    }),
  );

  test("under any jumps it never goes back, is never behind a timer that fired, and a jump ahead adds no more than it may", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const { read, pass, jump, begin, timers, realMs } = openWorld();
        let before = 0;
        let allowedMs = 0; // By how much it may be ahead of real time.
        const look = (): number => {
          const now = read();
          expect(now).toBeGreaterThanOrEqual(before);
          before = now;
          return now;
        };
        begin(3 * HOUR_MS); // As a server has it: something is always pending.
        for (const one of steps) {
          if (one.kind === "begin") begin(one.ms);
          else if (one.kind === "pass") {
            for (const [provenMs, readMs] of pass(one.ms)) {
              expect(readMs).toBeGreaterThanOrEqual(provenMs);
              expect(readMs).toBeGreaterThanOrEqual(before);
              before = readMs;
            }
          } else if (one.kind === "jump") {
            const now = look();
            const left = [...timers.values()].map(({ passedMs }) => passedMs - now);
            // One that is overdue for more than a second counts as vanished.
            const leftMs = Math.min(...left.filter((ms) => ms >= -1_000));
            jump(one.ms);
            if (one.ms > 0) allowedMs += Math.min(one.ms, Math.max(1_000, leftMs));
          }
          expect(look()).toBeLessThanOrEqual(realMs() + allowedMs);
        }
      }),
      { numRuns: 2_000 },
    );
  });
});
