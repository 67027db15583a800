/** Faults of idempotency keys in frameworks: answers that clients cannot read, or that are sent and not kept. */

import type { Fault } from "./faults.ts";

const FRAMEWORKS = "test/idempotency/frameworks.test.ts";

export const frameworkFaults: readonly Fault[] = [
  {
    name: "an answer that says it is packed is plain",
    guarantee: "G26",
    file: "src/toolkit/idempotency/node-answer.ts",
    find: "    this.#isBegun = false;\n    this.#restore();",
    replace: "    this.#restore();",
    caughtBy: { file: FRAMEWORKS, test: "what is written in parts is packed as a whole" },
  },
  {
    name: "an answer of Hono has two lengths",
    guarantee: "G26",
    file: "src/toolkit/idempotency/answer.ts",
    find: "const sent = rest === undefined ? wholeHeaders(headers) : headers;",
    replace: "const sent = headers;",
    caughtBy: {
      file: FRAMEWORKS,
      test: "streamText: an answer has one length, first and again",
    },
  },
  {
    name: "an answer that goes around Fastify is sent before its commit",
    guarantee: "G26",
    file: "src/toolkit/idempotency/fastify.ts",
    find: "this.#works.set(request, { run: begun.run, held: new HeldAnswer(rawOf(reply)) });",
    replace:
      "const held = new HeldAnswer(rawOf(reply));\n      held.release();\n      this.#works.set(request, { run: begun.run, held });",
    caughtBy: {
      file: FRAMEWORKS,
      test: "an answer that goes around Fastify is held back, committed and kept as any other",
    },
  },
  {
    name: "Retry-After of a duplicate is the whole lease",
    guarantee: "G26",
    file: "src/toolkit/idempotency/retry-after.ts",
    find: "return isRenewed ? RETRY_AFTER_MS_MIN : boundedRetryMs(leaseLeftMs);",
    replace: "return isRenewed ? leaseLeftMs : boundedRetryMs(leaseLeftMs);",
    caughtBy: {
      file: "src/toolkit/idempotency/engine.test.ts",
      test: "lets a duplicate in another process wait, and take over when the first is lost",
    },
  },
  {
    name: "a server with a parser refuses what one without has seen",
    guarantee: "G26",
    file: "src/base/content-fingerprint.ts",
    find: "if (left.plain !== undefined && right.plain !== undefined) return left.plain !== right.plain;",
    replace: "if (left.exact !== right.exact) return true;",
    caughtBy: {
      file: FRAMEWORKS,
      test: "with and without a parser agree on JSON with long numbers",
    },
  },
  {
    name: "refusals fill the table",
    guarantee: "G26",
    file: "src/toolkit/idempotency/run.ts",
    find: "if (REFUSALS.has(answer.status)) this.#isNotStarted = true;",
    replace: "if (REFUSALS.size === 0) this.#isNotStarted = true;",
    caughtBy: {
      file: FRAMEWORKS,
      test: "an answer of 404 leaves no entry behind, with every key",
    },
  },
  {
    name: "a key on DELETE passes and protects nothing",
    guarantee: "G26",
    file: "src/toolkit/idempotency/engine.ts",
    find: "return hasKey || this.options.methods.has(method);",
    replace: "return this.options.methods.has(method);",
    caughtBy: {
      file: FRAMEWORKS,
      test: "a key on DELETE is refused where it would protect nothing",
    },
  },
];
