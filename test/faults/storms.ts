/** Faults that only a lost answer, a late copy or a restart brings to light. */

import type { Fault } from "./faults.ts";

const STORMS = "test/storms.test.ts";
const EDGES = "test/window-edges.test.ts";

export const stormFaults: readonly Fault[] = [
  {
    name: "the session is not written with its append",
    guarantee: "G7",
    file: "src/streams/stores/journal/records.ts",
    find: "const { producer, streamSeq, key } = record;",
    replace: `const { streamSeq, key } = record;
    const producer = record.producer && { ...record.producer, session: undefined };`,
    caughtBy: {
      file: EDGES,
      test: "edge case 1: a crash between a write and the next snapshot forgets no key and no session",
    },
  },
  {
    name: "the key is not written with its append",
    guarantee: "G2",
    file: "src/streams/stores/journal/records.ts",
    find: "const { producer, streamSeq, key } = record;",
    replace: `const { producer, streamSeq } = record;
    const key = undefined as StreamAppended["key"];`,
    caughtBy: {
      file: STORMS,
      test: "the same while the power goes again and again: key",
    },
  },
  {
    name: "a retry is answered with the tail instead of its own end",
    guarantee: "G2",
    file: "src/streams/core/append.ts",
    find: "end: end ?? tail, isClosed };",
    replace: "end: tail < 0 ? (end ?? tail) : tail, isClosed };",
    caughtBy: {
      file: STORMS,
      test: "a storm of retries leaves what was sent, once and in order: session",
    },
  },
];
