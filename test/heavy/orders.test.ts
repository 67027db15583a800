// PostgreSQL outbox, Hapax, SQLite inbox: each order counts once in all three, with every process killed. `npm run test:crash` has
// 50,000 orders and a minute of kills; here it is shorter.
import { expect, test } from "vitest";
import { explainVerdict } from "../../src/testing/checker.ts";
import { whyNoPostgres } from "../databases/postgres.ts";
import { runOrders } from "../orders/orders-run.ts";

const IS_LONG = process.env["HAPAX_LONG"] !== undefined;
const SIZE = IS_LONG
  ? { customers: 100, orders: 500, killForMs: 60_000, killEveryMs: 700 }
  : { customers: 20, orders: 100, killForMs: 10_000, killEveryMs: 800 };

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: orders over three systems: ${reason}`);

const WAYS = IS_LONG ? (["log", "rows", "decoding", "messages"] as const) : (["log"] as const);

test.skipIf(reason !== undefined).each(WAYS)(
  "G27 G28 every order is sold, streamed and booked once, with every process killed: outbox by %s",
  { timeout: 600_000 },
  async (way) => {
    const { verdict, ...report } = await runOrders({ ...SIZE, way, seed: 7, leaseMs: 1500 });
    console.log(way, JSON.stringify(report));
    const total = SIZE.customers * SIZE.orders;
    expect(verdict.ok, explainVerdict(verdict)).toBe(true);
    expect(verdict.problems).toEqual([]);
    expect(report).toMatchObject({ sold: total, streamed: total, booked: total });
    expect(report.bookedCents).toBe(report.soldCents);
    expect(verdict.counts.found).toBe(3 * total);
  },
);
