/** Faults of the tokens of the client and of the command line. */

import type { Fault } from "./faults.ts";

const TOKEN = "src/client/token.ts";
const CLI_TOKEN = "src/cli/token.ts";
const CALLS = "test/client/token.test.ts";
const WRITES = "test/client/token-writes.test.ts";
const CLI = "src/cli/token.test.ts";

export const clientTokenFaults: readonly Fault[] = [
  {
    name: "client: every refused request asks for a token of its own",
    guarantee: "G48",
    file: TOKEN,
    find: "if (known === used) known = undefined;",
    replace: "known = undefined;",
    caughtBy: {
      file: CALLS,
      test: "a function is called once for many requests, and once more for all that its token fails",
    },
  },
  {
    name: "client: a request is sent a third time after two 401s",
    guarantee: "G48",
    file: TOKEN,
    find: "      isLast = true;",
    replace:
      '      isLast = "x" in request.headers;\n      request = { ...request, headers: { ...request.headers, x: "" } };',
    caughtBy: {
      file: CALLS,
      test: "a second 401 in a row is the caller's error, with the code of the server",
    },
  },
  {
    name: "client: a token goes to every origin",
    guarantee: "G48",
    file: TOKEN,
    find: "if (!request.url.startsWith(`${origin}/`))",
    replace: "if (!request.url.startsWith(`${origin.slice(0, 4)}`))",
    caughtBy: { file: CALLS, test: "a token is not sent to another origin, by fetch" },
  },
  {
    name: "client: a redirect of node:http carries the token to another origin",
    guarantee: "G48",
    file: "src/client/node.ts",
    find: "/^(authorization|proxy-authorization|cookie|host)$/i",
    replace: "/^(proxy-authorization|cookie|host)$/i",
    caughtBy: { file: CALLS, test: "a token is not sent to another origin, by node:http" },
  },
  {
    name: "client: a token that cannot be sent is in the error",
    guarantee: "G48",
    file: TOKEN,
    find: 'throw new Error("not visible ASCII characters");',
    replace: "throw new Error(`not visible ASCII characters: ${secret}`);",
    caughtBy: { file: CALLS, test: "a token that cannot be sent is not in the error either" },
  },
  {
    name: "client: a handle keeps its options, and shows the token",
    guarantee: "G48",
    file: "src/client/client.ts",
    find: "  return new Stream<T>(new Caller(resolveClientOptions(options, href)), href);",
    replace:
      "  return Object.assign(new Stream<T>(new Caller(resolveClientOptions(options, href)), href), { options });",
    caughtBy: { file: CALLS, test: "G48 neither handles nor errors show the token" },
  },
  {
    name: "client: a token function that throws is called again and again",
    guarantee: "G48",
    file: TOKEN,
    find: "const secret = await used.catch(errorOf);",
    replace: "const secret = await used;",
    caughtBy: {
      file: CALLS,
      test: "a function that throws ends the call: nothing is sent, and it is called once",
    },
  },
  {
    name: "client: a producer gives its batch up at the first 401",
    guarantee: "G19",
    file: TOKEN,
    find: "if (isLast || !isKnown) return answer;",
    replace: 'if (isLast || !isKnown || request.method === "POST") return answer;',
    caughtBy: {
      file: WRITES,
      test: "a 401 in the middle of a pipeline costs nothing: the same session goes on",
    },
  },
  {
    name: "client: a 401 says that an append whose answer was lost is not stored",
    guarantee: "G19",
    file: "src/client/flight.ts",
    find: "  if (error?.code === SEQ_REUSED) batch.wasLost = false;",
    replace: "  if (error?.code === SEQ_REUSED || error?.status === 401) batch.wasLost = false;",
    caughtBy: {
      file: WRITES,
      test: "an append whose answer was lost before the 401s is unknown, unless the server can still tell",
    },
  },
  {
    name: "cli: a token file that others can open is used",
    guarantee: "G48",
    file: CLI_TOKEN,
    find: "const OTHERS = 0o077;",
    replace: "const OTHERS = 0o007;",
    caughtBy: { file: CLI, test: "a file that others can open is refused, with what to do" },
  },
  {
    name: "cli: a token in the arguments is an unknown option like others",
    guarantee: "G48",
    file: "src/cli/arguments.ts",
    find: '  if (rawName === "--token") return tokenInArguments();\n',
    replace: "",
    caughtBy: { file: CLI, test: "a token in the arguments is refused, and not repeated" },
  },
];
