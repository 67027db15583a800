/**
 * `node scripts/size.mjs`: what `hapax/client` costs a web page that uses `connect` and `isHapaxError`, and what the
 * whole entry point costs. Tree-shaken, minified without comments, for es2022, and gzipped as well as it goes. Fails above the limits,
 * and if something of Node gets in.
 */

import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { rolldown } from "rolldown";
import { Failure, main } from "./prepare.mjs";
import { isMain, root } from "./run.mjs";

/** Bytes of a page that imports what a page needs. */
export const PAGE_BYTES_MAX = 13_480;
/** Bytes of the whole entry point, with all that a page may leave out: positions, visibility, `gzipTransport`, `typed`. */
export const CLIENT_BYTES_MAX = 15_900;

/** The bundle of a page that imports these names of `hapax/client`. */
export function bundlePage(names = ["connect", "isHapaxError"]) {
  const source = JSON.stringify(join(root, "src", "client", "client.ts"));
  const page = {
    name: "page",
    resolveId: (id) => (id === "page.js" ? id : undefined),
    load: (id) => (id === "page.js" ? `export { ${names.join(", ")} } from ${source};` : undefined),
  };
  return bundled("page.js", [page]);
}

/** The bundle of an entry point of `src`. */
export function bundle(entry) {
  return bundled(join(root, "src", entry), []);
}

async function bundled(input, plugins) {
  const build = await rolldown({
    input,
    plugins,
    platform: "browser",
    transform: { target: "es2022" },
    // What cannot be resolved in a browser stays as an import, and is found below.
    external: /^node:/,
  });
  const { output } = await build.generate({ format: "esm", minify: true, comments: false });
  await build.close();
  const [{ code, modules, imports }] = output;
  return {
    code,
    modules: Object.keys(modules).filter((path) => modules[path].renderedLength > 0),
    imports,
    bytes: gzipSync(code, { level: 9 }).length,
  };
}

if (isMain(import.meta.url)) {
  await main(async () => {
    const [page, whole] = [await bundlePage(), await bundle("client/client.ts")];
    console.log(`a page: ${page.bytes} bytes gzipped, ${page.code.length} minified`);
    console.log(`hapax/client: ${whole.bytes} bytes gzipped, ${whole.code.length} minified`);
    if (page.bytes > PAGE_BYTES_MAX) throw new Failure(`at most ${PAGE_BYTES_MAX} are allowed`);
    if (whole.bytes > CLIENT_BYTES_MAX)
      throw new Failure(`at most ${CLIENT_BYTES_MAX} are allowed`);
  });
}
