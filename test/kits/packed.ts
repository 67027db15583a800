/** The package as users install it: packed, and unpacked into the `node_modules` of another project. */

import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { root } from "./documents.ts";

/** Packs what `dist` has now. Takes seconds. */
export function installPacked(modules: string): void {
  const target = join(modules, "hapax");
  mkdirSync(target, { recursive: true });
  const packing = ["pack", "--json", "--ignore-scripts", "--pack-destination", modules];
  const output = execFileSync("npm", packing, { cwd: root, encoding: "utf8", stdio: "pipe" });
  const [{ filename }] = JSON.parse(output) as [{ readonly filename: string }];
  const tarball = join(modules, filename);
  execFileSync("tar", ["-xzf", tarball, "-C", target, "--strip-components=1"]);
  rmSync(tarball);
}
