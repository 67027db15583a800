/**
 * `node scripts/test-lines.mjs`: the suites of the protocol, stores, ledgers, client and processing on every supported line of Node but
 * the one that runs this script, which has `npm test`. A part of their files, unless `--whole` asks for every test but the heavy ones.
 * Prints which versions ran how many tests. With CI=true a version that cannot be had is a failure.
 */

import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { NODE_LINES, nodeProgram } from "./node-lines.mjs";
import { buildIfNeeded, Failure, install, main } from "./prepare.mjs";
import { inParallel, isMain, root } from "./run.mjs";
import { isCi, runVitest, summarise } from "./suites.mjs";

/** What differs between versions of Node: sockets, files, streams, `fetch`, memory, SQLite. Half a minute of one core each. */
export const SHORT = [
  "test/protocol/conformance-file.test.ts",
  "test/protocol/tls.test.ts",
  "src/streams/stores/conformance.test.ts",
  "src/streams/stores/journal/tail-cache.test.ts",
  "test/golden.test.ts",
  "test/ledgers/sqlite.test.ts",
  "test/idempotency/frameworks.test.ts",
  "test/idempotency/one-grammar.test.ts",
  "test/client/behaviours-ours.test.ts",
  "test/processing/transactions.test.ts",
];
const WHOLE = ["rules", "mocked", "whole", "protocol"].map((project) => `--project=${project}`);
/** Far above what a line takes: a version on which tests hang must not hang the run. */
const LIMIT_MS = { short: 600_000, whole: 3_600_000 };

const lineOf = (version) => version.split(".", 1)[0];

async function testOn({ version, path }, isWhole) {
  const folder = mkdtempSync(join(tmpdir(), "hapax-lines-"));
  try {
    const vitest = join(root, "node_modules", "vitest", "vitest.mjs");
    const args = isWhole ? WHOLE : ["--maxWorkers=1", ...SHORT];
    // Tests start programs of their own with `node`.
    const env = { PATH: dirname(path) + delimiter + process.env.PATH };
    const limitMs = isWhole ? LIMIT_MS.whole : LIMIT_MS.short;
    const options = { env, limitMs };
    const result = await runVitest(args, join(folder, "tally.json"), [path, vitest], options);
    return { version, ...result };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** One line for each version, and the problems of all. */
export async function testLines(isWhole = false) {
  const others = NODE_LINES.filter((version) => lineOf(version) !== lineOf(process.versions.node));
  const programs = others.map(nodeProgram);
  const lines = [];
  // vitest would run the others without a word.
  const problems = SHORT.filter((file) => !existsSync(join(root, file))).map(
    (file) => `there is no ${file}`,
  );
  for (const { version, missing } of programs.filter((program) => program.missing !== undefined)) {
    lines.push(`skipped: Node ${version}: ${missing}`);
    if (isCi) problems.push(`there is no Node ${version}`);
  }
  const found = programs.filter(({ path }) => path !== undefined);
  const results = await inParallel(found, isWhole ? 1 : 3, (program) => testOn(program, isWhole));
  for (const { version, code, output, isTimedOut, tests, beside } of results) {
    const summary = summarise(tests, isCi);
    const wrong = [...summary.problems];
    if (isTimedOut) wrong.push("it did not end in time");
    else if (code !== 0 && wrong.length === 0) wrong.push(`vitest ended with code ${code}`);
    if (wrong.length > 0) console.log(output.trimEnd().replace(/^/gm, `Node ${version}  `));
    const last = summary.lines.pop();
    lines.push(...[...beside, ...summary.lines, last].map((line) => `Node ${version}: ${line}`));
    problems.push(...wrong.map((problem) => `Node ${version}: ${problem}`));
  }
  return { lines, problems };
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await install();
    await buildIfNeeded();
    const { lines, problems } = await testLines(process.argv.includes("--whole"));
    for (const line of lines) console.log(line);
    if (problems.length > 0) throw new Failure(problems.join("; "));
  });
}
