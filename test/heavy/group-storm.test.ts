// Members come, go, die and sleep beyond their lease, and each record counts once; with `npm run test:crash` 20 members
// and 200 streams. PROTOCOL.md §20
import { expect, test } from "vitest";
import { runGroupStorm } from "../processing/group-storm-run.ts";

const IS_LONG = process.env["HAPAX_LONG"] !== undefined;
const SHORT = { members: 6, streams: 30, records: 24, acts: 12, leaseMs: 1000 };
const SETTINGS = IS_LONG
  ? { members: 20, streams: 200, records: 60, acts: 60, leaseMs: 3000 }
  : SHORT;

test(
  "G22 G23 in a storm of members every record is copied once and in order, and the shares end up fair",
  { timeout: 900_000 },
  async () => {
    const { shares, ...report } = await runGroupStorm({ ...SETTINGS, seed: 5 });
    console.log(JSON.stringify({ ...report, shares: shares.join(" ") }));
    const copied = SETTINGS.streams * SETTINGS.records;
    expect(report).toMatchObject({ missing: 0, twice: 0, outOfOrder: 0, copied });
    expect(shares.reduce((sum, share) => sum + share, 0)).toBe(SETTINGS.streams);
    expect((shares.at(-1) ?? 0) - (shares[0] ?? 0)).toBeLessThanOrEqual(1);
    // Two leases after the last death everything is done; a short lease is shorter than a busy machine's pauses.
    if (IS_LONG) expect(report.settleLeases).toBeLessThan(2);
  },
);

test(
  "G23 no stream waits for longer than two leases, while members die, sleep, leave and join",
  { timeout: 900_000 },
  async () => {
    const paced = IS_LONG ? { acts: 30, leaseMs: 3000 } : { acts: 3, leaseMs: 1500 };
    const options = { ...SETTINGS, ...paced, leasesPerAct: 2.5, seed: 9 };
    const { shares, ...report } = await runGroupStorm(options);
    console.log(JSON.stringify({ ...report, shares: shares.join(" ") }));
    expect(report).toMatchObject({ missing: 0, twice: 0, outOfOrder: 0 });
    // One act at a time: over several in a row, a stream may go from one that dies to one that sleeps.
    if (IS_LONG) expect(report.stallLeases).toBeLessThan(2);
  },
);

test("members that commit their offsets apart from their output copy some records twice", async () => {
  const report = await runGroupStorm({ ...SHORT, seed: 5, isCareless: true, acts: 20 });
  expect(report.twice).toBeGreaterThan(0);
});
