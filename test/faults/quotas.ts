/** Faults of quotas: places that are not given back, limits that are compared too late, and figures of others. */

import type { Fault } from "./faults.ts";

const WHOLE = "test/protocol/quotas.test.ts";
const HOLDINGS = "src/streams/engine/holdings.test.ts";

export const quotaFaults: readonly Fault[] = [
  {
    name: "quotas: a live reader that has ended keeps its place",
    guarantee: "G50",
    file: "src/streams/server/sse.ts",
    find: "        this.#leave();\n        onEnd();",
    replace: "        this.#leave();\n        void onEnd;",
    caughtBy: {
      file: WHOLE,
      test: "on node:http > G50 a live reader takes a place until its connection ends, and a long-poll until it is answered",
    },
  },
  {
    name: "quotas: a refused request keeps its place",
    guarantee: "G50",
    file: "src/streams/server/router.ts",
    find: "  watched.release();\n",
    replace: "  if (answer.status < 400) watched.release();\n",
    caughtBy: {
      file: WHOLE,
      test: "on lane > G50 requests at once have a limit, and a request that is answered or gone makes room",
    },
  },
  {
    name: "quotas: storage is compared after the change is staged",
    guarantee: "G50",
    file: "src/streams/engine/lifecycle.ts",
    find: `    allowance?.admit(1, command.data.length);
    const batch = writer.begin();
    for (const change of decision.changes) writer.stage(change, batch);
`,
    replace: `    const batch = writer.begin();
    for (const change of decision.changes) writer.stage(change, batch);
    allowance?.admit(0, command.data.length);
`,
    caughtBy: {
      file: HOLDINGS,
      test: "an allowance > G50 two requests cannot both take the last place, also while neither is durable",
    },
  },
  {
    name: "quotas: a retry is refused because the storage is used up",
    guarantee: "G50",
    file: "src/streams/engine/appends.ts",
    find: `      if (decision.kind === "accepted") allowance?.admit(0, command.data.length);`,
    replace: `      allowance?.admit(0, command.data.length);`,
    caughtBy: {
      file: HOLDINGS,
      test: "an allowance > G50 a retry, a close, a stream that is there, and a deletion are taken when it is used up",
    },
  },
  {
    name: "quotas: claims of subscriptions are not compared with the storage",
    guarantee: "G50",
    file: "src/streams/engine/subscriptions.ts",
    find: 'if (decision.kind !== "nothing_pending") allowance?.admitClaim();',
    replace: "",
    caughtBy: {
      file: "test/access/tenants.test.ts",
      test: "G50 wake events of claims that are given back do not grow beyond the quota without end",
    },
  },
  {
    name: "quotas: a rate runs out twice as fast",
    guarantee: "G50",
    file: "src/streams/access/usage.ts",
    find: "* perSecond) / 1000",
    replace: "* perSecond) / 500",
    caughtBy: {
      file: "src/streams/access/usage.test.ts",
      test: "a rate > G50 in no span of time more is taken than its seconds and one more are worth",
    },
  },
  {
    name: "quotas: a fork counts the bytes of its source",
    guarantee: "G50",
    file: "src/streams/core/trim.ts",
    find: "state.tail - Math.max(state.fork?.at ?? OFFSET_ZERO, ownEarliest(state))",
    replace: "state.tail - Math.max(OFFSET_ZERO, ownEarliest(state))",
    caughtBy: {
      file: HOLDINGS,
      test: "what a namespace holds > G50 follows every creation, append, fork, deletion and expiry exactly",
    },
  },
  {
    name: "metrics: a caller of a namespace sees the figures of the server",
    guarantee: "G50",
    file: "src/streams/server/metrics.ts",
    find: "    namespace === undefined\n      ? formatMetrics",
    replace: '    namespace !== ""\n      ? formatMetrics',
    caughtBy: {
      file: WHOLE,
      test: "metrics > G50 a caller of a namespace sees the figures of its own, and nothing of the server or of others",
    },
  },
  {
    name: "quotas: calls of groups count in no rate",
    guarantee: "G50",
    file: "src/streams/server/router.ts",
    find: "if (operation.countsItself !== true && WRITES.has(exchange.method)) ticket",
    replace: "if (operation.countsItself === true && WRITES.has(exchange.path)) ticket",
    caughtBy: {
      file: WHOLE,
      test: "on lane > G50 calls of groups and subscriptions, deletions and resets count in the rate",
    },
  },
  {
    name: "quotas: the answer says that more is left than is taken",
    guarantee: "G50",
    file: "src/streams/access/usage.ts",
    find: "Math.floor(perSecond - level + TOLERANCE)",
    replace: "Math.ceil(perSecond - level + TOLERANCE)",
    caughtBy: {
      file: "src/streams/access/usage.test.ts",
      test: "a rate > as many appends as are left are taken, and one more is not, at any time",
    },
  },
  {
    name: "quotas: only refusals say what is left",
    guarantee: "G50",
    file: "src/streams/server/router.ts",
    find: "return rates === undefined ? answer : {",
    replace: "return rates === undefined || answer.status < 400 ? answer : {",
    caughtBy: {
      file: WHOLE,
      test: "on lane > G50 every answer to a write says what is left of the rates, and a caller that keeps to it is not refused",
    },
  },
];
