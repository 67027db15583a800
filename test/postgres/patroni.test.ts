// Three nodes over three servers of PostgreSQL that Patroni keeps, each on a host of its own network: servers, machines and links
// fail under a load, and the history checker judges all answers. It takes minutes: `npm run test:crash`.
import { afterAll, expect, test, vi } from "vitest";
import { explainVerdict } from "../../src/testing/checker.ts";
import { PEER_KEY, until } from "../cluster/kit.ts";
import { JudgedLoad } from "../cluster/judged-load.ts";
import { type NodeProcess, startNode } from "../cluster/processes.ts";
import { Network, OUTSIDE } from "../kits/network.ts";
import { MEMBERS, type Member, PatroniCluster, TTL_MS, whyNoPatroni } from "./patroni.ts";
import { freshSchema } from "./kit.ts";

vi.setConfig({ testTimeout: 3_600_000, hookTimeout: 120_000 });

const isLong = process.env["HAPAX_LONG"] === "1";
const CYCLES = Number(process.env["HAPAX_PATRONI_CYCLES"] ?? "22");
const NODES = ["n1", "n2", "n3"] as const;
const reason = isLong ? whyNoPatroni() : "it takes minutes: npm run test:crash";

if (reason !== undefined) {
  test("failovers by Patroni", ({ skip }) => skip(reason));
} else {
  const network = new Network([...MEMBERS, ...NODES]);
  const patroni = new PatroniCluster(network);
  const schema = freshSchema();
  const nodes = new Map<string, NodeProcess>();
  afterAll(async () => {
    for (const { child } of nodes.values()) child.kill("SIGKILL");
    await patroni.stop();
    network.close();
  });

  const start = async (name: string): Promise<void> => {
    const { address, prefix } = network.host(name);
    const place = { host: address, peers: `${address}:4438`, prefix };
    const databaseOptions = { schema, segmentBytes: 1 << 18, snapshotBytes: 1 << 18 };
    const common = {
      database: patroni.url,
      leaseMs: 3000,
      peerKey: PEER_KEY,
      insecurePublic: true,
    };
    nodes.set(name, await startNode({ ...common, ...place, node: name, databaseOptions }));
  };
  const reachable = new Set<string>(NODES);
  const urls = (): readonly string[] =>
    [...nodes.values()].flatMap(({ name, url }) => (reachable.has(name) ? [url] : []));
  const load = new JudgedLoad({ urls, tenants: 4, producersOfEach: 2 });

  const progress = async (calls = 3): Promise<void> => {
    const before = load.doneOfEach();
    await until(
      `${calls} more calls of each writer`,
      () => load.doneOfEach().every((done, at) => done >= (before[at] ?? 0) + calls),
      180_000,
    );
  };
  const primary = async (): Promise<Member> => {
    let found: Member | undefined;
    await until(
      "there is a primary",
      async () => (found = await patroni.primary()) !== undefined,
      90_000,
    );
    if (found === undefined) throw new Error("there is no primary");
    return found;
  };
  const standbysOf = (member: Member): readonly Member[] =>
    patroni.members.filter((one) => one !== member);
  const whole = (): Promise<void> =>
    until("two standbys follow", async () => (await patroni.standbys()) === 2, 180_000);
  const another = (than: Member): Promise<void> =>
    until(
      `another primary than ${than.name}`,
      async () => ![undefined, than].includes(await patroni.primary()),
      120_000,
    );
  /** Nothing is acknowledged, once what was being answered has been. */
  const nothing = async (ms: number): Promise<void> => {
    await pause(1000);
    const before = load.acked;
    await pause(ms);
    expect(load.acked).toBe(before);
  };

  const harms: ReadonlyMap<string, () => Promise<void>> = new Map([
    ["the primary is killed", async () => (await primary()).signalPostgres("SIGKILL")],
    [
      "the link of the primary to one standby is cut",
      async () => {
        const first = await primary();
        network.cut(first.name, standbysOf(first)[0]?.name ?? "");
        await pause(6000); // Until the primary sees it.
        await progress(); // Of two standbys, one is enough.
        expect(await primary()).toBe(first);
      },
    ],
    [
      "the machine of the primary is gone",
      async () => {
        const first = await primary();
        first.signalAll("SIGKILL");
        await another(first);
        await progress();
        first.start();
      },
    ],
    [
      "both standbys are frozen, and the primary crashes while commits wait",
      async () => {
        const first = await primary();
        for (const member of standbysOf(first)) member.signalPostgres("SIGSTOP");
        await nothing(2000);
        first.signalPostgres("SIGKILL");
        await nothing(4000);
        for (const member of standbysOf(first)) member.signalPostgres("SIGCONT");
      },
    ],
    [
      "the machine of the primary is frozen, and wakes up",
      async () => {
        const first = await primary();
        first.signalAll("SIGSTOP");
        await another(first);
        await progress();
        first.signalAll("SIGCONT");
      },
    ],
    [
      "a switchover, as an operator orders it",
      async () => {
        const first = await primary();
        const body = JSON.stringify({ leader: first.name, candidate: standbysOf(first)[0]?.name });
        const headers = { "content-type": "application/json" };
        const url = `http://${first.host.address}:8008/switchover`;
        const answer = await fetch(url, { method: "POST", headers, body });
        expect([answer.status, await answer.text()]).toEqual([200, expect.any(String)]);
        await another(first);
      },
    ],
    [
      "the primary is cut off from all servers, and still reached by the nodes",
      async () => {
        const first = await primary();
        patroni.isolate(first.name, [OUTSIDE]);
        await another(first);
        await progress();
      },
    ],
    [
      "the nodes are cut off from the primary",
      async () => {
        const first = await primary();
        for (const name of NODES) network.cut(name, first.name);
        await nothing(3000);
      },
    ],
    [
      "the machines of both standbys are frozen, and so is the majority of etcd",
      async () => {
        const others = standbysOf(await primary());
        for (const member of others) member.signalAll("SIGSTOP");
        await nothing(TTL_MS + 4000);
        for (const member of others) member.signalAll("SIGCONT");
      },
    ],
    [
      "the primary and a node are killed at once",
      async () => {
        const first = await primary();
        const name = NODES[Math.floor(Math.random() * NODES.length)] ?? "n1";
        reachable.delete(name);
        nodes.get(name)?.child.kill("SIGKILL");
        first.signalPostgres("SIGKILL");
        await nodes.get(name)?.ended;
        await progress();
        await start(name);
        reachable.add(name);
      },
    ],
    [
      "what the servers answer to one node gets lost",
      async () => {
        const name = NODES[Math.floor(Math.random() * NODES.length)] ?? "n1";
        for (const member of MEMBERS) network.cutOneWay(member, name);
        reachable.delete(name);
        await progress();
        // It still takes requests, and must send them on.
        reachable.add(name);
        await progress();
      },
    ],
  ]);

  test("G81 G90 what was acknowledged over failovers by Patroni is there once, whole and in order", async () => {
    const stalls = new Map<string, number[]>();
    try {
      await until(
        "Patroni has made its cluster",
        async () => (await patroni.standbys()) === 2,
        120_000,
      );
      for (const name of NODES) await start(name);
      await load.start();
      await progress();
      const troubles = [...harms];
      for (let cycle = 0; cycle < CYCLES; cycle += 1) {
        const [name, harm] = troubles[cycle % troubles.length] ?? ["", () => Promise.resolve()];
        load.longestMs = 0;
        const begunMs = performance.now();
        await harm();
        network.mend();
        await progress();
        await whole();
        const stallMs = Math.round(load.longestMs);
        stalls.set(name, [...(stalls.get(name) ?? []), stallMs]);
        const tookMs = Math.round(performance.now() - begunMs);
        console.log(`${cycle + 1}: ${name}: ${stallMs} ms without an answer, ${tookMs} ms in all`);
      }
      await load.stop();
      const verdict = await load.judge();
      console.log(explainVerdict(verdict));
      const { acked, duplicates, unanswered } = load;
      console.log(
        JSON.stringify({ acked, duplicates, unanswered, stalls: Object.fromEntries(stalls) }),
      );
      expect(verdict.problems).toEqual([]);
      const { acknowledged, reads } = verdict.counts;
      expect(acknowledged - reads).toBe(acked);
      expect(reads).toBeGreaterThan(CYCLES);
      expect(load.problems).toEqual([]);
    } catch (error) {
      console.log(load.problems.slice(-10).join("\n"));
      for (const node of nodes.values())
        console.log(node.stderr().split("\n").slice(-20).join("\n"));
      for (const member of patroni.members) console.log(member.log("patroni").slice(-3000));
      throw error;
    }
  });
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
