/**
 * Compiles each page of src/dashboard into one script and one style, and writes them as a module of the package. Nothing is fetched, at the build
 * or in the browser. `BUDGET` is what both may have together, gzipped.
 */

import { createHash } from "node:crypto";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { root } from "./run.mjs";

/** Bytes that a page may take, as a browser loads it. */
export const DASHBOARD_BYTES_MAX = 120 * 1024;

/** The pages, by the module of the package that has them. The console of a ledger is one of the same parts. */
const PAGES = [
  { entry: "main.tsx", module: ["streams", "dashboard-files.js"], name: "DASHBOARD_FILES" },
  {
    entry: join("console", "main.tsx"),
    module: ["toolkit", "console", "files.js"],
    name: "CONSOLE_FILES",
  },
];

/** The script and the style of a page, minified. */
export async function bundleDashboard(base = root, entry = "main.tsx") {
  const { build } = await import("esbuild");
  const { outputFiles } = await build({
    entryPoints: { app: join(base, "src", "dashboard", entry) },
    outdir: join(base, "unwritten"),
    write: false,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    jsx: "automatic",
    jsxImportSource: "preact",
    logLevel: "silent",
  });
  const textOf = (ending) =>
    outputFiles.find(({ path }) => path.endsWith(ending))?.text.trim() ?? "";
  const [script, style] = [textOf(".js"), textOf(".css")];
  const version = createHash("sha256")
    .update(script)
    .update(style)
    .digest("base64url")
    .slice(0, 16);
  const gzippedBytes = [script, style].reduce((sum, text) => sum + gzipSync(text).length, 0);
  return { script, style, version, gzippedBytes };
}

/** Writes the modules that the sources leave empty. An earlier commit, which benchmarks build, has fewer or none. */
export async function writeDashboard(base, dist) {
  for (const { entry, module, name } of PAGES) {
    const path = join(dist, ...module);
    if (!existsSync(path)) continue;
    const { script, style, version } = await bundleDashboard(base, entry);
    const files = JSON.stringify({ script, style, version }, undefined, 2);
    writeFileSync(path, `export const ${name} = ${files};\n`);
  }
}
