// The power goes at a random call, again and again, on a disk that keeps as little as it may.
import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { runPowerCuts } from "./crash/power-cuts.ts";

// `npm run test:crash` sets it: the same tests, with everything that there is to try.
const isLong = process.env["HAPAX_LONG"] !== undefined;
const SEEDS = isLong ? 10_000 : 250;
const GROUPS = isLong ? 10 : 5;
const LIMIT_MS = isLong ? 3_600_000 : 60_000;

for (let group = 0; group < GROUPS; group += 1) {
  const first = (SEEDS / GROUPS) * group;
  const last = (SEEDS / GROUPS) * (group + 1) - 1;
  test(
    `RC3 what was acknowledged survives power cuts and kills: seeds ${first} to ${last}`,
    async () => {
      const sum = { commits: 0, cuts: 0, kills: 0, faults: 0, snapshots: 0 };
      for (let seed = first; seed <= last; seed += 1) {
        const report = await runPowerCuts(seed).catch((error: unknown) => {
          throw new Error(`seed ${seed} fails`, { cause: error });
        });
        for (const key of ["commits", "cuts", "kills", "faults", "snapshots"] as const) {
          sum[key] += report[key];
        }
      }
      for (const count of Object.values(sum)) expect(count).toBeGreaterThan(0);
    },
    LIMIT_MS,
  );
}

test("the same seed gives the same run, call for call", async () => {
  const hashes = new Set<string>();
  for (const seed of [3, 3, 3, 4]) {
    const { trace } = await runPowerCuts(seed);
    expect(trace.length).toBeGreaterThan(100);
    hashes.add(createHash("sha256").update(trace.join("\n")).digest("hex"));
  }
  expect(hashes.size).toBe(2);
});
