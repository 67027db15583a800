/** Faults of compressed bodies: bombs, greedy addresses, other orders and other contents. */

import type { Fault } from "./faults.ts";

const TEST = "test/protocol/compressed.test.ts";
const DECODING = "src/streams/server/decoding.ts";

export const compressionFaults: readonly Fault[] = [
  {
    name: "a compressed body may become larger than a body may be",
    guarantee: "G34",
    file: "src/streams/runtimes/node-decompress.ts",
    find: "maxOutputLength: Math.max(1, bytesMax)",
    replace: "maxOutputLength: Math.max(1, bytesMax) * 1000",
    caughtBy: {
      file: TEST,
      test: "on node a body of br stops at the limit of a body, also if few bytes were sent",
    },
  },
  {
    name: "on fetch a compressed body may become larger than a body may be",
    guarantee: "G34",
    file: "src/streams/runtimes/fetch-decompress.ts",
    find: "if (pieces.bytes + value.length > bytesMax) {",
    replace: "if (pieces.bytes + value.length > bytesMax * 1000) {",
    caughtBy: {
      file: TEST,
      test: "on fetch a body of gzip stops at the limit of a body, also if few bytes were sent",
    },
  },
  {
    name: "an address with many compressed bodies keeps the others waiting",
    guarantee: "G34",
    file: DECODING,
    find: `      this.#queues.delete(peer);
      if (next === undefined) continue;`,
    replace: `      if (queue.bodies.length === 0) this.#queues.delete(peer);
      if (next === undefined) continue;`,
    caughtBy: {
      file: "src/streams/server/decoding.test.ts",
      test: "of one address do not keep those of another waiting",
    },
  },
  {
    name: "compressed bodies wait without a limit",
    guarantee: "G34",
    file: DECODING,
    find: "if (isFull || isGreedy) {",
    replace: "if (isFull && isGreedy) {",
    caughtBy: {
      file: "src/streams/server/decoding.test.ts",
      test: "that wait have a room, and those of one address half of it",
    },
  },
  {
    name: "an append overtakes a compressed one of its connection",
    guarantee: "G10",
    file: "src/streams/runtimes/node-lane-parser.ts",
    find: `    "content-encoding",
  ].map(hashOf),`,
    replace: `    "content-coding",
  ].map(hashOf),`,
    caughtBy: {
      file: TEST,
      test: "requests of one connection are decided in their order, compressed or not (fast lane: true)",
    },
  },
  {
    name: "a quota counts compressed bytes",
    guarantee: "G50",
    file: "src/streams/server/quotas.ts",
    find: `  if (exchange.header("content-encoding") !== undefined) return undefined;
`,
    replace: "",
    caughtBy: { file: TEST, test: "a quota of bytes counts what a body decodes to" },
  },
  {
    name: "the client sends compressed bodies to servers that may store them so",
    guarantee: "G19",
    file: "src/client/gzip-transport.ts",
    find: "    if (!isKnown) return send();",
    replace: "    if (!isKnown && known.get(origin) === true) return send();",
    caughtBy: {
      file: TEST,
      test: "the client sends nothing compressed to a server that does not say that it decodes",
    },
  },
];
