// Records through a pipeline under kills, sleeps and losses: in = out, for every strategy. With `npm run test:crash`
// 100,000 records, every strategy under every trouble alone and under all of them. PROTOCOL.md §19, §20
import { expect, test } from "vitest";
import { whyNoPostgres } from "../databases/postgres.ts";
import { runCopy, STRATEGIES, TROUBLES } from "../processing/copy-run.ts";

const IS_LONG = process.env["HAPAX_LONG"] !== undefined;
const EXACT = { missing: 0, twice: 0, outOfOrder: 0, beside: 0 };
// With an id for each record there is a request for each record.
const RECORDS = IS_LONG
  ? { transaction: 100_000, sqlite: 100_000, postgres: 100_000, identity: 4000 }
  : { transaction: 1200, sqlite: 800, postgres: 800, identity: 240 };
const SHORT = { streams: 4, members: 2, leaseMs: 1000, times: 1 };
const SETTINGS = IS_LONG ? { streams: 8, members: 4, leaseMs: 1500, times: 6 } : SHORT;

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: copying into PostgreSQL: ${reason}`);

const sets = IS_LONG ? [...TROUBLES.map((trouble) => [trouble]), TROUBLES] : [TROUBLES];
const cases = STRATEGIES.filter((name) => name !== "postgres" || reason === undefined).flatMap(
  (strategy) =>
    sets.map((troubles) => {
      return { strategy, troubles, name: `${strategy}, ${troubles.join(", ")}` };
    }),
);

test.for(cases)(
  "G24 every record is copied once and in order, with processes killed and stopped and answers lost: $name",
  { timeout: 300_000 },
  async ({ strategy, troubles, name }) => {
    const records = RECORDS[strategy];
    const report = await runCopy({ ...SETTINGS, seed: 3, strategy, troubles, records });
    console.log(`${name}: ${JSON.stringify(report)}`);
    expect(report).toMatchObject({ ...EXACT, copied: records });
    for (const trouble of troubles) {
      if (trouble !== "lose answers") expect(report.troubles[trouble]).toBe(SETTINGS.times);
    }
  },
);

test("output and offset apart are noticed: some records are copied twice", async () => {
  const troubles = ["kill client"] as const;
  const more = { strategy: "transaction", troubles, times: 3, isCareless: true } as const;
  const report = await runCopy({ ...SHORT, ...more, records: 240, seed: 9 });
  expect(report.twice).toBeGreaterThan(0);
});
