// Nodes of a cluster are killed, stopped and restarted under load: every acknowledged append is there once, in the order of its
// producer. GUARANTEES.md, G90 to G93
import { afterAll, expect, test, vi } from "vitest";
import { compare, readAll } from "../crash/load.ts";
import { startPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { call } from "../protocol/raw-http.ts";
import { freePort, type Link, openDatabaseLink, openLink } from "./links.ts";
import { freshSchema, PEER_KEY, until, urlOf } from "./kit.ts";
import { ClusterProducer, type NodeProcess, startNode } from "./processes.ts";

vi.setConfig({ testTimeout: 300_000, hookTimeout: 60_000 });

/** Longer than a machine that does much else holds a process up. */
const LEASE_MS = 3000;
const ROUNDS = process.env["HAPAX_LONG"] === "1" ? 20 : 1;
const isLong = process.env["HAPAX_LONG"] === "1";
const STREAMS = 4;

interface Links {
  readonly peers: Link;
  readonly database: Link;
}
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
    /** The longest time that a producer has waited for an answer since the last call. */
    readonly longestMs: () => number;
  }

  type NodeOptions = Partial<Parameters<typeof startNode>[0]>;

  /** Three nodes under load; afterwards all streams are compared with what was acknowledged. */
  const underLoad = async (
    harm: (stage: Stage) => Promise<void>,
    optionsOf: (name: string) => NodeOptions = () => ({}),
  ): Promise<void> => {
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
        ...optionsOf(name),
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
    const longestMs = (): number => {
      const longest = Math.max(...producers.map((one) => one.longestMs));
      for (const producer of producers) producer.longestMs = 0;
      return Math.round(longest);
    };
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
      await copied(nodes);
      longestMs();
      const stalls: number[] = [];
      for (const name of ["n1", "n2", "n3"]) {
        const old = at(name);
        // As a balancer does: no new requests, while those that run are answered.
        old.isAway = true;
        old.child.kill("SIGTERM");
        expect(await old.ended).toBe(0);
        stalls.push(longestMs());
        await start(name);
        await progress(3);
        await copied(nodes);
        stalls.push(longestMs());
      }
      await until("every node owns shards", async () =>
        (await ownedOf(nodes)).every((count) => count > 0),
      );
      console.log(`stalls of a drain and of a start, in turn: ${stalls.join(" ")} ms`);
      expect(failures()).toEqual([]);
      expect(Math.max(...stalls)).toBeLessThan(LEASE_MS);
    });
  });

  test("G90 G94 nodes that are killed lose nothing and double nothing, and are replaced before their lease is over", async () => {
    // Their wall clocks say nothing to each other.
    const hours: Record<string, number> = { n2: 2, n3: -2 };
    const clockOf = (name: string): NodeOptions => ({ clockOffMs: (hours[name] ?? 0) * 3_600_000 });
    await underLoad(async ({ start, at, progress, nodes, longestMs }) => {
      const stalls: number[] = [];
      // About one kill in three is seen late (GUARANTEES.md G94), so a short run tries up to three times: it sees whether an early
      // takeover is possible, and not how often it comes. The long form does, by its median.
      const isOver = (): boolean =>
        ROUNDS > 1
          ? stalls.length === ROUNDS
          : stalls.length === 3 || Math.min(...stalls) < LEASE_MS;
      for (let round = 0; !isOver(); round += 1) {
        const name = `n${1 + (round % 3)}`;
        const old = at(name);
        // It may matter how long ago the others have started: a supposition, tried with ten kills and not shown.
        await pause(2500);
        await copied(nodes);
        longestMs();
        old.isAway = true;
        old.child.kill("SIGKILL");
        await old.ended;
        await progress(3);
        stalls.push(longestMs());
        await start(name);
        await progress(3);
      }
      console.log(`stalls after kill -9: ${stalls.join(" ")} ms`);
      expect(ROUNDS > 1 ? median(stalls) : Math.min(...stalls)).toBeLessThan(LEASE_MS);
      const warm = await Promise.all(nodes.map((node) => metric(node, "warm_takeovers_total")));
      expect(warm.reduce((sum, count) => sum + count, 0)).toBeGreaterThan(0);
    }, clockOf);
  });

  test("G90 a node that was stopped beyond its lease acknowledges nothing when it wakes up", async () => {
    await underLoad(async ({ at, progress, nodes, producers, longestMs }) => {
      const stalls: number[] = [];
      for (let round = 0; round < Math.min(ROUNDS, 6); round += 1) {
        longestMs();
        const zombie = at(`n${1 + (round % 3)}`);
        zombie.isAway = true;
        await until("no request is at it", () =>
          producers.every(({ sentTo }) => sentTo !== zombie),
        );
        zombie.child.kill("SIGSTOP");
        const others = nodes.filter((node) => node !== zombie);
        await until("the others own all shards", async () => (await sumOf(others)) === 16, 60_000);
        await progress(2);
        stalls.push(longestMs());
        zombie.child.kill("SIGCONT");
        // At once, while it still believes that it owns shards.
        zombie.isAway = false;
        await progress(5);
        await until("it owns shards again", async () => (await sumOf([zombie])) > 0, 60_000);
      }
      expect(Math.max(...stalls)).toBeLessThan(2 * LEASE_MS);
      console.log(`stalls after SIGSTOP, with a lease of ${LEASE_MS} ms: ${stalls.join(" ")} ms`);
    });
  });

  /** Nodes whose ways to the database and to each other a test can hold and cut. */
  const withLinks = async (
    harm: (stage: Stage, links: Links, round: number) => Promise<void>,
    rounds: number,
  ): Promise<void> => {
    const names = ["n1", "n2", "n3"];
    const links = new Map<string, { readonly options: NodeOptions; readonly links: Links }>();
    const closing: (() => Promise<void>)[] = [];
    for (const name of names) {
      const [own, other] = [await freePort(), await freePort()];
      const host = "127.0.0.1";
      const peers = await openLink({ host, port: other }, { host, port: own });
      const rows = await openDatabaseLink(database.host);
      closing.push(
        () => peers.close(),
        () => rows.close(),
      );
      const advertisePeers = `${host}:${other}`;
      const options = { peers: `${host}:${own}`, advertisePeers, database: urlOf(rows) };
      links.set(name, { options, links: { peers, database: rows.link } });
    }
    try {
      await underLoad(
        async (stage) => {
          for (let round = 0; round < rounds; round += 1) {
            await copied(stage.nodes);
            const name = `n${1 + (round % 3)}`;
            const found = links.get(name)?.links;
            if (found !== undefined) await harm(stage, found, round);
            await found?.database.mend();
            await found?.peers.mend();
            await stage.progress(3);
            await until("it owns shards", async () => (await sumOf([stage.at(name)])) > 0, 60_000);
          }
        },
        (name) => links.get(name)?.options ?? {},
      );
    } finally {
      for (const close of closing) await close();
    }
  };

  test("G90 G93 a node that is cut off from the database loses its shards, and acknowledges nothing of them", async () => {
    await withLinks(
      async ({ nodes, progress, at }, { database: rows }, round) => {
        const away = at(`n${1 + (round % 3)}`);
        if (round % 2 === 0) await rows.cut();
        else rows.hold();
        const others = nodes.filter((node) => node !== away);
        await until("the others own all shards", async () => (await sumOf(others)) === 16, 60_000);
        await progress(2);
      },
      Math.min(ROUNDS, 6),
    );
  });

  if (isLong) {
    test("G90 G93 nodes that do not reach each other lose nothing, and one that lives is not taken over for it", async () => {
      await withLinks(async ({ nodes, at, progress, longestMs }, { peers }, round) => {
        const before = await ownedOf(nodes);
        if (round % 2 === 0) {
          await peers.cut();
          // Longer than the others need to find that a process is gone.
          await pause(1000);
          expect(await ownedOf(nodes)).toEqual(before);
        } else peers.hold();
        // Clients reach the node itself.
        for (const node of nodes) node.isAway = node !== at(`n${1 + (round % 3)}`);
        await progress(2);
        for (const node of nodes) node.isAway = false;
        longestMs();
      }, 6);
    });

    test("G90 a node that computes beyond its lease acknowledges nothing of what others have taken", async () => {
      await underLoad(async ({ at, progress, nodes }) => {
        for (let round = 0; round < Math.min(ROUNDS, 6); round += 1) {
          const busy = at(`n${1 + (round % 3)}`);
          busy.child.send({ blockMs: 2.5 * LEASE_MS });
          const others = nodes.filter((node) => node !== busy);
          await until(
            "the others own all shards",
            async () => (await sumOf(others)) === 16,
            60_000,
          );
          await progress(5);
          await until("it owns shards again", async () => (await sumOf([busy])) > 0, 60_000);
        }
      });
    });
  }
}

function median(of: readonly number[]): number {
  return of.toSorted((one, other) => one - other)[Math.floor(of.length / 2)] ?? Infinity;
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

async function sumOf(nodes: readonly NodeProcess[]): Promise<number> {
  return (await ownedOf(nodes)).reduce((sum, count) => sum + count, 0);
}

/** A figure of a node alone, as `hapax_cluster_…`. */
async function metric({ url }: NodeProcess, name: string): Promise<number> {
  const { text } = await call("GET", url, "/_hapax/metrics");
  return Number(new RegExp(`^hapax_cluster_${name} (\\d+)$`, "m").exec(text)?.[1] ?? 0);
}

/** Waits until each shard has a warm copy at another node. */
function copied(nodes: readonly NodeProcess[]): Promise<void> {
  return until(
    "all shards are copied",
    async () => {
      const copies = await Promise.all(nodes.map((node) => metric(node, "copies")));
      return copies.reduce((sum, count) => sum + count, 0) === 16;
    },
    60_000,
  );
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
