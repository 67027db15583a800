/** Where the results of a benchmark go: `bench/results/`, or the file that `--result` names, for a program that reads them. */

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL("results/", import.meta.url));

export function optionOf(name, otherwise) {
  const at = process.argv.indexOf(name);
  return at === -1 ? otherwise : (process.argv[at + 1] ?? otherwise);
}

/** `name` has no ending: each picture or text of `files` has its own. */
export function saveResults(name, report, files = {}) {
  const asked = optionOf("--result", undefined);
  const path = asked ?? join(folder, `${name}.json`);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `${JSON.stringify(report, undefined, 2)}\n`);
  if (asked !== undefined) return;
  for (const [ending, content] of Object.entries(files)) {
    writeFileSync(join(folder, `${name}.${ending}`), content);
  }
  const all = ["json", ...Object.keys(files)].map((ending) => `.${ending}`).join(" and ");
  console.log(`\nwritten to bench/results/${name}${all}`);
}

export function stampOf(startedAt) {
  return startedAt.replace(/[:.]/g, "-");
}
