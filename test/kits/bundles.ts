/** Every entry point of the package, bundled as a user would: tree-shaken, minified, by two bundlers. */

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";
import { rolldown } from "rolldown";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** A name of package.json's exports, and the source behind it. */
export interface EntryPoint {
  readonly name: string;
  /** From the root: `src/client/client.ts`. */
  readonly source: string;
}

type Platform = "browser" | "node";
type Bundler = (source: string, platform: Platform) => Promise<string>;

/** The bundlers by name. Each makes one module of a text that imports sources by their path from the root. */
export const BUNDLERS: Readonly<Record<"esbuild" | "rolldown", Bundler>> = {
  async esbuild(source, platform) {
    const { outputFiles } = await build({
      stdin: { contents: source, resolveDir: root, sourcefile: "entry.js" },
      bundle: true,
      write: false,
      format: "esm",
      minify: true,
      treeShaking: true,
      platform,
      target: "es2022",
      external: ["node:*"],
      logLevel: "error",
    });
    return outputFiles[0]?.text ?? "";
  },
  async rolldown(source, platform) {
    const made = await rolldown({
      input: "entry.js",
      plugins: [
        {
          name: "entry",
          resolveId: (id) => (id === "entry.js" ? id : undefined),
          // Absolute paths, so that rolldown finds them itself, and the `sideEffects` of package.json with them.
          load: (id) =>
            id === "entry.js" ? source.replaceAll('"./src/', `"${root}src/`) : undefined,
        },
      ],
      platform,
      transform: { target: "es2022" },
      external: /^node:/,
    });
    const { output } = await made.generate({
      format: "esm",
      minify: true,
      comments: false,
      codeSplitting: false,
    });
    await made.close();
    return output[0].code;
  },
};

/** What package.json exports, but for package.json itself; a pattern stands for all its files. */
export function entryPoints(): EntryPoint[] {
  // Cast: npm has written the file, and publint checks it.
  const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    readonly exports: Readonly<Record<string, string | { readonly default: string }>>;
  };
  return Object.entries(exports).flatMap(([name, target]) => {
    if (typeof target === "string") return [];
    const source = target.default.replace("./dist/", "src/").replace(/\.js$/, ".ts");
    return source.includes("*") ? filesOf(name, source) : [{ name, source }];
  });
}

function filesOf(name: string, pattern: string): EntryPoint[] {
  const folder = pattern.slice(0, pattern.indexOf("*"));
  return readdirSync(join(root, folder))
    .filter((file) => file.endsWith(".ts") && !file.endsWith(".test.ts"))
    .map((file) => ({
      name: name.replace("*", file.replace(/\.ts$/, "")),
      source: `${folder}${file}`,
    }));
}

/** Bundles texts, and loads what the bundler has made. `remove` deletes the files. */
export class Bundles {
  readonly #folder = mkdtempSync(join(tmpdir(), "hapax-bundles-"));
  #count = 0;

  /** For browsers, unless something of Node is needed. */
  async load(bundler: keyof typeof BUNDLERS, source: string): Promise<unknown> {
    const bundle = BUNDLERS[bundler];
    const light = await bundle(source, "browser");
    const code = /["'`]node:[a-z]/.test(light) ? await bundle(source, "node") : light;
    this.#count += 1;
    // A folder of its own: nothing of the repository can be found from there.
    const folder = join(this.#folder, String(this.#count));
    mkdirSync(folder);
    const path = join(folder, "bundle.mjs");
    writeFileSync(path, code);
    return import(/* @vite-ignore */ pathToFileURL(path).href);
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
