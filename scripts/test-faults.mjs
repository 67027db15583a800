/**
 * `npm run test:faults`: plants each fault of test/faults/faults.ts in a copy of the tree and demands
 * that the test it names fails, by an assertion or an error inside that test. A fault that does not
 * load, that matches no test, or that hangs the run past its limit is not caught. It is tried twice.
 *
 *   --only <text>   the faults whose name contains the text, or that break the guarantee of this label
 *
 * HAPAX_SOUND names the tally of a run on the sound tree: tests that passed there are not run again without a fault.
 */

import { spawn } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, posix, relative } from "node:path";
import { entryProblem, loadFaults, planted } from "./fault-list.mjs";
import { Failure, install, main } from "./prepare.mjs";
import { inParallel, isMain, killGroup, root, run, seconds, tool } from "./run.mjs";

// Six on two cores: a test waits for something most of the time, and one that its fault hangs does nothing else.
const COPIES = 6;
// Above the test timeouts of vitest.config.ts, so that vitest reports a hanging test itself.
const RUN_LIMIT_MS = 90_000;
const HEAVY_RUN_LIMIT_MS = 240_000;
// On a busy machine a test that depends on time may miss its fault once. The last lines name such a fault.
const ATTEMPTS_MAX = 2;
const COPIED = ["src", "test", "scripts", "dist", "docs", "examples", "bench"];

function copyTree(base, target) {
  mkdirSync(target, { recursive: true });
  for (const name of COPIED) {
    if (existsSync(join(base, name))) {
      cpSync(join(base, name), join(target, name), { recursive: true });
    }
  }
  const configs = ["package.json", "package-lock.json", "vitest.config.ts"];
  configs.push("tsconfig.json", "tsconfig.build.json", "tsconfig.core.json");
  configs.push("README.md", "PROTOCOL.md", "GUARANTEES.md", "CHANGELOG.md");
  for (const name of configs) {
    if (existsSync(join(base, name))) cpSync(join(base, name), join(target, name));
  }
  symlinkSync(join(base, "node_modules"), join(target, "node_modules"), "junction");
}

