/** Faults in telling a number that was used for other content from a retry. */

import type { Fault } from "./faults.ts";

const REUSE = "test/protocol/reuse.test.ts";
const TOLD = "other content under a known number is not taken for a retry, and nothing is stored";

export const reuseFaults: readonly Fault[] = [
  {
    name: "other content of a session is taken for a retry",
    guarantee: "G2",
    file: "src/streams/core/producer.ts",
    find: "return known !== undefined && known !== digest;",
    replace: "return known === undefined && known !== digest;",
    caughtBy: {
      file: "src/streams/core/append-tail.test.ts",
      test: "a duplicate > P8 of a session is refused if its content is another one, for the last 32 appends",
    },
  },
  {
    name: "the answer to an epoch is silent about other content",
    guarantee: "G2",
    file: "src/protocol/append.ts",
    find: "if (outcome.isOther) headers",
    replace: "if (outcome.isOther && outcome.isClosed) headers",
    caughtBy: { file: REUSE, test: `with an epoch of the public protocol > ${TOLD}` },
  },
  {
    name: "the digest is not in the journal",
    guarantee: "G2",
    file: "src/streams/stores/journal/records.ts",
    find: "writer.u32(mark.digest >>> 0);",
    replace: "writer.u32(0);",
    caughtBy: {
      file: REUSE,
      test: "with a session > other content under a known number is found after a restart, from the journal and from a snapshot",
    },
  },
  {
    name: "the digests of a snapshot are in another order",
    guarantee: "G2",
    file: "src/streams/stores/journal/producer-format.ts",
    find: "recent[placeBefore(lastSequence, back) + 1] = reader.u32() | 0;",
    replace: "recent[placeBefore(lastSequence, count - 1 - back) + 1] = reader.u32() | 0;",
    caughtBy: {
      file: "src/streams/stores/file/snapshot.test.ts",
      test: "any producer comes back: session, replaced sessions, resets, and the ends that are known",
    },
  },
  {
    name: "the client counts another writer's number as its own append",
    guarantee: "G2",
    file: "src/client/flight.ts",
    find: 'if (says(answer, "producer-seq-reused")) {',
    replace: 'if (says(answer, "producer-seq-never-reused")) {',
    caughtBy: {
      file: "test/client/writes-producer.test.ts",
      test: "a named producer needs an epoch where there are no sessions, and one that is new",
    },
  },
  {
    name: "a batch that an earlier encode made goes again",
    guarantee: "G28",
    file: "src/toolkit/outbox/hapax-publisher.ts",
    find: "return events.map(() => (isStored ? PUBLISHED : SKIPPED));",
    replace: "return events.map(() => (isStored && batch.isRetry ? SKIPPED : SKIPPED));",
    caughtBy: {
      file: "test/outbox/hapax-publisher.test.ts",
      test: "a number that the server knows with other content > is the batch as an earlier encode made it, or nothing, and is published or goes again",
    },
  },
];
