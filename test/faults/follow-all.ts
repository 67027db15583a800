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
    name: "several streams: what came while a page was read waits for the next append",
    guarantee: "G180",
    file: READER,
    find: "      if (!page.isAtEnd && (lane.position < view.tail || view.isClosed)) this.#behind.add(lane);",
    replace: "      if (!page.isAtEnd && view.isClosed) this.#behind.add(lane);",
    caughtBy: within(
      "what comes while its stream is read is sent behind it, and waits for no other append",
    ),
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
    file: READER,
    find: "      this.#isStalled = this.#connection.stallIfFull(() => {",
    replace: "      this.#connection.stallIfFull(() => {",
    caughtBy: within(
      "a reader that takes nothing holds a bounded number of bytes, however many streams it follows, and is cut",
    ),
  },
  {
    name: "several streams: one is read to its end before the next",
    guarantee: "G180",
    file: READER,
    find: "      // It goes to the end of the line: the others have their turn.\n      this.#behind.delete(lane);",
    replace:
      "      const end = found?.page.next ?? lane.state.tail;\n      if (end === lane.state.tail) this.#behind.delete(lane);",
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
