// PROTOCOL.md on a cluster: 16 shards on one node, and three nodes where every request goes to a random one.
import { afterAll, beforeEach, describe, expect, test, vi } from "vitest";
import { extensionCases } from "../../src/testing/testing.ts";
import { startPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { runPublishedSuiteOn } from "../protocol/published-suite.ts";
import { type AnyNode, sendToAnyNode } from "./any-node.ts";
import { testCluster, until } from "./kit.ts";
import { openRandomDoor } from "./links.ts";

vi.setConfig({ maxConcurrency: 16, hookTimeout: 60_000 });

const METRICS = "metrics are those of one node, with a label for each shard (PROTOCOL.md §24.5)";
/** What a cluster answers otherwise, and where that is said. */
const OTHERWISE: ReadonlyMap<string, string> = new Map([
  ["§12.3 appends and recognised retries are counted", METRICS],
  ["§12.3 claims, commits and lost leases of groups are counted", METRICS],
  [
    "§20 a group is created once, and the same again is fine",
    "it creates the group again with streams of another placement: placement_mixed (PROTOCOL.md §24.3)",
  ],
]);

const reason =
  whyNoPostgres() ??
  // Twice 338 tests. The nodes themselves are tested under load in failures.test.ts, also in `npm test`.
  (process.env["HAPAX_LONG"] === "1" ? undefined : "it takes minutes: npm run test:crash");

if (reason !== undefined) {
  test("the published suite on clusters", ({ skip }) => skip(reason));
} else {
  const database = await startPostgres();
  describe("one node with 16 shards", () => runOn(["solo"]));
  describe("three nodes with 16 shards", () => runOn(["n1", "n2", "n3"]));

  await extensionsOn(["n1"]);
  await extensionsOn(["n1", "n2", "n3"]);

  afterAll(() => database.stop());

  /** Each connection leads to a random node. */
  async function extensionsOn(names: readonly string[]): Promise<void> {
    const behind = testCluster(database, { leaseMs: 5000 });
    for (const name of names) await behind.start(name, { onAudit: () => undefined });
    const ports = (): readonly number[] => behind.nodes.map(({ url }) => Number(new URL(url).port));
    const door = await openRandomDoor(ports);
    describe(`extensions on ${names.length} nodes with 16 shards`, () => {
      afterAll(async () => {
        await door.close();
        await behind.stop();
      });
      const cases = extensionCases({ url: `http://127.0.0.1:${door.port}` });
      for (const { title, run } of cases) {
        const why = OTHERWISE.get(title);
        if (why === undefined) test.concurrent(title, run);
        else test(title, ({ skip }) => skip(why));
      }
      if (names.length === 1) return;
      test("most requests were sent on", () => {
        const sent = behind.nodes.map(({ server }) => server.counts.forwarded);
        expect(Math.max(...sent)).toBeGreaterThan(100);
      });
    });
  }

  function runOn(names: readonly string[]): void {
    const cluster = testCluster(database, {
      leaseMs: 5000,
      databaseOptions: { segmentBytes: 1 << 18, snapshotBytes: 1 << 18 },
    });
    let any: AnyNode | undefined;
    beforeEach(({ task }) => any?.begin(`${task.suite?.name ?? ""} ${task.name}`));
    runPublishedSuiteOn(`${names.length} nodes`, async (longPollMs) => {
      const publicUrl = "http://cluster.test";
      for (const name of names) await cluster.start(name, { longPollMs, publicUrl });
      await until("every node owns shards", () => everyNodeOwns(cluster.nodes));
      any = sendToAnyNode(
        publicUrl,
        cluster.nodes.map(({ url }) => url),
      );
      return {
        url: publicUrl,
        async stop() {
          const { requests } = any ?? { requests: new Map() };
          any?.restore();
          expect(requests.size).toBe(names.length);
          await cluster.stop();
        },
      };
    });
  }
}

async function everyNodeOwns(nodes: readonly { readonly url: string }[]): Promise<boolean> {
  let all = 0;
  for (const { url } of nodes) {
    const answer = await fetch(`${url}/healthz`);
    const { shards } = (await answer.json()) as { shards: { owned: number } };
    if (shards.owned === 0) return false;
    all += shards.owned;
  }
  return all === 16;
}