function escapeRegExp(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

/** A copy of the tree, and the vitest that stays up in it. */
class Tree {
  #runner;
  /** What was written since the last run: vitest has the old text. */
  #changed = new Set();

  constructor(base) {
    this.base = base;
  }

  write(file, text) {
    writeFileSync(join(this.base, file), text);
    this.#changed.add(file);
  }

  /** Runs tests by their title: their report, or a sentence that says why there is none. */
  async run(file, pattern, limitMs) {
    this.#runner ??= await startRunner(this.base);
    const changed = [...this.#changed];
    this.#changed.clear();
    const answer = await this.#runner.ask({ file, pattern, changed }, limitMs);
    // A broken runner must not serve the next test.
    if (answer.report === undefined) this.close();
    return answer;
  }

  close() {
    this.#runner?.kill();
    this.#runner = undefined;
  }
}

async function startRunner(base) {
  const child = spawn(process.execPath, [join(base, "scripts", "fault-runner.mjs")], {
    cwd: base,
    env: { ...process.env, HAPAX_PLANTED: "true", NODE_ENV: "test" },
    stdio: ["ignore", "pipe", "pipe", "ipc"],
    // Its own group: a worker in an endless loop outlives its parent otherwise.
    detached: process.platform !== "win32",
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (chunk) => (output += chunk));
  }
  const kill = () => {
    process.off("exit", kill);
    if (process.platform === "win32") child.kill("SIGKILL");
    else killGroup(child.pid);
  };
  process.on("exit", kill);
  const next = (limitMs) =>
    new Promise((resolve) => {
      const settle = (answer) => {
        clearTimeout(timer);
        child.off("message", settle);
        child.off("exit", ended);
        resolve({ ...answer, output });
        output = "";
      };
      const ended = () => settle({ problem: "vitest ended without a report" });
      const timer = setTimeout(
        () => settle({ problem: "the run hung past its limit; vitest reported no timeout" }),
        limitMs,
      );
      child.on("message", settle);
      child.on("exit", ended);
    });
  const { isReady, problem, output: said } = await next(RUN_LIMIT_MS);
  if (isReady !== true) throw new Failure(`vitest did not start: ${problem}\n${said}`);
  const ask = async (request, limitMs) => {
    const answer = next(limitMs);
    child.send(request);
    const { report, error, problem: why, output: printed } = await answer;
    return { report, problem: why ?? error, output: printed };
  };
  return { ask, kill };
}

/** Runs one test by its title: `passed`, `failed`, or a sentence that says why neither. */
async function runTest(tree, { file, test }) {
  // A title may be given with its suites, as vitest prints it; its filter joins them by a space.
  const pattern = `${escapeRegExp(test.replaceAll(" > ", " "))}$`;
  const limitMs = file.startsWith("test/heavy/") ? HEAVY_RUN_LIMIT_MS : RUN_LIMIT_MS;
  const startMs = performance.now();
  const { report, problem, output } = await tree.run(file, pattern, limitMs);
  const tookMs = performance.now() - startMs;
  const verdict = (state, detail) => ({ state, detail, tookMs, output });
  if (report === undefined) return verdict("broken", problem);
  const named = report.tests.filter(({ name, fullName }) => name === test || fullName === test);
  const ran = named.filter(({ state }) => state === "passed" || state === "failed");
  // Before the file's own failures: what makes a test hang may make the clean-up behind it hang too.
  const failed = ran.find(({ state }) => state === "failed");
  if (failed !== undefined) return verdict("failed", failed.messages[0]);
  const [broken] = report.broken;
  if (broken !== undefined) return verdict("broken", `the test file failed: ${broken.message}`);
  if (ran.length === 0) return verdict("broken", "no test with this title ran");
  if (report.unhandled.length > 0) return verdict("broken", `outside it: ${report.unhandled[0]}`);
  return verdict("passed");
}

/** Whether a test, or what it imports outside of src, starts programs of dist. */
function startsPrograms(base, file, seen = new Set()) {
  if (seen.has(file) || file.startsWith("src/") || !existsSync(join(base, file))) return false;
  seen.add(file);
  const text = readFileSync(join(base, file), "utf8");
  if (/\bdist\//.test(text)) return true;
  const imports = [...text.matchAll(/(?:\bfrom|\bimport\(|\bnew URL\()\s*"([^":]+\.\w+)"/g)];
  return imports.some(([, path]) => startsPrograms(base, posix.join(dirname(file), path), seen));
}

/** The fault has to be in what such a test starts. */
async function rebuild(base, { caughtBy }) {
  if (!startsPrograms(base, caughtBy.file)) return undefined;
  const args = ["-p", "tsconfig.build.json", "--noCheck"];
  const { code, output, tookMs } = await run(tool("tsc", base), args, { cwd: base });
  return code === 0 ? undefined : { state: "broken", detail: "it does not build", tookMs, output };
}

async function plant(tree, fault) {
  const sound = readFileSync(join(tree.base, fault.file), "utf8");
  try {
    tree.write(fault.file, planted(tree.base, fault));
    return (await rebuild(tree.base, fault)) ?? (await runTest(tree, fault.caughtBy));
  } finally {
    tree.write(fault.file, sound);
  }
}

function indent(text) {
  return text.trimEnd().replace(/^/gm, "        ");
}

/** Which tests passed in the run whose tally HAPAX_SOUND names, as file and title. */
function passedBefore(base) {
  const tally = process.env.HAPAX_SOUND;
  if (tally === undefined || !existsSync(tally)) return new Set();
  const passed = JSON.parse(readFileSync(tally, "utf8")).tests.filter(
    ({ state }) => state === "passed",
  );
  return new Set(
    passed.flatMap(({ file, name, fullName }) =>
      [name, fullName].map((title) => `${relative(base, file)}\n${title}`),
    ),
  );
}

/** Each test that catches something must pass on the sound tree: else its failure proves nothing. */
async function soundProblems(base, faults, withTree) {
  const sound = passedBefore(base);
  const distinct = new Map(
    faults
      .map(({ caughtBy }) => [`${caughtBy.file}\n${caughtBy.test}`, caughtBy])
      .filter(([key]) => !sound.has(key)),
  );
  console.log(`${distinct.size} tests to run without a fault first`);
  const problems = new Map();
  await inParallel([...distinct], COPIES, async ([key, caughtBy]) => {
    const verdict = await withTree((tree) => runTest(tree, caughtBy));
    if (verdict.state === "passed") return;
    problems.set(key, `without the fault: ${verdict.detail ?? "it fails"}`);
    console.log(
      `BROKEN  "${caughtBy.test}" does not pass without a fault: ${verdict.detail ?? ""}`,
    );
    console.log(indent(verdict.output));
  });
  return problems;
}

export async function testFaults(base = root, only = "") {
  const scratch = mkdtempSync(join(tmpdir(), "hapax-faults-"));
  const trees = Array.from(
    { length: COPIES },
    (_, index) => new Tree(join(scratch, `copy-${index}`)),
  );
  try {
    const all = await loadFaults(base, join(scratch, "list"));
    if (all.length === 0) throw new Failure("test/faults/faults.ts lists no fault");
    const faults = all.filter(({ name, guarantee }) => name.includes(only) || guarantee === only);
    if (only !== "" && faults.length === 0) throw new Failure(`no fault is named like "${only}"`);
    const free = [...trees];
    for (const tree of free) copyTree(base, tree.base);
    const withTree = async (work) => {
      const tree = free.pop();
      try {
        return await work(tree);
      } finally {
        free.push(tree);
      }
    };
    const entries = new Map(faults.map((fault) => [fault, entryProblem(base, fault)]));
    const runnable = faults.filter((fault) => entries.get(fault) === undefined);
    const unsound = await soundProblems(base, runnable, withTree);
    const caught = await inParallel(faults, COPIES, async (fault) => {
      const { file, test } = fault.caughtBy;
      const problem = entries.get(fault) ?? unsound.get(`${file}\n${test}`);
      for (let attempt = 1; ; attempt += 1) {
        const verdict =
          problem === undefined
            ? await withTree((tree) => plant(tree, fault))
            : { state: "broken", detail: problem, tookMs: 0, output: "" };
        const outcome = { failed: "caught", passed: "MISSED", broken: "BROKEN" }[verdict.state];
        console.log(`${outcome}  ${fault.name}  by "${test}" (${seconds(verdict.tookMs)})`);
        if (verdict.state === "failed") return attempt;
        if (verdict.state === "broken") console.log(indent(`${verdict.detail}\n${verdict.output}`));
        if (problem !== undefined || attempt === ATTEMPTS_MAX) return 0;
      }
    });
    const named = (attempts) =>
      faults.filter((_, at) => attempts(caught[at])).map(({ name }) => `"${name}"`);
    const late = named((attempt) => attempt > 1);
    const missed = named((attempt) => attempt === 0);
    const count = faults.length - missed.length;
    console.log(`planted faults: ${count} caught of ${faults.length}`);
    if (late.length > 0) console.log(`caught at a later attempt only: ${late.join(", ")}`);
    if (missed.length > 0) {
      throw new Failure(`a fault that no test catches is a gap: ${missed.join(", ")}`);
    }
  } finally {
    for (const tree of trees) tree.close();
    rmSync(scratch, { recursive: true, force: true });
  }
}

if (isMain(import.meta.url)) {
  // The copies run in process groups of their own: leaving by `exit` takes them along.
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));
  await main(async () => {
    await install();
    const at = process.argv.indexOf("--only");
    await testFaults(root, at < 0 ? "" : process.argv[at + 1]);
  });
}
