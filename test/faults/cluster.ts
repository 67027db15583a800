/** Faults of the nodes of a cluster. */

import type { Fault } from "./faults.ts";

const SERVER_TEST = "src/streams/cluster/cluster-server.test.ts";
const FRAMES_TEST = "src/streams/runtimes/node-peer-frames.test.ts";
const SUSPICION_TEST = "src/streams/cluster/node-suspicion.test.ts";
const LIVES = "SU1 SU2 a node that gives signs, or whose port answers, is left to the lease";
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
    name: "cluster: a call on a connection that ended counts as not sent",
    guarantee: "G92",
    file: "src/streams/runtimes/node-peer-frames-sent.ts",
    find: 'for (const id of [...this.#waiting.keys()]) this.#answer(id, { kind: "lost" });',
    replace: 'for (const id of [...this.#waiting.keys()]) this.#answer(id, { kind: "unsent" });',
    caughtBy: {
      file: FRAMES_TEST,
      test: "FW1 a connection that ends leaves what was not answered as lost, and the next one is made",
    },
  },
  {
    name: "cluster: an answer of another node goes to the call that waits longest",
    guarantee: "G90",
    file: "src/streams/runtimes/node-peer-frames-sent.ts",
    find: 'this.#answer(id, { kind: "answered", answer });',
    replace: 'this.#answer(this.#waiting.keys().next().value ?? id, { kind: "answered", answer });',
    caughtBy: {
      file: FRAMES_TEST,
      test: "answers come in any order, over one connection, each to its own request",
    },
  },
  {
    name: "cluster: a lease is measured by the wall clock",
    guarantee: "G93",
    file: "src/streams/cluster/postgres-cluster.ts",
    find: "return this.#parts.clock.steadyMs() < this.#validUntilMs",
    replace: "return this.#parts.clock.nowMs() < this.#validUntilMs",
    caughtBy: {
      file: "src/streams/cluster/postgres-cluster.test.ts",
      test: "PC2 G93 a wall clock that is set neither ends a lease nor makes it longer",
    },
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
    name: "cluster: a takeover does not look for a sign of life that came after it was decided",
    guarantee: "G93",
    file: "src/streams/stores/postgres/postgres-tables.ts",
    find: "SELECT 1 FROM former WHERE beat <> $7::bigint",
    replace: "SELECT 1 FROM former WHERE beat < $7::bigint",
    caughtBy: {
      file: "test/cluster/takeover.test.ts",
      test: "a takeover > PC2 G93 an owner that gives a sign of life before its shard is taken keeps it, and no other node answers",
    },
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
  {
    name: "cluster: a node that gives signs of life is taken for gone",
    guarantee: "G93",
    file: "src/streams/cluster/node-watch.ts",
    find: "const isSame = suspect.life === life && suspect.beat === beat;",
    replace: "const isSame = suspect.life === life && suspect.beat <= beat;",
    caughtBy: { file: SUSPICION_TEST, test: LIVES },
  },
  {
    name: "cluster: a node whose port answers is taken for gone",
    guarantee: "G93",
    file: "src/streams/cluster/node-suspicion.ts",
    find: "while (await this.#parts.isRefused(peer)) {",
    replace: "for (;;) {",
    caughtBy: { file: SUSPICION_TEST, test: LIVES },
  },
  {
    name: "cluster: a node is taken for gone long after its connection has ended",
    guarantee: "G93",
    file: "src/streams/cluster/node-watch.ts",
    find: "this.#gone.has(node) || endedMs <= suspect.untilMs;",
    replace: "this.#gone.has(node) || endedMs >= 0;",
    caughtBy: {
      file: "src/streams/cluster/node-watch.test.ts",
      test: "NW3 a node whose process is gone is dead with the next look, and lives with its next sign",
    },
  },
  {
    name: "cluster: a node that may be taken for gone answers as before",
    guarantee: "G93",
    file: "src/streams/cluster/postgres-cluster.ts",
    find: "this.#validUntilMs = Math.min(this.#validUntilMs, nowMs);",
    replace: "this.#validUntilMs = Math.max(this.#validUntilMs, nowMs);",
    caughtBy: {
      file: "src/streams/cluster/postgres-cluster.test.ts",
      test: "PC2 G93 a node that others may take for gone answers only shortly after each sign, and gives more of them",
    },
  },
  {
    name: "cluster: a sign of life from before a doubt ends it",
    guarantee: "G93",
    file: "src/streams/cluster/postgres-cluster.ts",
    find: "if (sinceMs < 0) return;",
    replace: "if (sinceMs < -1e9) return;",
    caughtBy: {
      file: "src/streams/cluster/postgres-cluster.test.ts",
      test: "PC2 G93 a sign of life that was sent before the doubt does not end it",
    },
  },
  {
    name: "cluster: a copy of what the database has lost becomes the owner",
    guarantee: "G94",
    file: "src/streams/stores/journal/replay.ts",
    find: "(before.crc !== crc || before.segment !== segment.number)",
    replace: "before.crc < 0",
    caughtBy: {
      file: "test/postgres/follower.test.ts",
      test: "FL1 a copy of what the database has lost since is not used",
    },
  },
  {
    name: "cluster: another node than the next owner keeps the copy",
    guarantee: "G94",
    file: "src/streams/core/assignment.ts",
    find: "return assigneeOf(shard, others) === self;",
    replace: "return assigneeOf(shard, nodes) === self;",
    caughtBy: {
      file: "src/streams/core/assignment.test.ts",
      test: "PROTOCOL.md §24.4: AS5 the node that follows a shard is the one that takes it when its owner is gone or drains",
    },
  },
  {
    name: "cluster: an answer sends a client to a server that is no node",
    guarantee: "G48",
    file: "src/client/owner-transport.ts",
    find: "const known = owner === undefined ? undefined : bases.get(baseOf(owner));",
    replace: "const known = owner === undefined ? undefined : baseOf(owner);",
    caughtBy: {
      file: "src/client/owner-transport.test.ts",
      test: "an owner that is not among the nodes is not asked, and neither is one of a server that is not",
    },
  },
];
