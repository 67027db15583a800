/** Bundles of the client for other runtimes, and the programs of those runtimes that are installed here. */

import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";
import type { TestContext } from "vitest";

/** A program and all it imports in one text. Throws if anything is left that it would have to import. */
export async function bundle(
  input: URL,
  format: { readonly format: "es" } | { readonly format: "iife"; readonly name: string },
): Promise<string> {
  const build = await rolldown({
    input: fileURLToPath(input),
    platform: "browser",
    logLevel: "silent",
  });
  try {
    const { output } = await build.generate({ ...format, codeSplitting: false });
    const [chunk] = output;
    // What is loaded later is in the same text, and then names itself.
    const left = [...chunk.imports, ...chunk.dynamicImports].filter(
      (name) => name !== chunk.fileName,
    );
    if (left.length > 0)
      throw new Error(`the bundle of ${input.pathname} needs ${left.join(", ")}`);
    return chunk.code;
  } finally {
    await build.close();
  }
}

/** Whether a program is there and runs. */
export function runs(program: string): boolean {
  return spawnSync(program, ["--version"], { stdio: "ignore", timeout: 20_000 }).status === 0;
}

/**
 * The program of a package that keeps one package for each platform, of which npm installs what fits. With install
 * scripts it is in the package itself, without them (npm 11) in that of the platform.
 */
export function programOf(manifest: string, own: string, ofPlatform: string): string | undefined {
  const folder = dirname(manifest);
  const { optionalDependencies = {} } = JSON.parse(readFileSync(manifest, "utf8")) as {
    readonly optionalDependencies?: Readonly<Record<string, string>>;
  };
  const extension = process.platform === "win32" ? ".exe" : "";
  const program = ofPlatform + extension;
  const names = Object.keys(optionalDependencies);
  const candidates = [join(folder, own), ...names.map((name) => join(folder, "..", name, program))];
  return candidates.find((path) => existsSync(path) && runs(path));
}

/** Fails where the part could be had (as root on a Linux of CI); elsewhere it is said that it is missing. */
export function requirePart<Part>(
  context: TestContext,
  part: Part | undefined,
  reason: string,
): Part {
  if (part !== undefined) return part;
  const couldBeHad = process.platform === "linux" && process.getuid?.() === 0;
  if (process.env["CI"] === "true" && couldBeHad) throw new Error(reason);
  console.warn(reason);
  return context.skip(reason);
}
