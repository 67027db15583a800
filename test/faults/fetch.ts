/** Faults of the server on `fetch`. */

import type { Fault } from "./faults.ts";

const EXCHANGE = "src/streams/runtimes/fetch-exchange.ts";
const ANSWER = "src/streams/runtimes/fetch-answer.ts";
const TEST = "src/streams/runtimes/fetch.test.ts";

export const fetchFaults: readonly Fault[] = [
  {
    name: "fetch: a header that was sent twice is one with a comma",
    guarantee: "G8",
    file: EXCHANGE,
    find: 'if (ONCE.has(name) && value.includes(",")',
    replace: 'if (ONCE.has(name) && value === ","',
    caughtBy: { file: TEST, test: "a request > with Producer-Id twice is refused by name" },
  },
  {
    name: "fetch: a body that breaks counts as whole",
    guarantee: "G8",
    file: EXCHANGE,
    find: "    const { done, value } = await reader.read();",
    replace:
      "    const { done, value } = await reader.read().catch(() => ({ done: true as const, value: undefined }));",
    caughtBy: { file: TEST, test: "a request > whose body breaks is answered, and stores nothing" },
  },
  {
    name: "fetch: a body that is cut counts as whole",
    guarantee: "G8",
    file: EXCHANGE,
    find: "      if (cutBy !== undefined) throw cutBy;",
    replace: "",
    caughtBy: {
      file: TEST,
      test: "a request > whose body comes too slowly is cut, and stores nothing",
    },
  },
  {
    name: "fetch: a large answer counts as taken with its first byte",
    guarantee: "G34",
    file: ANSWER,
    find: "return first.subarray(0, SLICE_BYTES);",
    replace: "this.#queue.shift(); return first;",
    caughtBy: {
      file: TEST,
      test: "an answer > G34 is handed over in slices, so that it is known how much was taken",
    },
  },
  {
    name: "fetch: a body shorter than announced counts as whole",
    guarantee: "G8",
    file: EXCHANGE,
    find: "if (bytes.length < announced)",
    replace: "if (announced < 0)",
    caughtBy: {
      file: TEST,
      test: "a request > whose body is shorter than announced is answered, and stores nothing",
    },
  },
  {
    name: "fetch: an answer is compressed where the platform drops Content-Encoding",
    guarantee: "G10",
    file: EXCHANGE,
    find: 'this.#isOfNext = "nextUrl" in request;',
    replace: "this.#isOfNext = false;",
    caughtBy: {
      file: TEST,
      test: "an answer > is not compressed for Next.js, which drops Content-Encoding",
    },
  },
  {
    name: "fetch: a reader that takes nothing is not seen",
    guarantee: "G34",
    file: ANSWER,
    find: "      { highWaterMark: 0 },",
    replace: "      { highWaterMark: 1_000_000 },",
    caughtBy: { file: TEST, test: "an answer > that follows a stream and is not taken is cut" },
  },
  {
    name: "fetch: a webhook follows a redirect",
    guarantee: "G37",
    file: "src/streams/runtimes/fetch-courier.ts",
    find: '    redirect: "manual",',
    replace: '    redirect: "follow",',
    caughtBy: {
      file: TEST,
      test: "webhooks > a redirect is an answer, and an address that is not allowed gets nothing",
    },
  },
];
