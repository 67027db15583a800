// The contract of outboxes: in memory, and on SQLite in a file.
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { afterAll, describe, expect, test } from "vitest";
import { memoryLedger } from "../../src/toolkit/ledgers/memory.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { outboxConformance, type OutboxTarget } from "../../src/testing/outbox-conformance.ts";

function runAll<Tx>(target: OutboxTarget<Tx>): void {
  for (const { title, ways, run } of outboxConformance) {
    if (!ways.includes("log")) continue;
    test(title, async ({ skip }) => {
      const reason = await run(target);
      if (reason !== undefined) skip(reason);
    });
  }
}

describe("in memory", () => {
  const ledger = memoryLedger();
  runAll({ open: () => Promise.resolve(ledger) });
});

type Connection = InstanceType<typeof Database>;

describe("on SQLite", () => {
  const file = join(mkdtempSync(join(tmpdir(), "hapax-outbox-")), "outbox.db");
  const connections: Connection[] = [];
  const connect = (): Connection => {
    const connection = new Database(file, { timeout: 10 });
    connections.push(connection);
    return connection;
  };
  const open = async () => {
    const ledger = sqliteLedger(() => connect());
    await ledger.migrate();
    return ledger;
  };
  afterAll(() => {
    for (const connection of connections) connection.close();
  });
  runAll({ open });

  test("OL7 what was cleaned is gone, and its ids are never given again", async () => {
    const ledger = await open();
    const { outbox } = ledger;
    if (outbox.way === "rows") throw new Error("SQLite has spans");
    const add = () =>
      ledger.transaction((tx) =>
        ledger.in(tx).outbox.add(tx, [{ topic: "t", payload: Uint8Array.of(1) }]),
      );
    const [id] = await add();
    const end = await outbox.spans.start("end", "r");
    while ((await outbox.spans.plan("0", 1000)) !== undefined)
      await outbox.spans.clean([end], 0, 1000);
    expect(await outbox.spans.start("end", "r")).toBe(end);
    const [next] = await add();
    expect(Number(next)).toBeGreaterThan(Number(id));
    expect(await outbox.spans.plan(end, 10)).toEqual({ from: end, to: next });
  });

  test("OL1 an event of another connection's transaction is refused", async () => {
    const ledger = await open();
    const adding = ledger.outbox.add(connect(), [{ topic: "t", payload: Uint8Array.of(1) }]);
    await expect(adding).rejects.toMatchObject({ code: "invalid_request" });
  });

  test("OL3 an event wakes at once a relay that waits on the same connection", async () => {
    const ledger = await open();
    const { outbox } = ledger;
    if (outbox.way === "rows") throw new Error("SQLite has spans");
    const end = await outbox.spans.start("end", "r");
    await outbox.spans.plan(end, 1);
    const waiting = outbox.wait(600_000, new AbortController().signal);
    const add = () =>
      ledger.transaction((tx) =>
        ledger.in(tx).outbox.add(tx, [{ topic: "t", payload: Uint8Array.of(1) }]),
      );
    await add();
    await waiting;
    // Also if it was added between the look and the wait.
    await outbox.spans.plan(end, 1);
    await add();
    await outbox.wait(600_000, new AbortController().signal);
  });
});
