/** Faults of the options that limit memory. */

import type { Fault } from "./faults.ts";

const TEST = "src/streams/server/room.test.ts";

export const limitFaults: readonly Fault[] = [
  {
    name: "limits: pendingBytesMax is not in force",
    guarantee: "G34",
    file: "src/streams/engine/room.ts",
    find: "    if (pendingBytes + bytes > this.#pendingBytesMax) {",
    replace: "    if (pendingBytes + bytes > LIMITS.pendingBytesMax) {",
    caughtBy: {
      file: TEST,
      test: "pendingBytesMax > bytes that wait for the store are bounded by the option, and the next write is refused",
    },
  },
  {
    name: "limits: heldBytesMax is not in force",
    guarantee: "G34",
    file: "src/streams/engine/patience.ts",
    find: "this.#bytes + length > this.#bytesMax",
    replace: "this.#bytes + length > LIMITS.heldBytesMax",
    caughtBy: {
      file: TEST,
      test: "heldBytesMax > appends that wait for their predecessors are bounded by the option, and the next one is answered at once",
    },
  },
  {
    name: "limits: outcomeBytesMax is not in force",
    guarantee: "G34",
    file: "src/streams/engine/engine.ts",
    find: "    const outcomeBytesMax = parts.outcomeBytesMax ?? LIMITS.outcomeBytesMax;",
    replace: "    const { outcomeBytesMax } = LIMITS;",
    caughtBy: {
      file: TEST,
      test: "outcomeBytesMax > answers of transactions are bounded by the option: old ones are forgotten, and stay duplicates",
    },
  },
  {
    name: "limits: bodiesBytesMax is not in force on fetch",
    guarantee: "G34",
    file: "src/streams/runtimes/fetch-server.ts",
    find: "new BodyBudget(LIMITS.bodyBytesPerSecondMin, clock, bodiesBytesMax)",
    replace: "new BodyBudget(LIMITS.bodyBytesPerSecondMin, clock, bodiesBytesMax * 99)",
    caughtBy: {
      file: "src/streams/runtimes/fetch.test.ts",
      test: "a request > has no room while other bodies hold bodiesBytesMax, and is refused with 429",
    },
  },
  {
    name: "limits: the cache of tails keeps memory of other parts of the process",
    guarantee: "G34",
    file: "src/streams/stores/journal/tail-cache.ts",
    find: "this.#piece = Buffer.allocUnsafeSlow(PIECE_BYTES);",
    replace: "this.#piece = Buffer.from(new Uint8Array(4000)); // The pool of Node.",
    caughtBy: {
      file: "src/streams/stores/journal/tail-cache.test.ts",
      test: "copies share memory with each other, and with nothing else of the process",
    },
  },
];
