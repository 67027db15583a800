/**
 * `npm test`: the whole proof on a clean clone. Checks, then every test, then a part of them on the other
 * supported lines of Node, then the planted faults; its last lines say how many tests ran. Arguments go to vitest; with
 * arguments, a part of the tests is meant, and all else is left out.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { check } from "./check.mjs";
import { buildIfNeeded, Failure, install, main } from "./prepare.mjs";
import { isMain, root, run } from "./run.mjs";
import { isCi, runVitest, summarise } from "./suites.mjs";
import { testLines } from "./test-lines.mjs";

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
  const others = isWhole ? await testLines() : { lines: [], problems: [] };
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
  problems.push(...others.problems, ...summary.problems);
  if (code !== 0 && summary.problems.length === 0) problems.push(`vitest ended with code ${code}`);
  if (problems.length > 0) console.log(`npm test failed: ${problems.join("; ")}`);
  for (const line of [...others.lines, ...beside, ...summary.lines]) console.log(line);
  if (problems.length > 0) process.exitCode = 1;
}

if (isMain(import.meta.url)) await main(() => test(process.argv.slice(2)));
