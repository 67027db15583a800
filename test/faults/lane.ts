/** Faults in the fast lane: a second parser in front of the first one. */

import type { Fault } from "./faults.ts";

const PARSER = "src/streams/runtimes/node-lane-parser.ts";
const PARSER_TEST = "src/streams/runtimes/node-lane-parser.test.ts";
const CONNECTION = "src/streams/runtimes/node-lane-connection.ts";
const LANE_TEST = "src/streams/runtimes/node-lane.test.ts";

export const laneFaults: readonly Fault[] = [
  {
    name: "the lane takes a value for the last one of its connection, because it is as long",
    guarantee: "G40",
    file: "src/streams/runtimes/node-lane-memory.ts",
    find: "if (bytes[start + at] !== text.charCodeAt(at)) return false;",
    replace: "if (bytes[start + at] === undefined) return false;",
    caughtBy: {
      file: "src/streams/runtimes/node-lane-memory.test.ts",
      test: "G40 a request says what its own bytes say, for any requests before it on its connection",
    },
  },
  {
    name: "the lane takes a Content-Length that is sent twice",
    guarantee: "G8",
    file: PARSER,
    find: "if (!fields.add(hash, start, end)) return false;",
    replace: "if (!fields.add(hash, start, end) && hash !== CONTENT_LENGTH) return false;",
    caughtBy: {
      file: PARSER_TEST,
      test: "what says where a request ends is plain, or the request is unusual > a second Content-Length",
    },
  },
  {
    name: "the lane takes a name for Content-Length that only shares its number",
    guarantee: "G8",
    file: PARSER,
    find: `fields.isNamed(start, "content-length") && this.#takeLength(bytes, start, end)`,
    replace: "this.#takeLength(bytes, start, end)",
    caughtBy: {
      file: PARSER_TEST,
      test: "what says where a request ends is plain, or the request is unusual > a name that shares the number of another is neither found nor taken for it",
    },
  },
  {
    name: "the lane does not know Transfer-Encoding",
    guarantee: "G8",
    file: PARSER,
    find: `    "transfer-encoding",
    "expect",`,
    replace: `    "transfer-coding",
    "expect",`,
    caughtBy: {
      file: "test/protocol/lane.test.ts",
      test: "what could hide a request in another > has the same end as with node:http, in one piece and in many",
    },
  },
  {
    name: "the lane takes control characters in a value",
    guarantee: "G8",
    file: PARSER,
    find: "if (isVisible[byte] === 1) continue;",
    replace: "if (isVisible[byte] === 1 || byte === 0) continue;",
    caughtBy: {
      file: PARSER_TEST,
      test: "every byte of a whole head is in the grammar > any byte at any place of a good head gets the verdict of the grammar",
    },
  },
  {
    name: "the lane answers out of order",
    guarantee: "G1",
    file: CONNECTION,
    find: "if (this.#owed[0] !== exchange || this.#isFlushing || this.#isOver) return;",
    replace: `if (this.#owed[0] !== exchange) this.#owed.sort((one) => (one === exchange ? -1 : 1));
    if (this.#isFlushing || this.#isOver) return;`,
    caughtBy: {
      file: LANE_TEST,
      test: "answers leave in the order of their requests > an answer that is ready waits for those before it",
    },
  },
  {
    name: "the lane begins a request before the one is decided whose body has just come",
    guarantee: "G2",
    file: CONNECTION,
    find: "setImmediate(this.#goOn);",
    replace: "this.#goOn();",
    caughtBy: {
      file: LANE_TEST,
      test: "requests are decided in their order > whether the lane is on or not, also if the network cuts them anywhere",
    },
  },
  {
    name: "the lane hands over while it owes an answer",
    guarantee: "G1",
    file: CONNECTION,
    find: "if (this.#isLeaving && this.#owed.length === 0) this.#leave();",
    replace: "if (this.#isLeaving) this.#leave();",
    caughtBy: {
      file: LANE_TEST,
      test: "what is unusual goes to node:http with every byte > nothing is handed over while an answer is owed",
    },
  },
  {
    name: "the lane keeps the bytes that it hands over",
    guarantee: "G8",
    file: CONNECTION,
    find: "    socket.unshift(rest);\n",
    replace: "",
    caughtBy: {
      file: LANE_TEST,
      test: "what is unusual goes to node:http with every byte > a stream of requests that is cut anywhere is understood all the same",
    },
  },
  {
    name: "the lane takes the rest of a refused body for a request",
    guarantee: "G8",
    file: CONNECTION,
    find: "if (exchange === this.#receiving) exchange?.drop();",
    replace: "if (exchange === this.#receiving) this.#receiving = undefined;",
    caughtBy: {
      file: LANE_TEST,
      test: "bodies > a request is refused before its body has come, and the rest of the body is no request",
    },
  },
  {
    name: "the lane takes requests without a bound",
    guarantee: "G1",
    file: CONNECTION,
    find: "return this.#owed.length >= LIMITS.pipelinedMax || this.#socket.writableNeedDrain;",
    replace: "return this.#owed.length >= 1e6 || this.#socket.writableNeedDrain;",
    caughtBy: {
      file: LANE_TEST,
      test: "a connection has a bounded number of unanswered requests, and all are answered",
    },
  },
  {
    name: "the lane forgets the limit of an idle connection",
    guarantee: "G1",
    file: CONNECTION,
    find: "isOverdue(keepAliveTimeoutMs + KEEP_ALIVE_EXTRA_MS)",
    replace: "isOverdue(keepAliveTimeoutMs * KEEP_ALIVE_EXTRA_MS)",
    caughtBy: {
      file: LANE_TEST,
      test: "a slow client cannot hold a connection > a connection that is idle after its answer is ended",
    },
  },
  {
    name: "the lane does not cut who takes no answers",
    guarantee: "G1",
    file: CONNECTION,
    find: "    this.#checkTaking(nowMs);\n",
    replace: "",
    caughtBy: {
      file: LANE_TEST,
      test: "a slow client cannot hold a connection > a client that does not take its answers is cut, however much it sends",
    },
  },
  {
    name: "a value with a line break splits an answer of the lane",
    guarantee: "G1",
    file: "src/streams/runtimes/node-lane-answer.ts",
    find: "UNSENDABLE.test(value)",
    replace: "UNSENDABLE.test(name)",
    caughtBy: {
      file: "src/streams/runtimes/node-lane-answer.test.ts",
      test: 'a header with the value "a\\r\\nb" is never sent',
    },
  },
];
