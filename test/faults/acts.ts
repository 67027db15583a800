/** Faults of acts of administration: what would do one twice. */

import type { Fault } from "./faults.ts";

const ACTS = "test/processing/acts.test.ts";

export const actFaults: readonly Fault[] = [
  {
    name: "the key of a reset is not written down",
    guarantee: "G35",
    file: "src/streams/engine/groups.ts",
    find: "      act?.note({ streams: decision.change.offsets.length }, batch);\n",
    replace: "",
    caughtBy: {
      file: ACTS,
      test: "G35 a reset of a group whose answer is lost is done once: what was committed since stays",
    },
  },
  {
    name: "every attempt of a deletion has a key of its own",
    guarantee: "G35",
    file: "src/streams/server/keyed-acts.ts",
    find: "parts.digest(keyBytes(key.text)),",
    replace: "parts.digest(keyBytes(parts.random.id())),",
    caughtBy: {
      file: ACTS,
      test: "G35 a deletion of a stream whose answer is lost leaves the one alone that is made meanwhile",
    },
  },
];
