import { expect, test } from "vitest";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import type { ClusterRows } from "./cluster-rows.ts";
import { PostgresCluster, type PostgresClusterParts } from "./postgres-cluster.ts";

const LEASE_MS = 5000;

/** A node of a cluster without shards. `signs`: what ends each sign of life. */
async function openNode() {
  const clock = createVirtualClock(0);
  let hold: Promise<void> = Promise.resolve();
  let signs = 0;
  const rows: Pick<ClusterRows, "register" | "sign" | "remove"> = {
    register: () => Promise.resolve(),
    remove: () => Promise.resolve(),
    async sign() {
      signs += 1;
      await hold;
      return { nodes: [], shards: [], isSigned: true };
    },
  };
  const cluster = new PostgresCluster({
    session: { close: () => Promise.resolve() },
    schema: "s",
    row: { storeId: "", secret: "", shards: 0 },
    // The cast leaves out what a node without shards never calls.
    rows: rows as ClusterRows,
    facts: { node: "n1", life: "l1", url: undefined, peer: undefined, version: "1" },
    clock,
    leaseMs: LEASE_MS,
    store: {},
    onNote: () => undefined,
    peers: {
      nudge: () => undefined,
      watch: () => () => undefined,
      isRefused: () => Promise.resolve(false),
    },
    keepsCopies: true,
  } as unknown as PostgresClusterParts);
  const none = (): void => undefined;
  await cluster.join({ take: none, giveUp: () => Promise.resolve(), lose: none, changed: none });
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  const wait = async (ms: number): Promise<void> => {
    clock.advance(ms);
    await turn();
  };
  const holdSigns = (): (() => void) => {
    let go = none;
    hold = new Promise((resolve) => (go = resolve));
    return go;
  };
  return { cluster, clock, wait, holdSigns, signs: () => signs };
}

test("PC2 G93 a node that others may take for gone answers only shortly after each sign, and gives more of them", async () => {
  const { cluster, wait, holdSigns, signs } = await openNode();
  expect(cluster.isValid).toBe(true);
  cluster.doubt();
  expect(cluster.isValid).toBe(false);
  await wait(20);
  expect(cluster.isValid).toBe(true);
  const before = signs();
  await wait(50);
  await wait(50);
  expect(signs()).toBe(before + 2);
  const go = holdSigns();
  await wait(50);
  await wait(249);
  // The last sign was sent 249 ms ago, and has no answer.
  expect([signs(), cluster.isValid]).toEqual([before + 3, false]);
  go();
  await wait(0);
  expect(cluster.isValid).toBe(true);
  await wait(1);
  expect(cluster.isValid).toBe(false);
  await wait(50);
  expect(cluster.isValid).toBe(true);
  for (let at = 0; at < 70; at += 1) await wait(50);
  await wait(LEASE_MS / 5);
  const last = holdSigns();
  await wait(LEASE_MS / 2);
  expect(cluster.isValid).toBe(true);
  last();
});

test("PC2 G93 a sign of life that was sent before the doubt does not end it", async () => {
  const { cluster, wait, holdSigns } = await openNode();
  const go = holdSigns();
  await wait(LEASE_MS / 5);
  expect(cluster.isValid).toBe(true);
  await wait(1);
  cluster.doubt();
  go();
  await wait(0);
  expect(cluster.isValid).toBe(false);
  await wait(20);
  expect(cluster.isValid).toBe(true);
});

test("PC2 G93 a wall clock that is set neither ends a lease nor makes it longer", async () => {
  const { cluster, clock, wait, holdSigns } = await openNode();
  clock.jump(7_200_000);
  expect(cluster.isValid).toBe(true);
  clock.jump(-14_400_000);
  const go = holdSigns();
  await wait(LEASE_MS / 2);
  expect(cluster.isValid).toBe(true);
  await wait(LEASE_MS / 2);
  expect(cluster.isValid).toBe(false);
  go();
});
