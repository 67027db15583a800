/** Clusters on the PostgreSQL of the tests: nodes in this process, and requests to any of them. */

import { startClusterNode } from "../../src/streams/runtimes/node-cluster.ts";
import type { ClusterNode, ClusterNodeOptions } from "../../src/streams/runtimes/node-cluster.ts";
import type { TestPostgres } from "../databases/postgres.ts";

export const PEER_KEY = "a key of the tests that is long enough";

let schemas = 0;

/** A schema that no other test has. */
export function freshSchema(): string {
  schemas += 1;
  return `cluster_${process.pid}_${schemas}`;
}

/** The database as a URL, with its socket as the host. */
export function urlOf({ host }: Pick<TestPostgres, "host">): string {
  return `postgres://postgres@${encodeURIComponent(host)}/postgres`;
}

export interface TestCluster {
  readonly schema: string;
  readonly nodes: ClusterNode[];
  start(name: string, more?: Partial<ClusterNodeOptions>): Promise<ClusterNode>;
  stop(): Promise<void>;
}

export function testCluster(
  database: Pick<TestPostgres, "host">,
  common: Partial<ClusterNodeOptions> = {},
): TestCluster {
  const schema = freshSchema();
  const nodes: ClusterNode[] = [];
  return {
    schema,
    nodes,
    async start(name, more = {}) {
      const node = await startClusterNode({
        database: urlOf(database),
        node: name,
        port: 0,
        peers: "127.0.0.1:0",
        peerKey: PEER_KEY,
        leaseMs: 1000,
        log: () => undefined,
        ...common,
        ...more,
        databaseOptions: { durability: "os", schema, ...common.databaseOptions },
      });
      nodes.push(node);
      return node;
    },
    async stop() {
      for (const node of nodes.splice(0)) await node.stop();
    },
  };
}

/** Waits until a condition holds. */
export async function until(
  what: string,
  isTrue: () => boolean | Promise<boolean>,
  limitMs = 15_000,
): Promise<void> {
  const endMs = performance.now() + limitMs;
  while (!(await isTrue())) {
    if (performance.now() > endMs) throw new Error(`in ${limitMs} ms it was not so: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
