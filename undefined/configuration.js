/** Faults of configuration: what would put half of it, or what was never checked, in force. */
const RELOAD = "src/streams/server/reload.test.ts";
export const configurationFaults = [
  {
    name: "configuration: a running request gets headers of the new options",
    guarantee: "G39",
    file: "src/streams/server/router.ts",
    find: "faults === undefined ? complete(watched, ready, parts) : ready;",
    replace: "faults === undefined ? complete(watched, ready, holder.current) : ready;",
    caughtBy: {
      file: RELOAD,
      test: "G39 a request that runs keeps the options that it began with, to its last header",
    },
  },
  {
    name: "configuration: a reload takes options that need a restart",
    guarantee: "G39",
    file: "src/streams/server/reload.ts",
    find: "Object.freeze({ ...inForce, ...taken })",
    replace: "Object.freeze({ ...inForce, ...taken, ...wanted })",
    caughtBy: {
      file: RELOAD,
      test: "G39 a reload says what changed, and what needs a restart and stays as it was",
    },
  },
  {
    name: "configuration: a reload with a mistake takes what is right",
    guarantee: "G39",
    file: "src/cli/configuration.ts",
    find: "if (problems.length > 0) {",
    replace: "if (problems.length > 0 && file === undefined) {",
    caughtBy: {
      file: "src/cli/reload.test.ts",
      test: "G39 a file with a mistake changes nothing, also what is right in it",
    },
  },
  {
    name: "configuration: the file wins over a variable",
    guarantee: "G39",
    file: "src/cli/configuration.ts",
    find: 'if (text !== "") {',
    replace: 'if (text !== "" && file?.members.has(member) !== true) {',
    caughtBy: {
      file: "src/cli/configuration.test.ts",
      test: "where a value is from > a flag wins over a variable, a variable over the file, the file over the default",
    },
  },
];
