/**
 * What a fresh clone needs before anything runs: a Node that is new enough, the dependencies, a
 * build. Each step looks first whether it is needed, so that the second start costs nothing.
 */

import {
  chmodSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { writeDashboard } from "./dashboard.mjs";
import { root, run, tool } from "./run.mjs";

const NODE_MIN = [20, 19];

/** The problem with this Node version, if there is one. */
export function nodeProblem(version = process.versions.node) {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const isNewEnough = major > NODE_MIN[0] || (major === NODE_MIN[0] && minor >= NODE_MIN[1]);
  if (isNewEnough) return undefined;
  return `Hapax needs Node ${NODE_MIN.join(".")} or newer; this is Node ${version}.`;
}

function modifiedMs(path) {
  return existsSync(path) ? statSync(path).mtimeMs : -1;
}

function isInstalled(base) {
  const marker = modifiedMs(join(base, "node_modules", ".package-lock.json"));
  return marker >= 0 && marker >= modifiedMs(join(base, "package-lock.json"));
}

/**
 * Installs what the lock file names, quiet unless it fails. CI=true or NODE_ENV=production do not drop
 * the tools. Not `npm ci`: it refuses a lock file that was made on another platform and therefore lacks
 * this one's optional packages, while `install --no-save` fetches them and leaves the lock as it is.
 */
export async function install(base = root) {
  if (isInstalled(base)) return;
  console.log("installing…");
  const args = ["install", "--no-save", "--include=dev", "--no-audit", "--no-fund"];
  const npm = process.platform === "win32" ? "npm.cmd" : "npm";
  const { code, output } = await run(npm, args, { cwd: base });
  if (code !== 0) throw new Failure(`npm ${args.join(" ")} failed\n${output}`);
}

function newestMs(folder) {
  let newest = -1;
  for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
    // Directories count too: a deleted source changes only its directory.
    newest = Math.max(newest, modifiedMs(join(entry.parentPath ?? entry.path, entry.name)));
  }
  return newest;
}

function isBuilt(base) {
  const built = modifiedMs(join(base, "dist", "bin.js"));
  const sources = [newestMs(join(base, "src")), modifiedMs(join(base, "src"))];
  const configs = ["package.json", "tsconfig.json", "tsconfig.build.json"];
  sources.push(...configs.map((name) => modifiedMs(join(base, name))));
  return built >= 0 && built > Math.max(...sources);
}

/** Builds unless dist is newer than every source. */
export async function buildIfNeeded(base = root) {
  if (isBuilt(base)) return;
  console.log("building…");
  await build(base);
}

/** Builds beside dist and swaps at the end: a failed build leaves the old dist as it was. */
export async function build(base = root) {
  const fresh = join(base, `dist.${process.pid}.new`);
  const old = join(base, `dist.${process.pid}.old`);
  const dist = join(base, "dist");
  try {
    const args = ["-p", "tsconfig.build.json", "--outDir", fresh];
    const { code, output } = await run(tool("tsc", base), args, { cwd: base });
    if (code !== 0) throw new Failure(`the build failed\n${output}`);
    const bin = join(fresh, "bin.js");
    if (!existsSync(bin)) throw new Failure("the build failed\nno bin.js was written");
    chmodSync(bin, 0o755);
    dropHiddenTypes(base, fresh);
    await dropComments(fresh);
    await writeDashboard(base, fresh);
    // An earlier commit, which the benchmarks build to compare with, has no such command.
    if (existsSync(join(base, "src", "cli", "config.ts"))) {
      await writeSchema(bin, join(fresh, "config.schema.json"));
    }
    if (existsSync(dist)) renameSync(dist, old);
    try {
      renameSync(fresh, dist);
    } catch (error) {
      // Another build of the same sources finished in between: its dist is as good as ours.
      if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error;
    }
  } finally {
    rmSync(fresh, { recursive: true, force: true });
    rmSync(old, { recursive: true, force: true });
  }
}

/** Writes the schema of the configuration file, which the package exports for editors. */
async function writeSchema(bin, path) {
  const { code, output } = await run(process.execPath, [bin, "config", "schema"]);
  if (code !== 0) throw new Failure(`the build failed\n${output}`);
  writeFileSync(path, output);
}

/** Removes the declarations that no entry point of package.json leads to: a user cannot import them. */
function dropHiddenTypes(base, dist) {
  const { exports } = JSON.parse(readFileSync(join(base, "package.json"), "utf8"));
  const declarations = readdirSync(dist, { recursive: true }).filter((path) =>
    path.endsWith(".d.ts"),
  );
  const known = new Set(declarations.map((path) => join(dist, path)));
  const queue = Object.values(exports).flatMap(({ types = "" }) => {
    const [before, after] = join(dist, relative("dist", types)).split("*");
    return [...known].filter((path) =>
      after === undefined
        ? path === before
        : path.startsWith(before) &&
          path.endsWith(after) &&
          !path.slice(before.length, -after.length).includes(sep),
    );
  });
  const entries = new Set(queue);
  const reached = new Set(queue);
  for (const path of queue) {
    const text = readFileSync(path, "utf8");
    for (const [, specifier] of text.matchAll(/(?:\bfrom|\bimport|\bimport\()\s*"(\.[^"]+)"/g)) {
      const target = join(dirname(path), specifier).replace(/(\.js|\.ts)$/, ".d.ts");
      if (!known.has(target) || reached.has(target)) continue;
      reached.add(target);
      queue.push(target);
    }
  }
  for (const path of known) if (!reached.has(path)) rmSync(path);
  for (const path of reached) if (!entries.has(path)) dropHeader(path);
}

/** Removes what a file says about itself: no editor shows it, and of a hundred kilobytes thirty stay when they are packed. */
function dropHeader(path) {
  const text = readFileSync(path, "utf8");
  const end = text.startsWith("/**") ? text.indexOf("*/\n") + 3 : 0;
  // A comment that stands before a declaration belongs to it.
  if (end > 3 && /^(?:\n|import |export \*|export (?:type )?\{)/.test(text.slice(end)))
    writeFileSync(path, text.slice(end));
}

/**
 * Removes the comments of programs, a sixth of the package: editors show those of the declarations, which stay. So do the marks of
 * pure calls, which bundlers need.
 */
async function dropComments(dist) {
  const { transform } = await import("esbuild");
  const programs = readdirSync(dist, { recursive: true }).filter((path) => path.endsWith(".js"));
  for (const path of programs.map((name) => join(dist, name))) {
    const options = { target: "esnext", charset: "utf8", legalComments: "none" };
    const { code } = await transform(readFileSync(path, "utf8"), options);
    writeFileSync(path, code);
  }
}

/** A step that failed with a message for people: no stack trace. */
export class Failure extends Error {}

/** Runs a script's main function; a Failure ends it with its message alone. */
export async function main(work) {
  const problem = nodeProblem();
  if (problem !== undefined) {
    console.error(problem);
    process.exit(1);
  }
  try {
    await work();
  } catch (error) {
    console.error(error instanceof Failure ? error.message : error);
    process.exit(1);
  }
}
