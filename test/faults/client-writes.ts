/** Faults of the client's writing side. */

import type { Fault } from "./faults.ts";

const PRODUCER = "test/client/writes-producer.test.ts";
const STREAM = "test/client/writes-stream.test.ts";
const SENDER = "src/client/sender.ts";

export const clientWriteFaults: readonly Fault[] = [
  {
    name: "client: numbers behind a batch that is cut are given to other records",
    guarantee: "G19",
    file: SENDER,
    find: "    this.#identity = undefined;\n    this.#nextSequence = 0;",
    replace: "    this.#nextSequence = this.#storedMax + 1;",
    caughtBy: {
      file: PRODUCER,
      test: "a producer of a random id goes on under a new one if others were sent behind a batch that is cut",
    },
  },
  {
    name: "client: what is behind a batch that is cut goes on before what is before it is stored",
    guarantee: "G19",
    file: SENDER,
    find: "    if (this.#broken === undefined || this.#broken !== this.#flight[0]) return;",
    replace: "    if (this.#broken === undefined) return;",
    caughtBy: {
      file: PRODUCER,
      test: "what was stored before a batch that is cut stays before what goes on under a new id",
    },
  },
  {
    name: "client: a named producer takes a new session behind a batch that is cut",
    guarantee: "G19",
    file: SENDER,
    find: "this.#identity?.isRandom === true && this.#stop === undefined",
    replace: "this.#stop === undefined",
    caughtBy: {
      file: PRODUCER,
      test: "a named producer ends if others were sent behind a batch that would be cut, and knows that none is stored",
    },
  },
  {
    name: "client: batches are sent behind one that may be too large",
    guarantee: "G19",
    file: SENDER,
    find: "    if ((this.#flight.at(-1)?.body?.length ?? 0) > this.#acceptedBytes) return false;",
    replace: "    if ((this.#flight.at(-1)?.body?.length ?? 0) < 0) return false;",
    caughtBy: {
      file: PRODUCER,
      test: "nothing is sent behind a batch larger than all before, and beside others a little larger one is cut down",
    },
  },
  {
    name: "client: the number of a condition that may still hold is used again",
    guarantee: "G19",
    file: "src/client/flight.ts",
    find: `  if (code === "tail_moved") return (conditions["If-Match"] ?? "") < \`"\${tail}"\`;`,
    replace: `  if (code === "tail_moved") return tail !== "-";`,
    caughtBy: {
      file: STREAM,
      test: "the number of an append whose condition may still come true is not used again",
    },
  },
  {
    name: "client: flush resolves although something was not stored",
    guarantee: "G19",
    file: "src/client/producer.ts",
    find: "      else first.reject(this.#failure);",
    replace: "      else first.resolve();",
    caughtBy: {
      file: PRODUCER,
      test: "a zombie writes nothing after another took over, and hears that it is fenced",
    },
  },
  {
    name: "client: flush resolves before everything has ended",
    guarantee: "G19",
    file: "src/client/producer.ts",
    find: "this.#waiters.push({ count: this.#given, resolve, reject });",
    replace: "this.#waiters.push({ count: this.#ended, resolve, reject });",
    caughtBy: {
      file: PRODUCER,
      test: "G19 one 503 on batch 1 of 5 loses nothing, and every flush is true",
    },
  },
  {
    name: "client: a condition that does not hold uses up its number",
    guarantee: "G19",
    file: SENDER,
    find: "    this.#nextSequence = batch.sequence;\n    this.#flightBytes -= batch.heldBytes;",
    replace: "    this.#flightBytes -= batch.heldBytes;",
    caughtBy: {
      file: STREAM,
      test: "a condition that does not hold refuses its own append alone, and its number is used again",
    },
  },
  {
    name: "client: a repetition comes under a new identity",
    guarantee: "G19",
    file: "src/client/attempt.ts",
    find: "        this.once(call).catch((thrown: unknown) => {",
    replace:
      '        this.once({ ...call, headers: { ...call.headers, "Producer-Session": `try-${this.options.random.id()}` } })\n' +
      "          .catch((thrown: unknown) => {",
    caughtBy: { file: STREAM, test: "a plain append is stored once when its answer is lost" },
  },
  {
    name: "client: a plain append has no identity",
    guarantee: "G19",
    file: "src/client/flight.ts",
    find: "    ...identity.headers,\n",
    replace: "",
    caughtBy: { file: STREAM, test: "a plain append is stored once when its answer is lost" },
  },
  {
    name: "client: a fenced writer that was not answered is sure that nothing is stored",
    guarantee: "G7",
    file: SENDER,
    find: "    const isCertain = !batch.wasLost || isFinal(this.#identity, error);",
    replace: "    const isCertain = batch.entries.length > 0;",
    caughtBy: {
      file: PRODUCER,
      test: "an append whose answer was lost before the fence is unknown, and it was stored indeed",
    },
  },
  {
    name: "client: batches overtake each other and the sender does not wait",
    guarantee: "G19",
    file: SENDER,
    find: `(error.code !== "producer_gap" || isFirst)`,
    replace: `(error.code !== undefined || isFirst)`,
    caughtBy: {
      file: PRODUCER,
      test: "batches that overtake each other by more than the server waits are sent again",
    },
  },
  {
    name: "client: what stands behind an unknown outcome goes on",
    guarantee: "G19",
    file: "src/client/appends.ts",
    find: `!ending.isCause && ending.isOpen;`,
    replace: `!ending.isCause && ending.outcome === "not_stored";`,
    caughtBy: {
      file: STREAM,
      test: "appends that were never sent stay behind one of unknown outcome",
    },
  },
  {
    name: "client: a key is sent for longer than the stream remembers it",
    guarantee: "G19",
    file: "src/client/keyed.ts",
    find: "  if (retry.totalMs <= limitMs) return;",
    replace: "  if (retry.totalMs <= limitMs || limitMs > 0) return;",
    caughtBy: {
      file: STREAM,
      test: "a retry policy that outlives the stream's window of keys is refused before anything is sent",
    },
  },
  {
    name: "client: a lost attempt is forgotten when an answer comes",
    guarantee: "G19",
    file: "src/client/attempt.ts",
    find: "        wasUnknown ||= !heard ||",
    replace: "        wasUnknown = !heard ||",
    caughtBy: {
      file: "src/client/attempt.test.ts",
      test: "after lost, 429, 404 the outcome of an attempt was unknown",
    },
  },
  {
    name: "client: a producer takes what it cannot hold",
    guarantee: "G19",
    file: SENDER,
    find: "    if (heldBytes > 0 && heldBytes",
    replace: "    if (heldBytes < 0 && heldBytes",
    caughtBy: {
      file: PRODUCER,
      test: "a producer never holds more than its limit, and says when there is room",
    },
  },
  {
    name: "client: texts side by side become one character",
    guarantee: "G19",
    file: "src/client/entries.ts",
    find: "  if (!codec.isJson) return joinBytes(entries.map((entry) => partOf(entry, codec)));",
    replace: '  if (!codec.isJson) return utf8Of(entries.map(dataOf).join(""));',
    caughtBy: {
      file: "src/client/batching.test.ts",
      test: "the bytes of texts are those that each has alone, also of lone surrogates side by side",
    },
  },
  {
    name: "client: the buffer of a caller is sent as it is later",
    guarantee: "G19",
    file: "src/client/records.ts",
    find: "content: new Uint8Array(data) };",
    replace: "content: data.slice() };",
    caughtBy: {
      file: "src/client/batching.test.ts",
      test: "data is copied when it is given, also of a Buffer",
    },
  },
  {
    name: "client: a write follows a redirect on Node",
    guarantee: "G19",
    file: "src/client/node.ts",
    find: '  if (method !== "GET" && method !== "HEAD") return undefined;',
    replace: '  if (method === "TRACE") return undefined;',
    caughtBy: {
      file: "test/client/transport.test.ts",
      test: "nodeTransport > a write is not sent again to where a redirect leads; a read is",
    },
  },
  {
    name: "an append with a key does not hear its abort before it is sent",
    guarantee: "G20",
    file: "src/client/keyed.ts",
    find: `await peer.require("idempotency keys", signal);`,
    replace: `await peer.require("idempotency keys");`,
    caughtBy: {
      file: "test/client/aborts.test.ts",
      test: "append with a key that is given up after 0 answers is over at once, and so are its requests",
    },
  },
  {
    name: "client: what the server refused behind an unknown batch is reported as not stored",
    guarantee: "G19",
    file: "src/client/sender.ts",
    find: `      if (wasLost && !isCertain) outcome = "unknown";`,
    replace: `      outcome = wasLost && !isCertain ? "unknown" : "not_stored";`,
    caughtBy: {
      file: "test/client/writes-producer.test.ts",
      test: "G19 what was sent behind an unknown batch is unknown too, also if the server has refused it",
    },
  },
  {
    name: "a record that does not fit the schema of its stream is sent",
    guarantee: "G19",
    file: "src/client/typed.ts",
    find: "if (result.issues !== undefined) throw",
    replace: "if (result.issues?.length === 0) throw",
    caughtBy: {
      file: "test/client/typed.test.ts",
      test: "a record that does not fit is not sent, in any way of writing, and the next one is",
    },
  },
  {
    name: "a record that its schema checks quickly overtakes the ones before it",
    guarantee: "G19",
    file: "src/client/typed.ts",
    find: "const before = checking;",
    replace: "const before = undefined;",
    caughtBy: {
      file: "test/client/typed.test.ts",
      test: "records are stored in the order of the calls, also if the schema takes its time for some",
    },
  },
];
