/** Runs vitest, and says in plain lines how it went. Shared by the scripts that run tests. */

import { existsSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { root, run, tool } from "./run.mjs";

/** Whether this is CI, where nothing may be missing and every skip has a reason. */
export const isCi =
  process.env.CI !== undefined && process.env.CI !== "" && process.env.CI !== "false";

/**
 * Runs vitest to its end. `program` is what runs it, with its first arguments; the options are those of `run`. The tests' outcomes
 * go to the file `tally`.
 */
export async function runVitest(args, tally, program = [tool("vitest")], options = { show: true }) {
  const reporters = ["--reporter=default", `--reporter=${join(root, "scripts", "tally.mjs")}`];
  const [command, ...first] = program;
  const { code, output, isTimedOut } = await run(
    command,
    [...first, "run", ...reporters, ...args],
    {
      ...options,
      env: { ...options.env, HAPAX_TALLY: tally, NODE_ENV: "test" },
    },
  );
  const report = existsSync(tally) ? JSON.parse(readFileSync(tally, "utf8")) : undefined;
  return { code, output, isTimedOut, tests: report?.tests ?? [], beside: outsideTests(report) };
}

/** Failures that belong to no test: files that did not load, errors outside of any test. */
function outsideTests({ broken = [], unhandled = [] } = {}) {
  return [
    ...broken.map(({ file, message }) => `failed: ${relative(root, file)}: ${firstLine(message)}`),
    ...unhandled.map((message) => `failed outside of tests: ${firstLine(message)}`),
  ];
}

function firstLine(message = "no message") {
  return message.split("\n", 1)[0].slice(0, 300);
}

/** The last lines of a run, and what in them makes it fail. */
export function summarise(tests, mustGiveReasons) {
  const count = (state) => tests.filter((test) => test.state === state).length;
  const [passed, failed] = [count("passed"), count("failed")];
  const skipped = tests.filter((test) => test.state !== "passed" && test.state !== "failed");
  const problems = [];
  if (passed + failed === 0) problems.push("no test ran");
  if (failed > 0) problems.push(`${failed} tests failed`);
  const unexplained = skipped.filter((test) => !test.note).length;
  if (mustGiveReasons && unexplained > 0) problems.push(`${unexplained} skips give no reason`);
  const title = ({ file, fullName }) => `${relative(root, file)} > ${fullName}`;
  const lines = skipped.map((test) => `skipped: ${title(test)}: ${test.note || "no reason given"}`);
  // Last, since the end of a long log is what people see of it.
  for (const test of tests.filter(({ state }) => state === "failed")) {
    lines.push(`failed: ${title(test)}: ${firstLine(test.messages?.[0])}`);
  }
  lines.push(
    `tests: ${passed + failed} ran, ${passed} passed, ${failed} failed, ${skipped.length} skipped`,
  );
  return { lines, problems };
}
