/** Faults in copies of streams. */

import type { Fault } from "./faults.ts";

const TARGET = "src/cli/copying/server-target.ts";
const FILE = "test/copies.test.ts";

export const copyFaults: readonly Fault[] = [
  {
    name: "a copy of a whole server copies registries",
    guarantee: "G146",
    file: "src/cli/copying/run.ts",
    find: 'if (copying.to.kind === "http" && isRegistry(path)) {',
    replace: 'if (copying.to.kind === "http" && isRegistry("")) {',
    caughtBy: {
      file: "test/copies.test.ts",
      test: "registries of a whole server are left out, so that a copy can be continued",
    },
  },
  {
    name: "a copy appends wherever the tail is",
    guarantee: "G146",
    file: TARGET,
    find: '...this.#identity(bytesBefore(end), 0),\n      "if-match": `"${this.#tail}"`,',
    replace: "...this.#identity(bytesBefore(end), 0),",
    caughtBy: {
      file: FILE,
      test: "G146 two runs at once with other borders between their appends store each byte once",
    },
  },
  {
    name: "a copy goes on in a target that another writer has written to",
    guarantee: "G146",
    file: TARGET,
    find: "if (answer.header(PRODUCER_NEXT_OFFSET) !== tail)",
    replace: 'if (tail === "")',
    caughtBy: {
      file: FILE,
      test: "G146 a target that this copy has not made, or that another writer has written to, is refused",
    },
  },
  {
    name: "a file that was cut is continued a byte too late",
    guarantee: "G146",
    file: "src/cli/copying/lines-target.ts",
    find: "Object.assign(section, { end: line.offset, to,",
    replace: "Object.assign(section, { end: line.offset, to: to + 1,",
    caughtBy: {
      file: FILE,
      test: "G146 a file that was cut at any byte is continued to the same streams",
    },
  },
  {
    name: "a copy does not look at what the target has",
    guarantee: "G146",
    file: "src/cli/copying/copy-stream.ts",
    find: "if (one === other) return one;",
    replace: "if (one !== undefined) return one;",
    caughtBy: { file: FILE, test: "G146 data that differs in the target is found at the end" },
  },
];
