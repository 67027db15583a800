// A client that knows the nodes sends straight to the owner, and goes on when the owner is another one.
import { afterAll, expect, test, vi } from "vitest";
import { connect, ownerTransport } from "../../src/client/client.ts";
import { nodeTransport } from "../../src/client/node.ts";
import { startPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { testCluster, until } from "./kit.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const reason = whyNoPostgres();

if (reason !== undefined) {
  console.log(`clients of clusters are not tested: ${reason}`);
  test("there is no PostgreSQL here", () => undefined);
} else {
  const database = await startPostgres();
  const stage = testCluster(database);
  afterAll(async () => {
    await stage.stop();
    await database.stop();
  });

  test("PROTOCOL.md §24.2: after the first answer no request of the client is forwarded, also after the owner has changed", async () => {
    const [n1, n2] = [await stage.start("n1"), await stage.start("n2")];
    const ownedBy = async (url: string): Promise<number> =>
      ((await (await fetch(`${url}/healthz`)).json()) as { shards: { owned: number } }).shards
        .owned;
    await until("both own shards", async () => {
      const owned = [await ownedBy(n1.url), await ownedBy(n2.url)];
      return Math.min(...owned) > 0 && Math.max(...owned) + Math.min(...owned) === 16;
    });
    const transport = ownerTransport(nodeTransport(), [n1.url, n2.url]);
    const streams = Array.from({ length: 12 }, (_, at) =>
      connect<number>(`${n1.url}/v1/stream/tenant-${at}/log`, { transport }),
    );
    for (const stream of streams) await stream.create({ contentType: "application/json" });
    const forwarded = n1.server.counts.forwarded;
    expect(forwarded).toBeGreaterThan(0);
    for (const stream of streams) for (const value of [1, 2]) await stream.append(value);
    expect([n1.server.counts.forwarded, n2.server.counts.forwarded]).toEqual([forwarded, 0]);
    await stage.nodes.pop()?.stop();
    for (const stream of streams) {
      await stream.append(3);
      expect(await stream.read().values()).toEqual([1, 2, 3]);
    }
  });
}
