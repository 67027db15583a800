/** Faults of pipelines: effects without their offset, offsets without their effects, and work of the wrong holder. */

import type { Fault } from "./faults.ts";

const SERVER = "test/processing/pipeline-server.test.ts";
const SINK = "test/processing/pipeline-sink.test.ts";
const IDENTITY = "test/processing/pipeline-identity.test.ts";

export const pipelineFaults: readonly Fault[] = [
  {
    name: "the offset of a page is committed outside the transaction of its outputs",
    guarantee: "G22",
    file: "src/client/processing/pipeline-server.ts",
    find: "      tx.commit(batch.lease, offsetBehind(batch, places, end));\n",
    replace: "",
    caughtBy: {
      file: SERVER,
      test: "and comes back leaves no effect: outputs and state are those of the next one",
    },
  },
  {
    name: "a page whose commit is unknown is processed again under the same lease",
    guarantee: "G21",
    file: "src/client/processing/pipeline-server.ts",
    find: `error.outcome !== "not_stored") return false;
  return error.code === "invalid_request" || error.code === "body_too_large";`,
    replace: `error.outcome === "not_stored") return false;
  return true;`,
    caughtBy: {
      file: SERVER,
      test: "whose commit cannot be known goes on from what the server says",
    },
  },
  {
    name: "the state that a failed attempt wrote stays",
    guarantee: "G21",
    file: "src/client/processing/pipeline-attempts.ts",
    find: "    page.state?.drop();\n",
    replace: "",
    caughtBy: {
      file: SERVER,
      test: "of an attempt that failed is as it was before, and so are the outputs",
    },
  },
  {
    name: "the outputs of a failed attempt are kept",
    guarantee: "G21",
    file: "src/client/processing/pipeline-attempts.ts",
    find: `      { page, group, index: span.from, attempt, tx },
      this.#resolve,
    );
`,
    replace: `      { page, group, index: span.from, attempt, tx },
      this.#resolve,
    );
    const kept = page as { outputs?: Output[] };
    if (attempt > 1) context.outputs.push(...(kept.outputs ?? []));
    kept.outputs = context.outputs;
`,
    caughtBy: {
      file: SERVER,
      test: "of an attempt that failed is as it was before, and so are the outputs",
    },
  },
  {
    name: "the state is not rebuilt when a stream is taken over",
    guarantee: "G21",
    file: "src/client/processing/state.ts",
    find: "if (named === undefined) this.#apply(record);",
    replace: "if (named === undefined) void record;",
    caughtBy: { file: SERVER, test: "is rebuilt by the worker that takes a stream over" },
  },
  {
    name: "a dead letter is stored apart from the offset",
    guarantee: "G21",
    file: "src/client/processing/pipeline-server.ts",
    find: "tx.append(options.deadLetter, envelope);",
    replace: "void this.#parts.hapax.stream(options.deadLetter).append(envelope);",
    caughtBy: { file: SERVER, test: "is not put aside if its offset is not committed" },
  },
  {
    name: "the position in a sink is moved without a check of the token",
    guarantee: "G22",
    file: "src/toolkit/once/ledger-sink.ts",
    find: "        requireGranted(decideMove(heldIn(entry), token, from), place);\n",
    replace:
      "        if (from === token.toString()) requireGranted(decideMove(heldIn(entry), token, from), place);\n",
    caughtBy: {
      file: SINK,
      test: "a holder that sleeps in the middle of a page moves nothing when it wakes up",
    },
  },
  {
    name: "the offset of the server wins over the position in the sink",
    guarantee: "G22",
    file: "src/client/processing/pipeline-sink.ts",
    find: "const [from = batch.offset] = placeOf(held.position, life);",
    replace: "const [from = batch.offset] = placeOf(undefined, life);",
    caughtBy: {
      file: SINK,
      test: "a crash after the sink's commit and before the server's leaves nothing to be done twice",
    },
  },
  {
    name: "an outage of the sink counts against a record",
    guarantee: "G21",
    file: "src/client/processing/pipeline-sink.ts",
    find: "        if (wasAway) continue;",
    replace: "        if (wasAway) return { cause };",
    caughtBy: {
      file: SINK,
      test: "an outage of the sink counts as no attempt, and a commit without an answer is looked up",
    },
  },
  {
    name: "the id of an output depends on who delivers it",
    guarantee: "G15",
    file: "src/client/processing/pipeline-identity.ts",
    find: "const id = this.#attempts.idOf(page, index);",
    replace: "const id = `${this.#attempts.idOf(page, index)}/${String(Math.random())}`;",
    caughtBy: {
      file: IDENTITY,
      test: "what a holder delivered but did not commit comes again under the same ids, from whomever",
    },
  },
  {
    name: "the offset is committed before the sink has confirmed",
    guarantee: "G15",
    file: "src/client/processing/pipeline-identity.ts",
    find: "    const written = await this.#write(",
    replace: "    await batch.commit();\n    const written = await this.#write(",
    caughtBy: {
      file: IDENTITY,
      test: "nothing is committed before the sink has confirmed it, however often it fails",
    },
  },
  {
    name: "a dead letter is replayed though others have changed it since it was read",
    guarantee: "G21",
    file: "src/client/processing/dead-letter.ts",
    find: "          tx.expect(this.#stream, { offset });\n",
    replace: "",
    caughtBy: {
      file: "src/cli/dead-letters.test.ts",
      test: "two replays at once append every record once between them, also bytes",
    },
  },
];
