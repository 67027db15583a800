/** Faults of the nodes of a cluster. */

import type { Fault } from "./faults.ts";

const SERVER_TEST = "src/streams/cluster/cluster-server.test.ts";
const on = (test: string) => ({ file: SERVER_TEST, test: `a node of a cluster > ${test}` });

export const clusterFaults: readonly Fault[] = [
  {
    name: "cluster: a request without an identity is sent to the next owner after it was lost",
    guarantee: "G92",
    file: "src/streams/cluster/forwarding.ts",
    find: "if (!mayBeResent(exchange)) throw lost();",
    replace: "if (!mayBeResent(exchange) && attempt > 9) throw lost();",
    caughtBy: on("FW1 G92 an append without an identity whose owner was lost"),
  },
  {
    name: "cluster: a node answers after its lease",
    guarantee: "G93",
    file: "src/streams/cluster/cluster-server.ts",
    find: "local.isLeaving || !this.#cluster.isValid) return undefined;",
    replace: "local.isLeaving) return undefined;",
    caughtBy: on("CL1 G93 a node whose lease is over answers for nothing that it owned"),
  },
  {
    name: "cluster: a pause of the candidate counts as patience",
    guarantee: "G93",
    file: "src/streams/cluster/node-watch.ts",
    find: "begunMs - (this.#lastMs ?? begunMs)",
    replace: "begunMs - begunMs",
    caughtBy: {
      file: "src/streams/cluster/node-watch.test.ts",
      test: "patience with nodes > NW2 after a pause of this process all patience begins anew",
    },
  },
  {
    name: "cluster: a shard is taken from a living owner",
    guarantee: "G90",
    file: "src/streams/core/assignment.ts",
    find: "seen.life !== owner.life || !seen.isAlive;",
    replace: "seen.life !== owner.life || seen.isDraining;",
    caughtBy: {
      file: "src/streams/core/assignment.test.ts",
      test: "PROTOCOL.md §24.4: who owns which shard > AS3 AS4 no two nodes that see the same take a shard, and none takes from a living owner",
    },
  },
  {
    name: "cluster: a tenant sees the nodes and their addresses",
    guarantee: "G40",
    file: "src/streams/cluster/gathering.ts",
    find: '(await gate.admit(exchange)).requireWholeServer("observe");',
    replace: '(await gate.admit(exchange)).requireOneOf(["observe"]);',
    caughtBy: {
      file: SERVER_TEST,
      test: "PROTOCOL.md §24.4: the owners are shown to an identity of the whole server, and to no namespace",
    },
  },
];
