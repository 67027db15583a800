/**
 * `npm test`: the whole proof on a clean clone. Checks, then every test, then the planted faults;
 * its last lines say how many tests ran. Arguments go to vitest; with arguments, a part of the tests
 * is meant, and checks and faults are left out.
 */

import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { check } from "./check.mjs";
import { buildIfNeeded, Failure, install, main } from "./prepare.mjs";
import { isMain, root, run, tool } from "./run.mjs";

const isCi = process.env.CI !== undefined && process.env.CI !== "" && process.env.CI !== "false";

async function runVitest(args, tally) {
  const reporters = ["--reporter=default", `--reporter=${join(root, "scripts", "tally.mjs")}`];
  const { code } = await run(tool("vitest"), ["run", ...reporters, ...args], {
    show: true,
    env: { HAPAX_TALLY: tally, NODE_ENV: "test" },
  });
  const report = existsSync(tally) ? JSON.parse(readFileSync(tally, "utf8")) : undefined;
  return { code, tests: report?.tests ?? [], beside: outsideTests(report) };
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

async function attempt(name, work, problems) {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    console.log(error.message);
    problems.push(name);
  }
}

/** Everything runs even if an early part fails: one run shows all there is to repair. */
async function test(args) {
  await install();
  await buildIfNeeded();
  const folder = mkdtempSync(join(tmpdir(), "hapax-test-"));
  try {
    await testAll(args, join(folder, "tally.json"));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function testAll(args, tally) {
  const isWhole = args.length === 0;
  const problems = [];
  if (isWhole) await attempt("check failed", check, problems);
  const { code, tests, beside } = await runVitest(args, tally);
  if (isWhole) {
    await attempt(
      "planted faults were not caught",
      async () => {
        const faults = join(root, "scripts", "test-faults.mjs");
        const result = await run(process.execPath, [faults], {
          show: true,
          env: { HAPAX_SOUND: tally },
        });
        if (result.code !== 0) throw new Failure("test-faults failed");
      },
      problems,
    );
  }
  const summary = summarise(tests, isCi);
  problems.push(...summary.problems);
  if (code !== 0 && summary.problems.length === 0) problems.push(`vitest ended with code ${code}`);
  if (problems.length > 0) console.log(`npm test failed: ${problems.join("; ")}`);
  for (const line of [...beside, ...summary.lines]) console.log(line);
  if (problems.length > 0) process.exitCode = 1;
}

if (isMain(import.meta.url)) await main(() => test(process.argv.slice(2)));
