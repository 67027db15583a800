// Seeded histories of owners, takeovers and failovers over simulated tables. The long form runs 10,000.
import { expect, test } from "vitest";
import { isHapaxError } from "../../src/base/errors.ts";
import { simulate, simulateGoingBack } from "./simulation-run.ts";

const SEEDS = process.env["HAPAX_LONG"] === "1" ? 10_000 : 500;

test(`S10 S11 S12 ${SEEDS} histories with lost answers, late statements, doubts, failovers, warm copies and two owners are exact`, async () => {
  const sum = { acked: 0, settled: 0, barriers: 0, failovers: 0, moved: 0, warm: 0 };
  for (let seed = 0; seed < SEEDS; seed += 1) {
    const { acked, settled, barriers, failovers, moved, warm } = await simulate(seed);
    sum.acked += acked;
    sum.settled += settled;
    sum.barriers += barriers;
    sum.failovers += failovers;
    sum.moved += moved;
    sum.warm += warm;
  }
  console.log(JSON.stringify(sum));
  // A simulation in which nothing happens proves nothing.
  for (const count of Object.values(sum)) expect(count).toBeGreaterThan(SEEDS / 10);
}, 1_200_000);

test("the same seed gives the same history", async () => {
  for (const seed of [3, 17, 99]) {
    expect((await simulate(seed)).trace).toBe((await simulate(seed)).trace);
  }
});

test("G81 an owner whose database has lost what it acknowledged says so, and acknowledges nothing more", async () => {
  for (let seed = 0; seed < 60; seed += 1) {
    const { end, after } = await simulateGoingBack(seed);
    expect([seed, after, isHapaxError(end, "engine_went_back")]).toEqual([seed, 0, true]);
  }
});
