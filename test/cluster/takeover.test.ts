// A takeover and a sign of life of the owner at the same moment: the two processes may not answer both.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { systemRandom } from "../../src/base/random.ts";
import { ClusterRows } from "../../src/streams/cluster/cluster-rows.ts";
import { PostgresCluster } from "../../src/streams/cluster/postgres-cluster.ts";
import type { ShardId } from "../../src/streams/core/placement.ts";
import { pgSession } from "../../src/streams/stores/postgres/clients.ts";
import { openTables, quoteSchema } from "../../src/streams/stores/postgres/schema.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { type Harm, harmed } from "../postgres/kit.ts";
import { freshSchema, until } from "./kit.ts";

const reason = whyNoPostgres();
if (reason !== undefined) console.log(`takeovers of shards are not tested: ${reason}`);
const SHARD = 0 as ShardId;

describe.skipIf(reason !== undefined)("a takeover", () => {
  let database: TestPostgres;
  beforeAll(async () => {
    database = await startPostgres();
  });
  afterAll(() => database.stop());

  async function openNode(schema: string, node: string) {
    const harm: Harm = { isKilled: false };
    const session = harmed(pgSession(database.openPool()), harm);
    const quoted = quoteSchema(schema);
    const cluster = new PostgresCluster({
      session,
      schema: quoted,
      row: await openTables(session, quoted, systemRandom, 1),
      rows: new ClusterRows(session, quoted),
      facts: { node, life: systemRandom.id(), url: undefined, peer: undefined, version: "1" },
      clock: systemClock,
      leaseMs: 1000,
      store: { durability: "os", schema },
      onNote: () => undefined,
      peers: {
        nudge: () => undefined,
        watch: () => () => undefined,
        isRefused: () => Promise.resolve(false),
      },
      keepsCopies: false,
    });
    const answers = (): boolean => cluster.isValid && cluster.ownerOf(SHARD)?.isSelf === true;
    await cluster.join({
      take: () => undefined,
      giveUp: () => Promise.resolve(),
      lose: () => undefined,
      changed: () => undefined,
    });
    return { cluster, harm, answers, rows: cluster.names };
  }

  /** A door in the way of some statements. */
  function doorFor(harm: Harm, isHeld: (text: string) => boolean) {
    let open = (): void => undefined;
    let isReached = false;
    const opened = new Promise<void>((resolve) => (open = resolve));
    harm.before = (text) => {
      if (!isHeld(text)) return undefined;
      isReached = true;
      return opened;
    };
    return {
      isReached: () => isReached,
      open(): void {
        harm.before = undefined;
        open();
      },
    };
  }

  test("PC2 G93 an owner that gives a sign of life before its shard is taken keeps it, and no other node answers", async () => {
    const schema = freshSchema();
    const owner = await openNode(schema, "n1");
    await owner.rows.pin(SHARD, "n1");
    const other = await openNode(schema, "n2");
    await until("n1 owns the shard", owner.answers);
    // The owner stands still, or does not reach the database, for a lease.
    const signs = doorFor(owner.harm, (text) => text.includes("hapax_node SET beat"));
    const takeover = doorFor(other.harm, (text) => text.includes("hapax_shard SET epoch"));
    await until("n2 takes the shard", takeover.isReached);
    expect(owner.answers()).toBe(false);
    signs.open();
    await until("n1 has given a sign", owner.answers);
    takeover.open();
    const endMs = performance.now() + 600;
    while (performance.now() < endMs) {
      expect(owner.answers() && other.answers()).toBe(false);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    expect(owner.answers()).toBe(true);
    await owner.cluster.close();
    await other.cluster.close();
  }, 20_000);

  test("a node whose row was removed while it was cut off comes back, but not after accept-restore", async () => {
    const schema = freshSchema();
    const node = await openNode(schema, "n1");
    await until("n1 owns the shard", node.answers);
    /** What other nodes do while this one does not reach the database for long. */
    const forget = async (): Promise<void> => {
      await database.pool.query(
        `UPDATE ${schema}.hapax_shard SET epoch = epoch + 1, owner = NULL, life = NULL`,
      );
      await database.pool.query(`DELETE FROM ${schema}.hapax_node`);
    };
    await forget();
    await until("n1 has lost the shard", () => !node.answers());
    await until("n1 owns the shard again", node.answers);
    expect(node.cluster.state().isDraining).toBe(false);
    await new ClusterRows(pgSession(database.pool), quoteSchema(schema)).acceptRestore();
    await until("n1 has seen the restore", () => node.cluster.state().isDraining);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    expect([node.answers(), node.cluster.state().isDraining]).toEqual([false, true]);
    await node.cluster.close();
  }, 20_000);
});
