/** An earlier commit of this repository, built in a folder of its own, to be measured beside this tree. */

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build, Failure } from "../scripts/prepare.mjs";
import { root } from "../scripts/run.mjs";

function git(...args) {
  return execFileSync("git", ["-C", root, ...args], { maxBuffer: 512 * 1024 * 1024 });
}

export function resolveCommit(name) {
  try {
    return git("rev-parse", "--short", "--verify", "--end-of-options", `${name}^{commit}`)
      .toString()
      .trim();
  } catch {
    throw new Failure(`there is no commit ${name}`);
  }
}

/** The tree of the commit, built, with this tree's harness: only what is measured differs. */
export async function buildCommit(commit, folder) {
  const tree = join(folder, "tree");
  mkdirSync(tree);
  execFileSync("tar", ["-x", "-C", tree], { input: git("archive", "--format=tar", commit) });
  symlinkSync(join(root, "node_modules"), join(tree, "node_modules"), "junction");
  for (const name of ["server.mjs", "processes.mjs"]) {
    cpSync(join(root, "bench", name), join(tree, "bench", name));
  }
  await build(tree);
  return import(pathToFileURL(join(tree, "bench", "processes.mjs")).href);
}
