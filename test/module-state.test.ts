// Durable Objects of one class share the modules of their program, also after one of them was evicted. So what a module keeps must
// mean the same for all of them. Here is every such state, with the reason why it does. What is kept in a WeakMap belongs to its key.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const root = join(import.meta.dirname, "..");

const PURE = "the last result of a function that depends on its argument alone";
const CONSTANT = "never changed after it was made";
const NODE = "Node alone has it, where a program is one server";
const TESTS = "for tests alone";

/** `file name`: why objects may share it. */
const SHARED: Readonly<Record<string, string>> = {
  "base/clock.ts steadyTime": "time passes alike for all, and a timer that vanished cannot stop it",
  "base/failpoint.ts current": TESTS,
  "protocol/reserved.ts last": PURE,
  "protocol/values.ts lastContentType": PURE,
  "streams/cluster/where.ts TABLE": CONSTANT,
  "streams/core/job-decide.ts NO_JOBS": CONSTANT,
  "streams/core/subscription-decide.ts NO_ACKS": CONSTANT,
  "streams/runtimes/fetch-decompress.ts codings": "what the platform can decode, the same for all",
  "streams/runtimes/node-gzip.ts turns": NODE,
  "streams/runtimes/node-lane-answer.ts lineStarts": NODE,
  "streams/runtimes/node-lane-answer.ts statusLines": NODE,
  "streams/runtimes/node-lane-connection.ts parser": NODE,
  "streams/runtimes/node-lane-parser.ts hashes": NODE,
  "streams/runtimes/node-log.ts shared": NODE,
  "streams/server/routes.ts RESERVED_ROUTES": CONSTANT,
  "streams/stores/journal/bytes.ts shared": "texts by their own content, used again",
  "streams/stores/file/node-disk.ts reads": NODE,
  "testing/ledger-crashes.ts cases": TESTS,
  "testing/sink-conformance.ts places": TESTS,
  "toolkit/databases/postgres-wire.ts free": "memory of which each part is used once",
  "toolkit/idempotency/answer.ts formatted": PURE,
  "toolkit/idempotency/fastify.ts LONG": CONSTANT,
};

/** A variable of a module, or a constant that is made empty or is an object of a class of ours. */
const VARIABLE = /^(?:export )?let (\w+)/;
const MADE =
  /^(?:export )?const (\w+)\b.*?= (?:\/\* @__PURE__ \*\/ )?new ([A-Z]\w*)(?:<.*>)?\((\)?)/;
/** Values that cannot change, or whose state belongs to the object that is the key. */
const HARMLESS = new Set(
  "Error HapaxError RegExp TextDecoder TextEncoder Uint8Array URL WeakMap WeakSet".split(" "),
);

function stateIn(line: string): string | undefined {
  const variable = VARIABLE.exec(line);
  if (variable !== null) return variable[1];
  const [, name, constructor = "", isEmpty] = MADE.exec(line) ?? [];
  if (name === undefined || HARMLESS.has(constructor)) return undefined;
  const isCollection = constructor === "Map" || constructor === "Set";
  return isCollection && isEmpty === "" ? undefined : name;
}

test("no module keeps anything that belongs to one object, and what modules keep is listed with its reason", () => {
  const files = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })
    .map((path) => path.replaceAll("\\", "/"))
    .filter((path) => path.endsWith(".ts") && !path.endsWith(".test.ts"))
    // A page in a tab of a browser, which is one program.
    .filter((path) => !path.startsWith("dashboard/"));
  expect(files.length).toBeGreaterThan(300);
  const found = files.flatMap((file) =>
    readFileSync(join(root, "src", file), "utf8")
      .split("\n")
      .flatMap((line) => stateIn(line) ?? [])
      .map((name) => `${file} ${name}`),
  );
  expect(found.toSorted()).toEqual(Object.keys(SHARED).toSorted());
});

test.each([
  ["let count = 0;", "count"],
  ["export let hook: Hook | undefined;", "hook"],
  ["const seen = new Map<string, number>();", "seen"],
  ["export const line = new Turns(1);", "line"],
  ["const KNOWN = new Set([1, 2]);", undefined],
  ["const keyed = new WeakMap<object, Line>();", undefined],
  ["  let count = 0;", undefined],
])("%s keeps %s", (line, name) => {
  expect(stateIn(line)).toBe(name);
});
