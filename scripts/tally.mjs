/**
 * A vitest reporter that writes each test's outcome to the file that HAPAX_TALLY names. vitest's own
 * json report leaves out the reason of a skip.
 */

import { writeFileSync } from "node:fs";

export default class Tally {
  onTestRunEnd(modules, unhandledErrors) {
    const file = process.env.HAPAX_TALLY;
    if (file === undefined) return;
    const tests = [];
    const broken = [];
    for (const module of modules) {
      const path = module.moduleId;
      for (const error of module.errors()) broken.push({ file: path, message: error.message });
      for (const test of module.children.allTests()) {
        const { state, note, errors = [] } = test.result();
        const messages = errors.map((error) => error.message);
        tests.push({ file: path, name: test.name, fullName: test.fullName, state, note, messages });
      }
    }
    const unhandled = unhandledErrors.map((error) => error.message);
    writeFileSync(file, JSON.stringify({ tests, broken, unhandled }));
  }
}
