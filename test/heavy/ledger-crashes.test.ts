// G25 G26 G27 G28 G29: every primitive of the ledger in a process that is killed at every failpoint, over both databases.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FAILPOINTS } from "../../src/testing/failpoints.ts";
import { ledgerCrashes } from "../../src/testing/ledger-crashes.ts";
import { CARELESS, casesFor, CRASH_DATABASES, type CrashStage } from "../crash-ledger/run.ts";

test("every failpoint of the ledger is one at which a process is killed", () => {
  const titles = ledgerCrashes.map(({ title }) => title);
  // A caller has no ledger: test/callers kills it. A window has none either: window-kills.test.ts does. Sagas have saga-crashes.test.ts, and objects test/objects.
  for (const name of FAILPOINTS.filter(
    (one) => !/^(?:fetch|window|saga|object|sequence|delivery)\./.test(one),
  )) {
    expect(titles.filter((title) => title.includes(`killed at ${name}`))).not.toEqual([]);
  }
});

for (const database of CRASH_DATABASES) {
  describe(database.name, { concurrent: database.only !== "outbox" }, () => {
    let stage: CrashStage;
    beforeAll(async () => {
      stage = await database.open();
    });
    afterAll(() => stage.close());
    for (const { title, run } of casesFor(ledgerCrashes, database)) test(title, () => run(stage));
  });
}

test.skipIf(CARELESS === undefined)(
  "rows that are written apart from their transaction are noticed: one is there twice",
  async () => {
    const stage = await CARELESS?.open();
    if (stage === undefined) return;
    try {
      const found = ledgerCrashes.find(({ title }) => title.includes("killed at once.worked"));
      await expect(found?.run(stage)).rejects.toThrow(/row/);
    } finally {
      await stage.close();
    }
  },
);
