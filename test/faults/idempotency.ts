/** Faults of idempotency keys on the server side: what would be done twice, answered too early, or answered to others. */

import type { Fault } from "./faults.ts";

const ENGINE = "src/toolkit/idempotency/engine.test.ts";
const PHASES = "src/toolkit/idempotency/phases.test.ts";
const HOSTILE = "test/idempotency/hostile.test.ts";
const DATABASES = "test/idempotency/databases.test.ts";

export const idempotencyFaults: readonly Fault[] = [
  {
    name: "a key with other content waits while the first request is running",
    guarantee: "G26",
    file: "src/toolkit/idempotency/engine.ts",
    find: "        if (isOtherContent(flight.fingerprint, fingerprint)) return this.#mismatch();\n",
    replace: "",
    caughtBy: {
      file: ENGINE,
      test: "draft 2.7: a key with another payload gets 422 and not 409 while the first is running",
    },
  },
  {
    name: "the keys of two tenants meet",
    guarantee: "G26",
    file: "src/toolkit/idempotency/engine.ts",
    find: "scope === GLOBAL ? scope : await this.#scopeOf(request)",
    replace: "scope === GLOBAL ? scope : (await this.#scopeOf(request)) && GLOBAL",
    caughtBy: {
      file: ENGINE,
      test: "draft 5: the key counts together with who the client is",
    },
  },
  {
    name: "an answer leaves before its commit",
    guarantee: "G26",
    file: "src/toolkit/idempotency/run.ts",
    find: "      await this.#commit(keptAnswer);\n",
    replace: "      void this.#commit(keptAnswer);\n",
    caughtBy: { file: ENGINE, test: "answers only after the commit" },
  },
  {
    name: "the writes of a failed handler are committed",
    guarantee: "G26",
    file: "src/toolkit/idempotency/run.ts",
    find: "await this.#transaction?.rollBack();",
    replace: "await this.#transaction?.commit(() => Promise.resolve());",
    caughtBy: {
      file: ENGINE,
      test: "takes the writes of a handler that throws back, and lets a retry run",
    },
  },
  {
    name: "work that was overtaken in its own transaction is answered as done",
    guarantee: "G26",
    file: "src/toolkit/idempotency/open-transaction.ts",
    find: `      if (end === "late") throw overtaken(place, tools, over);\n      if (end.value`,
    replace: `      if (end !== "late" && end.value`,
    caughtBy: {
      file: DATABASES,
      test: "work that finds the entry of another one at its end is undone, and its client gets 409",
    },
  },
  {
    name: "an HTTP key is claimed before its transaction, in a commit of its own",
    guarantee: "G26",
    file: "src/toolkit/idempotency/engine.ts",
    find: "if (!mayLock(ledger, terms)) return",
    replace: 'if (!mayLock(ledger, terms) || place.key !== "") return',
    caughtBy: { file: DATABASES, test: "a new key costs one commit, a look and an entry" },
  },
  {
    name: "a commit whose answer was lost counts as failed",
    guarantee: "G26",
    file: "src/toolkit/idempotency/run.ts",
    find: "      if (await this.#isCommitted()) return;\n",
    replace: "",
    caughtBy: {
      file: ENGINE,
      test: "answers what was committed, also if the commit is not known to be done",
    },
  },
  {
    name: "a repeated answer has the cookies of the first caller",
    guarantee: "G26",
    file: "src/toolkit/idempotency/answer.ts",
    find: `  "set-cookie",\n`,
    replace: "",
    caughtBy: {
      file: ENGINE,
      test: "repeats status, headers and bytes, but neither cookies nor what belongs to a connection",
    },
  },
  {
    name: "the order of JSON members makes other content",
    guarantee: "G26",
    file: "src/toolkit/rules/canonical-json.ts",
    find: "(one < other ? -1 : 1)",
    replace: "(one === other ? 1 : 0)",
    caughtBy: {
      file: ENGINE,
      test: "takes the same JSON in another order for the same content",
    },
  },
  {
    name: "a finished phase runs again",
    guarantee: "G26",
    file: "src/toolkit/idempotency/phases.ts",
    find: "if (this.#done.has(name)) return",
    replace: "if (this.#done.has(name) && this.#done.size > 9) return",
    caughtBy: {
      file: PHASES,
      test: "run once each, whichever of them an attempt ends after",
    },
  },
  {
    name: "requests whose process died are not finished",
    guarantee: "G26",
    file: "src/toolkit/idempotency/completer.ts",
    find: `{ kind: "http", state: "running", isAbandoned: true } as const`,
    replace: `{ kind: "http", state: "done", isAbandoned: true } as const`,
    caughtBy: {
      file: PHASES,
      test: "finishes a request whose process died and whose client never came back",
    },
  },
  {
    name: "a response is ended while it is held back",
    guarantee: "G26",
    file: "src/toolkit/idempotency/node-answer.ts",
    find: "        this.#endWith(all);\n",
    replace: "        this.#endWith(all);\n        Reflect.apply(real.end, response, all);\n",
    caughtBy: {
      file: HOSTILE,
      test: "all headers of a list go out, and what is set behind the end does not",
    },
  },
  {
    name: "a request that the platform cannot copy is refused",
    guarantee: "G26",
    file: "src/toolkit/idempotency/request.ts",
    find: "if (!(error instanceof TypeError)) throw error;",
    replace: "throw error;",
    caughtBy: {
      file: "test/idempotency/frameworks.test.ts",
      test: "a request that only looks like one of the platform reaches its handler with its body, and is paid once",
    },
  },
];
