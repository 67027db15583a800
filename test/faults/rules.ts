/** Faults in the rules, the engine and the wire. */

import type { Fault } from "./faults.ts";

export const ruleFaults: readonly Fault[] = [
  {
    name: "answer before the commit",
    guarantee: "G1",
    file: "src/streams/engine/appends.ts",
    find: "    return batch.done.then(() => {\n      writer.meter?.append(command, decision);",
    replace:
      "    return Promise.resolve(batch).then(() => {\n      writer.meter?.append(command, decision);",
    caughtBy: {
      file: "src/streams/engine/engine.test.ts",
      test: "G3 W2 none of 20 identical requests is answered before the commit, and one is accepted",
    },
  },
  {
    name: "duplicate answered before its original is durable",
    guarantee: "G3",
    file: "src/streams/engine/writer.ts",
    find: "return batch === undefined ? Promise.resolve(outcome) : batch.done.then(() => outcome);",
    replace: "return Promise.resolve(batch === undefined ? outcome : outcome);",
    caughtBy: {
      file: "src/streams/engine/engine.test.ts",
      test: "G3 W2 none of 20 identical requests is answered before the commit, and one is accepted",
    },
  },
  {
    name: "readers woken before the commit",
    guarantee: "G4",
    file: "src/streams/engine/commit.ts",
    find: `      try {
        await this.#store.commit(batch.changes);`,
    replace: `      this.#onDurable(batch);
      try {
        await this.#store.commit(batch.changes);`,
    caughtBy: {
      file: "src/streams/engine/commit.test.ts",
      test: "W4 readers learn of every byte once, in order, and only after its commit",
    },
  },
  {
    name: "readers shown what is not durable",
    guarantee: "G4",
    file: "src/streams/engine/commit.ts",
    find: "return this.#flights.get(state.id)?.tail ?? state.tail;",
    replace: "return state.tail;",
    caughtBy: {
      file: "src/streams/engine/tails.test.ts",
      test: "G4 W4 looks, reads and lists stay at the durable state until a write is committed",
    },
  },
  {
    name: "writes go on after a failed commit",
    guarantee: "G9",
    file: "src/streams/engine/commit.ts",
    find: "    for (const waiting of this.#waiting.splice(0)) waiting.reject(this.#stopped);",
    replace: "    this.#stopped = undefined;\n    void this.#run();",
    caughtBy: {
      file: "src/streams/engine/commit.test.ts",
      test: "W3 takes every batch that waited behind it with it",
    },
  },
  {
    name: "epoch check dropped",
    guarantee: "G7",
    file: "src/streams/core/producer.ts",
    find: `  if (epoch < state.epoch) return { kind: "fenced", currentEpoch: state.epoch };`,
    replace: "",
    caughtBy: {
      file: "src/streams/core/producer.test.ts",
      test: "G7 P2 an epoch never goes back, in every history",
    },
  },
  {
    name: "gap accepted",
    guarantee: "G10",
    file: "src/streams/core/producer.ts",
    find: "  return sequence === expected\n",
    replace: "  return sequence >= expected\n",
    caughtBy: {
      file: "src/streams/core/producer.test.ts",
      test: "P1 an accepted sequence is the next one, or 0 in a new epoch, in every history",
    },
  },
  {
    name: "dedup window of one",
    guarantee: "G2",
    file: "src/streams/core/producer.ts",
    find: "  if (sequence <= state.lastSequence) {",
    replace: "  if (sequence === state.lastSequence) {",
    caughtBy: {
      file: "src/streams/core/producer.test.ts",
      test: "P1 P2 P3 P4 every answer of every history is the one the accepted claims call for",
    },
  },
  {
    name: "producer state forgotten",
    guarantee: "G2",
    file: "src/streams/core/world.ts",
    find: "  if (before === undefined) stream.producers.set(producer.id, after);",
    replace: "  void after;",
    caughtBy: {
      file: "src/streams/core/append.test.ts",
      test: "G5 A2 after a close the retry of any stored append is a duplicate, and a new one is closed",
    },
  },
  {
    name: "append applied twice",
    guarantee: "G6",
    file: "src/streams/engine/commit.ts",
    find: "    applyChange(this.#world, change);\n    batch.changes.push(change);",
    replace:
      '    applyChange(this.#world, change);\n    if (change.kind === "appended") applyChange(this.#world, change);\n    batch.changes.push(change);',
    caughtBy: {
      file: "src/streams/engine/engine.test.ts",
      test: "G6 W1 1,000 concurrent appends get 1,000 distinct consecutive offsets",
    },
  },
  {
    name: "precedence swapped: content type before closed",
    guarantee: "G5",
    file: "src/streams/core/append.ts",
    find: "  if (state.isClosed) return decideOnClosed(state, command, atMs, scene);\n",
    replace:
      "  if (state.isClosed && isSameMediaType(command.contentType ?? state.contentType, state.contentType)) return decideOnClosed(state, command, atMs, scene);\n",
    caughtBy: {
      file: "src/streams/core/append.test.ts",
      test: "A1 A5 is answered by the first rule of the protocol that applies",
    },
  },
  {
    name: "closed stream takes appends",
    guarantee: "G5",
    file: "src/streams/core/world.ts",
    find: "  if (change.closes) stream.isClosed = true;",
    replace: "",
    caughtBy: {
      file: "src/streams/core/world.test.ts",
      test: "knows the tail and the close that a list of appends gives",
    },
  },
  {
    name: "fork leaves no reference",
    guarantee: "G4",
    file: "src/streams/core/world.ts",
    find: "  source.forkCount += 1;",
    replace: "",
    caughtBy: {
      file: "src/streams/core/world.test.ts",
      test: "the fork count of every stream is the number of streams that name it",
    },
  },
  {
    name: "JSON written anew",
    guarantee: "G8",
    file: "src/protocol/append.ts",
    find: "  return split.stored;",
    replace:
      "  return new TextEncoder().encode(`${JSON.stringify(JSON.parse(new TextDecoder().decode(body)))},`);",
    caughtBy: {
      file: "test/protocol/round-trip.test.ts",
      test: "G8 arbitrary JSON text comes back byte for byte by catch-up and by SSE",
    },
  },
  {
    name: "a line break in the data ends its event",
    guarantee: "G8",
    file: "src/protocol/sse.ts",
    find: "const hasBreaks = payload.includes(LF) || payload.includes(CR);",
    replace: "const hasBreaks = payload.includes(CR);",
    caughtBy: {
      file: "src/protocol/sse.test.ts",
      test: "any text comes back with its line breaks as LF, and injects nothing",
    },
  },
];
