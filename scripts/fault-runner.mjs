/**
 * Runs single tests of one tree, one after the other, for test-faults.mjs: vitest stays up between them, which makes a run
 * four times as fast. Started in the tree with an IPC channel; `{ file, pattern, changed }` in, the outcome of the run out.
 */

import { join } from "node:path";
import { createVitest } from "vitest/node";
import { reportOf } from "./tally.mjs";

const base = process.cwd();
const vitest = await createVitest("test", { watch: false, run: true, reporters: [{}] });

async function runOne({ file, pattern, changed }) {
  for (const path of changed) vitest.invalidateFile(join(base, path));
  vitest.setGlobalTestNamePattern(new RegExp(pattern));
  const specifications = await vitest.getRelevantTestSpecifications([join(base, file)]);
  const ids = new Set(specifications.map(({ moduleId }) => moduleId));
  const { testModules, unhandledErrors } = await vitest.runTestSpecifications(
    specifications,
    false,
  );
  // Modules of earlier runs are in the result too.
  return reportOf(
    testModules.filter(({ moduleId }) => ids.has(moduleId)),
    unhandledErrors,
  );
}

let last = Promise.resolve();
process.on("message", (request) => {
  last = last.then(async () => {
    try {
      process.send({ report: await runOne(request) });
    } catch (error) {
      process.send({ error: String(error?.stack ?? error) });
    }
  });
});
process.on("disconnect", () => process.exit(0));
process.send({ isReady: true });
