/**
 * Compiles src/dashboard into one script and one style, and writes them as a module of the package. Nothing is fetched, at the build
 * or in the browser. `BUDGET` is what both may have together, gzipped.
 */

import { createHash } from "node:crypto";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { root } from "./run.mjs";

/** Bytes that the dashboard may take, as a browser loads it. */
export const DASHBOARD_BYTES_MAX = 120 * 1024;

/** The script and the style, minified. */
export async function bundleDashboard(base = root) {
  const { build } = await import("esbuild");
  const { outputFiles } = await build({
    entryPoints: { app: join(base, "src", "dashboard", "main.tsx") },
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

/** Writes the module that the sources leave empty. An earlier commit, which benchmarks build, has none. */
export async function writeDashboard(base, dist) {
  const path = join(dist, "streams", "dashboard-files.js");
  if (!existsSync(path)) return;
  const { script, style, version } = await bundleDashboard(base);
  const files = JSON.stringify({ script, style, version }, undefined, 2);
  writeFileSync(path, `export const DASHBOARD_FILES = ${files};\n`);
}
