// Money moves between streams, and at every instant all of it is there; with `npm run test:crash` 100 accounts, 2,000
// transfers and 20 kills. PROTOCOL.md §12.1, §19
import { expect, test } from "vitest";
import { runBank } from "../processing/bank-run.ts";

const IS_LONG = process.env["HAPAX_LONG"] !== undefined;
const SHORT = { accounts: 10, tellers: 4, transfers: 200, kills: 3 };
const SETTINGS = IS_LONG ? { accounts: 100, tellers: 8, transfers: 2000, kills: 20 } : SHORT;

test(
  "G21 the sum of all accounts is constant at every instant and after every kill",
  { timeout: 900_000 },
  async () => {
    const report = await runBank({ ...SETTINGS, seed: 7 });
    console.log(JSON.stringify(report));
    const exact = { wrongAudits: 0, torn: 0, lost: 0, overdrawn: 0 };
    expect(report).toMatchObject({ kills: SETTINGS.kills, ...exact });
    expect(report.confirmed).toBeGreaterThanOrEqual(SETTINGS.transfers);
    expect(report.audits).toBeGreaterThan(SETTINGS.kills);
  },
);

test("the auditor notices a bank that writes debit and credit apart", async () => {
  const report = await runBank({ ...SHORT, seed: 1, kills: 0, isCareless: true });
  expect(report.wrongAudits).toBeGreaterThan(0);
});
