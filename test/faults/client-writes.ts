/** Faults of the client's writing side. */

import type { Fault } from "./faults.ts";

const PRODUCER = "test/client/writes-producer.test.ts";
const STREAM = "test/client/writes-stream.test.ts";
const SENDER = "src/client/sender.ts";

export const clientWriteFaults: readonly Fault[] = [
  {
    name: "client: a batch of unknown outcome is numbered anew",
    guarantee: "G19",
    file: SENDER,
    find: "    if (behind.some(({ wasLost }) => wasLost)) {",
    replace: "    if (behind.some(({ wasLost }) => wasLost && behind.length === 0)) {",
    caughtBy: {
      file: PRODUCER,
      test: "SD1 SD5 a batch is not cut while one behind it is unknown: the producer ends instead",
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
      test: "PR2 a zombie writes nothing after another took over, and hears that it is fenced",
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
      test: "G19 SD1 SD3 one 503 on batch 1 of 5 loses nothing, and every flush is true",
    },
  },
  {
    name: "client: a condition that does not hold uses up its number",
    guarantee: "G19",
    file: SENDER,
    find: "      this.#nextSequence = batch.sequence;\n      this.#flight.pop();",
    replace: "      this.#flight.pop();",
    caughtBy: {
      file: STREAM,
      test: "SD6 a condition that does not hold refuses its own append alone, and its number is used again",
    },
  },
  {
    name: "client: a repetition comes under a new identity",
    guarantee: "G19",
    file: "src/client/attempt.ts",
    find: "      const { answer, error } = await this.#attempt(call);",
    replace:
      '      const headers = { ...call.headers, "Producer-Session": `try-${String(attempts)}` };\n' +
      "      const { answer, error } = await this.#attempt({ ...call, headers });",
    caughtBy: { file: STREAM, test: "AP1 a plain append is stored once when its answer is lost" },
  },
  {
    name: "client: a plain append has no identity",
    guarantee: "G19",
    file: "src/client/flight.ts",
    find: "    ...identity.headers,\n",
    replace: "",
    caughtBy: { file: STREAM, test: "AP1 a plain append is stored once when its answer is lost" },
  },
  {
    name: "client: a fenced writer that was not answered is sure that nothing is stored",
    guarantee: "G7",
    file: SENDER,
    find: "    const isCertain = !batch.wasLost || isFinal(this.#identity, error);",
    replace: "    const isCertain = batch.items.length > 0;",
    caughtBy: {
      file: PRODUCER,
      test: "SD4 an append whose answer was lost before the fence is unknown, and it was stored indeed",
    },
  },
  {
    name: "client: batches overtake each other and nobody waits",
    guarantee: "G19",
    file: SENDER,
    find: `    if (verdict.kind === "refused" || isFirst) {`,
    replace: `    if (verdict.kind !== undefined || isFirst) {`,
    caughtBy: {
      file: PRODUCER,
      test: "SD2 batches that overtake each other by more than the server waits are sent again",
    },
  },
  {
    name: "client: what stands behind an unknown outcome goes on",
    guarantee: "G19",
    file: "src/client/appends.ts",
    find: `    return ending.outcome === "not_stored" && ending.isOpen;`,
    replace: `    return ending.outcome === "not_stored";`,
    caughtBy: {
      file: STREAM,
      test: "AP2 appends that were never sent stay behind one of unknown outcome",
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
      test: "KP1 a retry policy that outlives the stream's window of keys is refused before anything is sent",
    },
  },
  {
    name: "client: a lost attempt is forgotten when an answer comes",
    guarantee: "G19",
    file: "src/client/attempt.ts",
    find: "      wasUnknown ||= isUnknown;",
    replace: "      wasUnknown = isUnknown;",
    caughtBy: {
      file: "src/client/attempt.test.ts",
      test: "AT4 after lost, 429, 404 the outcome of an attempt was unknown",
    },
  },
  {
    name: "client: a producer takes what it cannot hold",
    guarantee: "G19",
    file: "src/client/producer.ts",
    find: "    if (this.#pendingBytes + weightOf(item) > this.#pendingBytesMax && this.#pendingBytes > 0) {",
    replace: "    if (this.#pendingBytesMax < 0) {",
    caughtBy: {
      file: PRODUCER,
      test: "PR3 a producer never holds more than its limit, and says when there is room",
    },
  },
];
