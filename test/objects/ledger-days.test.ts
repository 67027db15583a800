// What the ledger of a Durable Object costs, and how long it keeps what has ended.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ObjectsHost, startObjects, whyNoWorkerd } from "../kits/workerd-objects.ts";
import type { Cost } from "./fixtures/days-object.ts";

const reason = whyNoWorkerd();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: days of Durable Objects: ${reason}`);
const isLong = process.env["HAPAX_LONG"] !== undefined;

describe.skipIf(reason !== undefined)("the days of an object", () => {
  let host: ObjectsHost;
  beforeAll(async () => {
    host = await startObjects({
      source: new URL("fixtures/days-object.ts", import.meta.url),
      classes: ["DaysObject"],
    });
  });
  afterAll(() => host.stop());

  test("G65 one row is written for each work, message and event, none for a duplicate, and none to delete them", async () => {
    const calls = 200;
    const object = host.object("DaysObject", "cost");
    const costs = await object.json<Record<string, Cost>>(`/cost?calls=${String(calls)}`);
    console.log(
      Object.entries(costs)
        .map(([way, { written, read }]) => `${way}: written ${written}, read ${read}`)
        .join("; "),
    );
    // One more row for each thousand tokens.
    for (const way of ["once", "inbox", "sync", "in turn", "event"])
      expect([way, (costs[way]?.written ?? 0) <= calls + 1]).toEqual([way, true]);
    for (const way of ["once again", "inbox again"]) expect(costs[way]?.written).toBe(0);
    // `read` is how many were swept. A dropped table writes the schema alone.
    expect(costs["sweep"]?.read).toBe(4 * (calls + 1));
    expect(costs["sweep"]?.written).toBeLessThan(20);
  });

  test("G65 what is in its retention is there at the end of a day, and what is past it is not found", async () => {
    expect(await host.object("DaysObject", "borders").json("/borders")).toEqual([]);
  });

  test("G65 clocks that jump in both directions, and sweeps in between, take nothing that is in its retention", async () => {
    for (let seed = 1; seed <= (isLong ? 60 : 3); seed += 1) {
      const object = host.object("DaysObject", `jumps ${String(seed)}`);
      expect(await object.json(`/jumps?seed=${String(seed)}`)).toBeGreaterThan(20);
    }
  }, 600_000);

  test("G65 a table of days that a rollback has taken back is made again", async () => {
    const found = await host.object("DaysObject", "rollback").json("/rollback");
    expect(found).toEqual([null, null, null, "done"]);
  });

  test("LG7 tables of a newer version are refused in an object", async () => {
    expect(await host.object("DaysObject", "newer").json("/newer")).toBe("schema_newer");
  });

  test("G65 data that is too large for a row of the platform is refused, also where it would fit", async () => {
    expect(await host.object("DaysObject", "sizes").json("/sizes")).toEqual([
      "made",
      "invalid_request",
    ]);
  });
});
