/**
 * The list of planted faults, and what can be said about it without running a test. `npm run check` runs
 * `node scripts/fault-list.mjs`, so that a rename is noticed at once, and not at the end of a run of all faults:
 *
 *   - the text that a fault replaces occurs exactly once in its file;
 *   - the test that it names is in the file that it names, or in a suite that this file runs;
 *   - what it puts in place refers to names that exist. Otherwise its test would fail with a ReferenceError, and the
 *     fault would count as caught by any test.
 */

import {
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Failure, install, main } from "./prepare.mjs";
import { isMain, root, run, tool } from "./run.mjs";
import { isTitle, openTree, testTitles } from "./tidy.mjs";

/** Compiled by tsc: Node 20 does not read TypeScript. */
export async function loadFaults(base, scratch) {
  const source = join(base, "test", "faults", "faults.ts");
  const args = ["--ignoreConfig", "--noCheck", "--target", "es2023", "--module", "nodenext"];
  args.push("--rewriteRelativeImportExtensions");
  const { code, output } = await run(tool("tsc", base), [...args, "--outDir", scratch, source]);
  if (code !== 0) throw new Failure(`test/faults/faults.ts does not compile\n${output}`);
  const compiled = join(scratch, "faults.js");
  writeFileSync(join(scratch, "package.json"), '{ "type": "module" }');
  return (await import(pathToFileURL(compiled).href)).faults;
}

/** The problem with an entry itself, before anything runs. */
export function entryProblem(base, { file, find, replace, caughtBy }) {
  if (!existsSync(join(base, file))) return `${file} does not exist`;
  if (!existsSync(join(base, caughtBy.file))) return `${caughtBy.file} does not exist`;
  if (find === replace) return "find and replace are the same";
  const count = readFileSync(join(base, file), "utf8").split(find).length - 1;
  if (count !== 1) return `its text occurs ${count} times in ${file}, not once`;
  return undefined;
}

export function planted(base, { file, find, replace }) {
  return readFileSync(join(base, file), "utf8").replace(find, () => replace);
}

/** Faults whose test has no such title anywhere: neither in its file nor in a suite that the file runs. */
function titleProblems(base, faults) {
  const tree = openTree(base);
  const titles = testTitles(tree);
  return faults
    .map(({ name, caughtBy }) => ({ name, title: caughtBy.test.split(" > ").at(-1) }))
    .filter(({ title }) => !isTitle(tree, titles, title))
    .map(({ name, title }) => `${name}: no test has the title "${title}"`);
}

// Cannot find a name, a property, a member of a module; and those with a suggestion.
const NAME_ERRORS =
  /^(.+\.fault-(\d+)\.ts)\(.*error (TS(?:2304|2305|2339|2551|2552|2724|18004)): (.*)$/;
// Syntax: the file does not load.
const SYNTAX_ERRORS = /^(.+\.fault-(\d+)\.ts)\(.*error (TS1\d{3}): (.*)$/;

/**
 * Every planted file stands beside its original under a name of its own, so that one run of the compiler judges all.
 * Errors of types are no problem: to store the wrong thing may well be one.
 */
async function nameProblems(base, faults) {
  const scratch = mkdtempSync(join(tmpdir(), "hapax-fault-list-"));
  try {
    for (const name of ["src", "package.json", "tsconfig.json"]) {
      cpSync(join(base, name), join(scratch, name), { recursive: true });
    }
    symlinkSync(join(base, "node_modules"), join(scratch, "node_modules"), "junction");
    const files = [];
    for (const [at, fault] of faults.entries()) {
      if (!fault.file.startsWith("src/")) continue;
      const file = fault.file.replace(/\.ts$/, `.fault-${at}.ts`);
      writeFileSync(join(scratch, file), planted(base, fault));
      files.push(file);
    }
    const options = { noUnusedLocals: false, noUnusedParameters: false };
    const config = { extends: "./tsconfig.json", compilerOptions: options, files, include: [] };
    writeFileSync(join(scratch, "tsconfig.faults.json"), JSON.stringify(config));
    const { output } = await run(
      tool("tsc", base),
      ["-p", "tsconfig.faults.json", "--pretty", "false"],
      {
        cwd: scratch,
        env: { NO_COLOR: "1" },
      },
    );
    return output.split("\n").flatMap((line) => {
      const match = NAME_ERRORS.exec(line) ?? SYNTAX_ERRORS.exec(line);
      return match === null ? [] : [`${faults[Number(match[2])].name}: ${match[3]} ${match[4]}`];
    });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Everything that is wrong with the list, one line each. */
export async function faultListProblems(base = root) {
  const scratch = mkdtempSync(join(tmpdir(), "hapax-fault-list-"));
  try {
    const faults = await loadFaults(base, scratch);
    if (faults.length === 0) return ["test/faults/faults.ts lists no fault"];
    const entries = faults.map((fault) => ({ fault, problem: entryProblem(base, fault) }));
    const whole = entries.filter(({ problem }) => problem === undefined).map(({ fault }) => fault);
    return [
      ...entries
        .filter(({ problem }) => problem !== undefined)
        .map(({ fault, problem }) => `${fault.name}: ${problem}`),
      ...titleProblems(base, faults),
      ...(await nameProblems(base, whole)),
    ];
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await install();
    const problems = await faultListProblems();
    for (const problem of problems) console.log(problem);
    if (problems.length > 0) process.exitCode = 1;
  });
}
