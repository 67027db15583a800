// Nodes of a cluster are killed, stopped and restarted under load: every acknowledged append is there once, in the order of its
// producer. GUARANTEES.md, G90 to G93
import { afterAll, expect, test, vi } from "vitest";
import { compare, readAll } from "../crash/load.ts";
import { startPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { call } from "../protocol/raw-http.ts";
import { freshSchema, PEER_KEY, until, urlOf } from "./kit.ts";
import { ClusterProducer, type NodeProcess, startNode } from "./processes.ts";

vi.setConfig({ testTimeout: 300_000, hookTimeout: 60_000 });

/** Longer than a machine that does much else holds a process up. */
const LEASE_MS = 3000;
const ROUNDS = process.env["HAPAX_LONG"] === "1" ? 20 : 1;
const STREAMS = 4;
const reason = whyNoPostgres();

if (reason !== undefined) {
  console.log(`clusters are not tested: ${reason}`);
  test("there is no PostgreSQL here", () => undefined);
} else {
  const database = await startPostgres();
  afterAll(() => database.stop());

  interface Stage {
    readonly nodes: NodeProcess[];
    readonly producers: readonly ClusterProducer[];
    readonly start: (name: string) => Promise<NodeProcess>;
    readonly at: (name: string) => NodeProcess;
    /** Waits until every producer has had so many more answers. */
    readonly progress: (appends: number) => Promise<void>;
    readonly failures: () => readonly string[];
    readonly longestMs: () => number;
  }

  /** Three nodes under load; afterwards all streams are compared with what was acknowledged. */
  const underLoad = async (harm: (stage: Stage) => Promise<void>): Promise<void> => {
    const schema = freshSchema();
    const nodes: NodeProcess[] = [];
    const start = async (name: string): Promise<NodeProcess> => {
      const node = await startNode({
        database: urlOf(database),
        node: name,
        databaseOptions: {
          durability: "os",
          schema,
          segmentBytes: 1 << 16,
          snapshotBytes: 1 << 16,
        },
        leaseMs: LEASE_MS,
        peerKey: PEER_KEY,
      });
      const at = nodes.findIndex((one) => one.name === name);
      if (at === -1) nodes.push(node);
      else nodes[at] = node;
      return node;
    };
    const at = (name: string): NodeProcess => {
      const found = nodes.find((one) => one.name === name);
      if (found === undefined) throw new Error(`there is no ${name}`);
      return found;
    };
    for (const name of ["n1", "n2", "n3"]) await start(name);
    await until("every node owns shards", async () =>
      (await ownedOf(nodes)).every((count) => count > 0),
    );
    const paths = Array.from({ length: STREAMS }, (_, index) => `/v1/stream/tenant-${index}/log`);
    for (const path of paths) {
      const headers = { "content-type": "application/json" };
      expect((await call("PUT", at("n1").url, path, { headers })).status).toBe(201);
    }
    const producers = paths.flatMap((path, index) =>
      [0, 1].map((one) => new ClusterProducer(() => nodes, `p${index}-${one}`, path)),
    );
    const runs = producers.map((producer) => producer.run());
    const progress = async (appends: number): Promise<void> => {
      const goals = producers.map(({ acked }) => acked + appends);
      await until(
        `${appends} more appends of each producer`,
        () => producers.every(({ acked }, index) => acked >= (goals[index] ?? 0)),
        60_000,
      );
    };
    const failures = (): readonly string[] => producers.flatMap((one) => one.failures);
    const longestMs = (): number => Math.max(...producers.map((one) => one.longestMs));
    try {
      await progress(5);
      await harm({ nodes, producers, start, at, progress, failures, longestMs });
      await progress(5);
      for (const producer of producers) producer.stop();
      await Promise.all(runs);
      const problems: string[] = [];
      let stored = 0;
      for (const [index, path] of paths.entries()) {
        // Through each node in turn: the owner answers through any node.
        const node = nodes.filter(({ isAway }) => !isAway)[index % 2] ?? at("n1");
        const records = await readAll(node.url, path);
        stored += records.length;
        problems.push(
          ...compare(
            path,
            records,
            producers.filter((one) => one.path === path),
          ),
        );
      }
      const acked = producers.reduce((sum, one) => sum + one.acked, 0);
      const duplicates = producers.reduce((sum, one) => sum + one.duplicates, 0);
      const figures = {
        acked,
        stored,
        duplicates,
        failures: failures().length,
        longestMs: Math.round(longestMs()),
      };
      console.log(`${expect.getState().currentTestName}: ${JSON.stringify(figures)}`);
      expect(problems).toEqual([]);
      expect(stored).toBe(acked);
    } catch (error) {
      for (const node of nodes) console.log(node.stderr().split("\n").slice(-15).join("\n"));
      console.log(failures().slice(-10).join("\n"));
      throw error;
    } finally {
      for (const producer of producers) producer.stop();
      for (const { child } of nodes) {
        child.kill("SIGCONT");
        child.kill("SIGKILL");
      }
    }
  };

  test("G91 a rolling restart of all nodes fails no request", async () => {
    await underLoad(async ({ start, at, progress, failures, nodes, longestMs }) => {
      for (const name of ["n1", "n2", "n3"]) {
        const old = at(name);
        // As a balancer does: no new requests, while those that run are answered.
        old.isAway = true;
        old.child.kill("SIGTERM");
        expect(await old.ended).toBe(0);
        await start(name);
        await progress(3);
      }
      await until("every node owns shards", async () =>
        (await ownedOf(nodes)).every((count) => count > 0),
      );
      expect(failures()).toEqual([]);
      expect(longestMs()).toBeLessThan(10_000);
    });
  });

  test("G90 nodes that are killed lose nothing and double nothing", async () => {
    await underLoad(async ({ start, at, progress }) => {
      for (let round = 0; round < ROUNDS; round += 1) {
        const name = `n${1 + (round % 3)}`;
        const old = at(name);
        old.isAway = true;
        old.child.kill("SIGKILL");
        await old.ended;
        await progress(3);
        await start(name);
        await progress(3);
      }
    });
  });

  test("G90 a node that was stopped beyond its lease acknowledges nothing when it wakes up", async () => {
    await underLoad(async ({ at, progress, nodes }) => {
      for (let round = 0; round < Math.min(ROUNDS, 6); round += 1) {
        const zombie = at(`n${1 + (round % 3)}`);
        zombie.isAway = true;
        zombie.child.kill("SIGSTOP");
        const others = nodes.filter((node) => node !== zombie);
        await until(
          "the others own all shards",
          async () => (await ownedOf(others)).reduce((sum, count) => sum + count, 0) === 16,
          60_000,
        );
        await progress(2);
        zombie.child.kill("SIGCONT");
        // At once, while it still believes that it owns shards.
        zombie.isAway = false;
        await progress(5);
        await until(
          "it owns shards again",
          async () => ((await ownedOf([zombie]))[0] ?? 0) > 0,
          60_000,
        );
      }
    });
  });
}

async function ownedOf(nodes: readonly NodeProcess[]): Promise<readonly number[]> {
  return Promise.all(
    nodes.map(async ({ url }) => {
      const answer = await call("GET", url, "/healthz").catch(() => undefined);
      const found =
        answer === undefined ? {} : (JSON.parse(answer.text) as { shards?: { owned: number } });
      return found.shards?.owned ?? 0;
    }),
  );
}
