/**
 * A vitest reporter that writes each test's outcome to the file that HAPAX_TALLY names. vitest's own
 * json report leaves out the reason of a skip.
 */

import { writeFileSync } from "node:fs";

/** The outcome of each test, in plain values. */
export function reportOf(modules, unhandledErrors) {
  const tests = [];
  const broken = [];
  for (const module of modules) {
    const file = module.moduleId;
    for (const error of module.errors()) broken.push({ file, message: error.message });
    for (const test of module.children.allTests()) {
      const { state, note, errors = [] } = test.result();
      const messages = errors.map((error) => error.message);
      tests.push({ file, name: test.name, fullName: test.fullName, state, note, messages });
    }
  }
  return { tests, broken, unhandled: unhandledErrors.map((error) => error.message) };
}

export default class Tally {
  onTestRunEnd(modules, unhandledErrors) {
    const file = process.env.HAPAX_TALLY;
    if (file !== undefined) writeFileSync(file, JSON.stringify(reportOf(modules, unhandledErrors)));
  }
}
