/** Faults of registries: events that are lost, told twice, or told without their act. */

import type { Fault } from "./faults.ts";

const TESTS = "test/registries.test.ts";

export const registryFaults: readonly Fault[] = [
  {
    name: "registry: an event comes with a later commit than its act",
    guarantee: "G151",
    file: "src/streams/engine/writer.ts",
    find: "      for (const event of this.#registry.after(change)) this.stage(event, batch);",
    replace:
      "      for (const event of this.#registry.after(change)) {\n        setTimeout(() => this.stage(event), 0);\n      }",
    caughtBy: {
      file: TESTS,
      test: "on a disk > G151 an act and its event are both there or neither, after a power cut at any call of the disk",
    },
  },
  {
    name: "registry: a stream that expires has no event",
    guarantee: "G151",
    file: "src/streams/engine/expiry.ts",
    find: "    this.#follower?.ended(state, batch, atMs);",
    replace: '    if (state.expiry.kind === "never") this.#follower?.ended(state, batch, atMs);',
    caughtBy: {
      file: TESTS,
      test: "a registry > G151 has forks, transactions, expiry and soft deletions",
    },
  },
  {
    name: "registry: an act has an event although there is no room for it",
    guarantee: "G151",
    file: "src/streams/engine/lifecycle.ts",
    find: "    else writer.room.admit(eventBytes);",
    replace: "    else writer.room.admitRemoval();",
    caughtBy: {
      file: TESTS,
      test: "on a disk > G151 on a full disk an act without room for its event is refused, and an expiry waits",
    },
  },
  {
    name: "registry: a folder has the streams of its neighbour",
    guarantee: "G151",
    file: "src/streams/core/registry.ts",
    find: "    const path = `${name.slice(0, end)}${REGISTRY_SEGMENT}` as StreamName;",
    replace:
      '    const path = `${name.slice(0, end).replace(/\\/b\\//, "/a/")}${REGISTRY_SEGMENT}` as StreamName;',
    caughtBy: {
      file: TESTS,
      test: "rights > G151 a namespace has a registry of its own streams, and sees no other one",
    },
  },
];
