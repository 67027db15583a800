/** Faults in how requests are admitted, and in which order they are answered. */

import type { Fault } from "./faults.ts";

const CONNECTIONS = "src/streams/runtimes/node-connections.ts";
const OWED_TEST = "test/protocol/owed-answers.test.ts";
const HEADERS_TEST = "test/protocol/many-headers.test.ts";

export const requestFaults: readonly Fault[] = [
  {
    name: "a body in many pieces takes a block for each of them",
    guarantee: "G34",
    file: "src/base/body-pieces.ts",
    find: "this.#used > BLOCK_BYTES / 2",
    replace: "this.#used > 0",
    caughtBy: {
      file: "src/base/body-pieces.test.ts",
      test: "G34 pieces of a byte between larger ones take no block each",
    },
  },
  {
    name: "a body in many pieces takes an object for each of them",
    guarantee: "G34",
    file: "src/base/body-pieces.ts",
    find: "const isKept = this.bytes === 0 || piece.length >= SMALL_BYTES;",
    replace: "const isKept = this.bytes === 0 || piece.length > 0;",
    caughtBy: {
      file: "src/base/body-pieces.test.ts",
      test: "G34 a million pieces of a byte are a few blocks",
    },
  },
  {
    name: "a connection that is ended twice loses its last answer",
    guarantee: "G3",
    file: "src/streams/runtimes/node-refusals.ts",
    find: "if (!socket.writableEnded) socket.end(last);",
    replace: "socket.end(last);",
    caughtBy: {
      file: "test/protocol/abuse.test.ts",
      test: "a client that still sends when its request is cut reads its 408 all the same",
    },
  },
  {
    name: "bytes that are not HTTP are refused before a write in front of them is answered",
    guarantee: "G3",
    file: CONNECTIONS,
    find: "    if (this.#turns.length > 0) return;\n    if (this.#ending === undefined) {",
    replace: "    if (this.#ending === undefined) {",
    caughtBy: {
      file: OWED_TEST,
      test: "without the lane > 'a PUT' with 'bytes that are not HTTP' behind it is answered when it is stored, and before the refusal",
    },
  },
  {
    name: "pipelined requests are decided all at once",
    guarantee: "G3",
    file: CONNECTIONS,
    find: "    if (this.#turns.length === 1) turn.run();\n    else this.#holdBack();",
    replace: "    turn.run();\n    if (this.#turns.length > 1) this.#holdBack();",
    caughtBy: {
      file: OWED_TEST,
      test: "without the lane > a GET is decided before the DELETE behind it, and the DELETE before the GET behind that",
    },
  },
  {
    name: "a client that ends its side loses the answer to its write",
    guarantee: "G3",
    file: "src/streams/runtimes/node-listener.ts",
    find: `Reflect.set(http, "httpAllowHalfOpen", true);`,
    replace: `Reflect.set(http, "httpAllowHalfOpen", false);`,
    caughtBy: {
      file: OWED_TEST,
      test: "without the lane > a client that ends its side after a PUT gets what it is owed",
    },
  },
  {
    name: "a request that breaks within its body gets two answers",
    guarantee: "G3",
    file: CONNECTIONS,
    find: `this.#ending = broken === undefined ? code : "end";`,
    replace: `this.#ending = code;`,
    caughtBy: {
      file: OWED_TEST,
      test: "without the lane > an unknown coding gets one answer, and the end",
    },
  },
  {
    name: "a producer behind the 1,000th header is dropped in silence",
    guarantee: "G2",
    file: "src/streams/runtimes/node-listener.ts",
    find: "  http.maxHeadersCount = 0;\n",
    replace: "",
    caughtBy: {
      file: HEADERS_TEST,
      test: "behind 1,500 other headers > a producer counts: a retry is stored once",
    },
  },
  {
    name: "a middleware takes a request whose key was dropped in silence",
    guarantee: "G26",
    file: "src/toolkit/idempotency/request.ts",
    find: "return values * 2 < rawHeaders.length;",
    replace: "return values * 2 > rawHeaders.length;",
    caughtBy: {
      file: "test/idempotency/many-headers.test.ts",
      test: "a key that node:http does not see is no reason to work twice",
    },
  },
  {
    name: "readers that take nothing hold memory without a bound",
    guarantee: "G34",
    file: "src/streams/server/answer-budget.ts",
    find: "return isFirst || (this.#isInPart(kind, bytes) && this.bytes + bytes <= this.#bytesMax);",
    replace: "return isFirst || this.#isInPart(kind, bytes) || bytes > 0;",
    caughtBy: {
      file: "src/streams/server/answer-budget.test.ts",
      test: "room for answers > G34 a reader waits until those before it have left, in the order of asking",
    },
  },
  {
    name: "the reader that asked first is served first, and not the address that holds least",
    guarantee: "G34",
    file: "src/streams/server/answer-budget.ts",
    find: "if (own >= held || first === undefined) continue;",
    replace: "if (least !== undefined || first === undefined) continue;",
    caughtBy: {
      file: "src/streams/server/answer-budget.test.ts",
      test: "peers > G34 the one that holds least is served first, however many answers another one waits for",
    },
  },
  {
    name: "a phone that reads slowly is cut for the sake of one that holds everything",
    guarantee: "G34",
    file: "src/streams/server/answer-budget.ts",
    find: "if (lowest > this.#heldBy(share.peer)) share.wantedSinceMs = undefined;",
    replace: "if (lowest === Infinity) share.wantedSinceMs = undefined;",
    caughtBy: {
      file: "src/streams/server/answer-budget.test.ts",
      test: "peers > G34 an answer is not cut for one that holds more, however slowly it leaves",
    },
  },
  {
    name: "reads of one address wait for those of another that are not taken",
    guarantee: "G34",
    file: "src/streams/runtimes/node-exchange.ts",
    find: `  get peer(): string {
    return this.incoming.socket.remoteAddress ?? "";`,
    replace: `  get peer(): string {
    return this.incoming.socket.remoteFamily ?? "";`,
    caughtBy: {
      file: "test/answers-budget.test.ts",
      test: "G34 one address that takes nothing, over many connections, does not keep another one waiting",
    },
  },
  {
    name: "an event takes the room of its appends, though it is seven times as large",
    guarantee: "G34",
    file: "src/streams/server/sse.ts",
    find: "if (isSecond || bytes <= 2 * Math.max(share.bytes, FRAME_BYTES)) return { page, share };",
    replace:
      "if (isSecond || bytes <= 20 * Math.max(share.bytes, FRAME_BYTES)) return { page, share };",
    caughtBy: {
      file: "test/answers-budget.test.ts",
      test: "events that are much larger than their appends wait for the room that they take",
    },
  },
  {
    name: "bodies that stopped keep their room",
    guarantee: "G34",
    file: "src/streams/server/body-budget.ts",
    find: "const victim = slow.pop() ?? this.#findGreedy(asking, bytes);",
    replace: "const victim = this.#findGreedy(asking, bytes);",
    caughtBy: {
      file: "src/streams/server/body-budget.test.ts",
      test: "a full budget > G34 makes room by cutting bodies that stopped, one for each that needs it",
    },
  },
  {
    name: "who holds all room for bodies takes that of a phone that sends slowly",
    guarantee: "G34",
    file: "src/streams/server/body-budget.ts",
    find: "isModest || one === peer || (held.get(one) ?? 0) >= own;",
    replace: "isModest || one === peer || held.has(one);",
    caughtBy: {
      file: "src/streams/server/body-budget.test.ts",
      test: "a slow body > G34 a slow body of a peer that holds little makes no room for one that holds most",
    },
  },
  {
    name: "one address holds the whole room for bodies",
    guarantee: "G34",
    file: "src/streams/server/body-budget.ts",
    find: "const victim = slow.pop() ?? this.#findGreedy(asking, bytes);",
    replace: "const victim = slow.pop();",
    caughtBy: {
      file: "src/streams/server/body-budget.test.ts",
      test: "a full budget > takes from the peer that holds most, until both hold the same",
    },
  },
  {
    name: "a run of slashes is looked at once from each of them",
    guarantee: "G34",
    file: "src/protocol/slashes.ts",
    find: "while (end > 0 && text.charCodeAt(end - 1) === SLASH) end -= 1;",
    replace: `end = text.replace(/\\/+$/, "").length + SLASH - SLASH;`,
    caughtBy: {
      file: "test/patterns.test.ts",
      test: "what reads text from outside takes time in proportion to it > slashes at the end",
    },
  },
];
