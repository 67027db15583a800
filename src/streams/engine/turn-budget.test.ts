// Long work in slices. PROTOCOL.md §26.2, GUARANTEES.md G34
import { expect, test } from "vitest";
import { LIMITS } from "../../protocol/limits.ts";
import { ManualClock } from "../../../test/kits/live-stage.ts";
import { Slices } from "./turn-budget.ts";

/** A loop in which other work takes so long between two turns. Returns how long the turn is that it got. */
async function turnAfter(waitMs: number, msMax?: number): Promise<number> {
  const clock = new ManualClock();
  const slices = new Slices(clock);
  const turn = slices.turn(msMax);
  // Other work holds the loop: the turn is due, and late.
  clock.hold(waitMs);
  clock.move(0);
  await turn;
  let ms = 0;
  while (slices.take() && ms < 1000) {
    clock.move(1);
    ms += 1;
  }
  return ms;
}

test("a turn has its length, however long it was waited for", async () => {
  expect(await turnAfter(0)).toBe(LIMITS.turnMs);
  expect(await turnAfter(100)).toBe(LIMITS.turnMs);
});

test("work that must not fall behind gets turns as long as its waits, up to a limit", async () => {
  expect(await turnAfter(1, 25)).toBe(LIMITS.turnMs);
  expect(await turnAfter(12, 25)).toBe(12);
  expect(await turnAfter(400, 25)).toBe(25);
});

test("the steps of a turn grow with its time", async () => {
  const clock = new ManualClock();
  const slices = new Slices(clock);
  const turn = slices.turn(25);
  clock.hold(25);
  clock.move(0);
  await turn;
  let steps = 0;
  while (slices.take()) steps += 1;
  expect(steps).toBe(5 * LIMITS.turnStepsMax - 1);
});
