// `hapax cluster`, as an operator runs it: makes a cluster, shows who owns what, ties a shard to a node and drains a node.
// The nodes are in this process; the command is the built one.
import { fileURLToPath } from "node:url";
import { afterAll, expect, test, vi } from "vitest";
import { startPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { call } from "../protocol/raw-http.ts";
import { testCluster, until, urlOf } from "./kit.ts";

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const script = (name: string): string => new URL(`../../scripts/${name}.mjs`, import.meta.url).href;
const BIN = fileURLToPath(new URL("../../dist/bin.js", import.meta.url));

interface Ended {
  readonly code: number;
  readonly output: string;
}

const { run } = (await import(script("run"))) as {
  run: (command: string, args: readonly string[]) => Promise<Ended>;
};
const { buildIfNeeded } = (await import(script("prepare"))) as {
  buildIfNeeded: () => Promise<void>;
};

interface Status {
  readonly nodes: readonly { readonly node: string; readonly shards: readonly number[] }[];
  readonly unowned: readonly number[];
}

const reason = whyNoPostgres();

if (reason !== undefined) {
  console.log(`hapax cluster is not tested: ${reason}`);
  test("CI has a PostgreSQL", () => {
    expect(process.env["CI"]).not.toBe("true");
  });
} else {
  await buildIfNeeded();
  const database = await startPostgres();
  const stage = testCluster(database, { databaseOptions: { schema: "hapax" } });
  afterAll(async () => {
    await stage.stop();
    await database.stop();
  });
  const cluster = (...words: readonly string[]): Promise<Ended> =>
    run(process.execPath, [BIN, "cluster", ...words, "--store", urlOf(database)]);
  const shardsOf = (node: string, { output }: Ended): readonly number[] => {
    const { nodes: found, unowned } = JSON.parse(output) as Status;
    expect(unowned).toEqual([]);
    return found.find((one) => one.node === node)?.shards ?? [];
  };
  const owns = async (shard: number): Promise<readonly string[]> => {
    const text = "SELECT owner FROM hapax.hapax_shard WHERE shard = $1";
    const { rows } = await database.pool.query<{ owner: string }>(text, [shard]);
    return rows.map(({ owner }) => owner);
  };

  const epochs = async (): Promise<readonly boolean[]> => {
    const text = "SELECT epoch > 1000 AS is_next FROM hapax.hapax_shard";
    const { rows } = await database.pool.query<{ is_next: boolean }>(text);
    return rows.map((row) => row.is_next);
  };

  test("an operator makes a cluster, moves a shard, drains a node, and accepts a restore", async () => {
    expect((await cluster("status")).output).toContain("there is no cluster here");
    expect((await cluster("create", "--shards", "0")).code).toBe(2);
    expect(await cluster("create", "--shards", "4")).toMatchObject({
      code: 0,
      output: "made a cluster of 4 shards\n",
    });
    expect((await cluster("create", "--shards", "4")).output).toBe("found a cluster of 4 shards\n");
    const other = await cluster("create", "--shards", "8");
    expect(other.code).not.toBe(0);
    expect(other.output).toContain("there is a cluster of 4 shards; their number never changes");
    for (const name of ["n1", "n2"]) await stage.start(name);

    for (const name of ["n1", "n2", "n1"]) {
      expect((await cluster("move", "3", name)).code).toBe(0);
      await until(`shard 3 is at ${name}`, async () => (await owns(3))[0] === name);
    }
    expect((await cluster("move", "4", "n1")).output).toContain("there is no shard 4");
    expect((await cluster("move", "3", "n9")).output).toContain('there is no node "n9"');
    const before = await cluster("status", "--json");
    expect(before.code).toBe(0);
    expect(shardsOf("n1", before)).toContain(3);

    // What is tied to it goes as well: a tie is no reason to keep a node.
    expect((await cluster("drain", "n1")).code).toBe(0);
    await until("n1 owns nothing", async () => {
      const text = "SELECT 1 FROM hapax.hapax_shard WHERE owner IS DISTINCT FROM 'n2'";
      return (await database.pool.query(text)).rows.length === 0;
    });
    const [, second] = stage.nodes;
    const seen = async (): Promise<object> =>
      JSON.parse((await call("GET", second?.url ?? "", "/_hapax/cluster")).text) as object;
    // A shard that is being opened has no owner yet.
    await expect.poll(seen, { timeout: 15_000 }).toMatchObject({
      node: "n2",
      nodes: [
        { node: "n1", state: "draining", url: stage.nodes[0]?.url },
        { node: "n2", state: "alive", url: second?.url },
      ],
      shards: [0, 1, 2, 3].map((shard) => ({ shard, owner: "n2" })),
    });
    const after = await cluster("status");
    expect(after).toMatchObject({ code: 0 });
    expect(after.output).toMatch(/^n1 +draining .* -$/m);
    expect(after.output).toMatch(/^n2 +alive .* 0 1 2 3$/m);

    expect((await cluster("upgrade", "--json")).output).toContain('"format":1');
    expect(await cluster("verify")).toMatchObject({ code: 0 });
    const early = await cluster("accept-restore");
    expect(early.code).not.toBe(0);
    expect(early.output).toContain("servers give signs of life: n1, n2");

    await stage.nodes.pop()?.stop();
    expect(await owns(0)).not.toContain("n2");
    // Shards that have no owner are a failure, for scripts.
    expect((await cluster("status")).code).toBe(1);
    await stage.nodes.pop()?.stop();
    expect((await cluster("accept-restore")).output).toBe(
      "accepted 4 shards as they are, as incarnation 2; start the servers\n",
    );
    const again = await stage.start("n1");
    const health = await call("GET", again.url, "/readyz");
    expect([health.status, (await cluster("status")).code]).toEqual([200, 0]);
    expect(await epochs()).toEqual([true, true, true, true]);
  });
}
