/** Faults of access: what would let a client do what no grant allows. */

import type { Fault } from "./faults.ts";

const MATRIX = "test/protocol/access-matrix.test.ts";
const REFUSALS = "test/protocol/access-refusals.test.ts";
const INSIDES = "test/access/insides.test.ts";
const STOPPED = "G40 only a caller that may observe the whole server learns why it has stopped";
const ACCESS = "src/streams/access/access.ts";
const GATE = "src/streams/server/gate.ts";

export const accessFaults: readonly Fault[] = [
  {
    name: "access: the first credential of a connection counts for all of its requests",
    guarantee: "G40",
    file: "src/streams/runtimes/node-lane-memory.ts",
    find: "return difference === 0 ? length : 0;",
    replace: "return difference === 0 || length > 0 ? length : 0;",
    caughtBy: {
      file: "src/streams/runtimes/node-lane.test.ts",
      test: "G40 requests of one connection are judged by their own credential, also if they share a length",
    },
  },
  {
    name: "access: a route has no check",
    guarantee: "G40",
    file: "src/streams/server/streams.ts",
    find: 'needs: ["delete"],',
    replace: 'needs: "nothing",',
    caughtBy: {
      file: MATRIX,
      test: "access on 'node:http' > G40 DELETE /{stream...} answers every credential as its grants say",
    },
  },
  {
    name: "access: a namespace is compared without its slash",
    guarantee: "G40",
    file: ACCESS,
    find: 'return stream.startsWith(namespace) && stream[namespace.length] === "/";',
    replace: "return stream.startsWith(namespace);",
    caughtBy: {
      file: MATRIX,
      test: "access on 'the fast lane' > G40 POST /{stream...} answers every credential as its grants say",
    },
  },
  {
    name: "access: the namespace comes from a header",
    guarantee: "G40",
    file: GATE,
    find: "return isLater ? this.#wait(Promise.resolve(answer)) : this.#accessOf(answer);",
    replace:
      'const namespace = exchange.header("x-tenant") ?? "";\n    return this.#accessOf(namespace === "" ? answer : { ...answer, namespace });',
    caughtBy: {
      file: REFUSALS,
      test: "with hasFastLane=true > G40 a namespace comes from the identity, and from no header",
    },
  },
  {
    name: "access: a remembered answer counts for every action",
    guarantee: "G40",
    file: ACCESS,
    find: "let known = this.#known.get(action);\n    if (known === undefined) this.#known.set(action, (known = new Map()));",
    replace:
      'let known = this.#known.get("read");\n    if (known === undefined) this.#known.set("read", (known = new Map()));',
    caughtBy: {
      file: REFUSALS,
      test: "with hasFastLane=true > G40 an answer about one action is not used for another",
    },
  },
  {
    name: "access: a function that hangs is waited for without end",
    guarantee: "G40",
    file: GATE,
    find: "settled = await Promise.race([answer, late]);",
    replace: "late.catch(() => undefined);\n      settled = await answer;",
    caughtBy: {
      file: REFUSALS,
      test: "a function of authorization that > G40 hangs lets no client in",
    },
  },
  {
    name: "access: an answer tells why the server has stopped",
    guarantee: "G40",
    file: "src/streams/server/problem.ts",
    find: "return INSIDES[code] ?? message;",
    replace: 'return isInside({ code } as HapaxError) ? "" : message;',
    caughtBy: { file: INSIDES, test: STOPPED },
  },
  {
    name: "access: a tenant that may observe learns why the server has stopped",
    guarantee: "G40",
    file: "src/streams/server/health.ts",
    find: 'mayKnow = access.namespace === undefined && access.may("observe");',
    replace: 'mayKnow = access.may("observe");',
    caughtBy: { file: INSIDES, test: STOPPED },
  },
  {
    name: "access: an administrator of a namespace injects faults",
    guarantee: "G40",
    file: "src/streams/server/faults.ts",
    find: '(await gate.admit(exchange)).requireWholeServer("admin");',
    replace: '(await gate.admit(exchange)).require("admin");',
    caughtBy: {
      file: INSIDES,
      test: "G40 faults are injected by those alone who may administer the whole server",
    },
  },
  {
    name: "access: a look at a producer is not bound by the grant",
    guarantee: "G40",
    file: "src/streams/server/streams.ts",
    find: 'access.require("read", { stream: name, producer: id });',
    replace: 'access.require("read", { stream: name });',
    caughtBy: {
      file: "test/access/grants.test.ts",
      test: "G40 a caller that is bound to its producers sees no other one",
    },
  },
];
