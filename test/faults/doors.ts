/** Faults of the doors: what would let a web page of another origin in. */

import type { Fault } from "./faults.ts";

const UNIT = "src/streams/server/doors.test.ts";
const WHOLE = "test/protocol/doors.test.ts";

export const doorFaults: readonly Fault[] = [
  {
    name: "doors: a server that a platform brings requests to is taken for one of this machine",
    guarantee: "G37",
    file: "src/streams/server/options.ts",
    find: "checkReach(address, check);",
    replace: 'checkReach(address ?? "127.0.0.1", check);',
    caughtBy: {
      file: "src/streams/server/options.test.ts",
      test: "G37 the reach of a server decides: the address undefined needs authentication, or the word that it is open",
    },
  },
  {
    name: "doors: a foreign origin is let in",
    guarantee: "G37",
    file: "src/streams/server/doors.ts",
    find: "if (!this.allows(origin)) throw refusedOrigin(origin);",
    replace: "",
    caughtBy: {
      file: WHOLE,
      test: "with hasFastLane=true > G37 a foreign page is refused: POST /v1/stream/orders",
    },
  },
  {
    name: "doors: a page of the server's own name is let in without authentication",
    guarantee: "G37",
    file: "src/streams/server/doors.ts",
    find: "if (!this.#takesOwnOrigin || authority === undefined) return false;",
    replace: "if (authority === undefined) return false;",
    caughtBy: {
      file: UNIT,
      test: "of the server's own host and port may call it where requests need a credential, and nowhere else",
    },
  },
  {
    name: "doors: an origin is compared by its start",
    guarantee: "G37",
    file: "src/streams/server/doors.ts",
    find: "if (this.#origins.has(origin.toLowerCase())) return true;",
    replace: "for (const one of this.#origins) if (origin.startsWith(one)) return true;",
    caughtBy: {
      file: UNIT,
      test: "of an allowed origin may do everything, and no other with it: scheme, port and case are compared",
    },
  },
  {
    name: "doors: a name that begins with localhost is this machine",
    guarantee: "G37",
    file: "src/protocol/origin.ts",
    find: 'if (name === "localhost" || name.endsWith(".localhost")) return true;',
    replace: 'if (name.startsWith("localhost")) return true;',
    caughtBy: {
      file: UNIT,
      test: "of another server is refused on loopback, for every method, preflights included",
    },
  },
  {
    name: "doors: the host is not checked",
    guarantee: "G37",
    file: "src/streams/server/doors.ts",
    find: "    this.#checkHost(exchange.authority);\n",
    replace: "",
    caughtBy: {
      file: WHOLE,
      test: "with hasFastLane=true > G37 a page under another name is refused: POST /v1/stream/orders",
    },
  },
  {
    name: "doors: a host that was refused once is known from then on",
    guarantee: "G37",
    file: "src/streams/server/doors.ts",
    find: "    const host = hostOf(authority);\n    if (!hosts.has(host)",
    replace:
      "    const host = hostOf(authority);\n    this.#known = authority;\n    if (!hosts.has(host)",
    caughtBy: {
      file: UNIT,
      test: "is still refused after one that is served, and the other way round",
    },
  },
  {
    name: "doors: the header Host counts instead of the target's host",
    guarantee: "G37",
    file: "src/streams/runtimes/node-exchange.ts",
    find: "this.authority = parts.authority ?? request.authority ?? request.headers.host;",
    replace: "this.authority = request.headers.host;",
    caughtBy: {
      file: WHOLE,
      test: "with hasFastLane=true > G37 the host of an absolute target counts, and not the one of Host",
    },
  },
  {
    name: "doors: a preflight allows every origin",
    guarantee: "G37",
    file: "src/streams/server/policy.ts",
    find: "if (origin === undefined || !doors.allows(origin)) return headers;",
    replace: "if (origin === undefined) return headers;",
    caughtBy: {
      file: WHOLE,
      test: "with hasFastLane=false > G37 a preflight of a foreign page names no origin, which browsers take as a refusal",
    },
  },
  {
    name: "doors: a part of a page of another site is let in",
    guarantee: "G37",
    file: "src/streams/server/doors.ts",
    find: 'exchange.header("sec-fetch-site") === "cross-site"',
    replace: 'exchange.header("sec-fetch-site") === "cross-origin"',
    caughtBy: {
      file: UNIT,
      test: "of another site gets no picture, script or frame of this server, but a person may follow its link",
    },
  },
  {
    name: "doors: a server beyond this machine starts without a word",
    guarantee: "G37",
    file: "src/streams/server/options.ts",
    find: "if (!resolved.insecurePublic && !hasAuthentication) checkReach(address, check);",
    replace: "",
    caughtBy: {
      file: WHOLE,
      test: "G37 startNodeServer refuses host=0.0.0.0 without insecurePublic",
    },
  },
];
