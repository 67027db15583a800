/**
 * Tests a server for the extensions of Hapax to the public protocol, and prints the cases that fail.
 *
 *   npm run build && HAPAX_URL=http://127.0.0.1:4437 node examples/conform.mjs
 */

import { extensionCases } from "hapax/testing";

const url = process.env.HAPAX_URL ?? "http://127.0.0.1:4437";
// The cases that wait come first: the others run while they wait.
const cases = extensionCases({ url }).toSorted((one, other) => other.isSlow - one.isSlow);
const failures = [];

async function work() {
  for (let each = cases.shift(); each !== undefined; each = cases.shift()) {
    const { title, run } = each;
    await run().catch((error) => failures.push(`${title}\n  ${error.message}`));
  }
}

const count = cases.length;
await Promise.all(Array.from({ length: 16 }, work));
for (const failure of failures) console.log(failure);
console.log(`${count - failures.length} of ${count} cases passed`);
process.exitCode = failures.length === 0 ? 0 : 1;
