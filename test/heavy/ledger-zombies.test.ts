// G25 G26 G28 G29: processes that stand still beyond their lease, until another one has done their work, and then go on.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ledgerZombies } from "../../src/testing/ledger-crashes.ts";
import { CARELESS, casesFor, CRASH_DATABASES, type CrashStage } from "../crash-ledger/run.ts";

for (const database of CRASH_DATABASES) {
  describe(database.name, { concurrent: database.only !== "outbox" }, () => {
    let stage: CrashStage;
    beforeAll(async () => {
      stage = await database.open();
    });
    afterAll(() => stage.close());
    // Over SQLite no process writes while another stands still inside a transaction: there is nothing to be fenced.
    for (const { title, run } of casesFor(ledgerZombies, database)) test(title, () => run(stage));
  });
}

test.skipIf(CARELESS === undefined)(
  "a zombie that writes apart from its transaction is noticed: its row is there as well",
  async () => {
    const stage = await CARELESS?.open();
    if (stage === undefined) return;
    try {
      const found = ledgerZombies.find(({ title }) => title.includes("stopped at once.worked"));
      await expect(found?.run(stage)).rejects.toThrow(/row/);
    } finally {
      await stage.close();
    }
  },
);
