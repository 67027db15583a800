// PROTOCOL.md on a store in PostgreSQL: the published suite, and what Hapax has beyond it. `npm test` runs a part of the second.
import { afterAll, describe, test, vi } from "vitest";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import type { Store } from "../../src/streams/store.ts";
import { extensionCases } from "../../src/testing/testing.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { runPublishedSuite } from "../protocol/published-suite.ts";
import { freshSchema, openOnPool } from "./kit.ts";

vi.setConfig({ maxConcurrency: 16 });

const reason = whyNoPostgres();
const isLong = process.env["HAPAX_LONG"] === "1";
/** Of the cases that do not wait, every so many-th. */
const SHARE = isLong ? 1 : 3;

if (reason !== undefined) {
  console.log(`the protocol is not tested on PostgreSQL: ${reason}`);
  test("there is no PostgreSQL here", () => undefined);
} else {
  const database: TestPostgres = await startPostgres();
  const servers: NodeServer[] = [];
  // Small tables and frequent snapshots, so that rolls and compaction happen under the suite.
  const open = (): Promise<Store> =>
    openOnPool(database.pool, {
      schema: freshSchema(),
      segmentBytes: 1 << 18,
      snapshotBytes: 1 << 18,
      leaseMs: 5000,
    });

  runPublishedSuite("PostgreSQL", open);

  const server = await startNodeServer({ port: 0, store: await open(), onAudit: () => undefined });
  servers.push(server);
  describe("extensions on PostgreSQL", () => {
    const cases = extensionCases({ url: server.url })
      .filter(({ isSlow }, at) => (isLong ? true : !isSlow && at % SHARE === 0))
      .toSorted((one, other) => Number(other.isSlow) - Number(one.isSlow));
    for (const { title, run } of cases) test.concurrent(title, run);
  });

  afterAll(async () => {
    for (const one of servers) await one.stop();
    await database.stop();
  });
}
