/** Faults of several streams over one connection: places that are wrong, a stream that ends the others, and memory without a bound. */

import type { Fault } from "./faults.ts";

const READER = "src/streams/server/followed-streams.ts";
const TESTS = "src/streams/server/follow-all.test.ts";
const within = (test: string) => ({
  file: TESTS,
  test: `several streams over one connection > G180 ${test}`,
});
const ONCE = within(
  "each record comes once and in order in its stream, over cuts at any event, with slow and with quick readers",
);

export const followAllFaults: readonly Fault[] = [
  {
    name: "several streams: an append is sent from the tail while its stream is behind",
    guarantee: "G180",
    file: READER,
    find: "    if (this.#connection.isStalled || event.start !== lane.position) {",
    replace: "    if (event.start !== lane.position && event.start < lane.position) {",
    caughtBy: ONCE,
  },
  {
    name: "several streams: the id has the places of before",
    guarantee: "G180",
    file: READER,
    find: "  return { offset: lane.position, life: lane.life };",
    replace: "  return { offset: Math.max(0, lane.position - 2) as Offset, life: lane.life };",
    caughtBy: ONCE,
  },
  {
    name: "several streams: a slow reader is sent more",
    guarantee: "G180",
    file: "src/streams/server/live-connection.ts",
    find: "    this.#isStalled = true;",
    replace: "    this.#isStalled = false;",
    caughtBy: within(
      "a reader that takes nothing holds a bounded number of bytes, however many streams it follows, and is cut",
    ),
  },
  {
    name: "several streams: one is read to its end before the next",
    guarantee: "G180",
    file: READER,
    find: "      this.#behind.delete(lane);\n      if (found === undefined) continue;",
    replace:
      "      if (found === undefined || lane.isOver) this.#behind.delete(lane);\n      if (found === undefined) continue;",
    caughtBy: within("a stream that is far behind keeps no other one waiting for more than a page"),
  },
  {
    name: "several streams: the right to read one of them is enough",
    guarantee: "G180",
    file: "src/streams/server/follow-all.ts",
    find: '  for (const { stream } of starts) access.require("read", { stream });',
    replace: '  for (const { stream } of starts.slice(0, 1)) access.require("read", { stream });',
    caughtBy: {
      file: TESTS,
      test: "rights over several streams > G180 one stream that the caller may not read refuses the whole request, whether it is there or not",
    },
  },
];
